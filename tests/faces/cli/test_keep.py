"""Stages that plans must keep are read from saved plans, written as JSON and read back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.inputs_json import STAGE_KEYS, decode_stages, encode_stages
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.saved_json import encode_saved, read_saved
from ilp_planner.formats.saved_start import with_kept_stages
from ilp_planner.inputs.constraints import constraints_of
from tests.faces.cli.conftest import Done
from tests.small import CLUSTER, MODEL

Command = Callable[..., Done]

SOLVE = ("solve", "tiny.toml", "--gpus", "16xA100-80GB", "--global-batch-size", "16")
MEGATRON = (*SOLVE, "--space", "megatron")


FOUND: dict[str, str] = {}  # the saved plan, for all tests


@pytest.fixture(autouse=True)
def plan(ilp_plan: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of two pipeline ranks, on node 0 and on node 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(MODEL)
    (tmp_path / "pair.toml").write_text(CLUSTER)
    file = tmp_path / "plan.json"
    if "plan" not in FOUND:
        words = "--pp 2 --rank-order tp-cp-ep-dp-pp --all-devices --output plan.json"
        done = ilp_plan(*MEGATRON, *words.split())
        assert done.code == 0, done.err
        FOUND["plan"] = file.read_text()
    file.write_text(FOUND["plan"])
    return file


def shown(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_plan_keeps_it_and_its_file_needs_no_other(ilp_plan: Command, plan: Path) -> None:
    again = shown(ilp_plan(*MEGATRON, "--keep", "plan.json:stage1", "--output", "k.json", "--json"))
    first, second = (read_saved(plan.parent / name).claim for name in ("plan.json", "k.json"))
    assert first is not None
    assert second is not None
    assert second.objective == pytest.approx(first.objective)
    assert ", keep plan.json:stage1, of the planner's settings" in again["among"]
    (kept,) = read_saved(plan.parent / "k.json").inputs.constraints.keep
    stage = read_saved(plan).plan.stages[1]
    assert kept.ranges == ((stage.start, stage.stop),)
    assert [d for replica in kept.devices for d in replica] == list(stage.devices)
    plan.unlink()
    judged = shown(ilp_plan("evaluate", "k.json", "--check-certificate", "--json"))
    assert judged["among"] == again["among"]


def test_a_table_of_constraints_and_other_options_go_with_it(ilp_plan: Command, plan: Path) -> None:
    (plan.parent / "mine.toml").write_text('[constraints]\nkeep = ["plan.json:stage1"]\n')
    words = ("--constraints", "mine.toml", "--layout", "1,1")
    found = shown(ilp_plan(*MEGATRON, *words, "--json"))
    assert ", layout 1,1, keep plan.json:stage1, of" in found["among"]
    done = ilp_plan(*MEGATRON, "--constraints", "mine.toml", "--without", "node1")
    assert done.code == 3
    assert done.err.startswith(
        "ilp-plan: --keep plan.json:stage1, --without node1: no plan of tiny on 8 devices has both"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--keep", "plan.json"], "--keep: found 'plan.json', expected a plan file and the number"),
        (["--keep", "no.json:stage0"], "no.json: no such file"),
        (["--keep", "tiny.toml:stage0"], "tiny.toml: found a model or a cluster in TOML, exp"),
        (["--keep", "plan.json:stage2"], "--keep: found stage2, expected stage0 to stage1, which"),
        (["--keep", "o.json:stage0"], "--keep: found o.json, a plan that is for no training sys"),
        (["--keep", "plan.json:stage0", "--gpus", "8xA100-80GB"],
         "--keep: found plan.json:stage0 of another cluster, 2 nodes of 8 x A100-80GB, expected "
         "a plan for 1 node of 8 x A100-80GB"),
        (["--keep", "plan.json:stage0", "--model", "gpt3-350m"],
         "--keep: found plan.json:stage0 of another model, tiny of 2 layers, expected a pl"),
        (["--keep", "plan.json:stage0", "--space", "groups"],
         "--keep plan.json:stage0: expected --runtime megatron, found groups"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_in_one_line(
    ilp_plan: Command, words: list[str], line: str
) -> None:
    if "o.json:stage0" in words:
        operators = ("--space", "operators", "--output", "o.json")
        assert ilp_plan("solve", "tiny.toml", "pair.toml", *operators).code == 0
    own = [*SOLVE] if "--space" in words else [*MEGATRON]
    for name, replaced in (("--gpus", own[2:4]), ("--model", own[1:2])):
        if name in words:
            own = [word for word in own if word not in replaced]
    done = ilp_plan(*own, *words)
    assert done.code in (1, 2)
    assert done.err.startswith(f"ilp-plan: {line}")
    assert done.err.count("\n") == 1


def test_json_has_all_that_was_read_and_damage_is_named(plan: Path) -> None:
    (stage,) = with_kept_stages(constraints_of({"keep": f"{plan}:stage0"})).keep
    (encoded,) = json.loads(json.dumps(encode_stages([stage])))
    (back,) = decode_stages(Fields({"keep": [encoded]}, file="x"), "keep")
    assert back == stage
    assert set(STAGE_KEYS) == set(encoded)
    for key in STAGE_KEYS:
        damaged = Fields({"keep": [{**encoded, key: []}]}, file="x")
        with pytest.raises(PlanError, match=rf"^x: keep\[0\].{key}: found "):
            list(decode_stages(damaged, "keep"))
    assert "keep" not in json.dumps(encode_saved(read_saved(plan))["inputs"])
