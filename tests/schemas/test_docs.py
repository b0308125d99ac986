"""docs/reference/outputs.md runs as written, and names what there is."""

import json
import re
import shlex
from pathlib import Path

import pytest

from ilp_planner.faces.cli.main import run
from ilp_planner.faces.report.rates import WORTH
from ilp_planner.faces.schemas import schema
from tests.schemas.titles import FILES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "outputs.md").read_text()


def test_its_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.partition(" > ")[0].removeprefix("$ ilp-plan "))
        assert run(words) == 0
        assert capsys.readouterr().out


def test_its_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    assert set(json.loads(capsys.readouterr().out)) == set(throughput())


def throughput() -> dict[str, object]:
    """Return the keys of what plans do per second."""
    found: dict[str, object] = schema("solve")["$defs"]["throughput"]["properties"]
    return found


def test_it_names_every_file_and_every_number() -> None:
    words = set(re.findall(r"`([\w-]+)`", PAGE))
    assert {*FILES} <= words
    assert {*WORTH} - {"throughput"} <= words
    spelt = {name.removesuffix("_per_gpu") for name in throughput()} - {"gpus", "tflops"}
    assert spelt <= words
