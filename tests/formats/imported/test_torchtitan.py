"""What is exported to torchtitan's TOML is read again as the same job, and judged as it runs it."""

import tomllib
from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import find_spec
from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.script import read_launch
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import OPERATORS, OptimizerSettings, Recompute
from tests.imported_cases import job_of
from tests.training_jobs import job
from tests.training_jobs import settings as usual

ROW = next(row for row in IMPORTS if row.name == "torchtitan")
MODEL = read_model(find_spec("llama3-8b", "models")).architecture
SETTINGS = {
    "parameters": usual(optimizer=OptimizerSettings(sharding="parameters")),
    "gradients": usual(optimizer=OptimizerSettings(sharding="gradients")),
    "copies": usual(optimizer=OptimizerSettings(sharding="parameters", instances=2)),
    "full": usual(recompute=Recompute(granularity="full", method="uniform", layers=1)),
    "operators": usual(recompute=Recompute(granularity="selective", modules=(OPERATORS,))),
    "context": usual(cp=2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_exported_is_read_again(name: str) -> None:
    settings = SETTINGS[name]
    exported = job(MODEL, tp=2, pp=1, dp=4, layout=None, settings=settings)
    text = export_torchtitan(exported, "a").files[".toml"]
    pairs = tuple(flat(tomllib.loads(text)))
    again = job_of_arguments(read(Recognised(ROW, pairs, "a.toml"), exported.world))
    assert (again.tp, again.pp, again.dp) == (exported.tp, 1, exported.dp)
    assert (again.micro_batch, again.global_batch) == (exported.micro_batch, exported.global_batch)
    assert again.model.layers == exported.model.layers
    assert again.settings.recompute == settings.recompute
    assert again.settings.cp == settings.cp
    sharding = {"optimizer": "gradients"}.get(settings.optimizer.sharding)
    assert again.settings.optimizer.sharding == (sharding or settings.optimizer.sharding)
    assert again.settings.optimizer.instances == settings.optimizer.instances


def test_its_usual_behaviour() -> None:
    found = job_of("torchtitan")
    assert found.settings.recompute.modules == (OPERATORS,)
    assert found.settings.optimizer.sharding == "parameters"
    low = job_of("torchtitan", model__converters=["quantize.linear.float8"])
    assert low.settings.kernels.quantised == "fp8-current"
    assert (found.dp, found.micro_batch, found.global_batch) == (4, 2, 8)
    piped = job_of(
        "torchtitan",
        16,
        parallelism__pipeline_parallel_degree=4,
        parallelism__pipeline_parallel_schedule="Interleaved1F1B",
        training__local_batch_size=8,
    )
    assert (piped.pp, piped.dp, piped.micro_batch, piped.micro_batches) == (4, 2, 1, 8)
    assert piped.settings.optimizer.sharding == "gradients"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"activation_checkpoint__selective_ac_option": "2"}, "selective_ac_option: found '2'"),
        ({"parallelism__context_parallel_degree": "x"}, "context_parallel_degree: found 'x'"),
        ({"model__flavor": "9B"}, "model.flavor: found 'llama3-9b', a model that is not here"),
        ({"compile__enable": 3}, "compile.enable: found 3, expected one of"),
    ],
)
def test_what_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=r"^run\.yaml: ") as error:
        job_of("torchtitan", **changed)
    assert said in str(error.value)


def test_a_file_is_recognised(tmp_path: Path) -> None:
    exported = job(MODEL, tp=2, pp=1, layout=None, settings=SETTINGS["full"])
    (tmp_path / "a.toml").write_text(export_torchtitan(exported, "a").files[".toml"])
    args = read_launch(str(tmp_path / "a.toml"), exported.world)
    assert args.runtime == "torchtitan@0.2.2"
    assert job_of_arguments(args).world == exported.world
