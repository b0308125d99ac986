"""Exported files in DeepSpeed's own hands: its configuration reader, its pipeline module."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.formats.exported import file_name
from ilp_planner.spaces.runtimes.deepspeed import VERSION
from ilp_planner.specs.pipeline_layout import read_layout
from ilp_planner.specs.training import OptimizerSettings, Recompute, TrainingJob
from tests.examples import examples
from tests.runtime_cases import problems, solved_job
from tests.training_jobs import deepseek, gpt, job, jobs, llama
from tests.training_jobs import settings as usual

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ilp_planner.inputs.problem import Problem

os.environ.setdefault("DS_ACCELERATOR", "cpu")
torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
deepspeed = pytest.importorskip("deepspeed", reason="needs the extra 'runtimes': deepspeed")

from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

# it compiles an operator that nothing here uses; the attribute `deepspeed.comm.torch` is torch
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
pytestmark = pytest.mark.filterwarnings("ignore")
WHOLE = usual(sequence_parallel=False)
FULL = Recompute(granularity="full", method="uniform", layers=1)
EXAMPLES = {
    "uneven pipeline": job(),
    "tied": job(gpt()),
    "without tp": job(tp=1),
    "a stage without layers": job(layout=read_layout("E|t|tttt|tttL")),
    "the output alone": job(layout=read_layout("Ettt|t|tttt|L")),
    "recomputed": job(settings=usual(recompute=FULL)),
    "automatic tp": job(pp=1, layout=None, settings=WHOLE),
    "plain replicas": job(tp=1, settings=usual(optimizer=OptimizerSettings())),
    "stage 2": job(
        pp=1,
        layout=None,
        settings=usual(
            sequence_parallel=False, optimizer=OptimizerSettings(sharding="gradients", offload=1)
        ),
    ),
    "stage 3": job(tp=1, pp=1, layout=None,
     settings=usual(optimizer=OptimizerSettings(sharding="parameters", offload=0.5))),
    "experts": job(deepseek(), tp=1, pp=1, dp=4, layout=None, settings=usual(ep=2)),
    "fp16": job(settings=usual(precision="fp16")),
    "fp32": job(settings=usual(precision="fp32")),
}  # fmt: skip


def read(case: TrainingJob) -> DeepSpeedConfig:
    """Return what DeepSpeed reads, told how many replicas there are."""
    config = json.loads(export_deepspeed(case, "run").files[".json"])
    replicas = SimpleNamespace(get_data_parallel_world_size=lambda: case.dp)
    with as_rank(0, 1):
        return DeepSpeedConfig(config, mpu=replicas)


@contextlib.contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Let this process be a rank of so many."""
    os.environ["LOCAL_RANK"] = "0"
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    deepspeed.comm.init_distributed(dist_backend="fake", verbose=False)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
        deepspeed.comm.comm.cdb = None


def test_version_is_the_stated_one() -> None:
    assert deepspeed.__version__.startswith(VERSION)


def check_config(case: TrainingJob, config: DeepSpeedConfig) -> None:
    """What DeepSpeed read is the plan."""
    optimizer = case.settings.optimizer
    assert config.train_batch_size == case.global_batch
    assert config.train_micro_batch_size_per_gpu == case.micro_batch
    assert config.gradient_accumulation_steps == case.micro_batches
    stages = ("none", "optimizer", "gradients", "parameters")
    assert config.zero_optimization_stage == stages.index(optimizer.sharding)
    assert config.bfloat16_config.enabled == (case.settings.precision == "bf16")
    assert config.float16_config.enabled == (case.settings.precision == "fp16")
    assert config.tensor_parallel_config.autotp_size == (case.tp if case.pp == 1 < case.tp else 0)
    assert config.expert_parallel_config.autoep_size == case.settings.ep
    offload = config.zero_config.offload_optimizer
    assert (offload.ratio if offload else 0) == optimizer.offload


@pytest.mark.parametrize("name", EXAMPLES)
def test_deepspeed_reads_the_plan(name: str) -> None:
    check_config(EXAMPLES[name], read(EXAMPLES[name]))


@examples(10)
@given(problems("deepspeed"))
def test_every_solved_plan_is_read(problem: Problem) -> None:
    case = solved_job(problem)
    if case is not None:
        check_config(case, read(case))


@pytest.mark.parametrize("sharding", ["none", "optimizer", "gradients", "parameters"])
@pytest.mark.parametrize("offload", [0.0, 1.0])
@pytest.mark.parametrize(("tp", "dp", "ep"), [(1, 4, 2), (2, 2, 4), (2, 4, 8)])
def test_experts_pass_deepspeeds_own_check(
    tp: int, dp: int, ep: int, sharding: str, offload: float
) -> None:
    """What DeepSpeed refuses with experts is refused before, and nothing else."""
    from deepspeed.module_inject.auto_ep_config import parse_autoep_config, validate_autoep_config

    optimizer = OptimizerSettings(sharding=sharding, offload=offload)
    chosen = usual(sequence_parallel=False, ep=ep, etp=1, optimizer=optimizer)
    case = job(deepseek(), tp=tp, pp=1, dp=dp, layout=None, settings=chosen)
    folded = tp > 1 and offload > 0
    try:
        found = read(case).expert_parallel_config
    except PlanError:
        assert folded or sharding == "none"
        found = parse_autoep_config({"enabled": True, "autoep_size": ep})
    check = functools.partial(
        validate_autoep_config, found, case.world, case.pp, tp, 1, zero_stage=1
    )
    if folded:
        with pytest.raises(ValueError, match="offload"):
            check(zero_offload_optimizer=True)
    else:
        check(zero_offload_optimizer=offload > 0)


@examples(25)
@given(jobs())
def test_any_job_is_read_or_refused(case: TrainingJob) -> None:
    try:
        config = read(case)
    except PlanError:
        return
    batches = config.gradient_accumulation_steps
    assert batches * config.train_micro_batch_size_per_gpu * case.dp == case.global_batch


def test_a_wrong_batch_is_refused_by_deepspeed() -> None:
    """Guard the guard: DeepSpeed's own check runs."""
    config = json.loads(export_deepspeed(job(), "run").files[".json"])
    replicas = SimpleNamespace(get_data_parallel_world_size=lambda: 3)
    with as_rank(0, 1), pytest.raises(AssertionError, match="train_batch_size"):
        DeepSpeedConfig(config, mpu=replicas)


class Layer(torch.nn.Module):
    """A module of a pipeline, known by its number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.weight = torch.nn.Parameter(torch.zeros(1))


def planned_pipeline(folder: Path, case: TrainingJob) -> Any:
    """Write the exported files and import the class that keeps the boundaries."""
    for suffix, text in export_deepspeed(case, "run").files.items():
        (folder / file_name("run", suffix)).write_text(text)
    spec = spec_from_file_location("run_pipeline", folder / "run_pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules.pop("run_pipeline", None)
    spec.loader.exec_module(module)
    return module.PlannedPipeline


@pytest.mark.parametrize(
    "name", [n for n, case in EXAMPLES.items() if case.pp > 1 and n not in ("fp16", "fp32")]
)
def test_pipeline_module_builds_the_plans_stages(name: str, tmp_path: Path) -> None:
    case = EXAMPLES[name]
    planned = planned_pipeline(tmp_path, case)
    count = case.model.layers + 3
    held = []
    for stage in range(case.pp):
        with as_rank(stage * case.tp * case.dp, case.world):
            specs = [deepspeed.pipe.LayerSpec(Layer, i) for i in range(count)]
            pipeline = planned(specs, tmp_path / "run_boundaries.json")
            assert pipeline._topo.get_coord(pipeline.global_rank).pipe == stage
            assert pipeline.activation_checkpoint_interval == (name == "recomputed")
            held.append([layer.number for layer in pipeline.forward_funcs])
    first, last = [0], [case.model.layers + 1, case.model.layers + 2]
    wanted = []
    for start, stage in zip(case.pipeline.starts, case.stages, strict=True):
        layers = list(range(start + 1, start + stage.layers + 1))
        wanted.append(first * stage.embedding + layers + last * stage.loss)
    assert held == wanted


def test_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    planned = planned_pipeline(tmp_path, job(llama()))
    with as_rank(0, 16), pytest.raises(ValueError, match="expected 11 layers, found 3"):
        planned(
            [deepspeed.pipe.LayerSpec(Layer, i) for i in range(3)], tmp_path / "run_boundaries.json"
        )
