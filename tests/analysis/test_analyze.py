"""The whole answer: trees, memory, messages, groups, recomputation, as data and as tables."""

import math
from dataclasses import replace

import pytest

from ilp_planner.analysis.analyze import Analysis, analyze
from ilp_planner.analysis.recomputation import extra_flops
from ilp_planner.analysis.rows import TABLES, module_rows, stage_name, weight_texts
from ilp_planner.analysis.stages import attach
from ilp_planner.base.errors import PlanError
from ilp_planner.job.memory import rank_memory
from ilp_planner.job.messages import layer_messages
from ilp_planner.job.modules import Message, Module, Weight
from ilp_planner.settings.labels import describe_recompute
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.pipeline_layout import even_layout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.examples import for_each
from tests.training_jobs import LLAMA_LIKE

SMALL = Decoder(layers=8, hidden=512, heads=8, sequence=512, vocab=1000)
MIXED = replace(
    SMALL, experts=Experts(count=8, top_k=2, ffn=256, shared_ffn=256, dense_first=1), bias=False
)
LARGE = Decoder(
    layers=126,
    hidden=16384,
    heads=128,
    kv_heads=8,
    ffn=53248,
    sequence=8192,
    vocab=128256,
    **LLAMA_LIKE,
)


def make_job(
    model: Decoder = SMALL, *, tp: int = 2, pp: int = 4, dp: int = 2, **changes: object
) -> TrainingJob:
    settings = Settings(sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer"))
    return TrainingJob(
        model=model,
        micro_batch=2,
        global_batch=16 * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        settings=replace(settings, **changes),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def small() -> Analysis:
    return analyze(make_job(), name="small", limit=2.0**30, device="toy")


@pytest.mark.slow
def test_stages_with_equal_content_are_one_tree(small: Analysis) -> None:
    assert [stage.pp_ranks for stage in small.stages] == [(0,), (1, 2), (3,)]
    assert small.stages[0].layers == ((0, 1),)
    names = [[module.name for module in stage.modules] for stage in small.stages]
    assert names[0][0] == "embedding"
    assert names[1] == ["decoder.layers"]
    assert names[2][-1] == "output"


def test_uneven_stages_are_each_shown() -> None:
    job = replace(make_job(), layout=split_layout([1, 3, 3, 1]))
    found = analyze(job).stages
    assert [stage.pp_ranks for stage in found] == [(0,), (1, 2), (3,)]
    job = replace(make_job(), layout=split_layout([1, 3, 2, 2]))
    assert [stage.pp_ranks for stage in analyze(job).stages] == [(0,), (1,), (2,), (3,)]


def test_virtual_stages_tell_all_their_layers() -> None:
    job = replace(make_job(pp=2), layout=even_layout(8, 2, 2))
    assert [stage.layers for stage in analyze(job).stages] == [((0, 1), (4, 5)), ((2, 3), (6, 7))]


def test_stages_whose_layers_are_of_another_kind_differ() -> None:
    job = make_job(replace(MIXED, experts=Experts(count=8, top_k=2, ffn=256, dense_first=4)))
    assert [stage.pp_ranks for stage in analyze(job).stages] == [(0,), (1,), (2,), (3,)]


def test_memory_is_that_of_the_planner(small: Analysis) -> None:
    """One source of truth: nothing is computed anew."""
    assert small.ranks == tuple(rank_memory(make_job(), r) for r in range(4))
    for rank in small.ranks:
        assert math.isclose(sum(rank.terms.values()), rank.peak)


def test_the_tree_has_the_parameters_of_the_rank(small: Analysis) -> None:
    for stage in small.stages:
        for r in stage.pp_ranks:
            assert sum(m.parameters for m in stage.modules) == small.ranks[r].parameters
    assert sum(m.parameters for m in small.whole) == small.whole_memory.parameters


def test_every_message_of_a_layer_is_in_the_tree() -> None:
    """Also those of modules that hold nothing, and of experts."""
    for model, experts in ((SMALL, False), (MIXED, True)):
        job = (
            make_job(model, ep=2, kernels=Kernels(dispatcher="alltoall")) if experts else make_job()
        )
        (layers,) = (m for m in analyze(job).stages[1].modules if m.name == "decoder.layers")
        held = [
            message
            for row in module_rows([layers])
            for message in (*row.module.forward, *row.module.backward)
        ]
        pairs = layer_messages(job, experts).values()
        sent = [message for pair in pairs for part in pair for message in part]
        assert sorted(map(str, held)) == sorted(map(str, sent))
        assert sent


def test_a_single_gpu_sends_nothing() -> None:
    found = analyze(make_job(tp=1, pp=1, dp=1))
    assert not found.traffic
    assert not found.groups
    assert found.stages[0].modules == found.whole


def test_groups_of_more_than_one(small: Analysis) -> None:
    assert [(kind.kind, kind.size, kind.count) for kind in small.groups] == [
        ("tp", 2, 8),
        ("dp", 2, 8),
        ("pp", 4, 4),
        ("embedding", 2, 4),
    ]


def test_groups_of_experts_are_there_where_experts_are() -> None:
    kinds = {kind.kind for kind in analyze(make_job(MIXED, ep=2)).groups}
    assert kinds == {"tp", "dp", "pp", "ep", "etp", "etp-ep", "embedding"}


# ---- recomputation ------------------------------------------------------------------------------


@for_each(
    ("degrees", "settings"),
    [
        ({"dp": 2}, Settings(ep=8)),
        ({"dp": 2}, Settings(etp=8)),
        ({"dp": 6}, Settings(ep=4)),
        ({"dp": 2, "pp": 2}, Settings(ep=8)),
    ],
)
def test_experts_that_the_ranks_cannot_hold_are_one_line(
    degrees: dict[str, int], settings: Settings
) -> None:
    """They would have no whole number of replicas: no group could be told, or a wrong one."""
    experts = Decoder(
        layers=2, hidden=64, heads=4, sequence=32, vocab=256, bias=False,
        experts=Experts(count=8, top_k=2, ffn=96),
    )  # fmt: skip
    job = TrainingJob(model=experts, micro_batch=1, global_batch=12, settings=settings, **degrees)
    etp = settings.etp or 1
    with pytest.raises(PlanError) as caught:
        analyze(job)
    assert str(caught.value) == (
        f"settings.ep x etp: found {settings.ep} x {etp}, expected a divisor of the "
        f"{degrees['dp']} ranks of a pipeline stage (tp x cp x dp)"
    )


def test_recomputation_is_compared_with_the_jobs_own_way() -> None:
    job = make_job(recompute=Recompute(granularity="full", method="block", layers=1))
    found = analyze(job).savings
    assert [saving.name for saving in found if saving.chosen] == [
        "full: first 1 layers of each stage"
    ]
    assert len(found) == 4
    assert [saving.chosen for saving in analyze(make_job()).savings] == [True, False, False]


def test_recomputation_never_takes_more_memory_and_costs_arithmetic(small: Analysis) -> None:
    none, selective, full = small.savings
    for r in range(4):
        assert full.peaks[r] <= selective.peaks[r] <= none.peaks[r]
    assert none.flops == 0 < selective.flops < full.flops < 1 / 3 + 0.02


def test_a_third_more_arithmetic_where_layers_are_all() -> None:
    """Forward is one of three equal parts, but for flash attention, whose backward pass is 2.5."""
    job = make_job(replace(SMALL, layers=64, sequence=128), pp=1)
    job = replace(job, settings=replace(job.settings, kernels=Kernels(attention="unfused")))
    full = Recompute(granularity="full", method="uniform", layers=1)
    again = replace(job, settings=replace(job.settings, recompute=full))
    assert 0.32 < extra_flops(again) < 1 / 3


@for_each(
    ("recompute", "text"),
    [
        (Recompute(), "none"),
        (Recompute(granularity="selective"), "selective: core_attn"),
        (Recompute(granularity="full", method="uniform", layers=2), "full: in chunks of 2 layers"),
        (
            Recompute(granularity="full", method="uniform", layers=1, distribute=True),
            "full: every layer, inputs over tp",
        ),
    ],
)
def test_recomputation_in_words(recompute: Recompute, text: str) -> None:
    assert describe_recompute(recompute) == text


# ---- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_a_data_frame(small: Analysis, table: str) -> None:
    frame = small.frame(table)
    assert len(frame) == len(list(TABLES[table](small)))
    assert len(frame.columns) > 3


def test_frames_have_the_figures(small: Analysis) -> None:
    memory = small.frame("memory")
    assert list(memory["peak_bytes"]) == [rank.peak for rank in small.ranks]
    assert list(memory["left_bytes"]) == [2.0**30 - rank.needed for rank in small.ranks]
    modules = small.frame()
    tops = modules[(modules["stage"] == "0") & (modules["depth"] == 0)]
    assert tops["parameters"].sum() == small.ranks[0].parameters
    traffic = small.frame("traffic")
    assert traffic["cluster_bytes_per_iteration"].sum() == sum(
        row.cluster_volume for row in small.traffic
    )
    recompute = small.frame("recompute")
    assert (recompute["saved_bytes"] >= 0).all()


def test_no_such_table(small: Analysis) -> None:
    with pytest.raises(ValueError, match=r"table must be one of .*, got 'time'"):
        small.frame("time")


@for_each(
    ("stages", "text"), [((0,), "0"), ((1, 2, 3), "1-3"), ((0, 3), "0,3"), ((5, 0, 1), "0-1,5")]
)
def test_stage_names(stages: tuple[int, ...], text: str) -> None:
    assert stage_name(stages) == text


def test_numbered_weights_are_one_text() -> None:
    weights = tuple(Weight(name=f"weight{i}", shape=(4, 2)) for i in range(8))
    bias = Weight(name="bias", shape=(4,))
    assert list(weight_texts((*weights, bias))) == ["weight0..weight7 [4, 2]", "bias [4]"]


def test_messages_of_a_part_that_is_not_there_make_it() -> None:
    message = Message(group="tp", collective="all_reduce", shape=(1,), width=2)
    module = attach(Module(name="a"), {"b.c": ((message,), ())})
    assert module.children[0].children[0].forward == (message,)


# ---- size ---------------------------------------------------------------------------------------


def test_a_405b_model_on_16384_gpus() -> None:
    """Groups are computed, not enumerated: one rank of every stage is looked at."""
    job = TrainingJob(
        model=LARGE,
        micro_batch=1,
        global_batch=2048,
        tp=8,
        pp=16,
        dp=128,
        layout=split_layout([7, *[8] * 14, 7]),
        settings=Settings(
            sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer")
        ),
    )
    found = analyze(job)
    assert found.whole_memory.parameters == 405_853_388_800
    assert len(found.ranks) == 16
