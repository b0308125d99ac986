"""A good plan at once, before any bound and before a part's candidates are there; and a better one
if a part is large: pipelines of equal groups (`pipelines`), placed and judged.

A lower bound for every plan with each number of micro-batches, before any table is made.

A stage takes no less than the layers on any of its replicas (`replica_seconds`). With u the slowest
stage, and stages s on replicas r of tp devices with x samples each:

    B micro-batches take at least (B - 1) max_s u_s + sum_s u_s

with a partial last one counted as a fraction.

*Work.* A sample of a layer keeps devices of type k busy for e_k device-seconds at least, for any
tensor degree and the samples of its replica. For any weight p_k of a device-second, all samples X
of all layers weigh no more than all devices during u:

    u sum_k p_k devices_k >= X sum_layers min_k p_k e_k

*Layers.* The replica with the most samples has at least a share X / (all devices / tp). The time of
that on its fastest type bounds every layer; nor do all of them, one after the other. If replicas of
a stage may differ in their degree, one of them has at least tp X / (all devices) samples, tp being
its own degree: otherwise all together would have fewer than X.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.schedule.batches import Batches
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.climb import climbed
from ilp_planner.spaces.groups.pipelines import Pipeline, Pipelines
from ilp_planner.spaces.groups.place import place
from ilp_planner.spaces.groups.seating import Seating, seat_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.groups.parts import GroupPart


# ---- work ----------------------------------------------------------------------------------------


def work_bounds(
    problem: Problem[GroupTables], degrees: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Return, for each number of micro-batches, lower bounds in seconds of all plans; NEVER if none
    fits, 0 if the costs have no bounds for replicas.

    Parameters
    ----------
    degrees: tensor-parallel degrees of each device type.
    """
    costs, cluster = problem.costs, problem.cluster
    most = max(problem.micro_batch_sizes)
    devices, layers = np.array(cluster.type_counts, float), len(costs.chain)
    busy = np.full((len(degrees), most, layers), np.inf)  # device-seconds of a sample
    times: dict[int, NDArray[np.float64]] = {}  # by tensor degree: of the fastest type
    for kind, name in enumerate(cluster.type_names):
        for tp in degrees[kind]:
            taken = costs.replica_seconds(name, tp, most)
            if taken is None:
                return dict.fromkeys(problem.micro_batches, 0.0)
            times[tp] = np.minimum(times[tp], taken) if tp in times else taken
            shares = np.arange(1, most + 1)[:, None]
            np.minimum(busy[kind], tp / shares * taken, out=busy[kind])
    busy = np.minimum.accumulate(busy, axis=1)
    found: dict[int, float] = {}
    for batches in problem.micro_batches:
        parted = Batches(problem.global_batch, batches)
        samples = parted.size
        slowest = _work(busy[:, samples - 1], devices, samples)
        single = _single(times, int(devices.sum()), samples, layers, mixed_tp=costs.mixed_tp)
        slowest = max(slowest, float(single.max(initial=0.0)))
        repeated = OneForwardOneBackward(batches, part=parted.part).repeats
        seconds = repeated * slowest + max(slowest, float(single.sum()))
        bound = costs.constant(batches) + seconds * (1 - ROUNDING)
        found[batches] = bound if bound < NEVER else NEVER
    return found


def _work(each: NDArray[np.float64], devices: NDArray[np.float64], samples: int) -> float:
    """Return a lower bound on the busy seconds of all devices. each: device-seconds that a sample
    takes, [types, L]."""
    able = np.isfinite(each)
    whole = each.sum(axis=1, where=able)
    if not (whole > 0).any() or (able.any(axis=1) & (whole == 0)).any():
        return 0.0
    price = np.divide(1.0, whole, out=np.zeros(whole.size), where=whole > 0)
    paid = np.where(able, price[:, None] * np.where(able, each, 0.0), np.inf)
    return float(samples * paid.min(axis=0).sum() / (price @ devices))


def _single(
    times: dict[int, NDArray[np.float64]],
    devices: int,
    samples: int,
    layers: int,
    *,
    mixed_tp: bool,
) -> NDArray[np.float64]:
    """Return the seconds that each layer takes at least in any group, [L]. mixed_tp: replicas of a
    stage may differ in their degree."""
    least = np.full(layers, np.inf)
    for tp, seconds in times.items():
        replicas = devices // tp
        if replicas:
            share = -(-samples * tp // devices) if mixed_tp else -(-samples // replicas)
            least = np.minimum(least, seconds[share - 1 : samples].min(axis=0))
    return least


# ---- first plans ---------------------------------------------------------------------------------


SECONDS, SHARE = 1.0, 0.5  # to look in, and at most that part of the time
LONGER, STEPS = 0.015, 30_000  # part of the time for annealing a part, and changes to try
MOST_PACKINGS = 8  # to try where links differ from node to node

Looked = tuple["PartState[GroupPart]", Pipelines]
"""A part, and its pipelines that were looked at."""


def look_first(search: GroupSearch[GroupPart]) -> None:
    """Bound all parts by their work, then look for a first plan: by a climb among parts without a
    partial micro-batch; as long as there is none, in all others."""
    bounds = work_bounds(search.problem, search.states[0].part.degrees) if search.states else {}
    for state in search.states:
        state.raise_bound(bounds[state.part.micro_batches], "work")
    search.report()
    search.check_time()
    if search.plan is not None and search.problem.costs.spread:  # the best packed one, or near it
        return
    moment = search.deadline.moment(min(SECONDS, SHARE * search.deadline.left))
    seating, looked = Seating(search.problem.cluster), dict[str, Looked]()

    def seconds(state: PartState[GroupPart]) -> float:
        pipelines = Pipelines(state.part, seating, quick=True)
        pipelines.improve(moment)
        looked[state.part.name] = state, pipelines
        return state.part.constant + pipelines.found[-1][0] if pipelines.found else np.inf

    even = {s.part.samples: s for s in reversed(search.states) if not s.part.schedule.short}
    short = [state for state in search.states if state.part.schedule.short]
    climbed(
        search.problem,
        sorted(even),
        lambda size: np.inf if search.closed(even[size]) else seconds(even[size]),
    )
    _judge(search, [*looked.values()], seating, moment)
    for state in (*middle_first([*even.values()][::-1]), *middle_first(short)):
        if search.plan is not None:
            return
        if state.part.name not in looked and not search.closed(state):
            search.check_time()
            seconds(state)
            _judge(search, [looked[state.part.name]], seating, moment)


def middle_first(states: Sequence[PartState[GroupPart]]) -> Iterator[PartState[GroupPart]]:
    """Yield the one in the middle, then the middle of each rest: very few and very many
    micro-batches are seldom best."""
    runs = [states]
    while runs := [run for run in runs if run]:
        for run in runs:
            yield run[len(run) // 2]
        runs = [part for run in runs for part in (run[: len(run) // 2], run[len(run) // 2 + 1 :])]


def look_longer(search: GroupSearch[GroupPart]) -> None:
    """Look for better plans in parts that are searched in boxes, the least bound first."""
    large = [state for state in search.states if state.boxed and not search.closed(state)]
    seating = Seating(search.problem.cluster)
    for state in sorted(large, key=lambda s: s.bound):
        if search.gap_reached():
            return
        moment = search.deadline.moment(LONGER * search.deadline.left)
        pipelines = Pipelines(state.part, seating)
        pipelines.improve(moment)
        pipelines.anneal(STEPS, moment, search.limits.seed)
        search.check_time()
        _judge(search, [(state, pipelines)], seating, search.deadline)


def _judge(
    search: GroupSearch[GroupPart], looked: Sequence[Looked], seating: Seating, moment: Deadline
) -> None:
    """Judge pipelines, the fastest first: true links may be slower than the best ones. A first plan
    is worth a moment beyond the limit."""
    found = [
        (state.part.constant + seconds, n, shape)
        for n, (state, pipelines) in enumerate(looked)
        for seconds, shape in pipelines.found
    ]
    for seconds, n, shape in sorted(found):
        if search.plan is not None and (seconds >= search.objective or not moment.goon()):
            return
        state, pipelines = looked[n]
        pipeline = pipelines.pipeline(shape)
        plan = placed(search.problem, state.part.micro_batches, pipeline, seating)
        if plan is not None and evaluate(search.problem, plan).legal:
            search.accept(plan, state)


def placed(
    problem: Problem[GroupTables], micro_batches: int, pipeline: Pipeline, seating: Seating
) -> GroupPlan | None:
    """Return the plan of a pipeline on devices; None if it cannot be placed."""
    if problem.cluster.symmetric:
        return seat_all(problem, micro_batches, pipeline.choices, seating)
    return place(problem, micro_batches, pipeline.choices, most_packings=MOST_PACKINGS).plan
