"""Which plans the proofs are about: every reason why a legal plan is in no part, one by one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupPlan, Replica
from ilp_planner.settings.kept import KeptStage
from ilp_planner.spaces.training.enumerate.recomputations import FULL, NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.search.membership import left_out, turn_of, variant_of
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.specs.training import Recompute
from tests.examples import for_each
from tests.megatron_cases import MIXTURE, small_cluster, small_problem
from tests.runtime_cases import runtime_problem

FOUR = small_cluster(1, 4)
TWO_RANKS = {"tp": 1, "cp": 1, "pp": 2, "dp": 2, "micro_batch": 1, "order": 0}


def megatron(said: dict[str, object] | None = None, **options: Any) -> Problem:
    """Return 4 layers on a node of four devices, of which all that is usual is tried."""
    return small_problem(FOUR, constraints=constraints_of(said or {}), **options)


def torchtitan(said: dict[str, object] | None = None, **options: Any) -> Problem:
    """Likewise for torchtitan, whose pipelines may divide backward passes."""
    return runtime_problem(
        "torchtitan",
        cluster=FOUR,
        global_batch=8,
        changes={"layers": 4},
        constraints=constraints_of(said or {}),
        **options,
    )


def asked(problem: Problem, **said: object) -> Problem:
    """Return a problem with other constraints, which were never asked whether they can be kept."""
    return replace(problem, constraints=constraints_of(said))


def part_of(problem: Problem, **degrees: int) -> MegatronPart:
    """Return the first part with some degrees, two ranks of two replicas where nothing is said."""
    wanted = {**TWO_RANKS, **degrees}
    return next(
        part
        for part in problem.space.parts(problem)
        if all(getattr(part.degrees, name) == value for name, value in wanted.items())
    )


def plan_of(part: MegatronPart, variant: Variant, *sizes: int) -> GroupPlan:
    """Return the plan of a part whose virtual stages have so many elements of the chain."""
    plan = part.group_plan(Variant(1, NOTHING), part_ends(part))
    ranks = [part.job_of_stages(variant, ends_of(sizes)).rank_of(k) for k in range(len(sizes))]
    stages = tuple(
        replace(plan.stages[rank], start=start, stop=start + size)
        for rank, start, size in zip(ranks, ends_of(sizes), sizes, strict=False)
    )
    assert plan.settings is not None
    settings = replace(
        plan.settings, recompute=variant.recompute, turn=variant.turn, schedule=variant.schedule
    )
    return replace(plan, stages=stages, virtual=variant.virtual, settings=settings)


def part_ends(part: MegatronPart) -> list[int]:
    """Return where ranks end that have as many elements each, or one more."""
    length, pp = part.costs.model.layers + 2, part.degrees.pp
    return [length * rank // pp for rank in range(pp + 1)]


def ends_of(sizes: Sequence[int]) -> list[int]:
    """Return where stages of so many elements end."""
    return [sum(sizes[:k]) for k in range(len(sizes) + 1)]


ONE, TWO = Variant(1, NOTHING), Variant(2, NOTHING)
ZB_V = Variant(2, NOTHING, schedule="zb-v")


@pytest.mark.parametrize("experts", [None, MIXTURE])
def test_every_part_has_plans_inside(experts: Any) -> None:
    """Of all degrees, choices of settings, turns and variants."""
    said = {"recompute": "none,core_attn,full", "micro_batch_group_size": "2..8"}
    problem, seen = megatron(said, experts=experts), set()
    for part in problem.space.parts(problem):
        for variant in part.variants():
            if part.spread(variant):
                ends, stages = part_ends(part), variant.virtual * part.degrees.pp
                if stages <= part.costs.model.layers:
                    plan = part.group_plan(variant, ends)
                    assert list(left_out(problem, plan)) == []
                    seen.add((part.degrees.choice, variant.virtual))
    assert {number for number, _ in seen} == set(range(len(problem.costs.choices)))
    assert {virtual for _, virtual in seen} == ({1} if experts else {1, 2})


@for_each(
    ("said", "words"),
    [
        ({"tp": 2}, "tp: found 1, only 2 asked for"),
        ({"pp": "1,4"}, "pp: found 2, only 1,4 asked for"),
        ({"cp": 2}, "cp: found 1, only 2 asked for"),
        ({"ep": 2}, "ep: found 1, only 2 asked for"),
        ({"dp": 4}, "dp: found 2, only 4 asked for"),
        ({"virtual_stages": 2}, "virtual_stages: found 1, only 2 asked for"),
        ({"layout": "1,3"}, "layout: found Et*2|t*2L, only 1,3 asked for"),
        ({"rank_order": "tp-cp-ep-pp-dp"}, "rank_order: found tp-cp-ep-dp-pp, only tp-cp-ep-pp-dp"),
        ({"schedule": "zb-v"}, "schedule: found 1f1b, only zb-v asked for"),
        ({"sharding": "none"}, "sharding: found optimizer, only none asked for"),
        ({"recompute": "full,core_attn"}, "recompute: found none, only full,core_attn asked for"),
    ],
)
def test_what_was_asked_for_otherwise_is_named(said: dict[str, object], words: str) -> None:
    problem = megatron()
    plan = plan_of(part_of(problem), ONE, 3, 3)
    assert list(left_out(problem, plan)) == []
    assert next(left_out(asked(problem, **said), plan)).startswith(words)


def test_what_is_computed_again_is_named() -> None:
    problem = megatron()
    plan = plan_of(part_of(problem), Variant(1, FULL), 3, 3)
    assert list(left_out(problem, plan)) == []
    reasons = list(left_out(asked(problem, recompute="none"), plan))
    assert reasons[0] == "recompute: found uniform 1, only none asked for"


@for_each(
    ("turn", "group", "reasons"),
    [
        (4, 4, []),
        (0, 4, ["micro_batch_group_size: found 2, only 4 asked for", "schedule"]),
        (4, 2, ["micro_batch_group_size: found 4, only 2 asked for", "schedule"]),
        (4, None, ["schedule"]),
        (0, 2, []),
        (2, 2, []),
        (2, None, []),
    ],
)
def test_turns_of_micro_batches_are_those_asked_for(
    turn: int, group: int | None, reasons: list[str]
) -> None:
    """As many as ranks where nothing is said; of two virtual stages on each of two ranks."""
    problem = megatron()
    plan = plan_of(part_of(problem), replace(TWO, turn=turn), 2, 1, 1, 2)
    found = list(left_out(asked(problem, micro_batch_group_size=group), plan))
    assert [text.partition(": virtual")[0] for text in found] == reasons
    assert turn_of(plan) == (0 if turn == 2 else turn)
    if "schedule" in reasons:
        text = "virtual 2 in turns of 4" if turn else "virtual 2"
        assert found[-1] == f"schedule: {text}, recompute none is not tried"


def test_turns_are_only_asked_of_interleaved_stages() -> None:
    """Without virtual stages micro-batches take none; where backward passes are divided neither."""
    problem = megatron()
    plan = plan_of(part_of(problem), ONE, 3, 3)
    assert turn_of(plan) == 0
    assert list(left_out(asked(problem, micro_batch_group_size=4), plan)) == []
    problem = torchtitan()
    plan = plan_of(part_of(problem), ZB_V, 2, 1, 1, 2)
    assert list(left_out(problem, plan)) == []
    assert list(left_out(asked(problem, micro_batch_group_size=4), plan)) == []


def test_a_stage_that_is_kept_is_in_a_plan_or_named() -> None:
    problem = megatron()
    part = part_of(problem)
    plan = plan_of(part, ONE, 3, 3)
    devices = tuple(replica.devices for replica in plan.stages[0].replicas)
    stage = KeptStage(said="old.json:stage0", ranges=((0, 3),), devices=devices)
    kept = replace(problem, constraints=problem.constraints.with_(keep=(stage,)))
    assert list(left_out(kept, plan)) == []
    other = plan_of(part, ONE, 2, 4)
    assert "keep: old.json:stage0 is no stage of it" in list(left_out(kept, other))


def test_degrees_that_are_not_tried_and_ranks_that_fill_no_nodes_are_named() -> None:
    """Three samples do not divide 8; two of four replicas on devices of both ranks."""
    problem = megatron()
    part = part_of(problem)
    plan = plan_of(part, ONE, 3, 3)
    one = part_of(problem, dp=4, pp=1, micro_batch=2)
    whole = plan_of(one, ONE, 6)
    assert list(left_out(problem, whole)) == []
    fewer = replace(problem, micro_batches=(2, 4, 8))
    assert list(left_out(fewer, whole)) == [
        "degrees: tp 1, dp 4, pp 1, micro-batch 2 is not tried, or not in this order of nodes"
    ]
    groups = [tuple(Replica(devices=(d,), samples=1) for d in seats) for seats in ((0, 2), (1, 3))]
    stages = tuple(replace(s, replicas=g) for s, g in zip(plan.stages, groups, strict=True))
    # the other order of ranks has these devices, this one has not
    mixed = replace(plan, stages=stages)
    assert list(left_out(problem, mixed)) == [
        "degrees: tp 1, dp 2, pp 2, micro-batch 1 is not tried, or not in this order of nodes"
    ]


def test_settings_that_are_not_tried_are_named() -> None:
    """Of the planner's own, or with these degrees: parameters sharded in a pipeline."""
    problem = megatron()
    plan = plan_of(part_of(problem), ONE, 3, 3)
    reason = "settings: others than the planner's, only those tried"
    optimizer = replace(plan.settings.optimizer, gradient=2)
    strange = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
    assert list(left_out(problem, strange)) == [reason]
    one = part_of(problem, dp=4, pp=1)
    sharded = next(
        part
        for part in problem.space.parts(problem)
        if part.degrees._replace(choice=0) == one.degrees
        and part.settings.optimizer.sharding == "parameters"
    )
    assert list(left_out(problem, plan_of(sharded, ONE, 6))) == []
    optimizer = replace(sharded.settings.optimizer)
    piped = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
    assert list(left_out(problem, piped)) == [reason]
    assert list(left_out(asked(problem, sharding="parameters"), piped)) == []


SPREAD_OTHERWISE = "layout: 2 virtual stages per rank with layers spread otherwise than those tried"


@for_each(
    ("sizes", "spread"),
    [
        ((2, 1, 1, 2), "first"),  # a layer in each, and the ends
        ((3, 1, 1, 1), "first"),  # layers 2 and 1 of the first rank, 1 and 0 of the second
        ((1, 2, 1, 2), "last"),  # 0 and 1 of the first rank, of the output's 2 and 1
        ((1, 2, 2, 1), "alone"),  # 0 and 2, 2 and 0
        ((1, 3, 1, 1), "alone"),
        ((2, 2, 1, 1), None),  # 1 and 1, but 2 and 0
        ((1, 1, 1, 3), None),  # 0 and 1, but 1 and 2 where the output is
    ],
)
def test_layers_are_spread_over_virtual_stages_as_is_tried(
    sizes: tuple[int, ...], spread: str | None
) -> None:
    """Of two stages on each of two ranks, or anyhow where any layout is asked for."""
    problem = megatron()
    part = part_of(problem)
    plan = plan_of(part, TWO, *sizes)
    assert variant_of(part, plan) == (spread and replace(TWO, remainder=spread))
    assert list(left_out(problem, plan)) == [SPREAD_OTHERWISE] * (spread is None)
    anyhow = asked(problem, layout="any")
    assert variant_of(part_of(anyhow), plan) == replace(TWO, remainder="anyhow")
    assert list(left_out(anyhow, plan)) == []
    turns = replace(plan, settings=replace(plan.settings, turn=4))
    found = variant_of(part, turns)
    assert found == (spread and replace(TWO, remainder=spread, turn=4))


@for_each(
    ("sizes", "inside"),
    [((2, 1, 1, 2), True), ((1, 2, 2, 1), True), ((2, 2, 1, 1), False), ((1, 1, 2, 2), False)],
)
def test_layers_that_differ_are_as_many_in_all_stages_between_the_ends(
    sizes: tuple[int, ...], inside: bool
) -> None:
    problem = megatron(experts=MIXTURE)
    part = part_of(problem)
    plan = plan_of(part, TWO, *sizes)
    assert variant_of(part, plan) == (TWO if inside else None)
    assert list(left_out(problem, plan)) == [SPREAD_OTHERWISE] * (not inside)


@for_each(
    ("sizes", "inside"),
    [
        ((2, 1, 1, 2), True),
        ((1, 1, 2, 2), True),  # the second of two stages has more on both ranks
        ((2, 1, 2, 1), False),  # the first on one rank, the second on the other one
    ],
)
def test_stages_of_divided_backward_passes_are_those_of_their_layouts(
    sizes: tuple[int, ...], inside: bool
) -> None:
    """Also where any layout is asked for; where one is, it is that one."""
    problem = torchtitan()
    part = part_of(problem)
    plan = plan_of(part, ZB_V, *sizes)
    for one in (problem, asked(problem, layout="any")):
        assert variant_of(part_of(one), plan) == (ZB_V if inside else None)
        assert list(left_out(one, plan)) == [SPREAD_OTHERWISE] * (not inside)
    layout = str(problem.costs.job(plan, problem.cluster).pipeline)
    same = asked(problem, layout=layout)
    assert variant_of(part_of(same), plan) == ZB_V
    assert list(left_out(same, plan)) == []
    other = asked(problem, layout="Et*2|t|t|L", schedule="zb-v")
    assert list(left_out(other, plan)) == [f"layout: found {layout}, only Et*2|t|t|L asked for"]


def test_one_stage_on_each_rank_has_any_layers() -> None:
    problem = megatron()
    part = part_of(problem)
    for one in (part, part_of(asked(problem, layout="any")), part_of(asked(problem, layout="0,4"))):
        assert variant_of(one, plan_of(one, ONE, 1, 5)) == ONE
    two = asked(problem, layout="Et|t|t|tL")
    assert variant_of(part_of(two), plan_of(part, TWO, 2, 1, 1, 2)) == TWO


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (replace(FULL, layers=2), "uniform 2"),
        (Recompute(granularity="selective", modules=("core_attn", "mlp")), "core_attn mlp"),
    ],
)
def test_what_is_computed_again_otherwise_than_is_tried_is_named(
    again: Recompute, said: str
) -> None:
    problem = megatron()
    plan = plan_of(part_of(problem), Variant(1, again), 3, 3)
    assert list(left_out(problem, plan)) == [f"schedule: virtual 1, recompute {said} is not tried"]
