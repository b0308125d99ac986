"""Exported configurations, built by Megatron-Core itself: its verdict, layers, shapes, groups."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.groups import KINDS, stage_ranks
from ilp_planner.specs.pipeline_layout import read_layout, split_layout, write_layout
from ilp_planner.specs.training import Kernels, Recompute, TrainingJob
from tests.examples import examples
from tests.job.parameter_names import parameter_names
from tests.rank_groups import group_of
from tests.runtime_cases import ENDS_ALONE, ends_alone
from tests.runtimes.megatron_core import (
    as_rank,
    build_stages,
    layer_numbers,
    megatron_groups,
    section_of_arguments,
    shapes,
    transformer_config,
)
from tests.training_jobs import deepseek, gpt, job, jobs, llama
from tests.training_jobs import settings as usual

Said = Callable[[TrainingJob], dict[str, Any]]
pytestmark = pytest.mark.filterwarnings("ignore")  # of what Megatron misses without a GPU
from megatron.core.transformer.enums import LayerType  # noqa: E402
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout  # noqa: E402

yaml = pytest.importorskip("yaml", reason="needs the extra 'runtimes': pyyaml")

SEVERAL = examples(
    50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

EXAMPLES = {
    "llama, uneven": job(),
    "gpt, even": job(gpt(), layout=None),
    "gpt, one rank": job(gpt(), tp=1, pp=1, dp=1),
    "virtual stages": job(pp=2, layout=split_layout([2, 1, 3, 2])),
    "virtual stages, even": job(pp=2, layout=split_layout([2, 2, 2, 2])),
    "a stage without layers": job(layout=read_layout("E|t|tttt|tttL")),
    "ends alone": job(gpt(), pp=2, layout=read_layout("E|t*4|t*4|L")),
    "an empty stage": job(layout=read_layout("Et|tttt||tttL")),
    "latent, experts": job(deepseek()),
    "expert parallel": job(deepseek(), pp=2, layout=None, settings=usual(ep=2)),
    "experts whole": job(deepseek(), pp=2, layout=None, settings=usual(ep=4, etp=1)),
    "context parallel": job(settings=usual(cp=2)),
    "other order": job(settings=usual(order="tp-cp-ep-pp-dp")),
    "heads of their own width": job(llama(head=32, qk_norm=True)),
    "padded vocabulary": job(llama(vocab=1001), settings=usual(vocab_multiple=64)),
    "predicts two tokens": job(deepseek(prediction_layers=1), pp=2, layout=None),
    "prediction with the output": job(
        deepseek(prediction_layers=1), layout=read_layout("Et*2|t*3|t*3|mL")
    ),
    "prediction alone": job(deepseek(prediction_layers=1), layout=read_layout("Et*4|t*4|m|L")),
    "prediction of virtual stages": job(
        llama(prediction_layers=1), pp=2, layout=read_layout("Et*4|t*4||mL")
    ),
    "fewer groups than ranks": job(llama(kv_heads=2), tp=4),
    "overlap": job(settings=usual(overlap_tensor=True)),
}


def of_nemo(case: TrainingJob) -> dict[str, Any]:
    """Return the model's part of the exported file, as a reader of YAML sees it."""
    return yaml.safe_load(export_nemo(case, "run").files[".yaml"])["model"]


def of_megatron(case: TrainingJob) -> dict[str, Any]:
    """Return what Megatron-LM makes of the exported arguments."""
    args = arguments_of_job(case)
    assert not check_arguments(args)
    return section_of_arguments(case, args)


SOURCES = {"nemo": of_nemo, "megatron": of_megatron}
SAID = pytest.mark.parametrize("said", SOURCES.values(), ids=SOURCES)


def with_local_modules(case: TrainingJob) -> TrainingJob:
    """Return the job with Megatron's own modules, as they are built without a GPU."""
    kernels = dataclasses.replace(
        case.settings.kernels,
        implementation="local",
        attention="unfused",
        accumulation_fusion=False,
    )
    return dataclasses.replace(case, settings=dataclasses.replace(case.settings, kernels=kernels))


def check_layers(case: TrainingJob, said: Said) -> None:
    """Megatron's layout gives every (virtual) stage of every rank the plan's layers."""
    layout = transformer_config(case, said(case)).pipeline_model_parallel_layout
    if layout is None:
        assert len({stage.layers for stage in case.stages}) == 1
        return
    for pp_rank in range(case.pp):
        for virtual, stage in enumerate(case.stages_of(pp_rank)):
            start = case.pipeline.starts[stage]
            planned = list(range(start, start + case.stages[stage].layers))
            assert layer_numbers(layout, pp_rank, virtual) == planned


def check_rank(
    case: TrainingJob, pp_rank: int, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One GPU of a stage has the layers, parameters and groups that the planner says."""
    case = with_local_modules(case)
    rank = stage_ranks(case, pp_rank).last
    with as_rank(case, rank), monkeypatch.context() as patch:
        stages = build_stages(case, said(case), patch)
        groups = megatron_groups()
    for number, stage in zip(case.stages_of(pp_rank), stages, strict=True):
        start = case.pipeline.starts[number]
        planned = list(range(start + 1, start + case.stages[number].layers + 1))
        assert [layer.layer_number for layer in stage.decoder.layers] == planned
    built = [item for stage in stages for item in shapes(stage).items()]
    assert sorted(built) == sorted(parameter_names(case, pp_rank))
    counted = sum(module.parameters for module in rank_modules(case, pp_rank))
    assert counted == sum(p.numel() for stage in stages for p in stage.parameters())
    assert groups == {kind: sorted(group_of(case, kind, rank).ranks) for kind in KINDS}


@SAID
@pytest.mark.parametrize("name", EXAMPLES)
def test_layers_of_every_rank_are_the_plans(name: str, said: Said) -> None:
    check_layers(EXAMPLES[name], said)


@SAID
@SEVERAL
@given(case=jobs())
def test_layers_of_any_job_are_the_plans(said: Said, case: TrainingJob) -> None:
    check_layers(case, said)


@SAID
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_stage_is_built_as_planned(
    name: str, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = EXAMPLES[name]
    for pp_rank in range(case.pp):
        check_rank(case, pp_rank, said, monkeypatch)


def test_latent_attention_of_transformer_engine_is_not_split_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first products are whole on every rank; Megatron's own are divided."""
    case = EXAMPLES["latent, experts"]
    engine = dataclasses.replace(case.settings.kernels, implementation="transformer_engine")
    whole = dataclasses.replace(case, settings=dataclasses.replace(case.settings, kernels=engine))
    with as_rank(whole, 0):
        stages = build_stages(whole, of_nemo(whole), monkeypatch, duplicated=True)
    built = sum(p.numel() for stage in stages for p in stage.parameters())
    assert built == sum(module.parameters for module in rank_modules(whole, 0))
    split = with_local_modules(case)
    assert built > sum(module.parameters for module in rank_modules(split, 0))


@SAID
@pytest.mark.parametrize("pp", ENDS_ALONE)
def test_solved_ends_are_alone(pp: int, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ends_alone("megatron", pp)
    check_layers(case, said)
    for pp_rank in range(pp):
        check_rank(case, pp_rank, said, monkeypatch)


@examples(50)
@given(
    pp=st.integers(1, 16),
    runs=st.lists(st.tuples(st.integers(0, 126), st.integers(1, 40)), min_size=1, max_size=6),
    alone=st.booleans(),
    predicted=st.integers(0, 2),
)
def test_megatron_reads_any_layout_alike(
    pp: int, runs: list[tuple[int, int]], alone: bool, predicted: int
) -> None:
    """Runs of equal stages are written in short, and read by Megatron's own parser."""
    counts = [layers for layers, times in runs for _ in range(times)]
    counts = [0, *counts, 0] if alone else counts
    counts[1:1] = [1] * (-len(counts) % pp)
    layout = split_layout(counts, prediction_layers=predicted)
    theirs = PipelineParallelLayerLayout(write_layout(layout), pp)
    theirs.validate_layer_layout(layout.layers, predicted or None)
    for number, stage in enumerate(layout.stages):
        found = theirs.layout[number % pp][number // pp]
        assert found.count(LayerType.decoder) == stage.layers
        assert found.count(LayerType.mtp) == stage.prediction_layers
        assert found.count(LayerType.embedding) == stage.embedding
        assert found.count(LayerType.loss) == stage.loss


@SAID
@SEVERAL
@given(case=jobs(), data=st.data())
def test_any_stage_is_built_as_planned(
    said: Said, case: TrainingJob, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_rank(case, data.draw(st.integers(0, case.pp - 1)), said, monkeypatch)


@SEVERAL
@given(jobs())
def test_optimizer_and_gradients_are_said_in_megatrons_words(case: TrainingJob) -> None:
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig

    sections = yaml.safe_load(export_nemo(case, "run").files[".yaml"])
    DistributedDataParallelConfig(**sections["ddp"])
    OptimizerConfig(**sections["optimizer"], bf16=True)


@pytest.mark.parametrize(
    "kernels",
    [
        Kernels(graphs="local"),
        Kernels(graphs="transformer_engine", graphed=("attn", "mlp")),
        Kernels(graphs="full_iteration"),
        Kernels(fused_loss=True, loss_kernel="native"),
    ],
)
def test_kernels_are_said_in_megatrons_words(kernels: Kernels) -> None:
    """Graphs are not built: they need Transformer Engine's random numbers."""
    case = job(settings=usual(kernels=kernels, overlap_tensor=True))
    config = transformer_config(case, of_nemo(case))
    scopes = [scope.name for scope in config.cuda_graph_scope]
    whole = kernels.graphs == "full_iteration"
    assert scopes == (["full_iteration"] if whole else list(kernels.graphed) or scopes)
    assert config.cuda_graph_impl == ("local" if whole else kernels.graphs or "none")
    assert config.tp_comm_overlap
    assert config.cross_entropy_fusion_impl == "native"


def test_a_wrong_layout_is_refused_by_megatron() -> None:
    """Guard the guard: Megatron's own check runs, and would see another number of layers."""
    section = of_nemo(EXAMPLES["llama, uneven"])
    with pytest.raises(AssertionError, match="num_layers"):
        transformer_config(EXAMPLES["llama, uneven"], {**section, "num_layers": 9})


BAD = {"heads": job(llama(heads=15, hidden=240, kv_heads=15)), "batch": job(global_batch=63)}


@pytest.mark.parametrize("name", BAD)
def test_what_megatron_would_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(PlanError, match="nearest"):
        export_nemo(BAD[name], "run")


def test_heads_are_refused_by_both() -> None:
    case = EXAMPLES["llama, uneven"]
    section = {**of_nemo(case), "num_attention_heads": 15, "num_query_groups": 15}
    with pytest.raises(ValueError, match="num_attention_heads"):
        transformer_config(case, section)


def test_full_recomputation_needs_a_method_for_both() -> None:
    full = Recompute(granularity="full", method="block", layers=2)
    case = job(settings=dataclasses.replace(usual(), recompute=full))
    section = of_nemo(case)
    assert transformer_config(case, section).recompute_num_layers == 2
    del section["recompute_method"]
    with pytest.raises(ValueError, match="recompute_method"):
        transformer_config(case, section)
