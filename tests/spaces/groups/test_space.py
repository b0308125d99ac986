"""The rules of groups of devices, to the word, and which legal plans their proofs leave out.

Other than the tests of every space, these name the least that breaks a rule and the most that does
not.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import format_bytes
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.groups import GroupOption
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.cli.values import idle_workers
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.peers.metis.cluster import MetisCluster
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.spaces.base import too_little_memory
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.specs.training import Settings
from tests.every_space import METIS
from tests.megatron_cases import small_cluster, small_problem
from tests.mixed_cases import LAYERS, decoder_problem, room, room_plan, room_problem

GIB = 2**30
# ---- groups: devices 0 and 1 are T4, 2 and 3, and 4 and 5, each a node of A100 ------------------


def group_plan(*replicas: tuple[tuple[int, ...], int], micro_batches: int = 4) -> Plan[Any]:
    """Return a plan of one stage on replicas (devices, samples) of a batch of 16."""
    found = tuple(Replica(devices=devices, samples=samples) for devices, samples in replicas)
    return Plan(
        model="made-up",
        global_batch=16,
        micro_batches=micro_batches,
        stages=(GroupStage(start=0, stop=LAYERS, replicas=found),),
    )


def broken(problem: Problem, plan: Plan[Any]) -> list[str]:
    return [str(violation) for violation in evaluate(problem, plan).violations]


def outside(problem: Problem, plan: Plan[Any]) -> str | None:
    """Return why no proof is about a plan, which is legal."""
    assert broken(problem, plan) == []
    return problem.space.outside(problem, plan)


def test_equal_devices_share_samples_as_the_costs_know() -> None:
    uneven, even = room_problem(), room_problem(cost_model="metis")
    assert uneven.costs.uneven
    assert not even.costs.uneven
    differing = "shares that differ by at most one on equal devices"
    where = "stage 0: degrees: found"
    assert broken(uneven, group_plan(((2,), 2), ((3,), 2))) == []
    assert broken(uneven, group_plan(((2,), 2), ((3,), 1), micro_batches=6)) == []
    apart = group_plan(((2,), 3), ((3,), 1))
    assert broken(uneven, apart) == [f"{where} replicas with 1, 3 samples, expected {differing}"]
    assert broken(even, apart) == [
        f"{where} replicas with 1, 3 samples, expected equal shares on equal devices"
    ]
    one_more = group_plan(((2,), 2), ((3,), 1), ((4,), 1))
    assert broken(uneven, one_more) == []
    assert broken(even, one_more) == [
        f"{where} replicas with 1, 2 samples, expected equal shares on equal devices"
    ]
    assert broken(even, group_plan(((0,), 1), ((3,), 3))) == []  # of two types: as they are fast


def test_every_replica_has_samples() -> None:
    none = "stage 0: degrees: found a replica without samples, expected at least 1"
    problem = room_problem()
    assert broken(problem, group_plan(((0,), 4), ((3,), 0))) == [none]
    both = broken(problem, group_plan(((2,), 4), ((3,), 0)))
    assert both[1:] == [none]
    assert "replicas with 0, 4 samples" in both[0]


def test_replicas_share_the_whole_micro_batch() -> None:
    assert broken(room_problem(), group_plan(((2,), 2), ((3,), 1))) == [
        "stage 0: samples: found 3 samples, expected 4, the micro-batch"
    ]
    assert broken(room_problem(), group_plan(((2,), 3), ((3,), 2))) == [
        "stage 0: samples: found 5 samples, expected 4, the micro-batch"
    ]


def test_the_tensor_degree_is_allowed_and_context_parallelism_multiplies_it() -> None:
    problem = room_problem(max_tp=1)
    assert broken(problem, group_plan(((2, 3), 4))) == [
        "stage 0: degrees: found tp 2, expected at most 1"
    ]
    assert broken(room_problem(max_tp=2), group_plan(((2, 3), 4))) == []
    plan = group_plan(((2, 3), 4))
    twice = replace(plan, settings=Settings(cp=2))
    assert list(problem.space.check_degrees(problem, twice)) == []
    assert len(list(problem.space.check_degrees(problem, plan))) == 1


def test_settings_and_virtual_stages_are_for_spaces_with_a_runtime() -> None:
    problem = room_problem()
    said = (
        "plan: settings: found settings of a runtime, expected none, in a space without a runtime"
    )
    plan = room_plan(problem)
    assert broken(problem, plan) == []
    assert broken(problem, replace(plan, settings=Settings())) == [said]
    halves = [(0, 3, 2, (2, 3)), (3, 6, 2, (2, 3))]
    virtual = replace(room_plan(problem, halves), virtual=2)
    assert broken(problem, virtual) == [said]


def test_virtual_stages_share_the_samples_of_their_rank() -> None:
    problem = small_problem(small_cluster(1, 2), batch=4)

    def stage(start: int, stop: int, *samples: int) -> GroupStage:
        replicas = tuple(Replica(devices=(d,), samples=n) for d, n in enumerate(samples))
        return GroupStage(start=start, stop=stop, replicas=replicas)

    plan = Plan(
        model=problem.model,
        global_batch=4,
        micro_batches=1,
        stages=(stage(0, 3, 2, 2), stage(3, len(problem.costs.chain), 3, 1)),
        settings=problem.costs.settings,
        virtual=2,
    )
    assert broken(problem, plan)[0] == (
        "stage 1: replicas: found others, expected those of stage 0"
    )


def test_stages_are_of_layers() -> None:
    problem = room_problem()
    stage = OperatorStage(
        start=0, stop=6, first_device=0, device_count=1, strategies=(Strategy(),) * 6
    )
    plan = Plan(model="made-up", global_batch=16, micro_batches=4, stages=(stage,))
    assert broken(problem, plan) == ["plan: stages: found others, expected stages of whole layers"]


# ---- memory -------------------------------------------------------------------------------------


def cost_of(*memory: tuple[float, ...]) -> PlanCost:
    """Return a cost of stages whose replicas hold so many bytes."""
    stages = tuple(StageCost(time=1.0, memory=m, time_terms={}, memory_terms={}) for m in memory)
    return PlanCost(iteration_time=1.0, stages=stages, terms={})


def test_every_device_holds_what_its_replica_must() -> None:
    """A replica of both types has the room of its smallest device; of a stage, the first replica
    that does not fit is named."""
    problem = replace(room_problem(), memory_limits={"T4": 2.0 * GIB, "A100": 8.0 * GIB})
    plan = room_plan(problem, ((0, 1, 2, (2, 0, 3, 4, 5, 1)), (1, 6, 1, (4, 5))))

    def found(*memory: tuple[float, ...]) -> list[str]:
        of = cost_of(*memory)
        return [str(v) for v in problem.space.check_memory(problem, plan, of)]

    small, large = "at most 2.00 GiB", "at most 8.00 GiB"
    assert (format_bytes(2 * GIB), format_bytes(8 * GIB)) == ("2.00 GiB", "8.00 GiB")
    assert found((2 * GIB, 8 * GIB, 2 * GIB), (8 * GIB,)) == []
    assert found((2 * GIB * (1 + ROUNDING), 0, 0), (8 * GIB,)) == []
    assert found((2.5 * GIB, 0, 0), (0,)) == [
        f"stage 0, device 2: memory: found 2.50 GiB, expected {small}"
    ]
    assert found((0, 8.5 * GIB, 0), (8.5 * GIB,)) == [
        f"stage 0, device 3: memory: found 8.50 GiB, expected {large}",
        f"stage 1, device 4: memory: found 8.50 GiB, expected {large}",
    ]
    assert found((0, 9 * GIB, 9 * GIB), (0, 9 * GIB)) == [
        f"stage 0, device 3: memory: found 9.00 GiB, expected {large}",
        f"stage 1, device 5: memory: found 9.00 GiB, expected {large}",
    ]
    assert found((0, 0, 2.25 * GIB), (0,)) == [
        f"stage 0, device 5: memory: found 2.25 GiB, expected {small}"
    ]


# ---- which plans proofs are about ---------------------------------------------------------------


def test_proofs_are_about_packed_placements() -> None:
    problem = room_problem()
    assert outside(problem, group_plan(((2,), 2), ((3,), 2))) is None
    assert outside(problem, group_plan(((4,), 2), ((5,), 2))) is None
    assert outside(problem, group_plan(((2,), 4))) is None  # one node with room is none too many
    assert outside(problem, group_plan(((2, 3), 2), ((4, 5), 2))) is None
    assert outside(problem, group_plan(((2,), 2), ((4,), 2))) == (
        "stage 0: not packed, 2 of its nodes of A100 have room for another replica, at most one "
        "in the placements tried"
    )


def test_proofs_are_about_samples_shared_as_the_costs_do() -> None:
    problem = room_problem()  # an A100 is three times as fast as a T4
    assert outside(problem, group_plan(((0,), 1), ((3,), 3))) is None
    assert outside(problem, group_plan(((0,), 3), ((3,), 1))) == (
        "stage 0: samples shared otherwise than the cost model does"
    )


def test_proofs_are_about_replicas_on_one_node() -> None:
    """Whether or not other replicas of the plan are on one; the costs have no price for it."""
    problem = room_problem()
    plan = group_plan(((2, 3), 2), ((4, 1), 2))
    assert next(problem.space.exclusions(problem, plan)) == (
        "stage 0: a replica on 2 nodes, only replicas in one tried"
    )
    assert len(list(problem.space.exclusions(problem, plan))) == 1


def test_proofs_are_about_groups_that_are_tried_with_so_many_micro_batches() -> None:
    assert outside(room_problem(), group_plan(((2,), 1), ((3,), 1), ((4,), 2))) == (
        "stage 0: this group of devices is not tried with so many micro-batches"
    )


def test_every_stage_of_a_plan_is_looked_at() -> None:
    problem = room_problem()
    plan = room_plan(problem, ((0, 1, 1, (0, 1)), (1, 6, 1, (2, 4))))
    assert outside(problem, plan) == (
        "stage 1: not packed, 2 of its nodes of A100 have room for another replica, at most one "
        "in the placements tried"
    )


def test_what_proofs_are_about_is_said() -> None:
    packed = (
        "groups of devices, packed: of the nodes of a type that a stage is on, at most one has "
        "room for another replica"
    )
    one = "; all replicas of a stage with one tensor-parallel degree"
    own = "; in a stage each device type with a tensor-parallel degree of its own"
    said = [
        problem.space.describe(problem)
        for problem in (
            room_problem(),
            room_problem(micro_batch_sizes=(2, 4)),
            room_problem(cost_model="metis"),
            room_problem(stage_tp="mixed"),
            room_problem(seats="packed"),
            room_problem(seats="spread"),
        )
    ]
    even = ", or spread evenly: equally many replicas in each of several nodes of one type"
    assert said == [
        f"plans with any number of micro-batches on at most 6 {packed}{one}",
        f"plans with 4, 8 micro-batches on at most 6 {packed}{one}",
        f"plans with 1, 2, 4, 8, 16 micro-batches on at most 6 {packed}{one}",
        f"plans with any number of micro-batches on at most 6 {packed}{own}",
        f"plans with any number of micro-batches on at most 6 {packed}{one}",
        f"plans with any number of micro-batches on at most 6 {packed}{even}{one}",
    ]


def test_types_of_a_stage_may_have_their_own_degree_where_it_is_asked_for() -> None:
    one, mixed = room_problem(), room_problem(stage_tp="mixed")
    plan = group_plan(((0,), 1), ((2, 3), 3))
    where = "stage 0: degrees: found replicas of 1 and 2 devices, expected equally many in each"
    assert broken(one, plan) == [where]
    assert broken(room_problem(cost_model="metis"), plan) == [where]
    assert broken(mixed, plan) == []
    shares = GroupPart(mixed, 4).shares(GroupOption(2, (1, 1), (1, 2)))
    assert shares is not None
    asked = group_plan(((0,), shares[0][0]), ((2, 3), shares[1][0]))
    assert outside(mixed, asked) is None
    other = group_plan(((0,), shares[0][0] + 1), ((2, 3), shares[1][0] - 1))
    assert outside(mixed, other) == "stage 0: samples shared otherwise than the cost model does"
    assert outside(mixed, group_plan(((2,), 2), ((4, 5), 2))) == (
        "stage 0: replicas of 1 and of 2 A100, one degree for each device type tried"
    )
    assert outside(mixed, group_plan(((0,), 2), ((2, 3), 1), ((4, 5), 1))) is not None


def test_stages_may_be_spread_evenly_where_it_is_asked_for() -> None:
    """Two nodes of two A100: a replica in each is spread; what is neither is left out."""
    packed, spread = room_problem(), room_problem(seats="spread")
    plan = group_plan(((2,), 2), ((4,), 2))
    assert outside(packed, plan) is not None
    assert outside(spread, plan) is None
    assert outside(spread, group_plan(((2,), 2), ((3,), 2))) is None
    assert outside(spread, group_plan(((2, 3), 2), ((4, 5), 2))) is None
    assert broken(packed, plan) == broken(spread, plan) == []
    shares = GroupPart(spread, 4).shares(GroupOption(1, (0, 2), (), 2))
    assert shares == [[], [2, 2]]
    assert GroupPart(packed, 4).shares(GroupOption(1, (0, 2), (), 2)) is None
    mixed = group_plan(((0,), 1), ((2,), 1), ((4,), 2))
    assert "not packed nor spread evenly, 2 of its nodes of A100 have room" in str(
        spread.space.outside(spread, mixed)
    )


def test_what_memory_devices_have_is_asked_replica_by_replica() -> None:
    """The second replica of a stage has two devices: each with half of the states."""
    problem = room_problem(stage_tp="mixed", memory_limit=4 * GIB)
    plan = group_plan(((0,), 1), ((2, 3), 3))
    cost = problem.costs.plan_cost(plan, problem.cluster)
    assert plan.stages[0].parts(2) == [(0,), (2, 3)]
    assert plan.stages[0].parts(3) == [(0,), (2,), (3,)]
    high, low = cost.stages[0].memory
    assert high > low
    least = replace(problem, memory_limits=dict(zip(("T4", "A100"), (high, low), strict=True)))
    assert broken(least, plan) == []
    less = replace(
        problem, memory_limits=dict(zip(("T4", "A100"), (high, low * 0.99), strict=True))
    )
    (violation,) = broken(less, plan)
    assert violation.startswith("stage 0, device 2: memory: ")


def test_kinds_of_recomputation_are_said_where_there_are_any() -> None:
    alone, several = decoder_problem(recompute="none"), decoder_problem()
    said = "; each stage with recomputation none or full or block or selective"
    described = several.space.describe(several)
    assert said in described
    assert described.replace(said, "") == alone.space.describe(alone)


def test_numbers_of_micro_batches_with_too_many_groups_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 16 samples, 3 micro-batches have a short one; 2 and 4 have none."""
    problem = room_problem()

    def notes(*thinned: int) -> list[str]:
        parts = [GroupPart(problem, count) for count in problem.micro_batches]
        for part in parts:
            part.complete = part.micro_batches not in thinned
        monkeypatch.setattr(GroupSpace, "parts", lambda *_: parts)
        return problem.space.begin(problem, Task(Limits(seconds=60), "dp")).notes

    none = (
        "stages of several device types: with 1 of 7 numbers of micro-batches, whose last one is "
        "short, there are too many to try and none was; the bound is for stages of one type there"
    )
    few = (
        "stages of several device types: with 2, 4 micro-batches there are too many to try all, "
        "only some with powers of two of replicas were; the bound is for these and for all stages "
        "of one type"
    )
    before = notes()
    assert not any("several device types" in note for note in before)
    assert notes(2, 4) == [*before, few]
    assert notes(3) == [*before, none]
    assert notes(2, 3, 4) == [*before, none, few]
    part = GroupPart(problem, 2)
    part.complete_unlike = False
    monkeypatch.setattr(GroupSpace, "parts", lambda *_: [part])
    assert problem.space.begin(problem, Task(Limits(seconds=60), "dp")).notes[len(before) :] == [
        "stages whose device types differ in their tensor-parallel degree: with 1 of 1 numbers of "
        "micro-batches there are too many to try all, only some with powers of two of replicas "
        "were, and none where the last micro-batch is short; the bound is for these"
    ]


def test_only_the_planners_own_space_leaves_devices_idle() -> None:
    plan = group_plan(((2,), 4))
    assert broken(room_problem(), plan) == []
    idle = "plan: devices used once: found 5 idle devices, expected none idle"
    assert idle in broken(room_problem(**METIS), plan)


def test_a_problem_that_nothing_fits_is_blamed_on_memory() -> None:
    assert too_little_memory(room_problem(memory_limit=3 * GIB)) == (
        "in every plan some device would need more memory than it has (T4 3.00 GiB, A100 3.00 GiB)"
    )


def test_a_user_may_say_how_many_threads_it_has() -> None:
    problem = room_problem()
    assert idle_workers(problem, 2, ("dp",)) is problem


# ---- where a search begins ----------------------------------------------------------------------


def test_a_plan_of_another_batch_is_tried_with_as_large_micro_batches() -> None:
    """Of 18 samples, micro-batches of 4 are four and a short one."""
    problem = room_problem(global_batch=18)
    search = problem.space.begin(problem, Task(Limits(seconds=60), "dp"))
    problem.space.approach(search, replace(room_plan(room_problem()), micro_batches=4))
    assert search.plan is not None
    assert (search.plan.global_batch, search.plan.micro_batches) == (18, 5)
    assert search.objective == evaluate(problem, search.plan).iteration_time


def test_a_plan_that_is_not_legal_or_outside_is_no_beginning() -> None:
    problem = room_problem(max_tp=1)
    search = problem.space.begin(problem, Task(Limits(seconds=60), "dp"))
    problem.space.approach(search, group_plan(((2, 3), 4)))
    assert search.plan is None
    problem.space.approach(search, group_plan(((2,), 2), ((4,), 2)))
    assert search.plan is None
    problem.space.approach(search, group_plan(((2,), 2), ((3,), 2)))
    assert search.plan is not None


def hunted(
    problem: Problem, found: Mapping[int, float], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, bool]]:
    """Return how a heuristic looks, and whether through groups of one type alone.

    found: seconds of plans by the number of their part, which every look has.
    """
    looks: list[tuple[str, bool]] = []

    class Hunt:
        def __init__(self, search: object, states: list[Any]) -> None:
            options = [o for state in states for o in state.part.catalogue.options]
            self.alone = all(sum(n > 0 for n in o.replicas) == 1 for o in options)
            self.found = found

        def run(self) -> None:
            looks.append(("everywhere", self.alone))

        def look_where(self, promise: Mapping[int, float]) -> None:
            assert promise == found
            looks.append(("where it promises", self.alone))

    monkeypatch.setattr("ilp_planner.optimize.search.graph_hunt.GraphHunt", Hunt)
    problem.space.look(problem.space.begin(problem, Task(Limits(seconds=60), "gradient")))
    return looks


def test_what_groups_of_one_type_reach_says_where_mixed_ones_may_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = room_problem(micro_batch_sizes=(4,))
    alone, mixed = ("everywhere", True), ("everywhere", False)
    assert hunted(problem, {0: 1.0}, monkeypatch) == [alone, ("where it promises", False)]
    assert hunted(problem, {}, monkeypatch) == [alone, mixed]
    nodes = tuple(node for node in room().nodes if node.device == "A100")
    equal = room_problem(cluster=MetisCluster(nodes=nodes), micro_batch_sizes=(4,))
    assert hunted(equal, {0: 1.0}, monkeypatch) == [alone]


# ---- what devices hold --------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "widths"), [("fp16", 2 + 4 + 8), ("fp32", 4 + 8)])
def test_replicas_hold_all_states_of_their_layers(precision: str, widths: int) -> None:
    """Weights, both moments, and the copy that is stepped where weights are not fp32 already."""
    problem = decoder_problem()
    assert problem.spec is not None
    problem = replace(problem, spec=replace(problem.spec, precision=precision))
    plan = room_plan(problem, ((0, 2, 1, (0, 1)), (2, 4, 2, (2, 3))))
    held = problem.space.holdings(problem, plan)
    hidden, words, positions = 256, 1024, 128
    layer = 12 * hidden**2 + 13 * hidden
    first = (words + positions) * hidden + layer
    assert held.stage.tolist() == [0, 0, 1, 1, -1, -1]
    assert held.bytes[:2].tolist() == [widths * first] * 2
    # Products are divided and biases of what they add up are not; words are in the head again.
    products, whole = 12 * hidden**2 + 7 * hidden + words * hidden, 6 * hidden + 2 * hidden
    assert held.bytes[2:].tolist() == [widths * (products / 2 + whole)] * 2 + [0, 0]


def test_what_is_held_is_known_of_chains_of_a_decoders_layers_alone() -> None:
    """Of a profile nobody knows what its layers are; nor of a chain of others than the model's."""
    problem, unknown = decoder_problem(), room_problem()
    assert problem.spec is not None
    longer = replace(problem.spec, architecture=replace(problem.spec.architecture, layers=3))
    shorter = replace(problem.spec, architecture=replace(problem.spec.architecture, layers=1))
    for other in (unknown, *(replace(problem, spec=spec) for spec in (longer, shorter))):
        with pytest.raises(PlanError, match="does not say what a device holds"):
            other.space.holdings(other, room_plan(other))
