"""What is exported to torchtitan's TOML is read again as the same job, and judged as it runs it."""

import tomllib
from pathlib import Path

import pytest

from ilp_planner.analysis.analyze import analyze
from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import find_spec
from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.script import read_launch
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.schedule.schedules import SCHEDULES as ORDERS
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.spaces.runtimes.limits import TORCH_SCHEDULES
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import OPERATORS, OptimizerSettings, Recompute, TrainingJob
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


def piped(pp: int, schedule: str, **more: object) -> TrainingJob:
    """Return a job on 16 ranks with 16 micro-batches."""
    return job_of(
        "torchtitan",
        16,
        parallelism__pipeline_parallel_degree=pp,
        parallelism__pipeline_parallel_schedule=schedule,
        training__local_batch_size=16,
        **more,
    )


# Of llama3-8b's 32 layers, as `generate_llm_fqn_per_model_part` of torchtitan 0.2.2 divides them.
DIVIDED = {
    1: [32],
    2: [16, 16],
    4: [8, 9, 8, 7],
    8: [4, 5, 4, 4, 4, 4, 4, 3],
    16: [2, 3, *[2] * 13, 1],
}


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("schedule", TORCH_SCHEDULES)
def test_stages_are_those_that_torchtitan_makes(schedule: str, pp: int) -> None:
    """Two of each rank where the schedule has several; no schedule is anything beside one rank."""
    each = 1 if pp == 1 or schedule == "1f1b" else 2
    found = piped(pp, TORCH_SCHEDULES[schedule])
    assert (found.pp, found.virtual) == (pp, each)
    assert found.schedule.name == ("1f1b" if pp == 1 else schedule)
    assert [stage.layers for stage in found.stages] == DIVIDED[pp * each]
    row = ORDERS[found.schedule.name]
    assert row.virtual in (None, each)
    assert schedule_orders(found.schedule.name, pp, found.micro_batches, each)
    assert analyze(found)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule", TORCH_SCHEDULES)
@pytest.mark.parametrize("each", [1, 2, 3])
def test_stages_that_are_said_are_as_many_as_the_schedule_takes(
    schedule: str, pp: int, each: int
) -> None:
    layers = iter(range(32))
    whole = [[f"layers.{next(layers)}" for _ in range(2)] for _ in range(pp * each - 1)]
    parts = [["tok_embeddings", *whole[0]], *whole[1:]]
    parts.append([*(f"layers.{layer}" for layer in layers), "norm", "output"])
    fits = each == 1 if schedule == "1f1b" else each >= 2
    fits &= ORDERS[schedule].virtual != 2 or each == 2
    size = -(-34 // (pp * each))
    said = {"module_fqns_per_model_part": parts, "pipeline_parallel_layers_per_stage": size}
    for key, value in said.items():
        if value == size and -(-34 // size) != pp * each:
            continue  # no size makes so many stages
        if fits:
            found = piped(pp, TORCH_SCHEDULES[schedule], **{f"parallelism__{key}": value})
            assert len(found.stages) == pp * each
        else:
            with pytest.raises(SpecError, match=rf"{key}: found .*, expected \d stages?.* a rank"):
                piped(pp, TORCH_SCHEDULES[schedule], **{f"parallelism__{key}": value})


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (2, 1), (0, 3)])
def test_ends_are_as_many_layers_as_said(first: int, last: int) -> None:
    less = {"first": first, "last": last}
    keys = {f"parallelism__pipeline_parallel_{k}_stage_less_layers": n for k, n in less.items()}
    layers = [stage.layers for stage in piped(4, "1F1B", **keys).stages]
    assert sum(layers) == 32
    whole = [layers[0] + first, *layers[1:-1], layers[-1] + last]
    assert max(whole) - min(whole) <= 1
    assert sorted(whole, reverse=True) == whole


@pytest.mark.parametrize("local", [2, 3, 4, 8])
def test_too_few_micro_batches_for_a_schedule_are_refused(local: int) -> None:
    changed = {"training__local_batch_size": local, "parallelism__pipeline_parallel_degree": 2,
               "parallelism__pipeline_parallel_schedule": "DualPipeV"}  # fmt: skip
    if local >= 4:
        assert job_of("torchtitan", 16, **changed).schedule.name == "dualpipe-v"
        return
    with pytest.raises(SpecError, match=f"local_batch_size: found {local}, expected at least 4"):
        job_of("torchtitan", 16, **changed)


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
