"""A stage of made-up parts, whose moments are worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.job.memory import MOMENTS, StageMemory, kept_bytes, stage_memory, stage_of_rank
from ilp_planner.job.overheads import flow
from ilp_planner.job.parts import KINDS, MemoryParts, Part, memory_parts
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Recompute, Settings
from tests.examples import for_each
from tests.training_jobs import job as a_job

CHECKPOINT = 3.0
MADE_UP = {
    "layer": Part(kept=100.0, moment=7.0, again=40.0, chunk=30.0),
    "expert layer": Part(kept=1000.0, moment=9.0, again=60.0, chunk=50.0),
    "embedding": Part(kept=5.0, moment=11.0),
    "output": Part(kept=17.0, moment=19.0),
    "final norm": Part(kept=2.0),
    "prediction layer": Part(kept=200.0, moment=23.0),
    "copied words": Part(kept=13.0),
}


def made_up(method: str = "", size: int = 0) -> MemoryParts:
    """Return parts of which only activations take anything. method, size: of full recomputation."""
    parts = memory_parts(a_job(settings=Settings()))
    return replace(
        parts,
        parts=dict.fromkeys(KINDS, Part()) | MADE_UP,
        spare=(),
        handles=(0.0, frozenset()),
        checkpoint=CHECKPOINT,
        fixed=dict.fromkeys(parts.fixed, 0.0),
        method=method,
        size=size,
    )


def moments(parts: MemoryParts, **counts: Any) -> dict[str, tuple[float, float, float]]:
    """Return (activations, logits, temporary) by moment, less the start, which is below all."""
    found = dict(zip(MOMENTS, stage_memory(parts, **counts).moments, strict=True))
    assert found.pop("the start") == (0.0, 0.0, 0.0)
    assert found.pop("the step") == (0.0, 0.0, 0.0)
    assert found.pop("the capture of graphs") == (0.0, 0.0, 0.0)
    return found


# ---- recomputation ------------------------------------------------------------------------------


@for_each(
    ("method", "size", "layers", "expert_layers", "kept"),
    [
        ("", 0, 2, 1, 2 * 100 + 1000),
        ("block", 1, 2, 1, 3 + 100 + 1000),
        ("block", 2, 2, 1, 3 + 3 + 1000),
        ("block", 3, 2, 2, 3 + 3 + 3 + 1000),  # those without experts come first
        ("block", 9, 2, 2, 4 * 3),
        ("block", 2, 0, 3, 2 * 3 + 1000),
        ("uniform", 1, 2, 3, 5 * 3),
        ("uniform", 2, 2, 3, 3 * 3),  # chunks of 2, 2 and 1
        ("uniform", 3, 2, 4, 2 * 3),
        ("uniform", 9, 2, 3, 3),
    ],
)
def test_what_layers_keep(
    method: str, size: int, layers: int, expert_layers: int, kept: float
) -> None:
    parts = made_up(method, size)
    assert kept_bytes(parts, layers=layers, expert_layers=expert_layers) == kept
    more = kept_bytes(parts, layers=layers, expert_layers=expert_layers, prediction_layers=2)
    assert more == kept + 2 * 200


@for_each(
    ("method", "size", "layers", "expert_layers", "kept", "layer", "forgotten", "once"),
    [
        # nothing is computed again: no layer is there twice
        ("", 0, 2, 0, 200, 7, 0, 0),
        ("", 0, 0, 2, 2000, 9, 0, 0),
        ("", 0, 2, 2, 2200, 9, 0, 0),
        # the others have gone back before those which are computed again
        ("block", 1, 2, 0, 103, 7, 100, 40),
        ("block", 2, 2, 0, 6, 0, 0, 40),
        ("block", 1, 2, 1, 1103, 9, 1100, 40),
        ("block", 2, 2, 1, 1006, 9, 1000, 40),
        ("block", 3, 2, 1, 9, 0, 0, 60),
        ("block", 3, 2, 2, 1009, 9, 1000, 60),
        ("block", 1, 0, 2, 1003, 9, 1000, 60),
        # of a chunk all layers are there at once, as many as there are
        ("uniform", 1, 3, 0, 9, 0, 0, 40),
        ("uniform", 2, 3, 0, 6, 0, 0, 40 + 30),
        ("uniform", 9, 3, 0, 3, 0, 0, 40 + 2 * 30),
        ("uniform", 2, 1, 1, 3, 0, 0, 60),
        ("uniform", 2, 3, 2, 9, 0, 0, 60 + 50),
        ("uniform", 9, 3, 4, 3, 0, 0, 60 + 3 * 50),
        ("uniform", 4, 4, 1, 6, 0, 0, 40 + 3 * 30),
    ],
)
def test_moments_of_recomputed_and_expert_layers(
    method: str,
    size: int,
    layers: int,
    expert_layers: int,
    kept: float,
    layer: float,
    forgotten: float,
    once: float,
) -> None:
    """Three micro-batches are in flight, of which one goes back."""
    parts = made_up(method, size)
    found = moments(parts, layers=layers, expert_layers=expert_layers, in_flight=3)
    assert found == {
        "a layer": (3 * kept, 0, layer),
        "recomputation": (3 * kept - forgotten, 0, once),
        "the loss": (3 * kept, 0, 0),
        "the embedding": (2 * kept, 0, 0),
    }


def test_at_the_peak_of_virtual_stages_the_one_goes_back_that_forgets_least() -> None:
    """Chunks of 3 layers, of 2, and of 1 expert layer, the first layer of each computed again."""
    parts = made_up("block", 1)
    found = moments(
        parts, layers=5, expert_layers=1, chunks=((3, 0), (2, 0), (0, 1)), kept=5000.0, own=100.0
    )
    assert found["a layer"] == (5000, 0, 7)
    assert found["recomputation"] == (5000, 0, 60)  # the last one forgets nothing
    assert found["the embedding"] == (4900, 0, 0)
    found = moments(parts, layers=5, chunks=((3, 0), (2, 0), (0, 0)), kept=5000.0)
    assert found["recomputation"] == (4900, 0, 40)  # a chunk without layers forgets none of them
    assert found["the embedding"] == (5000 - (203 + 103), 0, 0)


# ---- the ends of a model ------------------------------------------------------------------------


def test_moments_of_the_first_and_the_last_stage() -> None:
    first = moments(made_up(), layers=1, embedding=True, in_flight=3)
    assert first["a layer"] == (3 * 105, 0, 7)
    assert first["the loss"] == (3 * 105, 0, 0)
    assert first["the embedding"] == (2 * 105, 0, 11)
    last = moments(made_up(), layers=1, output=True, in_flight=1)
    assert last["a layer"] == (100, 0, 7)
    assert last["the loss"] == (100, 17 + 2 + 19, 0)  # with the norm before it
    without = moments(made_up(), layers=1, output=True, final_norm=False)
    assert without["the loss"] == (100, 17 + 19, 0)
    alone = moments(made_up(), layers=1, final_norm=True, in_flight=2)
    assert alone["a layer"] == (2 * (100 + 2), 0, 7)  # without the output it is kept as layers are
    assert alone["the loss"] == (2 * (100 + 2), 0, 0)


def test_words_are_copied_to_where_tokens_are_predicted_but_for_the_first_stage() -> None:
    predicting = {"layers": 1, "prediction_layers": 1, "in_flight": 2}
    each = 100 + 200
    assert moments(made_up(), **predicting)["a layer"] == (2 * (each + 13), 0, 23)
    first = moments(made_up(), **predicting, embedding=True)
    assert first["a layer"] == (2 * (each + 5), 0, 23)
    parts = made_up()
    one = replace(parts, job=a_job(pp=1, settings=Settings()))
    assert moments(one, **predicting)["a layer"] == (2 * each, 0, 23)


# ---- the largest moment -------------------------------------------------------------------------


def test_terms_are_those_of_the_largest_moment() -> None:
    stage = StageMemory(
        always={"parameters": 10.0, "gradients": 20.0, "optimizer": 30.0},
        moments=((5.0, 0.0, 1.0), (4.0, 0.0, 3.0), (1.0, 2.0, 0.0), (0.0, 0.0, -40.0)),
        parameters=1,
    )
    assert stage.peak == 67
    assert stage.moment == 1
    assert stage.terms == {
        "parameters": 10, "gradients": 20, "optimizer": 30,
        "activations": 4, "logits": 0, "temporary": 3,
    }  # fmt: skip


def test_at_the_start_there_are_parameters_and_gradients_but_no_states() -> None:
    """What is there besides is temporary: buffers that parameters are moved into."""
    nothing = [(0.0, 0.0, 0.0)] * (len(MOMENTS) - 1)
    stage = StageMemory(
        always={"parameters": 10.0, "gradients": 20.0, "optimizer": 30.0, "workspace": 5.0},
        moments=(*nothing, (0.0, 0.0, 8.0)),
        parameters=1,
    )
    assert stage.peak == 73
    assert stage.terms == {
        "parameters": 10, "gradients": 20, "optimizer": 0, "workspace": 0,
        "activations": 0, "logits": 0, "temporary": 43,
    }  # fmt: skip
    assert sum(stage.terms.values()) == stage.peak


def test_recomputation_is_what_the_job_says() -> None:
    again = Recompute(granularity="full", method="block", layers=2)
    parts = memory_parts(a_job(settings=Settings(recompute=again)))
    assert (parts.method, parts.size) == ("block", 2)
    parts = memory_parts(a_job(settings=Settings(recompute=Recompute(granularity="selective"))))
    assert (parts.method, parts.size) == ("", 0)


# ---- activations on the host --------------------------------------------------------------------

MOVED = MADE_UP | {
    "layer": Part(kept=100.0, moved=60.0, ahead=20.0, moment=7.0),
    "expert layer": Part(kept=1000.0, moved=300.0, ahead=50.0, moment=9.0),
    "prediction layer": Part(kept=200.0, moved=90.0, ahead=40.0, moment=23.0),
}


def offloading(layers: int = 0, parts: dict[str, Part] = MOVED) -> MemoryParts:
    """Return parts of which some activations go to the host. layers: of whole ones, how many."""
    found = made_up()
    settings = replace(found.job.settings, offload=Offload(layers=layers))
    job = replace(found.job, settings=settings)
    return replace(found, job=job, parts={**found.parts, **parts})


@for_each(
    ("layers", "expert_layers", "prediction_layers", "staying", "coming"),
    [
        (1, 0, 0, 60, 0),  # the only layer is never sent, and none comes back for one before it
        (2, 0, 0, 60, 20),
        (0, 1, 0, 300, 0),
        (0, 2, 0, 300, 50),
        (1, 1, 0, 300, 50),
        (0, 1, 1, 300, 50),
        (1, 0, 1, 90, 40),
    ],
)
def test_of_modules_the_last_layers_part_stays_and_that_before_it_comes_back(
    layers: int, expert_layers: int, prediction_layers: int, staying: float, coming: float
) -> None:
    found = moments(
        offloading(),
        layers=layers,
        expert_layers=expert_layers,
        prediction_layers=prediction_layers,
        embedding=True,
        in_flight=3,
    )
    left = 40 * layers + 700 * expert_layers + (110 + 110) * prediction_layers
    held = 3 * (left - 110 * prediction_layers + 5)
    assert found["a layer"][0] == held + staying + coming
    assert found["the loss"][0] == held + staying
    assert found["the embedding"][0] == held / 3 * 2


@for_each(
    ("sent", "layers", "expert_layers", "staying"),
    [
        (1, 1, 0, 60),  # one layer is there at the least
        (9, 3, 2, 300),
        (1, 4, 0, 3 * 60),
        (2, 3, 2, 1 * 60 + 2 * 300),  # the last three of five, before the backward pass
        (1, 1, 4, 4 * 300),
        (3, 0, 5, 2 * 300),
    ],
)
def test_of_whole_layers_those_stay_that_are_not_sent(
    sent: int, layers: int, expert_layers: int, staying: float
) -> None:
    found = moments(offloading(sent), layers=layers, expert_layers=expert_layers, in_flight=3)
    held = 3 * (40 * layers + 700 * expert_layers)
    assert found["a layer"][0] == found["the loss"][0] == held + staying


def test_of_whole_layers_the_first_ones_weigh_where_they_move_more() -> None:
    """At the start of the peak the first three of five are there, at its end the last three."""
    more = {**MOVED, "layer": Part(kept=900.0, moved=500.0, moment=7.0)}
    found = moments(offloading(2, more), layers=2, expert_layers=3)
    assert found["a layer"][0] == 2 * 400 + 3 * 700 + (2 * 500 + 1 * 300)


# ---- the start, and between stages --------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "routed", "start"),
    [
        (40, 10, 2 * 83 + (2 + 4) * (83 - 10)),  # the others' gradients are the most
        (400, 390, 2 * 390 + (2 + 4) * 443),  # those of experts come after the others
    ],
)
def test_at_the_start_parameters_are_moved_into_buffers(
    experts: int, routed: int, start: float
) -> None:
    """Two layers of 20 parameters and one with experts, an embedding of 3: 2 bytes each, and 4 of
    its gradient."""
    optimizer = OptimizerSettings(sharding="optimizer")
    found = made_up()
    job = replace(found.job, settings=replace(found.job.settings, optimizer=optimizer))
    parts = {
        **dict.fromkeys(KINDS, Part()),
        "layer": Part(parameters=20, weights=40.0, gradients=80.0, optimizer=7.0),
        "expert layer": Part(parameters=experts, expert_parameters=routed),
        "embedding": Part(parameters=3, weights=6.0),
    }
    stage = stage_memory(
        replace(found, job=job, parts=parts), layers=2, expert_layers=1, embedding=True
    )
    assert sum(stage.always.values()) == 2 * (40 + 80 + 7) + 6
    assert stage.moments[-1] == (0.0, 0.0, start - sum(stage.always.values()))
    none = stage_memory(replace(found, parts=parts), layers=2, expert_layers=1, embedding=True)
    assert none.moments[-1] == (0.0, 0.0, -sum(none.always.values()))


def test_the_first_stage_sends_no_gradients_on() -> None:
    found = made_up()
    fixed = {**found.fixed, "between stages": 70.0}
    parts = replace(found, fixed=fixed)
    assert stage_memory(parts, layers=1).always["between stages"] == 70
    assert stage_memory(parts, layers=1, embedding=True).always["between stages"] == 0
    layout = split_layout([1] * 8)
    twice = replace(parts, job=replace(found.job, layout=layout))
    assert twice.job.virtual == 2
    assert stage_memory(twice, layers=1, embedding=True).always["between stages"] == 70


def test_what_several_kinds_need_is_there_once() -> None:
    parts = replace(
        made_up(),
        spare=((5.0, frozenset(("layer", "output"))), (8.0, frozenset(("expert layer",)))),
        handles=(11.0, frozenset(("output", "expert layer"))),
    )
    always = stage_memory(parts, layers=2, output=True).always
    assert (always["spare gradients"], always["workspace"]) == (5, 11)
    always = stage_memory(parts, layers=2, expert_layers=1).always
    assert (always["spare gradients"], always["workspace"]) == (13, 11)
    always = stage_memory(parts, embedding=True, layers=0).always
    assert (always["spare gradients"], always["workspace"]) == (0, 0)


# ---- divided backward passes --------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_a_divided_schedule_holds_what_waits_and_the_logits_of_its_stages(rank: int) -> None:
    """ZB-V on two ranks: the first has both ends of the model, the second what is between."""
    found = made_up()
    layout = split_layout([1, 2, 3, 2])
    job = replace(
        found.job, pp=2, layout=layout, settings=replace(found.job.settings, schedule="zb-v")
    )
    waiting = {**MADE_UP, "layer": replace(MADE_UP["layer"], waiting=31.0)}
    waiting["output"] = replace(MADE_UP["output"], waiting=37.0)
    memory = stage_of_rank(replace(found, job=job, parts=found.parts | waiting), rank)
    narrow = flow(job).narrow
    kept, waits = {
        0: ((100 + 5, 200 + 17), (narrow, 2 * 31 + 37)),
        1: ((200, 300), (2 * 31, 3 * 31)),
    }[rank]
    held = max(
        sum(count * size for count, size in zip(counts, (*kept, *waits), strict=True))
        for counts in job.schedule.held(1 - rank)
    )
    assert job.schedule.divides
    assert memory.terms["activations"] == held
    assert memory.moment == ("the loss" if rank == 0 else "a layer")


def test_at_the_end_of_a_divided_schedule_the_first_virtual_stage_has_gone_back() -> None:
    found = made_up()
    settings = replace(found.job.settings, schedule="zb-v")
    job = replace(found.job, pp=2, layout=split_layout([1, 2, 3, 2]), settings=settings)
    large = {"embedding": replace(MADE_UP["embedding"], moment=1e9)}
    memory = stage_of_rank(replace(found, job=job, parts=found.parts | large), 0)
    kept, waits = (100 + 5, 200 + 17), (flow(job).narrow, 0)
    held = max(
        sum(count * size for count, size in zip(counts, (*kept, *waits), strict=True))
        for counts in job.schedule.held(1)
    )
    assert memory.moment == "the embedding"
    assert memory.terms["activations"] == held - kept[0]


# ---- graphs and deferred gradients ---------------------------------------------------------------


def test_pools_of_graphs_are_tensors_while_they_are_captured_only() -> None:
    """Three micro-batches keep 100 of two layers, of which 60 are in pools."""
    parts = made_up()
    layer = replace(parts.parts["layer"], captured=60.0)
    stage = stage_memory(
        replace(parts, parts={**parts.parts, "layer": layer}), layers=2, in_flight=3
    )
    found = dict(zip(MOMENTS, stage.moments, strict=True))
    assert found["the capture of graphs"][0] == 3 * 2 * 60
    assert found["a layer"] == (3 * 2 * 40, 0, 7)
    assert found["the embedding"] == (2 * 2 * 40, 0, 0)
    assert found["the capture of graphs"] == (3 * 2 * 60, 0, 0)


def test_deferred_gradients_are_gone_at_the_step() -> None:
    parts = made_up()
    output = replace(parts.parts["output"], gradients=70.0, deferred=50.0, stepped=8.0)
    stage = stage_memory(
        replace(parts, parts={**parts.parts, "output": output}), layers=0, output=True
    )
    found = dict(zip(MOMENTS, stage.moments, strict=True))
    assert stage.always["gradients"] == 70
    assert found["the step"] == (0, 0, 8 - 50)


@for_each("experts", [False, True])
@for_each("names", [("attn",), ("attn", "mlp"), ("attn", "moe"), ("attn", "moe_router")])
def test_graphs_of_all_parts_capture_all_but_their_inputs(
    experts: bool, names: tuple[str, ...]
) -> None:
    kernels = Kernels(graphs="transformer_engine", graphed=names, grouped_experts=True)
    job = a_job(settings=Settings(kernels=kernels))
    mixture = Experts(count=4, top_k=2, ffn=64, shared_ffn=32) if experts else None
    job = replace(job, model=replace(job.model, experts=mixture))
    part = memory_parts(job).parts["expert layer" if experts else "layer"]
    rest = part.kept - part.captured
    whole = ("attn", "moe" if experts else "mlp")
    assert 0 < part.captured < part.kept
    if names == whole:
        assert rest == 2 * flow(job).narrow


# ---- PyTorch's `fully_shard` ---------------------------------------------------------------------


@for_each(
    ("sharding", "from_master", "expected"),
    [
        ("parameters", True, (2 + 4) * (50 + 70)),
        ("gradients", True, (2 + 4) * (50 + 70)),
        ("none", True, 0),
        ("parameters", False, 0),  # Megatron's own has its buffers among the gathered
    ],
)
def test_buffers_of_two_units_are_reserved(
    sharding: str, from_master: bool, expected: float
) -> None:
    """The largest layer and the largest part beside the layers, before they are copied out and as
    gradients are reduced."""
    optimizer = OptimizerSettings(sharding=sharding, from_master=from_master)
    parts = made_up()
    sized = {"layer": replace(parts.parts["layer"], parameters=50)}
    sized["output"] = replace(parts.parts["output"], parameters=70)
    parts = replace(
        parts,
        job=replace(parts.job, settings=Settings(optimizer=optimizer)),
        parts={**parts.parts, **sized},
    )
    stage = stage_memory(parts, layers=3, output=True)
    assert sum(stage.reserved.values()) == expected


@for_each("gated", [False, True])
def test_a_compiled_layer_does_not_keep_what_is_only_added(gated: bool) -> None:
    recompute = Recompute(granularity="selective", modules=("operators",))
    each = []
    for compiled in (False, True):
        job = a_job(
            settings=Settings(
                kernels=Kernels(compiled=compiled), recompute=recompute, keeps_gathered=True
            )
        )
        job = replace(job, model=replace(job.model, gated=gated))
        each.append(memory_parts(job).parts["layer"].kept)
    whole = flow(job).whole
    assert each[0] - each[1] == (whole if gated else 0)  # else it is not among every other product
