"""`solve --reproducible`: the same bytes from every run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples import often
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]

REPOSITORY = Path(__file__).parents[3]
BATCH = ["--global-batch-size", "16"]
OPERATORS = ["--space", "operators", "--model", "tiny.toml", "--cluster", "pair.toml"]
OPERATORS += ["--memory-limit", "300MiB"]
MIXED = ["--hostfile", "hostfile", "--clusterfile", "clusterfile.json"]
MIXED += ["--profile", "metis:profile", *SIZE_OPTIONS]
MEGATRON = ["--runtime", "megatron", "--model", "tiny.toml", "--cluster", "pair.toml"]


REPRODUCIBLE = [*BATCH, "--workers", "2", "--reproducible", "--output", "plan.json"]


def solve_elsewhere(folder: Path, options: list[str]) -> None:
    """Solve in a process with a hash seed of its own."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    subprocess.run(
        [sys.executable, "-m", "ilp_planner", "solve", *options, *REPRODUCIBLE],
        capture_output=True, cwd=folder, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", often([OPERATORS, MIXED, MEGATRON], MIXED))
def test_two_runs_save_the_same_bytes(ilp_plan: Command, folder: Path, options: list[str]) -> None:
    """In this process and in another one, whose sets and dictionaries have another order."""
    write_room(folder)
    assert ilp_plan("solve", *options, *REPRODUCIBLE).code == 0
    first = (folder / "plan.json").read_bytes()
    solve_elsewhere(folder, options)
    assert first == (folder / "plan.json").read_bytes()
    assert json.loads(first)["result"]["stopped_by"] == "proof"
    assert "run" not in json.loads(first)


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [OPERATORS, MIXED], ids=["operators", "mixed"])
def test_a_slow_machine_saves_the_same_bytes(
    ilp_plan: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Its clock runs a thousand times as fast, so nothing gets far in a moment."""
    write_room(folder)
    limit = ["--time-limit", "1e9"]
    assert ilp_plan("solve", *options, *REPRODUCIBLE, *limit).code == 0
    first = (folder / "plan.json").read_bytes()
    clock, start = time.monotonic, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + 1000 * (clock() - start))
    assert ilp_plan("solve", *options, *REPRODUCIBLE, *limit).code == 0
    assert first == (folder / "plan.json").read_bytes()


def test_otherwise_times_and_versions_are_at_the_end(ilp_plan: Command, tiny: list[str]) -> None:
    assert ilp_plan("solve", *tiny, "--output", "plan.json").code == 0
    value = json.loads(Path("plan.json").read_text())
    assert list(value)[-1] == "run"
    assert value["run"]["wall_s"] > 0
    assert value["run"]["versions"]["python"]
    assert ilp_plan("evaluate", "plan.json", "--check-certificate").code == 0


@pytest.mark.parametrize("options", [MIXED, MEGATRON], ids=["mixed", "mcore"])
def test_a_certificate_of_other_parts_is_remarked_on(
    ilp_plan: Command, folder: Path, options: list[str]
) -> None:
    write_room(folder)
    assert ilp_plan("solve", *options, *BATCH, "--output", "plan.json").code == 0
    assert ilp_plan("evaluate", "plan.json").code == 0
    whole = json.loads(Path("plan.json").read_text())
    part = whole["certificate"]["parts"][0]
    for parts, words in (
        ([*whole["certificate"]["parts"], part], f"found part {part['part']} 2 times"),
        ([*whole["certificate"]["parts"], {**part, "part": "B 77"}], "found part B 77, expected"),
        (whole["certificate"]["parts"][1:], f"found no part {part['part']}, expected"),
    ):
        whole["certificate"] = {**whole["certificate"], "parts": parts}
        Path("bad.json").write_text(json.dumps(whole))
        whole = json.loads(Path("plan.json").read_text())
        done = ilp_plan("evaluate", "bad.json")
        assert done.code == 1
        assert f"bad.json: certificate.parts: {words}" in done.err
        assert done.err.count("\n") == 1


def test_an_unknown_space_lists_those_known(ilp_plan: Command, folder: Path) -> None:
    write_room(folder)
    assert ilp_plan("solve", *MIXED, *BATCH, "--output", "plan.json").code == 0
    value = json.loads(Path("plan.json").read_text())
    value["inputs"]["space"] = "nowhere"
    Path("plan.json").write_text(json.dumps(value))
    done = ilp_plan("evaluate", "plan.json")
    assert done.code == 1
    assert "plan.json: inputs.space: found 'nowhere', expected one of operators, groups, " in (
        done.err
    )
