"""`ilp-plan solve --start`: what is taken of a saved plan, what is said of it, and bad files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples import thinned
from tests.faces.cli.conftest import Done
from tests.small import MODEL

Command = Callable[..., Done]

SOLVE = ("solve", "tiny.toml", "--gpus", "16xA100-80GB", "--runtime", "megatron", "--json")
BATCH = ("--global-batch-size", "16")
CHECK = ("evaluate", "again.json", "--check-certificate", "--json")


@pytest.fixture(scope="module")
def solved() -> dict[str, str]:
    """What the saved plan of the small model holds, once a test has solved it."""
    return {}


@pytest.fixture
def file(ilp_plan: Command, folder: Path, solved: dict[str, str]) -> Path:
    """A saved plan of the small model."""
    (folder / "tiny.toml").write_text(MODEL)
    saved = folder / "plan.json"
    if not solved:
        done = ilp_plan(*SOLVE, *BATCH, "--output", "plan.json")
        assert done.code == 0, done.err
        solved["text"] = saved.read_text()
    saved.write_text(solved["text"])
    return saved


def started(ilp_plan: Command, *more: str, batch: tuple[str, ...] = BATCH) -> dict[str, Any]:
    """Return what a solve from the saved plan says: its note under `note`."""
    done = ilp_plan(*SOLVE, *batch, *more, "--start", "plan.json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    (found["note"],) = [note for note in found["notes"] if note.startswith("start: ")]
    return found


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a file says."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def raise_all(value: dict[str, Any]) -> None:
    """Raise all bounds of a file above what is true."""
    for part in value["certificate"]["parts"]:
        part["bound_s"] = part["bound_s"] and 2 * part["bound_s"]


def raise_one(value: dict[str, Any]) -> None:
    """Raise the bound of a part that is a little above the plan."""
    least = 1.01 * value["result"]["objective_s"]
    parts = value["certificate"]["parts"]
    part = min((p for p in parts if (p["bound_s"] or 0) > least), key=lambda p: p["bound_s"])
    part["bound_s"] *= 2


def test_the_same_again_has_plan_and_bounds(ilp_plan: Command, file: Path) -> None:
    saved = json.loads(file.read_text())
    found = started(ilp_plan, "--time-limit", "50", "--output", "again.json")
    assert found["objective_s"] == saved["result"]["objective_s"]
    count = len(saved["certificate"]["parts"])
    assert f"the plan of plan.json, {1e3 * found['objective_s']:.4g} ms" in found["note"]
    assert f"bounds of {count} of {count} parts are that file's, not derived" in found["note"]
    again = json.loads((file.parent / "again.json").read_text())
    assert again["certificate"] == saved["certificate"]
    assert ilp_plan(*CHECK).code == 0


CHANGES = [
    (("--tp", "2"), "a plan like that of plan.json", "parts are that file's"),
    (("--headroom", "1GiB"), "the plan of plan.json", "parts are that file's"),
    (("--recompute", "none"), "", "parts are that file's"),
    (("--without", "1"), "a plan like that", "without: none there, 1 here"),
    (("--micro-batch-size", "4", "8"), "", "parts are that file's"),
    (("--fused-loss", "none"), "a plan like that", "none is of a part that is here"),
    (("--recompute", "block"), "", "recompute: any there, block here"),
    (("--recompute", "mlp,core_attn"), "", "recompute: any there, core_attn,mlp here"),
    (("--layout", "even"), "", "layout: any there, even here"),
    (("--max-devices", "8"), "a plan like that", "max devices: none there, 8 here"),
    (("--precision", "fp16"), "", "precision: none there, fp16 here"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("words", "plan", "bounds"), [*thinned(CHANGES, 4)])
def test_what_has_changed_decides_what_is_taken(
    ilp_plan: Command, file: Path, words: tuple[str, ...], plan: str, bounds: str
) -> None:
    found = started(ilp_plan, *words)
    assert plan in found["note"]
    assert bounds in found["note"]
    cold = json.loads(ilp_plan(*SOLVE, *BATCH, *words).out)
    assert found["objective_s"] == pytest.approx(cold["objective_s"], rel=1e-9)
    assert found["gap"] == pytest.approx(cold["gap"], abs=1e-9)


def test_another_batch_has_a_plan_like_it(ilp_plan: Command, file: Path) -> None:
    note = started(ilp_plan, batch=("--global-batch-size", "32"))["note"]
    assert "a plan like that of plan.json" in note
    assert "global batch: found 16 samples, expected 32" in note
    assert "none of its bounds: global batch: 16 there, 32 here" in note


def test_more_memory_takes_no_bounds(ilp_plan: Command, folder: Path) -> None:
    (folder / "tiny.toml").write_text(MODEL)
    words = ("--memory-limit", "20GiB", "--output", "plan.json")
    assert ilp_plan(*SOLVE, *BATCH, *words).code == 0
    assert "none of its bounds: memory: 20.00 GiB of" in started(ilp_plan)["note"]


def test_a_changed_model_takes_no_bounds(ilp_plan: Command, file: Path) -> None:
    (file.parent / "tiny.toml").write_text(MODEL.replace("vocab = 1024", "vocab = 2048"))
    assert "model: tiny.toml there, tiny.toml with other content here" in started(ilp_plan)["note"]


@pytest.mark.usefixtures("file")
def test_another_runtime_starts_cold(ilp_plan: Command) -> None:
    solve = (*SOLVE[:4], *BATCH, "--runtime", "deepspeed", "--json")
    done = ilp_plan(*solve, "--start", "plan.json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert "start: nothing of plan.json: space megatron there, deepspeed here" in found["notes"]
    assert found["objective_s"] == json.loads(ilp_plan(*solve).out)["objective_s"]


def test_another_model_starts_cold(ilp_plan: Command, file: Path) -> None:
    (file.parent / "tiny.toml").write_text(MODEL.replace('name = "tiny"', 'name = "other"'))
    note = started(ilp_plan)["note"]
    assert note == "start: nothing of plan.json: model tiny there, other here"


def test_bounds_of_another_version_are_not_taken(ilp_plan: Command, file: Path) -> None:
    edit(file, lambda value: value["run"]["versions"].update({"ilp-planner": "0.0.1"}))
    note = started(ilp_plan)["note"]
    assert "the plan of plan.json" in note
    assert "none of its bounds: ilp-planner 0.0.1 there, " in note
    edit(file, lambda value: value.pop("run"))
    assert "it does not say which ilp-planner proved any" in started(ilp_plan)["note"]


def test_bounds_of_other_costs_are_not_taken(ilp_plan: Command, file: Path) -> None:
    """As where a file was written by another program of the same version."""
    edit(file, lambda value: value["result"].update(objective_s=9.0))
    assert "none of its bounds: its plan takes 0." in started(ilp_plan)["note"]


def test_bounds_above_their_own_plan_are_refused(ilp_plan: Command, file: Path) -> None:
    edit(file, raise_all)
    done = ilp_plan(*SOLVE, *BATCH, "--start", "plan.json")
    assert done.code == 1
    assert done.err.startswith("ilp-plan: plan.json: certificate: found bounds of ")
    assert done.err.count("\n") == 1


def test_a_bound_that_is_not_true_is_found_out(ilp_plan: Command, file: Path) -> None:
    """Only by deriving it again: nothing in the file contradicts it."""
    edit(file, raise_one)
    started(ilp_plan, "--output", "again.json")
    done = ilp_plan(*CHECK)
    assert done.code == 1
    assert "does not hold" in done.err


@pytest.mark.parametrize(
    ("text", "message"), [("{}", "schema"), ("not json", "not valid JSON"), (None, "plan.json")]
)
def test_a_file_that_is_no_plan_is_one_line(
    ilp_plan: Command, folder: Path, text: str | None, message: str
) -> None:
    (folder / "tiny.toml").write_text(MODEL)
    if text is not None:
        (folder / "plan.json").write_text(text)
    done = ilp_plan(*SOLVE, *BATCH, "--start", "plan.json")
    assert done.code == 1
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_broken_certificate_is_one_line(ilp_plan: Command, file: Path) -> None:
    edit(file, lambda value: value["certificate"]["parts"][0].pop("bound_s"))
    done = ilp_plan(*SOLVE, *BATCH, "--start", "plan.json")
    assert done.code == 1
    assert done.err == "ilp-plan: plan.json: certificate: malformed, KeyError: 'bound_s'\n"
