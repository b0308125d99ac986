"""What ranks send: counts and bytes against hand computation, and against each other."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.communication import boundary_size, stage_traffic, traffic
from ilp_planner.job.decoder import layer_module, rank_modules
from ilp_planner.job.groups import ACROSS, BETWEEN, INSIDE, INSTANCE
from ilp_planner.job.messages import (
    Messages,
    head_widths,
    layer_messages,
    local_tokens,
    output_messages,
    prediction_messages,
    recomputed_messages,
    routed_rows,
    unsplit_parameters,
)
from ilp_planner.job.quantised import quantised_counts
from ilp_planner.job.traffic import Traffic, sent_share
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.pipeline_layout import even_layout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.examples import examples, for_each
from tests.training_jobs import LLAMA_LIKE

MIB, GIB = 2**20, 2**30
SEED = Decoder(layers=32, hidden=4096, heads=32, sequence=2048, vocab=50257, gated=True)
SMALL = Decoder(layers=4, hidden=512, heads=8, sequence=1024, vocab=1000)
ROUTED = Decoder(
    layers=4,
    hidden=512,
    heads=8,
    kv_heads=4,
    sequence=1024,
    vocab=1000,
    **LLAMA_LIKE,
    experts=Experts(count=8, top_k=2, ffn=256),
)


def seed_job(
    *, tp: int = 2, pp: int = 2, dp: int = 4, sharding: str = "optimizer", **changes: object
) -> TrainingJob:
    options = Settings(optimizer=OptimizerSettings(sharding=sharding))
    return TrainingJob(
        model=SEED,
        micro_batch=4,
        global_batch=512,
        tp=tp,
        pp=pp,
        dp=dp,
        settings=replace(options, **changes),  # type: ignore[arg-type]
    )


def routed_job(*, tp: int = 2, dp: int = 4, **changes: object) -> TrainingJob:
    return TrainingJob(
        model=ROUTED,
        micro_batch=1,
        global_batch=8,
        tp=tp,
        dp=dp,
        settings=replace(Settings(ep=2, sequence_parallel=True), **changes),  # type: ignore[arg-type]
    )


def rows(job: TrainingJob, family: str, stage: int) -> list[Traffic]:
    return [row for row in stage_traffic(job, stage) if row.family == family]


def flat(messages: Messages) -> list[tuple[str, str, tuple[int, ...], int, str]]:
    """Return (module, collective, shape, times, direction) of every message."""
    return [
        (name, message.collective, message.shape, message.times, direction)
        for name, pair in messages.items()
        for direction, found in zip(("forward", "backward"), pair, strict=True)
        for message in found
    ]


# ---- the seed's example: what its tool counts, and what it leaves out ----------------------------


def test_tensor_messages_of_the_example() -> None:
    """4 all-reduces of 64 MiB in each of 16 layers, and the embedding's; the last stage has the
    logits' and the loss's instead."""
    first = rows(seed_job(), "tensor", 0)
    layers = [row for row in first if row.what.startswith("layers")]
    assert {row.collective for row in layers} == {"all_reduce"}
    assert {row.size for row in layers} == {64 * MIB}
    assert sum(row.per_micro_batch for row in layers) == 64
    assert sum(row.volume_per_micro_batch for row in layers) == 4 * GIB
    assert sum(row.per_iteration for row in layers) == 2048
    assert sum(row.volume_per_iteration for row in layers) == 128 * GIB
    others = {row.what: row for row in first if row not in layers}
    assert set(others) == {"embedding, forward"}
    assert others["embedding, forward"].size == 64 * MIB
    last = {row.what: row for row in rows(seed_job(), "tensor", 1) if row.what[:6] != "layers"}
    assert last["logits and loss, backward"].size == 64 * MIB
    assert last["logits and loss, forward"].size == 4 * 2048 * 4
    assert last["logits and loss, forward"].per_micro_batch == 3


def test_cluster_totals_are_the_tools_where_it_is_right() -> None:
    """Its 32768 messages and 2048 GB are those of the layers."""
    found = [row for row in traffic(seed_job()) if row.what.startswith("layers")]
    assert sum(row.cluster_messages for row in found) == 32768
    assert sum(row.cluster_volume for row in found) == 2048 * GIB


def test_pipeline_messages_of_the_example() -> None:
    """Each of two stages sends once and receives once per micro-batch: half of the tool's four."""
    for stage in (0, 1):
        found = [row for row in rows(seed_job(), "pipeline", stage) if row.group == "pp"]
        assert len(found) == 2
        assert {row.size for row in found} == {64 * MIB}
        assert {row.per_micro_batch for row in found} == {1}
        assert {row.per_iteration for row in found} == {32}
        assert [row.received for row in found] == [False, True]
    sent = [row for row in traffic(seed_job()) if row.group == "pp" and not row.received]
    assert sum(row.cluster_messages for row in sent) == 16 * 32


def test_the_tied_embedding_is_reduced_between_first_and_last_stage() -> None:
    (row,) = [row for row in traffic(seed_job()) if row.group == "embedding"]
    assert row.stages == (0, 1)
    assert row.size == 25216 * 4096 * 4
    assert row.groups == 8
    assert row.per_iteration == 1
    assert row.link == BETWEEN  # the stages are on two nodes of 8
    assert not [r for r in traffic(seed_job(pp=1, dp=8)) if r.group == "embedding"]
    untied = replace(seed_job(), model=replace(SEED, tied=False))
    assert not [r for r in traffic(untied) if r.group == "embedding"]


def test_data_parallel_messages_of_the_example() -> None:
    """Gradients in 4 bytes, parameters in 2, of Megatron's own parameter counts."""
    for stage, parameters in ((0, 1718757376), (1, 1710376960)):
        reduced, gathered = rows(seed_job(), "data", stage)
        assert (reduced.collective, reduced.size) == ("reduce_scatter", 4 * parameters)
        assert (gathered.collective, gathered.size) == ("all_gather", 2 * parameters)
        assert (reduced.members, reduced.groups, reduced.per_iteration) == (4, 2, 1)
        assert math.isclose(reduced.sent, 3 / 4 * 4 * parameters)


# ---- data parallelism ----------------------------------------------------------------------------


def test_sharding_decides_when_replicas_talk() -> None:
    (plain,) = rows(seed_job(sharding="none"), "data", 0)
    assert (plain.collective, plain.per_iteration) == ("all_reduce", 1)
    reduced, gathered = rows(seed_job(sharding="gradients"), "data", 0)
    assert (reduced.per_micro_batch, reduced.per_iteration) == (1, 32)
    assert (gathered.per_micro_batch, gathered.per_iteration) == (0, 1)
    reduced, gathered = rows(seed_job(sharding="parameters"), "data", 0)
    assert (reduced.per_micro_batch, gathered.per_micro_batch) == (1, 2)
    assert (reduced.per_iteration, gathered.per_iteration) == (32, 64)


def test_context_parallel_ranks_reduce_gradients_too() -> None:
    (row,) = rows(seed_job(dp=2, cp=2, sharding="none"), "data", 0)
    assert (row.group, row.members) == ("dp-cp", 4)


def test_instances_of_the_optimizer_sum_their_shards() -> None:
    job = seed_job(dp=8)
    optimizer = OptimizerSettings(sharding="optimizer", instances=2)
    job = replace(job, settings=replace(job.settings, optimizer=optimizer))
    inner, across, gathered = rows(job, "data", 0)
    assert (inner.members, across.members, gathered.members) == (4, 2, 4)
    assert across.collective == "all_reduce"
    assert across.size == inner.size / 4
    assert (inner.groups, across.groups) == (4, 8)


@pytest.mark.parametrize(("sharding", "gathers"), [("gradients", (0, 1)), ("parameters", (2, 32))])
def test_hybrid_sharding_gathers_within_an_instance(
    sharding: str, gathers: tuple[int, int]
) -> None:
    """Every micro-batch reduces within an instance, the last one over the instances; links are
    those of each: an instance of 4 x tp 2 ranks fills a node here."""
    plain = seed_job(dp=8)
    optimizer = OptimizerSettings(sharding=sharding, instances=2)
    job = replace(plain, settings=replace(plain.settings, optimizer=optimizer))
    inner, across, gathered = rows(job, "data", 0)
    assert (inner.members, across.members, gathered.members) == (4, 2, 4)
    assert (inner.part, across.part, gathered.part) == (INSTANCE, ACROSS, INSTANCE)
    assert (inner.collective, across.collective) == ("reduce_scatter", "all_reduce")
    assert (inner.per_micro_batch, across.per_iteration) == (1, 1)
    assert across.size == inner.size / 4
    assert (gathered.per_micro_batch, gathered.per_iteration) == gathers
    assert (inner.link, across.link) == (INSIDE, BETWEEN)


def by_unit(sharding: str, *, pp: int = 1, tp: int = 1, instances: int = 1) -> TrainingJob:
    """Return a job of 4 layers on 4 replicas, 8 micro-batches each, under PyTorch's FSDP."""
    optimizer = OptimizerSettings(sharding=sharding, from_master=True, instances=instances)
    return TrainingJob(
        model=replace(ROUTED, experts=None, ffn=1024),
        micro_batch=1,
        global_batch=32,
        tp=tp,
        pp=pp,
        dp=4,
        settings=Settings(optimizer=optimizer, sequence_parallel=tp > 1),
    )


@for_each(
    ("sharding", "pp", "gathers", "reductions"),
    [
        ("parameters", 1, (2, 16), (1, 8)),
        ("gradients", 1, (1, 8), (1, 8)),
        ("parameters", 2, (1, 9), (0, 1)),
        ("gradients", 2, (0, 1), (0, 1)),
    ],
)
def test_every_unit_is_gathered_and_reduced_alone(
    sharding: str, pp: int, gathers: tuple[int, int], reductions: tuple[int, int]
) -> None:
    """Embedding, layers and output are units; all of them together are the rank's parameters."""
    job = by_unit(sharding, pp=pp)
    found = rows(job, "data", 0)
    layers = 4 // pp
    for row in found:
        times = layers if row.what.endswith("layer") else 1
        often = gathers if row.collective == "all_gather" else reductions
        assert (row.per_micro_batch, row.per_iteration) == (times * often[0], times * often[1])
    units = {row.what.split(", ")[-1] for row in found}
    assert units == {"embedding", "layer"} | ({"norm and output"} if pp == 1 else set())
    counted = sum(module.parameters for module in rank_modules(job, 0))
    gathered = [row for row in found if row.collective == "all_gather"]
    assert sum(row.volume_per_iteration for row in gathered) == 2 * counted * gathers[1]
    reduced = [row for row in found if row.collective == "reduce_scatter"]
    assert sum(row.volume_per_iteration for row in reduced) == 4 * counted * reductions[1]


def test_every_unit_is_summed_over_instances() -> None:
    found = rows(by_unit("parameters", instances=2), "data", 0)
    reduced = [row for row in found if row.collective == "reduce_scatter"]
    summed = [row for row in found if row.collective == "all_reduce"]
    assert [row.size / 2 for row in reduced] == [row.size for row in summed]
    assert [row.per_micro_batch for row in reduced] == [row.per_micro_batch for row in summed]
    assert {row.members for row in found} == {2}


def test_undivided_parameters_are_summed_one_by_one() -> None:
    """9 norms of 512 in two bytes for every micro-batch, not all in four once per iteration."""
    (row,) = [r for r in rows(by_unit("gradients", tp=2), "tensor", 0) if "undivided" in r.what]
    assert (row.size, row.per_micro_batch, row.per_iteration) == (512 * 2, 9, 72)
    plain = replace(by_unit("gradients", tp=2).settings, optimizer=OptimizerSettings())
    job = replace(by_unit("gradients", tp=2), settings=plain)
    (row,) = [r for r in rows(job, "tensor", 0) if "undivided" in r.what]
    assert (row.size, row.per_micro_batch, row.per_iteration) == (9 * 512 * 4, 0, 1)


def undivided(job: TrainingJob, stage: int = 0) -> dict[int, tuple[int, int]]:
    """Return how often gradients of tensors of so many parameters in two bytes are summed."""
    found = [row for row in rows(job, "tensor", stage) if "undivided" in row.what]
    assert len({row.size for row in found}) == len(found)
    return {row.size // 2: (row.per_micro_batch, row.per_iteration) for row in found}


def test_undivided_parameters_wait_for_the_last_micro_batch_in_a_pipeline() -> None:
    """Of two layers with two norms on each of two ranks, and the last norm."""
    job = by_unit("gradients", tp=2, pp=2)
    assert undivided(job, 0) == {512: (0, 4)}
    assert undivided(job, 1) == {512: (0, 5)}


def test_norms_of_heads_have_gradients_of_their_own() -> None:
    """Two in each of four layers, each with a scale and a bias, as the 9 norms of 512 have."""
    job = by_unit("gradients", tp=2)
    job = replace(job, model=replace(job.model, qk_norm=True, norm="layernorm"))
    assert undivided(job) == {512: (18, 144), 64: (16, 128)}


def predicting(experts: Experts | None) -> TrainingJob:
    """Return a job that predicts one more token."""
    job = by_unit("gradients", tp=2)
    model = replace(job.model, prediction_layers=1, experts=experts)
    return replace(job, model=model, layout=split_layout([4], prediction_layers=1))


def test_a_predicted_token_has_a_layer_and_three_norms() -> None:
    """Beside those of 4 layers and the last norm: of its inputs, and after its layer."""
    assert undivided(predicting(None)) == {512: (9 + 2 + 3, 8 * (9 + 2 + 3))}


def test_a_predicted_token_has_a_layer_like_the_last_one() -> None:
    """Three layers without experts, one with a router of 8 x 512: the second one is its."""
    job = predicting(Experts(count=8, top_k=2, ffn=256, dense_first=3))
    assert undivided(job)[8 * 512] == (2, 16)
    spread = replace(job, settings=replace(job.settings, ep=2))
    sent = {row.what for row in stage_traffic(spread, 0) if row.family == "expert"}
    assert "token prediction, forward" in sent


def test_spread_experts_are_units_of_their_own() -> None:
    optimizer = OptimizerSettings(sharding="parameters", from_master=True)
    spread = rows(routed_job(optimizer=optimizer), "data", 0)
    assert {row.group for row in spread} == {"dp-cp", "edp"}
    whole = rows(routed_job(optimizer=optimizer, ep=1), "data", 0)
    assert {row.group for row in whole} == {"dp-cp"}


def test_as_many_instances_as_replicas_share_nothing() -> None:
    plain = seed_job(dp=4)
    optimizer = OptimizerSettings(sharding="optimizer", instances=4)
    (row,) = rows(replace(plain, settings=replace(plain.settings, optimizer=optimizer)), "data", 0)
    assert (row.collective, row.members, row.part) == ("all_reduce", 4, ACROSS)


def test_routed_experts_are_reduced_over_their_own_replicas() -> None:
    job = routed_job(optimizer=OptimizerSettings(sharding="none"))
    dense, routed = rows(job, "data", 0)
    assert (dense.group, dense.members) == ("dp-cp", 4)
    assert (routed.group, routed.members) == ("edp", job.expert_dp)
    each = 3 * 512 * 256 // 2 * 4  # of an expert divided over etp 2, 4 experts per rank
    assert routed.size == 4 * 4 * each


def test_dense_parameters_and_routed_ones_are_reduced_apart() -> None:
    """Each once per iteration; gathered in two bytes, of those in 8 bits in one."""
    optimizer = OptimizerSettings(sharding="optimizer", instances=2)
    kernels = Kernels(quantised="fp8-current", quantised_parameters=True, grouped_experts=True)
    for own in (Kernels(grouped_experts=True), kernels):
        job = routed_job(optimizer=optimizer, dp=8, kernels=own)
        modules = rank_modules(job, 0)
        routed = sum(module.expert_parameters for module in modules)
        dense = sum(module.parameters for module in modules) - routed
        low, low_routed = quantised_counts(modules) if own is kernels else (0, 0)
        found = {(row.what, row.part): row for row in rows(job, "data", 0)}
        over = "shards of gradients, over optimizer instances"
        for title, count, quantised, shards in (
            ("", dense, low - low_routed, job.dp // 2),
            (" of routed experts", routed, low_routed, job.expert_dp // 2),
        ):
            reduced = found[f"gradients{title}", INSTANCE]
            assert (reduced.size, reduced.per_micro_batch, reduced.per_iteration) == (
                4 * count, 0, 1,
            )  # fmt: skip
            across = found[over + title, ACROSS]
            assert (across.size, across.per_micro_batch, across.per_iteration) == (
                4 * count / shards, 0, 1,
            )  # fmt: skip
            gathered = found[f"parameters{title}", INSTANCE]
            assert gathered.size == 2 * count - quantised


def test_parameters_that_are_given_up_are_gathered_twice() -> None:
    zero = rows(seed_job(sharding="parameters"), "data", 0)
    (row,) = [row for row in zero if row.collective == "all_gather"]
    assert row.what == "parameters, forward and backward"
    assert (row.per_micro_batch, row.per_iteration) == (2, 64)


@pytest.mark.parametrize("ep", [1, 2])
def test_experts_of_a_unit_are_counted_once(ep: int) -> None:
    """With its layer where every rank has all of them, else by themselves."""
    optimizer = OptimizerSettings(sharding="parameters", from_master=True)
    kernels = Kernels(grouped_experts=True, quantised="fp8-current", quantised_parameters=True)
    job = routed_job(optimizer=optimizer, ep=ep, etp=1, kernels=kernels)
    (layer,) = [module for module in rank_modules(job, 0) if module.name == "decoder.layers"]
    one = layer.times(1)
    low, low_routed = quantised_counts((one,))
    found = {row.what: row for row in rows(job, "data", 0)}
    name = "parameters, forward and backward, layer"
    routed = one.expert_parameters if ep > 1 else 0
    sparse = low_routed if ep > 1 else 0
    assert found[name].size == 2 * (one.parameters - routed) - (low - sparse)
    assert found["gradients, layer"].size == 4 * (one.parameters - routed)
    if ep > 1:
        assert found[f"{name}'s experts"].size == 2 * routed - sparse


# ---- sequence parallelism ------------------------------------------------------------------------


def test_sequence_parallelism_gathers_and_scatters() -> None:
    """Korthikanti et al. 2022, section 4.2.2: two of each forward; backward the inputs of both
    column-parallel products are gathered again."""
    found = flat(layer_messages(seed_job(sequence_parallel=True), False))
    assert {shape for _, _, shape, _, _ in found} == {(2048, 4, 4096)}

    def count(direction: str, collective: str) -> int:
        return sum(x[3] for x in found if x[4] == direction and x[1] == collective)

    assert (count("forward", "all_gather"), count("forward", "reduce_scatter")) == (2, 2)
    assert (count("backward", "all_gather"), count("backward", "reduce_scatter")) == (4, 2)
    assert not [x for x in found if x[1] == "all_reduce"]


def test_a_kept_input_is_not_gathered_again() -> None:
    """torch's DTensor: an all-gather less for each of a layer's two products with divided columns,
    and tp - 1 further shares of their inputs kept."""
    again = seed_job(sequence_parallel=True)
    kept = seed_job(sequence_parallel=True, keeps_gathered=True)
    found, fewer = (flat(layer_messages(job, False)) for job in (again, kept))
    missing = Counter(found) - Counter(fewer)
    assert {message[1:] for message in missing} == {("all_gather", (2048, 4, 4096), 1, "backward")}
    assert missing.total() == 2
    assert not Counter(fewer) - Counter(found)
    shares = [layer_module(job, False).activations for job in (again, kept)]
    assert shares[1] - shares[0] == 2 * 2048 * 4 * 4096 * 2 / 2


def test_a_ring_sends_the_same_forward_with_and_without_sequence_parallelism() -> None:
    """An all-reduce is a reduce-scatter and an all-gather."""

    def sent(job: TrainingJob) -> float:
        return sum(
            row.sent * row.per_micro_batch
            for row in rows(job, "tensor", 0)
            if row.what == "layers, forward"
        )

    assert math.isclose(sent(seed_job()), sent(seed_job(sequence_parallel=True)))


def test_boundaries_are_divided_by_tp_with_sequence_parallelism_only() -> None:
    assert boundary_size(seed_job()) == 64 * MIB
    assert boundary_size(seed_job(sequence_parallel=True)) == 32 * MIB
    assert boundary_size(seed_job(dp=2, cp=2)) == 32 * MIB


def test_gradients_of_whole_parameters_are_summed_over_tp() -> None:
    """Two norms with biases and two biases of row-parallel products: 6 h per layer, and the last
    norm."""
    job = seed_job(sequence_parallel=True)
    assert unsplit_parameters(job, False) == 6 * 4096
    sizes = [
        next(row.size for row in rows(job, "tensor", r) if row.what.startswith("gradients"))
        for r in (0, 1)
    ]
    assert sizes == [16 * 6 * 4096 * 4, (16 * 6 + 2) * 4096 * 4]
    assert unsplit_parameters(seed_job(), False) == 0


@for_each("experts", [False, True])
@for_each("bias", [False, True])
@for_each("qk_norm", [False, True])
@for_each("latent", [False, True])
def test_undivided_parameters_are_those_that_a_second_rank_repeats(
    experts: bool, bias: bool, qk_norm: bool, latent: bool
) -> None:
    """Two ranks hold a layer once, and what is not divided once more."""
    model = replace(
        ROUTED,
        bias=bias,
        qk_norm=qk_norm,
        norm="layernorm" if bias else "rmsnorm",
        latent=LatentAttention(key_value_rank=64, key=32, rotary=16, value=32, query_rank=128)
        if latent
        else None,
        experts=Experts(count=8, top_k=2, ffn=256, shared_ffn=512),
    )
    one = replace(routed_job(tp=1, ep=1), model=model)
    two = replace(routed_job(tp=2, ep=1), model=model)
    repeated = 2 * layer_module(two, experts).parameters - layer_module(one, experts).parameters
    if experts and bias:
        # The bias of an expert's second product is whole on both ranks; its gradients are those
        # of each rank's tokens, which are gathered, and need no sum.
        repeated -= 8 * 512
    assert unsplit_parameters(two, experts) == repeated


# ---- pipelines -----------------------------------------------------------------------------------


def test_virtual_stages_pass_every_boundary() -> None:
    """Of 8 virtual stages on 4 ranks there are 7 boundaries, each passed forward and backward."""
    job = replace(seed_job(tp=1, pp=4, dp=4), layout=even_layout(32, 4, 2))
    each = [
        sum(row.per_micro_batch for row in rows(job, "pipeline", r) if row.group == "pp")
        for r in range(4)
    ]
    assert each == [6, 8, 8, 6]


def test_the_turn_of_a_v_sends_nothing() -> None:
    """The second and the third of four stages are on the second of two ranks."""
    job = replace(seed_job(tp=1, schedule="zb-v"), layout=even_layout(32, 2, 2))
    for rank in range(2):
        found = [row for row in rows(job, "pipeline", rank) if row.group == "pp"]
        assert [row.per_micro_batch for row in found] == [1, 1, 1, 1]


def sends(job: TrainingJob) -> int:
    return sum(
        row.per_micro_batch
        for r in range(job.pp)
        for row in rows(job, "pipeline", r)
        if row.group == "pp" and not row.received
    )


def receives(job: TrainingJob) -> int:
    return sum(
        row.per_micro_batch
        for r in range(job.pp)
        for row in rows(job, "pipeline", r)
        if row.group == "pp" and row.received
    )


@given(pp=st.sampled_from((1, 2, 4)), virtual=st.sampled_from((1, 2, 4)))
def test_what_is_sent_is_received(pp: int, virtual: int) -> None:
    job = replace(seed_job(tp=1, pp=pp, dp=1), layout=even_layout(32, pp, virtual if pp > 1 else 1))
    boundaries = len(job.stages) - 1
    assert sends(job) == receives(job) == 2 * boundaries


def test_uneven_stages_have_rows_of_their_own() -> None:
    job = replace(seed_job(tp=2, pp=4, dp=2), layout=split_layout([7, 9, 9, 7]))
    layers = {row.stages: row for row in traffic(job) if row.what == "layers, forward"}
    assert {stages: row.per_micro_batch for stages, row in layers.items()} == {
        (0, 3): 14,
        (1, 2): 18,
    }


# ---- recomputation -------------------------------------------------------------------------------


def test_full_recomputation_sends_the_forward_pass_again() -> None:
    job = seed_job(recompute=Recompute(granularity="full", method="uniform", layers=1))
    again = [row for row in rows(job, "tensor", 0) if row.what == "layers, recomputed forward"]
    assert sum(row.per_micro_batch for row in again) == 32
    block = seed_job(recompute=Recompute(granularity="full", method="block", layers=3))
    again = [row for row in rows(block, "tensor", 0) if row.what == "layers, recomputed forward"]
    assert sum(row.per_micro_batch for row in again) == 6


def test_full_recomputation_sends_what_a_layer_sends_forward() -> None:
    """And, where kept inputs are divided over ranks, puts the layer's input together."""
    usual = Recompute(granularity="full", method="uniform", layers=1)
    job = seed_job(sequence_parallel=True, recompute=usual)
    forward = {name: (pair[0], ()) for name, pair in layer_messages(job, False).items()}
    assert recomputed_messages(job, False) == forward
    job = seed_job(recompute=replace(usual, distribute=True))
    found = recomputed_messages(job, False)
    ((kept,), nothing) = found.pop("input")
    assert (kept.collective, kept.shape, nothing) == ("all_gather", (2048, 4, 4096), ())
    assert set(found) == set(forward)
    assert "input" not in recomputed_messages(replace(job, tp=1), False)


def test_selective_recomputation_repeats_only_what_is_in_its_modules() -> None:
    def again(*modules: str, experts: bool = True, **changes: object) -> set[str]:
        recompute = Recompute(granularity="selective", modules=modules)
        return set(recomputed_messages(routed_job(recompute=recompute, **changes), experts))

    assert again("core_attn") == set()
    assert again("core_attn", cp=2) == {"self_attention.core_attention"}
    assert again("moe") == {"mlp.dispatch", "mlp.combine"}
    assert again("moe", experts=False) == set()
    assert again("mlp") == set()
    assert again("mlp", experts=False) == {"mlp.linear_fc1", "mlp.linear_fc2"}
    assert again("layernorm", "moe_act") == set()


# ---- context parallelism -------------------------------------------------------------------------


def test_context_ring_passes_keys_and_values_on() -> None:
    """3 steps of its own 512 tokens' keys and values forward; their gradients too backward."""
    job = seed_job(tp=2, pp=1, dp=2, cp=4)
    forward, backward = layer_messages(job, False)["self_attention.core_attention"]
    assert [(m.shape, m.times) for m in forward] == [((512, 4, 4096), 3)]
    assert [(m.shape, m.times) for m in backward] == [((512, 4, 4096), 6)]


def test_context_gather_and_all_to_all() -> None:
    job = seed_job(tp=2, pp=1, dp=2, cp=4, cp_comm="all_gather")
    forward, backward = layer_messages(job, False)["self_attention.core_attention"]
    assert [(m.collective, m.shape) for m in forward] == [("all_gather", (2048, 4, 4096))]
    assert [m.collective for m in backward] == ["all_gather", "reduce_scatter"]
    job = seed_job(tp=2, pp=1, dp=2, cp=4, cp_comm="a2a")
    forward, backward = layer_messages(job, False)["self_attention.core_attention"]
    assert [m.shape[-1] for m in forward] == [2048, 4096, 2048]
    assert sum(m.times for m in backward) == 4


def test_both_ways_together_split_the_ring() -> None:
    job = seed_job(tp=2, pp=1, dp=2, cp=4, cp_comm="a2a+p2p", cp_inner=2)
    forward, backward = layer_messages(job, False)["self_attention.core_attention"]
    ring = [m for m in forward if m.collective == "send_recv"]
    assert [(m.shape, m.times) for m in ring] == [((1024, 4, 2048), 1)]
    assert [m.collective for m in forward] == ["all_to_all"] * 2 + ["send_recv", "all_to_all"]
    assert backward[0].collective == "all_to_all"


# ---- experts -------------------------------------------------------------------------------------


def test_alltoall_dispatcher() -> None:
    """Each of 512 local tokens goes to two experts; the experts' tensor parallelism gathers."""
    job = routed_job(kernels=Kernels(dispatcher="alltoall"))
    forward, backward = layer_messages(job, True)["mlp.dispatch"]
    shapes = {(m.group, m.collective): m.shape for m in forward if len(m.shape) == 2}
    assert shapes["ep", "all_to_all"] == (1024, 512)
    assert shapes["etp", "all_gather"] == (2048, 512)
    assert shapes["etp-ep", "all_gather"] == (4, 8)
    assert [m.collective for m in backward] == [
        "reduce_scatter",
        "reduce_scatter",
        "all_to_all",
        "all_to_all",
    ]
    forward, backward = layer_messages(job, True)["mlp.combine"]
    assert [m.collective for m in forward] == ["reduce_scatter", "all_to_all"]
    assert [m.collective for m in backward] == ["all_to_all", "all_gather"]


def test_experts_that_are_not_divided_themselves_only_exchange() -> None:
    job = routed_job(kernels=Kernels(dispatcher="alltoall"), etp=1)
    forward, _ = layer_messages(job, True)["mlp.dispatch"]
    assert [m.group for m in forward] == ["etp-ep", "ep", "ep"]


def test_padding_to_the_capacity_fixes_the_rows() -> None:
    kernels = Kernels(dispatcher="alltoall", capacity=1.3, pad_to_capacity=True)
    job = routed_job(kernels=kernels)
    assert job.model.experts is not None
    assert routed_rows(job, job.model.experts) == math.ceil(1024 / 8 * 1.3) * 8
    for changes in ({"capacity": 0.0}, {"pad_to_capacity": False}):
        other = replace(job.settings, kernels=replace(kernels, **changes))
        assert routed_rows(replace(job, settings=other), job.model.experts) == 1024


@for_each("dispatcher", ["alltoall", "flex"])
@for_each(("capacity", "times"), [(0.0, 3.0), (1.5, 1.5), (4.0, 3.0)])
def test_the_fullest_rank_s_tokens_pass_its_links(
    dispatcher: str, capacity: float, times: float
) -> None:
    def exchanged(**uneven: float) -> list[int]:
        job = routed_job(kernels=Kernels(dispatcher=dispatcher, **uneven), etp=1)
        found = [layer_messages(job, True)[f"mlp.{name}"] for name in ("dispatch", "combine")]
        ways = [way for both in found for way in both]
        return [m.size for way in ways for m in way if m.collective == "all_to_all"]

    even, uneven = exchanged(), exchanged(imbalance=3.0, capacity=capacity)
    assert even
    assert uneven == pytest.approx([times * size for size in even], rel=1e-3)


def test_allgather_dispatcher_shows_every_rank_all_tokens() -> None:
    job = routed_job(kernels=Kernels(dispatcher="allgather"))
    forward, backward = layer_messages(job, True)["mlp.dispatch"]
    assert {(m.collective, m.shape, m.width) for m in forward} == {
        ("all_gather", (2048, 512), 2),
        ("all_gather", (2048, 8), 2),
        ("all_gather", (2048, 8), 1),
    }
    assert {m.collective for m in backward} == {"reduce_scatter"}


def test_flex_dispatcher_sends_a_token_once_to_a_rank() -> None:
    """Of 8 experts on 2 ranks, both choices are on one rank with probability 2 C(4,2) / C(8,2)."""
    job = routed_job(kernels=Kernels(dispatcher="flex"), etp=1)
    (tokens,), _ = layer_messages(job, True)["mlp.dispatch"]
    one = 2 * math.comb(4, 2) / math.comb(8, 2)
    assert tokens.shape == (round(512 * (one + 2 * (1 - one))), 512)


def test_flex_dispatcher_sends_a_token_once_to_a_node() -> None:
    """8 ranks with one expert each on nodes of 4: a token needs 2 ranks, and another node with
    probability 4 / 7, so that of two messages 11 / 14 go to different nodes."""
    job = routed_job(tp=1, dp=8, ep=8, kernels=Kernels(dispatcher="flex"))
    (tokens,), _ = layer_messages(replace(job, devices_per_node=4), True)["mlp.dispatch"]
    assert tokens.shape == (1024 * 2, 512)
    assert tokens.once == pytest.approx((1 + 4 / 7) / 2)
    (tokens,), _ = layer_messages(replace(job, devices_per_node=8), True)["mlp.dispatch"]
    assert tokens.once == pytest.approx(1 / 2)
    (tokens,), _ = layer_messages(replace(job, devices_per_node=1), True)["mlp.dispatch"]
    assert tokens.once == pytest.approx(1)


def test_one_rank_of_experts_sends_nothing() -> None:
    job = routed_job(tp=1, ep=1, kernels=Kernels(dispatcher="alltoall"))
    assert not layer_messages(job, True)


def test_alltoall_scatters_what_it_has_gathered() -> None:
    """Rows of two samples from two ranks of the experts' tensor parallelism, and their weights."""
    job = replace(routed_job(kernels=Kernels(dispatcher="alltoall")), micro_batch=2)
    assert local_tokens(job) == 1024
    forward, backward = layer_messages(job, True)["mlp.dispatch"]
    gathered = [m.shape for m in forward if m.group == "etp"]
    assert gathered == [(4096, 512), (4096,)]
    assert [m.shape for m in backward] == [(4096,), (4096, 512), (2048,), (2048, 512)]


def test_tokens_that_were_gathered_are_put_together_alone() -> None:
    """Their probabilities are those of the dispatcher, whose gradients go back with it."""
    job = routed_job(kernels=Kernels(dispatcher="allgather"))
    forward, backward = layer_messages(job, True)["mlp.combine"]
    assert [(m.collective, m.shape) for m in forward] == [("reduce_scatter", (2048, 512))]
    assert [(m.collective, m.shape) for m in backward] == [("all_gather", (2048, 512))]


def test_a_shared_expert_on_one_rank_sends_nothing() -> None:
    shared = replace(ROUTED, experts=Experts(count=8, top_k=2, ffn=256, shared_ffn=512))
    for tp, sends in ((1, False), (2, True)):
        job = replace(routed_job(tp=tp), model=shared)
        names = set(layer_messages(job, True))
        assert any(name.startswith("mlp.shared_experts") for name in names) == sends


# ---- latent attention and token prediction -------------------------------------------------------


def latent_job(implementation: str) -> TrainingJob:
    latent = LatentAttention(key_value_rank=128, key=64, rotary=32, value=64, query_rank=256)
    return replace(
        seed_job(pp=1, sequence_parallel=True, kernels=Kernels(implementation=implementation)),
        model=replace(SEED, latent=latent, qk_norm=True, bias=False, norm="rmsnorm"),
    )


def test_latent_attention_gathers_compressed_vectors() -> None:
    found = layer_messages(latent_job("transformer_engine"), False)
    shapes = {name: pair[0][0].shape[-1] for name, pair in found.items() if "self" in name}
    assert shapes == {
        "self_attention.linear_kv_up_proj": 128,
        "self_attention.linear_q_up_proj": 256,
        "self_attention.linear_kv_down_proj": 32,
        "self_attention.linear_proj": 4096,
    }
    whole = 2 * 4096 + 4096 * (128 + 32 + 256) + 128 + 256
    assert unsplit_parameters(latent_job("transformer_engine"), False) == whole
    assert unsplit_parameters(latent_job("local"), False) == 2 * 4096 + 128 + 256


def test_latent_attention_without_sequence_parallelism_or_narrow_queries() -> None:
    """The rotary key is whole on every rank; queries come from the layer's input."""
    job = latent_job("transformer_engine")
    job = replace(job, settings=replace(job.settings, sequence_parallel=False))
    assert "self_attention.linear_kv_down_proj" not in layer_messages(job, False)
    assert job.model.latent is not None
    wide = replace(job.model, latent=replace(job.model.latent, query_rank=0))
    found = layer_messages(replace(job, model=wide), False)
    _, (backward,) = found["self_attention.linear_q_proj"]
    assert backward.shape[-1] == 4096
    assert "self_attention.linear_q_up_proj" not in found
    for model, narrow in ((wide, False), (job.model, True)):
        local = replace(latent_job("local"), model=model)
        names = set(layer_messages(local, False))
        assert ("self_attention.linear_q_down_proj" in names) == narrow
        assert "self_attention.linear_kv_down_proj" in names


def test_latent_attention_exchanges_keys_as_wide_as_queries() -> None:
    """32 heads on two ranks: keys of 64 and 32 channels, values of 64."""
    job = latent_job("transformer_engine")
    assert head_widths(job) == (16 * 96, 16 * (96 + 64), 16 * 64)
    grouped = replace(SEED, kv_heads=8)
    assert head_widths(replace(seed_job(), model=grouped)) == (2048, 2 * 4 * 128, 2048)


def test_token_prediction_has_its_own_embedding_and_logits() -> None:
    job = replace(seed_job(pp=1), model=replace(SEED, prediction_layers=1), layout=None)
    found = prediction_messages(job, False)
    assert {"eh_proj", "output_layer", "loss", "embedding.word_embeddings"} <= set(found)
    assert "transformer_layer.mlp.linear_fc1" in found


def test_fused_loss_sums_two_numbers_at_once() -> None:
    fused = output_messages(seed_job(kernels=Kernels(fused_loss=True)))["loss"][0]
    assert [(m.shape, m.times) for m in fused] == [((2048, 4), 1), ((2048, 8), 1)]


# ---- whatever the job ----------------------------------------------------------------------------


@st.composite
def any_job(draw: st.DrawFn) -> TrainingJob:
    degree = st.sampled_from((1, 2, 4))
    tp, pp, dp, cp = (draw(degree) for _ in range(4))
    routed = draw(st.booleans())
    model = ROUTED if routed else SMALL
    return TrainingJob(
        model=model,
        micro_batch=draw(degree),
        global_batch=16 * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        settings=Settings(
            cp=cp,
            ep=draw(st.sampled_from([d for d in (1, 2, 4) if dp * cp % d == 0])) if routed else 1,
            sequence_parallel=draw(st.booleans()),
            cp_comm=draw(st.sampled_from(("p2p", "all_gather", "a2a"))),
            optimizer=OptimizerSettings(
                sharding=draw(st.sampled_from(("none", "optimizer", "gradients", "parameters")))
            ),
            kernels=Kernels(dispatcher=draw(st.sampled_from(("allgather", "alltoall", "flex")))),
        ),
    )


@examples(30)
@given(any_job())
def test_rows_add_up(job: TrainingJob) -> None:
    """Grouping equal stages loses nothing, and every row is of a group that talks."""
    grouped = traffic(job)
    single = [row for r in range(job.pp) for row in stage_traffic(job, r)]
    assert sum(row.cluster_messages for row in grouped) == sum(r.cluster_messages for r in single)
    assert math.isclose(
        sum(row.cluster_sent for row in grouped), sum(row.cluster_sent for row in single)
    )
    for row in grouped:
        assert row.members > 1
        assert row.size > 0
        assert row.link != "none"
        assert row.gpus == len(row.stages) * job.world // job.pp
        if row.per_micro_batch:
            assert row.per_iteration == row.per_micro_batch * job.micro_batches
    if job.world == 1:
        assert not grouped


@examples(15)
@given(any_job(), st.integers(2, 4))
def test_a_larger_micro_batch_sends_more_at_once(job: TrainingJob, factor: int) -> None:
    wide = replace(job, micro_batch=factor * job.micro_batch)

    def each(some: TrainingJob) -> float:
        return sum(r.volume_per_micro_batch for r in traffic(some) if r.family == "tensor")

    assert math.isclose(each(wide), factor * each(job))


@for_each(
    ("collective", "members", "share"),
    [
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 2, 0.5),
        ("all_to_all", 8, 0.875),
        ("send_recv", 2, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_ring_shares(collective: str, members: int, share: float) -> None:
    assert sent_share(collective, members) == share
