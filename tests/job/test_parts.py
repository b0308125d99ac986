"""Parts of a rank's memory: what they add up from."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.job.decoder import layer_module
from ilp_planner.job.operators import outputs_needed
from ilp_planner.job.overheads import flow
from ilp_planner.job.parts import (
    JOB,
    KINDS,
    Part,
    _activations,
    _kinds,
    activations_of,
    memory_of_each,
    memory_parts,
)
from ilp_planner.job.recompute import checkpoint
from ilp_planner.job.states import stepped_width, trained_weights
from ilp_planner.schedule.formulas import PIPELINES, USUAL
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    OF_MATRICES,
    SHARDINGS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    TrainingJob,
)
from tests.examples import examples
from tests.training_jobs import gpt, job, jobs, llama, settings

SOME = (
    Recompute(),
    Recompute(granularity="selective"),
    Recompute(granularity="selective", modules=("layernorm",)),
    Recompute(granularity="selective", modules=("mlp", "moe_act")),
)
WHOLE = (
    Recompute(granularity="full", method="uniform", layers=1),
    Recompute(granularity="full", method="block", layers=3),
)
MIXTURE = Experts(count=8, top_k=2, ffn=96, dense_first=1)


def test_a_part_that_is_not_there_takes_nothing() -> None:
    assert {getattr(Part(), field.name) for field in fields(Part)} == {0}
    parts = memory_parts(job()).parts
    assert {kind for kind in KINDS if parts[kind] != Part()} == {"layer", "embedding", "output"}


def test_norms_and_words_on_the_last_stage_have_no_moment() -> None:
    case = job(gpt(prediction_layers=1), layout=split_layout([1, 2, 3, 2], prediction_layers=1))
    parts = memory_parts(case).parts
    for kind in ("copied words", "final norm"):
        part = parts[kind]
        assert (part.moment, part.again, part.chunk, part.moved) == (0, 0, 0, 0)
        assert part.parameters > 0
    assert parts["prediction layer"].moment > 0


@pytest.mark.parametrize("distribute", [False, True])
def test_a_layer_that_is_computed_again_is_there_beside_its_input(distribute: bool) -> None:
    """All that it keeps but its input, what it gives, and its largest moment; where the kept input
    is divided, it has been put together besides."""
    full: dict[str, Any] = {"granularity": "full", "method": "uniform", "layers": 1}
    case = job(settings=settings(recompute=Recompute(**full, distribute=distribute)))
    part = memory_parts(case).parts["layer"]
    assert part.chunk == layer_module(case, kind=0).activations
    own = 0 if distribute else checkpoint(case).size
    assert part.again == part.chunk - own + flow(case).narrow + part.moment


def test_a_layer_by_operators_has_all_but_the_outputs_that_its_way_back_reads() -> None:
    case = job(settings=settings(recompute=BY_OPERATORS))
    part = memory_parts(case).parts["layer"]
    assert part.moment == part.again - outputs_needed(case, False)
    plain = memory_parts(job()).parts["layer"]
    assert (part.again, part.chunk) == (plain.again, plain.chunk)


def test_a_step_widens_gradients_of_all_replicas() -> None:
    """Those of routed experts are shared among fewer."""
    optimizer = OptimizerSettings(sharding="optimizer", gradient=2)
    case = job(llama(experts=MIXTURE), dp=4, settings=settings(ep=2, optimizer=optimizer))
    part = memory_parts(case).parts["expert layer"]
    dense, routed = (stepped_width(case, expert=flag) for flag in (False, True))
    assert dense != routed
    others = part.parameters - part.expert_parameters
    assert part.stepped == others * dense + part.expert_parameters * routed
    assert part.expert_parameters > 0


@pytest.mark.parametrize("name", ["adam", "sgd", "lion", *OF_MATRICES])
def test_optimizers_of_matrices_leave_words_and_vectors_to_adam(name: str) -> None:
    optimizer = OptimizerSettings(name=name, moments=8 if name == "adam" else 4)
    case = job(settings=settings(optimizer=optimizer))
    parts, layer = memory_parts(case).parts, layer_module(case, *case.kind(0))
    found = {"embedding": parts["embedding"].parameters}
    found["layer"] = sum(
        times * one.count for one, times, _ in trained_weights(layer) if len(one.shape) < 2
    )
    assert 0 < found["layer"] < parts["layer"].parameters
    for kind, others in found.items():
        part, more = parts[kind], 8 - optimizer.moments if name in OF_MATRICES else 0
        each = optimizer.master + optimizer.moments
        assert part.optimizer == part.parameters * each + others * more


def test_only_layers_go_to_the_host() -> None:
    """By what goes together: the last of it comes back ahead."""
    kernels = Kernels(fused_activation=False)
    offload = Offload(modules=("core_attn", "attn_proj"), smallest=0)
    case = job(pp=1, layout=None, settings=settings(offload=offload, kernels=kernels))
    layer = memory_parts(case).parts["layer"]
    projection = 2 * 512 * 2 * 256 // 2
    assert layer.ahead == projection
    assert layer.moved > layer.ahead
    assert layer.left == layer.kept - layer.moved
    large = gpt(hidden=1024, sequence=4096, vocab=50000)
    whole = job(large, pp=1, layout=None, settings=settings(offload=Offload(layers=2)))
    parts = memory_parts(whole).parts
    assert parts["layer"].moved > 0
    assert parts["layer"].ahead == parts["layer"].moved
    assert parts["embedding"].moved == parts["output"].moved == 0
    assert memory_parts(job()).parts["layer"].ahead == 0


@given(jobs(), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)))
def test_parts_are_the_same_with_what_is_known_of_other_replicas_and_ranks(
    one: TrainingJob, dp: int, pp: int
) -> None:
    spare = split_layout(
        [one.model.layers] + [0] * (pp - 1), prediction_layers=one.model.prediction_layers
    )
    cap = one.settings.ep * max(1, one.settings.etp) * 2
    batch = one.micro_batch * dp * cap * one.micro_batches
    usual = replace(one.settings, schedule=USUAL, turn=0)
    try:
        other = replace(one, dp=dp * cap, pp=pp, layout=spare, settings=usual, global_batch=batch)
    except ValueError:
        assume(False)
    known: dict[object, Any] = {}
    for each in (one, other, one):
        assert memory_parts(each, known) == memory_parts(each)


@examples(40)
@given(case=jobs())
def test_the_memory_of_several_recomputations_is_that_of_each(case: TrainingJob) -> None:
    plain = memory_parts(replace(case, settings=replace(case.settings, recompute=Recompute())))
    known = activations_of(case, {})
    together = memory_of_each(plain, SOME, known)
    for row, again in enumerate(SOME):
        alone = memory_parts(replace(case, settings=replace(case.settings, recompute=again)))
        assert (together.method, together.size) == (alone.method, alone.size)
        for kind, part in alone.parts.items():
            for field in fields(Part):
                found = getattr(together.parts[kind], field.name)
                own = found[row, 0, 0] if hasattr(found, "shape") else found
                assert own == getattr(part, field.name), (kind, field.name)
    for again in WHOLE:
        alone = memory_parts(replace(case, settings=replace(case.settings, recompute=again)))
        found = memory_of_each(plain, [again], known)
        assert replace(found, job=alone.job) == alone


@examples(40)
@given(
    case=jobs(),
    sharding=st.sampled_from(SHARDINGS),
    rest=st.sampled_from([{"moments": 0}, {"gradient": 2, "master": 0}, {"from_master": True}]),
    schedule=st.sampled_from(PIPELINES),
)
def test_activations_do_not_depend_on_the_states_of_the_optimiser(
    case: TrainingJob, sharding: str, rest: dict[str, Any], schedule: str
) -> None:
    assume(not (sharding == "optimizer" and "from_master" in rest))
    plain = replace(case, settings=replace(case.settings, schedule=schedule))
    optimizer = OptimizerSettings(sharding=sharding, **rest)
    other = replace(plain, settings=replace(plain.settings, optimizer=optimizer))
    for again in SOME:
        for kind in _kinds(case):
            first, second = (_activations(one, kind, again, {JOB: one}) for one in (plain, other))
            assert first == second
