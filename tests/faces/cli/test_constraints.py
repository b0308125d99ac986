"""Constraints as options and in a file: kept, saved, judged again, and refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.inputs.files import find_cluster
from tests.faces.cli.conftest import Done
from tests.small import CLUSTER, MODEL

Command = Callable[..., Done]

SOLVE = ("solve", "tiny.toml", "--gpus", "16xA100-80GB", "--space", "megatron")
BATCH = ("--global-batch-size", "16")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(MODEL)
    (tmp_path / "pair.toml").write_text(CLUSTER)
    return tmp_path


def test_a_plan_keeps_them_and_so_does_its_file(ilp_plan: Command, files: Path) -> None:
    words = ["--tp", "2,4", "--pp", "2..4", "--rank-order", "tp-cp-ep-dp-pp", "--without", "node0"]
    words += ["--recompute", "none,selective", "--headroom", "2GiB"]
    done = ilp_plan(*SOLVE, *BATCH, *words, "--output", "plan.json", "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert "tp 2 or 4, pp 2..4, rank order tp-cp-ep-dp-pp, recompute none or sel" in shown["among"]
    whole = find_cluster("16xA100-80GB").device_types["A100-80GB"].memory
    assert shown["memory_limit_bytes"] == {"A100-80GB": whole - 2 * 2**30}
    assert "headroom: 2 GiB of every device stay free" in shown["notes"]
    assert "nodes: 1 of 2 are used, numbered 0 to 0 here" in shown["notes"]
    assert 2 <= len(shown["stages"]) <= 4
    saved = json.loads((files / "plan.json").read_text())
    assert saved["inputs"]["constraints"] == {
        "tp": "2,4",
        "pp": "2..4",
        "rank_order": "tp-cp-ep-dp-pp",
        "recompute": "none,selective",
        "without": "node0",
        "headroom": "2 GiB",
    }
    again = ilp_plan("evaluate", "plan.json", "--check-certificate", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["among"] == shown["among"]
    (files / "plan.json").write_text(json.dumps(saved).replace('"tp": "2,4"', '"tp": "two"'))
    wrong = ilp_plan("evaluate", "plan.json")
    assert wrong.err.startswith(
        "ilp-plan: plan.json: inputs.constraints.tp: found 'two', expected a whole number"
    )


def test_a_file_says_the_same_and_options_go_before_it(ilp_plan: Command, files: Path) -> None:
    (files / "mine.toml").write_text("[constraints]\ntp = [1, 2]\npp = 2\nmax_devices = 8\n")
    done = ilp_plan(*SOLVE, *BATCH, "--constraints", "mine.toml", "--pp", "4", "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert "tp 1 or 2, pp 4, of the planner's settings" in shown["among"]
    assert "nodes: 0 of 2 are used" in shown["notes"]


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--tp", "0"], 2, "--tp: found '0', expected a whole number of at least 1, a list as 2,4"),
        (["--recompute", "al"], 2, "--recompute: found 'al', expected some of none, selective"),
        (["--without", "x"], 2,
         "--without: found 'x', expected a node of 16xA100-80GB: node0 to n"),
        (["--headroom", "2"], 2, "--headroom: must have a unit"),
        (["--headroom", "90GB"], 2, "--headroom: found 90 GB, expected less than the 79.10"),
        (["--max-devices", "4"], 2, "--max-devices: found 4, expected at least 8, the devices of"),
        (["--tp", "16", "--pp", "2"], 3,
         "--tp 16: no plan of tiny on 16 devices has it; --tp 4 wo"),
        (["--layout", "1,1", "--pp", "4"], 3,
         "--pp 4, --layout 1,1: no plan of tiny on 16 devices has both; --pp 2 wo"),
        (["--layout", "1,1,1"], 2, "--layout: found 3 layers, expected the 2 of tiny; --layout "),
        (["--constraints", "no.toml"], 1, "no.toml: no such file"),
        (["--space", "groups", "--tp", "2"], 2, "--space: found groups with --runtime"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(
    ilp_plan: Command, words: list[str], code: int, line: str
) -> None:
    done = ilp_plan(*SOLVE[:-2], "--runtime", "megatron", *BATCH, *words)
    assert done.code == code
    assert done.err.startswith(f"ilp-plan: {line}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("space", "words", "line"),
    [
        ("groups", ["--tp", "2"], "--tp 2: expected --runtime megatron, found groups, which has -"),
        (
            "operators",
            ["--pp", "2"],
            "--pp 2: expected --runtime megatron, found operators, which ",
        ),
        ("operators", ["--tp", "2"], "--tp 2: expected --runtime megatron, found operators\n"),
    ],
)
def test_other_spaces_say_what_they_have(
    ilp_plan: Command, space: str, words: list[str], line: str
) -> None:
    done = ilp_plan("solve", "tiny.toml", "pair.toml", "--space", space, *words)
    assert done.code == 2
    assert done.err.startswith(f"ilp-plan: {line}")
