"""Stages that compute layers again: the optimiser's tables against the judge, and which are left
out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.layer_rows import ALL_IN_FLIGHT, LayerRows
from ilp_planner.costs.layer_shares import stage_cost
from ilp_planner.costs.layers import LayerCosts
from ilp_planner.costs.recomputed_layers import (
    WAYS,
    Runs,
    _held_more,
    is_priced,
    most_held,
    recompute_of,
    recomputed_stages,
    rows_needed,
)
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupStage
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.specs.training import Recompute
from tests.brute import group_ways, random_problem, recomputations, seatings
from tests.costs.test_layer_rows import ONE, TWO, again, profile
from tests.examples import examples, for_each

SEEDS = st.integers(0, 2**32 - 1)


def stage_on(problem: Problem, option: GroupOption, batches: int) -> GroupStage | None:
    """A stage of the option on an empty cluster, of all layers."""
    ways = [way for way in group_ways(problem, batches) if way[0] == option]
    row = next(iter(seatings(problem.cluster, ways, 1)), None)
    layers = len(problem.costs.chain)
    return None if row is None else GroupStage(start=0, stop=layers, replicas=row[0])


def held(problem: Problem, stage: GroupStage, most: int) -> int:
    """Micro-batches that fit every device of a stage, as the judge counts them, up to `most`."""
    count = 0
    while count < most and fits(problem, stage, count + 1):
        count += 1
    return count


def fits(problem: Problem, stage: GroupStage, in_flight: int) -> bool:
    costs, cluster = problem.costs, problem.cluster
    assert isinstance(costs, LayerCosts)
    cost = stage_cost(costs, stage, (), in_flight, cluster)
    limits = [problem.memory_limits[cluster.type_of[r.devices[0]]] for r in stage.replicas]
    return all(used <= limit for used, limit in zip(cost.memory, limits, strict=True))


@examples(25)
@given(seed=SEEDS)
def test_tables_say_what_the_judge_says_and_leave_out_nothing_of_use(seed: int) -> None:
    """Every recomputation of every range of layers of every group: what it takes and holds is in
    the tables, or another stage of the range holds as much and is no slower."""
    problem = random_problem(seed, recomputed=True, devices=4)
    costs, cluster, layers = problem.costs, problem.cluster, len(problem.costs.chain)
    batches = problem.micro_batches[seed % len(problem.micro_batches)]
    for option in dict.fromkeys(option for option, _, _ in group_ways(problem, batches)):
        table = costs.option_tables(option, batches, problem.global_batch, cluster)
        whole = stage_on(problem, option, batches)
        if table is None or whole is None:
            continue
        most = most_held(layers, cluster.device_count - sum(option.use), batches)
        for start in range(layers):
            for stop in range(start + 1, layers + 1):
                rows = {0: (table.time[start, stop], table.in_flight[start, stop])}
                if table.recomputed is not None:
                    of, again = table.recomputed.of(start, stop), table.recomputed
                    rows |= {int(again.way[n]): (again.time[n], again.in_flight[n]) for n in of}
                for recompute in recomputations(problem, start, stop):
                    stage = replace(whole, start=start, stop=stop, recompute=recompute)
                    seconds = stage_cost(costs, stage, (), 1, cluster).time
                    holds = held(problem, stage, int(most[stop]))
                    assert any(
                        time <= seconds * (1 + 1e-9) and min(count, most[stop]) >= holds
                        for time, count in rows.values()
                    )
                for way, (time, count) in rows.items():
                    stage = replace(whole, start=start, stop=stop, recompute=recompute_of(way))
                    cost = stage_cost(costs, stage, (), 1, cluster)
                    assert cost.time == pytest.approx(time)
                    assert sum(cost.time_terms.values()) == pytest.approx(cost.time)
                    if count:
                        assert fits(problem, stage, int(min(count, most[stop])))


@examples(25)
@given(seed=SEEDS)
def test_where_all_fits_nothing_is_computed_again(seed: int) -> None:
    problem = random_problem(seed, recomputed=True)
    roomy = problem.costs.with_limits(dict.fromkeys(problem.memory_limits, 1e15))
    for batches in problem.micro_batches:
        for option, _, _ in group_ways(problem, batches):
            table = roomy.option_tables(option, batches, problem.global_batch, problem.cluster)
            assert table is None or table.recomputed is None


@examples(25)
@given(seed=SEEDS)
def test_a_layer_alone_fits_as_it_is_or_computed_again(seed: int) -> None:
    """What bounds take from layers by themselves is never above a stage that fits."""
    problem = random_problem(seed, recomputed=True)
    costs = problem.costs
    for device, degrees in costs.degrees().items():
        for tp in degrees:
            seconds = costs.replica_seconds(device, tp, 3)
            needs = costs.layer_memory(device, tp)
            assert seconds is not None
            assert needs is not None
            for rows in (costs, *costs.again.values()):
                assert (needs <= rows.layer_memory(device, tp) * (1 + 1e-9)).all()
            fits_one = needs <= problem.memory_limits[device]
            assert np.isfinite(seconds[0, fits_one]).all()


@given(behind=st.integers(0, 20), batches=st.integers(1, 12), layers=st.integers(1, 20))
def test_a_stage_holds_no_more_than_the_schedule_has(
    behind: int, batches: int, layers: int
) -> None:
    most = most_held(layers, behind, batches)
    schedule = OneForwardOneBackward(batches)
    assert most[-1] == schedule.in_flight(0)
    assert (most == [schedule.in_flight(min(layers - v, behind)) for v in range(layers + 1)]).all()


@given(way=st.integers(0, 30))
def test_a_recomputation_has_one_number(way: int) -> None:
    recompute = recompute_of(way)
    assert is_priced(recompute)
    assert recompute.kind == ("none", "selective", "full", "block")[min(way, len(WAYS))]
    assert way == 0 or recompute != recompute_of(way - 1)


@for_each(
    "recompute",
    [
        Recompute(granularity="selective", modules=("mlp",)),
        Recompute(granularity="full", method="uniform", layers=2),
        Recompute(granularity="full", method="block", layers=2, distribute=True),
    ],
)
def test_others_are_not_priced(recompute: Recompute) -> None:
    assert not is_priced(recompute)


def test_rows_are_needed_of_the_kinds_that_are_asked_for() -> None:
    assert rows_needed(()) == ("selective", "full")
    assert rows_needed(("none",)) == ()
    assert rows_needed(("none", "selective")) == ("selective",)
    assert rows_needed(("block",)) == rows_needed(("full", "block")) == ("full",)


def test_stages_that_hold_more_by_hand() -> None:
    """Three layers take 60 bytes of states, 7 of workspace and 3 for a sample: 8 are left for two.
    Computed again the first two keep a byte each, so that there are four, in 4 + 4 + 3 s. One layer
    alone holds as many as there are."""
    own = rows(recomputed_of=75.5)
    held = own.in_flight(ONE)
    assert held[0, 3] == 2
    runs = Runs([ONE], [], ("none", "full"), np.full(4, 9), np.full((3, 4), 0.5), 1.0, 3)
    found = recomputed_stages(own, runs, held)
    assert found is not None
    (number,) = found.of(0, 3)
    assert (found.way[number], found.time[number], found.in_flight[number]) == (2, 11.0, 4)
    assert found.peaks[:, number].tolist() == [0.5]
    assert found.of(0, 1).size == 0
    more = recomputed_stages(own, runs._replace(most=np.full(4, 100)), held)
    assert more is not None
    assert more.in_flight[more.of(0, 1)].tolist() == [65]  # a byte each, without 5 of workspace
    short = runs._replace(last=[TWO], part=0.5)
    peaks = recomputed_stages(own, short, held)
    assert peaks is not None
    assert peaks.peaks[:, number].tolist() == [0.5, 8 + 8 + 5 - 0.5 * 11]
    assert peaks.peaks[1].min() >= 0
    assert recomputed_stages(own, runs._replace(most=np.full(4, 2)), held) is None
    full = rows(recomputed_of=75.0)  # to the last byte there are three, as sums are rounded
    exact = recomputed_stages(full, runs, full.in_flight(ONE))
    assert exact is not None
    assert exact.in_flight[exact.of(0, 3)].tolist() == [3]
    none = LayerRows(profile(), {"a": 75.0})
    assert recomputed_stages(none, runs, none.in_flight(ONE)) is None


@examples(25)
@given(seed=SEEDS)
def test_options_that_run_the_same_share_what_they_found(seed: int) -> None:
    """Whichever option and number of micro-batches is asked for first, the stages are the same: a
    table of costs that knows nothing finds no others."""
    problem = random_problem(seed, recomputed=True, devices=4)
    global_batch, cluster = problem.global_batch, problem.cluster
    asked = [
        (option, batches)
        for batches in problem.micro_batches
        for option in dict.fromkeys(option for option, _, _ in group_ways(problem, batches))
    ]
    for option, batches in [*asked, *reversed(asked)]:
        alone = problem.costs.with_limits(problem.memory_limits)
        table = problem.costs.option_tables(option, batches, global_batch, cluster)
        other = alone.option_tables(option, batches, global_batch, cluster)
        assert (table is None) == (other is None)
        if table is None or table.recomputed is None:
            assert table is None or other.recomputed is None
            continue
        for column, expected in zip(table.recomputed, other.recomputed, strict=True):
            assert (column == expected).all()


def test_stages_whose_last_micro_batch_is_short_beyond_its_part_or_not_at_all() -> None:
    """One sample after two: half of the time or less is nothing beyond the half."""
    own = rows(recomputed_of=78.0)
    held = own.in_flight(TWO)
    runs = Runs([TWO], [ONE], ("full",), np.full(4, 9), np.zeros((3, 4)), 0.9, 3)
    found = recomputed_stages(own, runs, held)
    assert found is not None
    assert found.peaks[1].tolist() == [0.0] * found.time.size


def rows(recomputed_of: float) -> LayerRows:
    """Return rows of devices with so many bytes, whose layers take 4 s computed again."""
    return LayerRows(profile(recomputed={"full": again(4.0)}), {"a": recomputed_of})


# ---- whole bytes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bytes:
    """What layers take on each kind of replica, computed once and twice."""

    limits: np.ndarray
    state: np.ndarray
    kept: tuple[np.ndarray, np.ndarray]
    space: tuple[np.ndarray, np.ndarray]

    @property
    def layers(self) -> int:
        return self.state.shape[1]

    def holds(self, i: int, cut: int, j: int) -> int:
        """Return how many micro-batches fit a stage [i, j) whose layers before `cut` are computed
        again, by counting them."""
        again = np.arange(i, j) < cut
        counts = []
        for k, limit in enumerate(self.limits):
            fixed = self.state[k, i:j].sum()
            fixed += max(np.where(again, self.space[1][k, i:j], self.space[0][k, i:j]))
            each = np.where(again, self.kept[1][k, i:j], self.kept[0][k, i:j]).sum()
            if each == 0:
                counts.append(ALL_IN_FLIGHT if fixed <= limit else 0)
            else:
                counts.append(max(h for h in range(99) if h == 0 or fixed + h * each <= limit))
        return min(counts)


def ends(values: np.ndarray) -> np.ndarray:
    """Return the sums of the first layers, [keys, L + 1]."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def ranges(values: np.ndarray) -> np.ndarray:
    """Return the largest of each range of layers, [keys, L, L + 1]."""
    keys, layers = values.shape
    found = np.zeros((keys, layers, layers + 1))
    for i in range(layers):
        for j in range(i + 1, layers + 1):
            found[:, i, j] = values[:, i:j].max(axis=1)
    return found


@for_each(("whole", "some"), [(True, False), (False, True), (True, True)])
def test_stages_are_those_that_hold_more_than_all_that_compute_less_again(
    *, whole: bool, some: bool
) -> None:
    """Whole stages are of number 2, blocks of n layers of number n + 2. The embedding is computed
    again with the first layer and counts as none, the output never is."""
    listed = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        keys, layers = int(random.integers(1, 3)), int(random.integers(1, 7))

        def drawn(high: int, shape: tuple[int, int], random: Any = random) -> np.ndarray:
            return random.integers(0, high, shape).astype(np.float64)

        size = (keys, layers)
        kept = drawn(6, size)
        own = Bytes(
            random.integers(3, 40, keys).astype(np.float64), drawn(4, size),
            (kept, np.minimum(kept, drawn(4, size))), (drawn(6, size), drawn(6, size)),
        )  # fmt: skip
        held, most = np.zeros((layers, layers + 1), np.int64), random.integers(1, 9, layers + 1)
        expected = []
        for i in range(layers):
            for j in range(i + 1, layers + 1):
                best = held[i, j] = own.holds(i, i, j)
                first = max(i, 1)  # the embedding is before it
                last = max(first, min(j, layers - 1))
                for blocks in range(0 if first == last else 1, last - first + 1):
                    every = first + blocks == last
                    if (some or every) and best < most[j]:
                        cut = min(first + blocks, j)
                        holds = own.holds(i, cut, j)
                        if holds > best:
                            way = 2 if whole and every else 2 + max(blocks, 1)
                            expected.append((i, j, cut, way, holds, best))
                            best = holds
        found = _held_more(
            held, most, own.limits, ends(own.state), ends(own.kept[0]), ends(own.kept[1]),
            ranges(own.space[0]), ranges(own.space[1]), whole, some,
        )  # fmt: skip
        assert list(zip(*(row.tolist() for row in found), strict=True)) == expected
        listed += len(expected)
    assert listed > 100


def test_no_more_is_kept_than_the_devices_of_the_cluster_can_ask_for() -> None:
    """On one device behind, a stage holds two micro-batches at most, however long the chain is."""
    runs = Runs([ONE], [], ("none", "full"), np.full(4, 1), np.zeros((3, 4)), 1.0, 1)
    for devices, most in ((1, [2, 2, 2, 1]), (2, [3, 3, 2, 1])):
        own = rows(recomputed_of=75.5)
        recomputed_stages(own, runs._replace(devices=devices), np.zeros((3, 4), np.int64))
        ((*_, kept),) = own.cuts.values
        assert kept == np.array(most).tobytes()


def test_what_is_found_is_kept_by_how_many_stages_it_has() -> None:
    own = rows(recomputed_of=75.5)
    runs = Runs([ONE], [], ("none", "full"), np.full(4, 1), np.zeros((3, 4)), 1.0, 2)
    recomputed_stages(own, runs, np.zeros((3, 4), np.int64))
    assert own.cuts.size == sum(cuts.time.size for cuts, _ in own.cuts.values.values()) > 0
