"""Exported files in torchtitan's own hands: its reader, its meshes, models, pipeline and
schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given

from ilp_planner.base.errors import PlanError
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.spaces.runtimes.torchtitan import VERSION
from ilp_planner.spaces.runtimes.torchtitan_models import flavors
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import read_layout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.divided_layouts import DIVIDED
from tests.examples import examples
from tests.runtime_cases import ENDS_ALONE, ends_alone, problems, solved_job
from tests.runtimes.titan import read, stand_in_for_unused, whole_parameters
from tests.training_jobs import deepseek, job, jobs, llama
from tests.training_jobs import settings as usual

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ilp_planner.inputs.problem import Problem

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
stand_in_for_unused()  # torchtitan imports its models at once
pytest.importorskip("tyro", reason="needs the extra 'runtimes': tyro")
pytest.importorskip("torchtitan", reason="needs torchtitan, installed without what it asks for")

from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed.parallel_dims import ParallelDims  # noqa: E402
from torchtitan.distributed.pipeline_parallel import build_pipeline_schedule, pipeline_module_split  # noqa: E402
from torchtitan.distributed.tensor_parallel import maybe_enable_async_tp  # noqa: E402
from torchtitan.protocols import train_spec  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FULL = Recompute(granularity="full", method="uniform", layers=1)
MIXTURE = Experts(count=8, top_k=2, ffn=96)
LLAMA_8B = llama(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, sequence=8192
)

EXAMPLES = {
    "uneven pipeline": job(),
    "even pipeline": job(layout=None),
    "virtual stages": job(pp=2, layout=split_layout([2, 1, 3, 2])),
    **{
        name: job(pp=2, layout=split_layout([2, 1, 2, 3]), settings=usual(schedule=name))
        for name in DIVIDED
    },
    "a stage without layers": job(layout=read_layout("E|t|tttt|tttL")),
    "ends alone": job(pp=2, layout=read_layout("E|t*4|t*4|L")),
    "the output alone": job(layout=read_layout("Ettt|t|tttt|L")),
    "recomputed": job(settings=usual(recompute=FULL)),
    "recomputed by operators": job(settings=usual(recompute=BY_OPERATORS)),
    "known flavor": job(LLAMA_8B, layout=split_layout([7, 8, 9, 8])),
    "context parallel": job(settings=usual(cp=2)),
    "hybrid sharding": job(
        dp=4, settings=usual(optimizer=OptimizerSettings(sharding="parameters", instances=2))
    ),
    "replicas only": job(tp=1, pp=1, layout=None, settings=usual(optimizer=OptimizerSettings())),
    "async products": job(settings=usual(overlap_tensor=True)),
    "compiled": job(settings=usual(kernels=Kernels(compiled=True))),
    "odd MLP": job(llama(ffn=701), tp=1),
    "narrow MLP": job(llama(ffn=64)),
    "normed heads, tied": job(llama(head=32, qk_norm=True, tied=True), pp=1, layout=None),
    "mixture": job(llama(experts=MIXTURE), pp=1, layout=None, settings=usual(ep=2)),
    "8 bits": job(
        settings=usual(kernels=Kernels(quantised="fp8-current", quantised_parameters=True))
    ),
    "8 bits by blocks": job(settings=usual(kernels=Kernels(quantised="mxfp8", exact_last=1))),
    "latent, experts": job(deepseek(), settings=usual(ep=2)),
    "latent, experts whole": job(deepseek(), settings=usual(ep=4, etp=1)),
}


def check_meshes(case: TrainingJob, config: Any) -> None:
    """torchtitan's own check of the degrees passes, and they are the plan's."""
    p = config.parallelism
    dims = ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        etp=p.expert_tensor_parallel_degree,
        world_size=case.world,
    )
    assert (dims.tp, dims.cp, dims.pp, dims.ep) == (
        case.tp,
        case.settings.cp,
        case.pp,
        case.settings.ep,
    )
    assert dims.dp_replicate * dims.dp_shard == case.dp
    assert case.model.sequence % dims.seq_len_divisor == 0
    if case.settings.optimizer.sharding == "none":
        assert not dims.fsdp_enabled
    if case.settings.ep > 1:
        assert dims.etp == case.expert_tp


def check_batches(case: TrainingJob, config: Any) -> None:
    """As `torchtitan/train.py` and its pipeline count them."""
    training, p = config.training, config.parallelism
    steps, rest = divmod(training.global_batch_size, training.local_batch_size * case.dp)
    assert rest == 0
    parts = 1
    if case.pp > 1:
        assert p.pipeline_parallel_microbatch_size == case.micro_batch
        parts = training.local_batch_size // p.pipeline_parallel_microbatch_size
    assert steps * parts == case.micro_batches


def check_config(case: TrainingJob, config: Any) -> None:
    """What torchtitan read is the plan."""
    check_meshes(case, config)
    check_batches(case, config)
    p, optimizer = config.parallelism, case.settings.optimizer
    assert config.training.seq_len == case.model.sequence
    recompute = case.settings.recompute
    assert config.activation_checkpoint.mode == recompute.granularity
    if recompute.granularity == "selective":
        assert recompute == BY_OPERATORS
        assert config.activation_checkpoint.selective_ac_option == "op"
    if optimizer.sharding != "none":
        assert p.data_parallel_replicate_degree == optimizer.instances
        policy = "always" if optimizer.sharding == "parameters" else "never"
        assert p.fsdp_reshard_after_forward == policy
    maybe_enable_async_tp(config, None)  # raises where it lacks what it needs
    assert p.enable_async_tensor_parallel == case.settings.overlap_tensor
    compiled = case.settings.kernels.compiled or case.settings.overlap_tensor
    assert config.compile.enable == compiled
    if case.settings.cp > 1:
        how = {"alltoall": "p2p", "allgather": "all_gather"}
        assert how[p.context_parallel_rotate_method] == case.settings.cp_comm
    if case.pp > 1:
        layers = [sum("layers." in name for name in part) for part in p.module_fqns_per_model_part]
        assert layers == [stage.layers for stage in case.stages]


def build(config: Any) -> Any:
    """Return torchtitan's whole model without memory."""
    spec = train_spec.get_train_spec(config.model.name)
    arguments = spec.model_args[config.model.flavor]
    arguments.update_from_config(config)
    with torch.device("meta"):
        return spec.model_cls(arguments)


def test_async_products_need_a_compiled_model(tmp_path: Path) -> None:
    """Guard the guard: torchtitan's own check runs on what was read."""
    config = read(EXAMPLES["async products"], tmp_path)
    config.compile.enable = False
    with pytest.raises(RuntimeError, match="Async TP requires 'model'"):
        maybe_enable_async_tp(config, None)


@contextlib.contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Let this process be a rank of so many."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_version_is_the_stated_one() -> None:
    assert importlib.metadata.version("torchtitan") == VERSION


@pytest.mark.parametrize("name", EXAMPLES)
def test_torchtitan_reads_the_plan(name: str, tmp_path: Path) -> None:
    check_config(EXAMPLES[name], read(EXAMPLES[name], tmp_path))


def read_solved(count: int, folders: pytest.TempPathFactory) -> int:
    """Let torchtitan read the best plans of so many random problems. Return how many have one."""
    found = 0

    @examples(count, suppress_health_check=list(HealthCheck))
    @given(problems("torchtitan@0.2.2"))
    def one(problem: Problem) -> None:
        nonlocal found
        case = solved_job(problem)
        if case is not None:
            found += 1
            check_config(case, read(case, folders.mktemp("run")))

    one()
    return found


def test_every_solved_plan_is_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert read_solved(8, tmp_path_factory) > 4


@pytest.mark.slow
def test_many_solved_plans_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert read_solved(20, tmp_path_factory) >= 12


@pytest.mark.parametrize("name", EXAMPLES)
def test_model_has_the_plans_parameters(name: str, tmp_path: Path) -> None:
    case = EXAMPLES[name]
    model = build(read(case, tmp_path))
    assert sum(p.numel() for p in model.parameters()) == whole_parameters(case)


def check_stages(case: TrainingJob, config: Any) -> None:
    """torchtitan's split gives every rank the plan's modules, and its schedule the plan's turns."""
    parts = config.parallelism.module_fqns_per_model_part
    schedule = config.parallelism.pipeline_parallel_schedule
    model = build(config)
    for pp_rank in range(case.pp):
        with as_rank(pp_rank, case.pp):
            mesh = torch.distributed.device_mesh.init_device_mesh(
                "cpu", (case.pp,), mesh_dim_names=("pp",)
            )
            cpu = torch.device("cpu")
            stages, models = pipeline_module_split(model, mesh, schedule, cpu, parts)
            built = build_pipeline_schedule(config, stages, torch.nn.functional.mse_loss)
        assert built._n_microbatches == case.micro_batches
        if case.virtual > 1:  # what is run, operation by operation
            orders = schedule_orders(case.schedule.name, case.pp, case.micro_batches, case.virtual)
            assert orders.of_rank(pp_rank) == [
                (part.computation_type.value, part.stage_index, part.microbatch_index)
                for action in filter(None, built.pipeline_order[pp_rank])
                for part in action.sub_actions or [action]
            ]
        for number, part in zip(case.stages_of(pp_rank), models, strict=True):
            stage, start = case.stages[number], case.pipeline.starts[number]
            assert list(part.layers) == [str(i) for i in range(start, start + stage.layers)]
            assert (part.tok_embeddings is not None) == stage.embedding
            assert (part.norm is not None) == (part.output is not None) == stage.loss


@pytest.mark.parametrize("name", [name for name, case in EXAMPLES.items() if case.pp > 1])
def test_stages_have_the_plans_modules(name: str, tmp_path: Path) -> None:
    check_stages(EXAMPLES[name], read(EXAMPLES[name], tmp_path))


@pytest.mark.parametrize("pp", ENDS_ALONE)
def test_solved_ends_are_alone(pp: int, tmp_path: Path) -> None:
    case = ends_alone("torchtitan@0.2.2", pp)
    config = read(case, tmp_path)
    check_config(case, config)
    check_stages(case, config)


@examples(30, suppress_health_check=list(HealthCheck))
@given(jobs())
def test_any_job_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, case: TrainingJob
) -> None:
    case = dataclasses.replace(
        case,
        model=dataclasses.replace(
            case.model, norm="rmsnorm", gated=True, bias=False, qkv_bias=False, dropout=0.0
        ),
    )
    try:
        config = read(case, tmp_path_factory.mktemp("run"))
    except PlanError:
        return
    check_meshes(case, config)
    check_batches(case, config)


def test_flavors_are_torchtitans() -> None:
    """Every known flavor is what torchtitan says, field by field."""
    for name, known in flavors().items():
        theirs = train_spec.get_train_spec(name).model_args
        for flavor, arguments in known.items():
            found = theirs[flavor]
            for key, value in arguments.items():
                if key == "ffn":
                    width = int(found.ffn_dim_multiplier * int(8 * found.dim / 3))
                    multiple = found.multiple_of
                    assert -(-width // multiple) * multiple == value
                elif key == "moe_args":
                    for inner, number in value.items():
                        assert getattr(found.moe_args, inner) == number, (flavor, inner)
                else:
                    assert getattr(found, key) == value, (flavor, key)
            if not arguments.get("moe_enabled", name == "deepseek_v3"):
                assert not getattr(found, "moe_enabled", False)


def test_a_key_that_torchtitan_does_not_have_is_seen(tmp_path: Path) -> None:
    """Guard the guard: torchtitan's reader refuses unknown keys."""
    read(job(), tmp_path)
    toml = tmp_path / "run.toml"
    toml.write_text(toml.read_text().replace("tensor_parallel_degree", "tensor_degree"))
    with pytest.raises(ValueError, match="tensor_degree"):
        ConfigManager().parse_args(["--job.config_file", str(toml)])


def test_the_module_needs_no_name_that_python_has_not(tmp_path: Path) -> None:
    config = read(job(), tmp_path, name="my-run 2")
    assert config.experimental.custom_import == config.model.name == "my_run_2_model"
    assert (tmp_path / "my_run_2_model.py").exists()
