"""Aceso's plans: written back they are the same; what is wrong with one is said in a line."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.peers.aceso.formats import read_aceso, save_aceso, write_aceso
from ilp_planner.plan import Plan
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from tests.examples import for_each
from tests.small import ACESO, make_plan, make_problem, write_specs

MODELS = Path(__file__).parents[3] / "models"
PLANS = sorted((ACESO / "plans").glob("*.json"))
# What some of those who wrote the plans left out, or wrong: nothing that the decision rests on.
LEFT_OUT = {
    "seq_length", "max_position_embeddings", "num_attention_heads", "hidden_size",
    "encoder_seq_length", "decoder_seq_length", "kv_channels", "ffn_hidden_size", "in_channels",
    "width_factor",
}  # fmt: skip


def model_of(data: dict[str, Any]) -> ModelSpec:
    """Return the model of the repository that a plan of Aceso's is for."""
    key = f"{data['model_name']}_{data['model_size']}"
    for path in sorted(MODELS.glob("*.toml")):
        model = read_model(path)
        layers = getattr(model.architecture, "layers", data["num_layers"])
        if model.profile.get("aceso") == key and layers == data["num_layers"]:
            return model
    raise AssertionError(f"no model file for {key}")


@pytest.mark.slow
@for_each("path", PLANS)
def test_a_real_plan_is_written_back_as_it_was(path: Path) -> None:
    data = json.loads(path.read_text())
    model = model_of(data)
    back = write_aceso(read_aceso(path, model), model)
    for key in LEFT_OUT - data.keys():
        back.pop(key, None)
    if data["num_layers"] == 0:  # dp_resnet_*: neither layers nor resharding are filled in
        del back["num_layers"], data["num_layers"]
        del back["resharding_stages"], data["resharding_stages"]
    assert back == data
    assert list(back) == list(data)
    assert json.dumps(back) == json.dumps(data)  # 0 is not false, 1 is not true


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    return read_model(write_specs(tmp_path)[0])


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(make_problem(tmp_path), cuts=(10, 15))


@pytest.fixture
def data(plan: Plan, model: ModelSpec) -> dict[str, Any]:
    return write_aceso(plan, model)


def write(tmp_path: Path, data: dict[str, Any]) -> Path:
    path = tmp_path / "aceso.json"
    path.write_text(json.dumps(data))
    return path


def test_saved_file_reads_back(tmp_path: Path, plan: Plan, model: ModelSpec) -> None:
    path = tmp_path / "aceso.json"
    save_aceso(path, plan, model)
    assert read_aceso(path, model) == plan


def test_dialect_of_hetaceso(
    tmp_path: Path, plan: Plan, model: ModelSpec, data: dict[str, Any]
) -> None:
    data["tensor_parallel_size_of_each_op"] = data.pop("model_parallel_size_of_each_op")
    data["flex_recompute_activations"] = data.pop("checkpoint_activations")
    data["recompute_ops"] = [[bool(flag) for flag in flags] for flags in data["recompute_ops"]]
    for key in ("model_name", "model_size", "global_batch_size"):
        del data[key]
    assert read_aceso(write(tmp_path, data), model, global_batch=plan.global_batch) == plan


def test_settings_of_the_model_file_win(plan: Plan, model: ModelSpec) -> None:
    other = ModelSpec(
        name=model.name,
        precision=model.precision,
        architecture=model.architecture,
        export={"aceso": {"model_size": "own", "extra": 1}},
    )
    written = write_aceso(plan, other)
    assert (written["model_size"], written["extra"]) == ("own", 1)


def test_a_plan_for_another_model_is_not_written(tmp_path: Path, plan: Plan) -> None:
    other = read_model(MODELS / "gpt3-1.3b.toml")
    with pytest.raises(PlanError, match=r"found 'tiny' with 29 operators, expected 'gpt3-1.3b'"):
        write_aceso(plan, other)


def test_stages_out_of_order_are_not_written(plan: Plan, model: ModelSpec) -> None:
    for stages in (plan.stages[1:], plan.stages[::-1], (*plan.stages[:1], *plan.stages[2:])):
        with pytest.raises(PlanError, match=r"plan\.stages\[.\]: found operator"):
            write_aceso(dataclasses.replace(plan, stages=stages), model)


def test_a_plan_for_another_model_names_both(tmp_path: Path, data: dict[str, Any]) -> None:
    other = read_model(MODELS / "gpt3-1.3b.toml")
    with pytest.raises(PlanError) as caught:
        read_aceso(write(tmp_path, data), other)
    assert "tiny" in str(caught.value)
    assert "gpt3-1.3b" in str(caught.value)


def first(data: dict[str, Any], key: str) -> list[Any]:
    values: list[Any] = data[key][0]
    return values


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("num_stages"), "num_stages: found nothing, expected a whole number"),
    (lambda d: d.update(num_stages=0), "num_stages: found 0, expected a whole number"),
    (lambda d: d.update(num_gpus=[1, 1]), "num_gpus: found a list of 2, expected a list of 3"),
    (lambda d: d.update(num_gpus=[1, 0, 1]), r"num_gpus\[1\]: found 0, expected a whole number"),
    (lambda d: d.update(num_ops_in_each_stage=[10, 5, 13]),
     "num_ops_in_each_stage: found 28 operators, expected the 29 of tiny"),
    (lambda d: d.update(num_ops_in_each_stage=[9, 6, 14]),
     r"model_parallel_size_of_each_op\[0\]: found a list of 10, expected a list of 9"),
    (lambda d: d.pop("recompute_ops"), "recompute_ops: found nothing, expected a list"),
    (lambda d: d.update(recompute_ops=[[0]]), "recompute_ops: found a list of 1, expected a list"),
    (lambda d: d.update(recompute_ops=[1, 2, 3]), r"recompute_ops\[0\]: found 1, expected a list"),
    (lambda d: first(d, "recompute_ops").__setitem__(4, 2),
     r"recompute_ops\[0\]\[4\]: found 2, expected a whole number from 0 to 1"),
    (lambda d: first(d, "model_parallel_size_of_each_op").__setitem__(2, "1"),
     r"model_parallel_size_of_each_op\[0\]\[2\]: found '1', expected a whole number"),
    (lambda d: first(d, "data_parallel_size_of_each_op").__setitem__(2, 2),
     r"size_of_each_op\[0\]\[2\]: found 1 with data_parallel_size 2, expected a product of"),
    (lambda d: d.update(micro_batch_size=2.0), "micro_batch_size: found 2.0, expected a whole"),
    (lambda d: d.update(global_batch_size="64"), "global_batch_size: found '64', expected a whole"),
    (lambda d: d.update(num_layers=3), "num_layers: found 3, in a plan for gpt tiny, expected 2"),
    (lambda d: d.update(model_size="big"), "model_size: found 'big', in a plan for gpt big"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), BAD, ids=[message for _, message in BAD])
def test_refuses_in_one_line(
    tmp_path: Path,
    data: dict[str, Any],
    model: ModelSpec,
    damage: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    damage(data)
    path = write(tmp_path, data)
    with pytest.raises(PlanError, match=message) as caught:
        read_aceso(path, model)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_another_global_batch_than_asked_for(
    tmp_path: Path, data: dict[str, Any], model: ModelSpec
) -> None:
    with pytest.raises(PlanError, match="global_batch_size: found 64, expected 128, as asked for"):
        read_aceso(write(tmp_path, data), model, global_batch=128)
