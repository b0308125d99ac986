"""AutoParallel's experiment: the mesh of a plan, and the meshes and steps that it does not take."""

import ast
import tomllib

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.autoparallel import export_autoparallel
from ilp_planner.formats.exports import Runtime, refusal_of
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.specs.training import Kernels, OptimizerSettings, TrainingJob
from tests.examples import for_each
from tests.formats.titan_cases import FULL
from tests.training_jobs import deepseek, job, llama
from tests.training_jobs import settings as usual

SHARDED = OptimizerSettings(sharding="parameters")
FACTS = {"pp": 1, "layout": None, "micro_batch": 32, "settings": usual(optimizer=SHARDED)}


def taken(**changes: object) -> TrainingJob:
    """Return a job of one step of the whole batch on a mesh of data and tensor parallel ranks."""
    return job(**{**FACTS, **changes})


def test_the_plan_s_mesh_is_kept_and_all_else_is_autoparallel_s() -> None:
    case = taken()
    files = export_autoparallel(case, "run").files
    found = tomllib.loads(files[".toml"])
    plain = tomllib.loads(export_torchtitan(case, "run").files[".toml"])
    assert found["parallelism"] == plain["parallelism"]
    assert found["training"] == plain["training"]
    assert found["parallelism"]["tensor_parallel_degree"] == case.tp
    assert found["parallelism"]["data_parallel_shard_degree"] == case.dp
    folder = "torchtitan.experiments.autoparallel"
    assert found["job"]["custom_config_module"] == f"{folder}.job_config"
    assert found["compile"] == {"enable": True}
    module = ast.parse(files["_model.py"])
    sources = {node.module: [one.name for one in node.names]
               for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}  # fmt: skip
    assert sources[f"{folder}.llama3"] == ["get_train_spec"]
    assert sources["torchtitan.models.llama3"] == ["TransformerModelArgs"]


def test_a_flavor_of_torchtitan_needs_no_module() -> None:
    own = llama(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    exported = export_autoparallel(taken(model=own), "run")
    model = tomllib.loads(exported.files[".toml"])["model"]
    if model["flavor"] == "8B":
        assert model["name"] == "autoparallel.llama3"
        assert list(exported.files) == [".toml"]
    else:
        assert "_model.py" in exported.files


@for_each(
    ("changes", "field"),
    [
        ({"pp": 4, "layout": job().layout}, "pp: found 4, but AutoParallel has no pipelines"),
        ({"settings": usual(cp=2, optimizer=SHARDED), "dp": 1}, "settings.cp: found 2"),
        ({"settings": usual(ep=2, optimizer=SHARDED), "model": deepseek()}, "settings.ep: found 2"),
        ({"settings": usual(sequence_parallel=False, optimizer=OptimizerSettings()), "tp": 1},
         "settings.optimizer: found 2 replicas"),
        ({"micro_batch": 2}, "micro_batches: found 16"),
        ({"settings": usual(optimizer=SHARDED, kernels=Kernels(quantised="fp8-current"))},
         "settings.kernels: found converters"),
        ({"settings": usual(optimizer=SHARDED, recompute=FULL)}, "settings.recompute: found full"),
    ],
)  # fmt: skip
def test_other_meshes_and_steps_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(PlanError) as refused:
        export_autoparallel(taken(**changes), "run")
    assert str(refused.value).startswith(field)
    assert "nearest it can run" in str(refused.value)
    assert refusal_of(Runtime("autoparallel", "0.2.2"), taken(**changes)) == str(refused.value)


def test_models_of_another_family_are_refused() -> None:
    with pytest.raises(PlanError, match="AutoParallel takes a mesh of llama3"):
        export_autoparallel(taken(model=deepseek()), "run")
