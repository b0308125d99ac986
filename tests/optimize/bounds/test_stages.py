"""Bounds of all stages: what they are counted by, kept in, and sharpened with."""

import itertools

import numpy as np
import pytest

from ilp_planner.costs.profiles.table import Profile, RowKey
from ilp_planner.optimize.bounds import exact_stage
from ilp_planner.optimize.bounds import stages as stage_module
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.pipelines import Place
from ilp_planner.optimize.bounds.stages import ALIKE_PRICES, PRICE_COUNT, StageBounds
from tests.examples import for_each
from tests.tiny import (
    StageCatalogue,
    fixed_problem,
    make_problem,
    make_profile,
    make_row,
    random_profile,
)

ENOUGH = 10**9
LIMIT = 28.0 * 2**30  # between the leanest and the fastest way of the first four operators
OPERATORS = 5


def bounds(limit: float = 2.0**33) -> StageBounds:
    """Return those of stages on one device of sixteen micro-batches."""
    problem = fixed_problem(limit=limit)
    return OperatorPart(problem, problem.micro_batch_sizes[0]).stages


def ways(start: int, stop: int, behind: int) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds and bytes of every way to run a stage that stays in the node."""
    return StageCatalogue(fixed_problem(), 1).priced(1, start, stop, behind, False, False)


def made(operators: list[str], rows, *, devices: int = 1, groups=(1,)) -> StageBounds:
    """Return the bounds of stages of operators with these rows."""
    profile = rows if isinstance(rows, Profile) else make_profile(rows)
    problem = make_problem(
        operators,
        "resnet",
        profile,
        cost_model="native",
        limit=LIMIT,
        micro_batches=(1,),
        global_batch=16,
        devices=devices,
        group_sizes=groups,
    )
    return OperatorPart(problem, 1).stages


def optimum(start: int, stop: int, behind: int) -> float:
    """Return the least seconds of a stage within `LIMIT`, of all ways one by one."""
    time, memory = ways(start, stop, behind)
    return float(time[memory <= LIMIT].min())


def place(behind: int = 0, *, leaves: bool = False) -> Place:
    return Place(devices=1, behind=behind, enters_node=False, leaves_node=leaves)


@for_each(
    ("digits", "counts"),
    [
        (64, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (2, [1, 2, 3, 4, 4, 6, 6, 8, 8]),
        (1, [1, 2, 2, 4, 4, 4, 4, 8, 8]),
    ],
)
def test_micro_batches_in_flight_are_rounded_down_to_some_digits(
    digits: int, counts: list[int]
) -> None:
    """One more than the stages behind."""
    stages = bounds()
    stages.set_longest(INFINITE, digits=digits)
    assert [stages.in_flight(behind) for behind in range(9)] == counts


def test_groups_without_a_profiled_option_have_no_stages() -> None:
    """Operators on two devices each, whatever else there is."""
    profile = random_profile(0, ["conv1"], micro_batches=(1,), degrees=(2,))
    assert made(["conv1"], profile, devices=2, groups=(1, 2)).groups == (2,)


def test_tables_that_are_there_are_not_computed_again() -> None:
    stages = bounds()
    own = stages.both_times(place()) + 1.0
    stages.keep(place(), own)
    stages.prepare([place(), place(2)], 2)
    assert stages.times(place(leaves=True)).tolist() == own[15:].tolist()
    assert (1, 3, False) in stages._tables


def test_stages_that_stay_in_the_node_come_before_those_that_leave_it() -> None:
    stages = bounds()
    both = stages.both_times(place())
    apart = [stages.times(place(leaves=leaves)) for leaves in (False, True)]
    assert both.tolist() == np.concatenate(apart).tolist()
    own = both + 1.0
    stages.keep(place(), own)
    assert stages.times(place(leaves=True)).tolist() == (apart[1] + 1.0).tolist()
    stages.times(place())[0] = 77.0
    assert own[0] == 77.0


def test_prices_that_were_met_are_used_after_sixteen_answers_and_then_twice_as_many() -> None:
    stages = bounds()
    before = stages.times(place()).copy()
    for count, left in ((16, 32), (32, 64)):
        stages._met = {(1, 1): [1e-9 * 1.1**k for k in range(count - 1)]}
        assert stages.sharpen(1) is False
        stages._met[1, 1].append(1e-7 * count)
        assert stages.sharpen(1) is True
        assert stages._left == left
        assert stages._met == {}
    assert len(stages.prices[1, 1]) > PRICE_COUNT
    assert (stages.times(place()) >= before).all()
    stages._met = {(9, 9): [1e-9] * 64}  # of stages that no table is of
    assert stages.sharpen(1) is False


def test_prices_as_far_away_as_said_are_unlike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "ALIKE_PRICES", 0.5)
    stages = bounds()
    stages.prices[1, 1] = [1.5, 40.0]
    assert stages._unlike((1, 1), [1.0, 1.5, 30.0]).tolist() == [1.0]
    assert stages._unlike((1, 2), [1.5, 1.0, 1e-9]).tolist() == [1e-9, 1.0]  # not from each other


def test_prices_that_are_unlike_those_in_use_and_each_other_are_taken() -> None:
    stages = bounds()
    stages.prices[1, 1] = [1.0]
    near = 1 + ALIKE_PRICES / 3
    met = [near, 2.0, 2.0 * near, 0.5, 1 / near]
    assert stages._unlike((1, 1), met).tolist() == [0.5, 2.0]
    assert stages._unlike((1, 2), met).tolist() == [0.5, 1 / near, 2.0]
    assert stages._unlike((1, 1), []).tolist() == []
    twelve = [2.0**k for k in range(1, PRICE_COUNT + 1)]
    assert stages._unlike((1, 1), twelve).tolist() == twelve
    thirteen = stages._unlike((1, 1), [*twelve, 1e9])
    assert thirteen.tolist() == [*twelve[:11], 1e9]
    many = stages._unlike((1, 1), [2.0**k for k in range(1, 40)])
    assert many.size == PRICE_COUNT
    assert (many[0], many[-1]) == (2.0, 2.0**39)


EVERY = list(itertools.combinations(range(OPERATORS + 1), 2))
BEHIND = 3  # stages, so that four micro-batches are in flight
FOUR = (0, 4)  # the first four operators


def refined(stages: StageBounds, cutoff: float = INFINITE, effort: int = ENOUGH, to=FOUR):
    """Solve a stage; return its name as well."""
    key = stages.key(place(BEHIND), stages.entry(1, *to))
    return key, stages.refine(key, *to, cutoff=cutoff, effort=effort)


def test_each_stage_of_unlike_operators_has_an_entry() -> None:
    """Row after row, by length; what takes too long has none."""
    stages = bounds()
    assert [stages.entry(1, *stage) for stage in EVERY] == list(range(15))
    stages.set_longest(0.02)
    assert stages.entry(1, 0, 1) == 0
    assert stages.entry(1, *FOUR) == -1


def test_a_stage_that_is_solved_has_its_least_seconds_for_a_bound() -> None:
    stages, least = bounds(LIMIT), optimum(*FOUR, BEHIND)
    key, before = stages.key(place(BEHIND), stages.entry(1, *FOUR)), stages.times(place(BEHIND))
    assert key == (1, 4, False, False, 3)
    others = np.delete(before, 3)
    assert before[3] < least * (1 - 1e-3)
    _, way = refined(stages)
    assert (way.start, way.stop, way.effort) == (*FOUR, ENOUGH)
    assert way.optimum.exact
    assert stages.exact == {key: way}
    assert stages.bound(key) == pytest.approx(least, rel=1e-9)
    assert np.delete(stages.times(place(BEHIND)), 3).tolist() == others.tolist()
    higher = stages.times(place(BEHIND)) + 1.0
    stages.keep(place(BEHIND), np.append(higher, higher))
    refined(stages)  # less than what is known
    assert stages.bound(key) == higher[3]


def test_refining_goes_on_from_what_prices_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """And notes the best price of a stage once, where memory has one."""
    asked = []

    def price_classes(*given):
        asked.append(given[1:3])
        return original(*given)

    original = exact_stage.price_classes
    monkeypatch.setattr(exact_stage, "price_classes", price_classes)
    stages = bounds(LIMIT)
    _, first = refined(stages, effort=0)
    assert not first.optimum.exact
    assert stages._met == {(1, 4): [first.optimum.price]}
    assert 0 < first.optimum.price < 1e-9
    _, then = refined(stages)
    assert then.optimum.exact
    assert asked == [FOUR]
    assert stages._met == {(1, 4): [first.optimum.price]}
    refined(stages, to=(0, 1))  # which fits
    assert stages._met == {(1, 4): [first.optimum.price]}


def test_answers_are_remembered_where_tables_are_made_anew() -> None:
    """Also where their stages take too long to matter for a while."""
    stages = bounds(LIMIT)
    key, way = refined(stages)
    one, short = refined(stages, to=(0, 1))
    least = stages.times(place(BEHIND)).copy()
    stages.set_longest(0.02)
    assert stages.exact == {}
    less = stages.times(place(BEHIND))
    kept = [k for k, stage in enumerate(EVERY) if stages.entry(1, *stage) >= 0]
    assert stages.exact == {one: short}
    assert len(kept) < len(EVERY)
    assert (less <= least[kept]).all()
    stages.set_longest(INFINITE)
    assert stages.times(place(BEHIND)).tolist() == least.tolist()
    assert stages.exact == {one: short, key: way}


@pytest.mark.parametrize(("share", "exact"), [(0.999, False), (1.001, True)])
def test_that_nothing_is_below_a_cutoff_is_a_bound_afterwards(share: float, exact: bool) -> None:
    """And no answer any more: the cutoff may be another one."""
    stages, least = bounds(LIMIT), optimum(*FOUR, BEHIND)
    key, way = refined(stages, least * share)
    assert way.optimum.exact
    stages.set_longest(INFINITE)
    bound = stages.times(place(BEHIND))[3]
    assert bound == pytest.approx(least * min(share, 1), rel=1e-9)
    assert stages.exact[key].optimum.exact is exact
    assert stages.exact[key].optimum.bound == way.optimum.bound


def test_stages_need_no_less_memory_than_said() -> None:
    """And a single operator as much: it holds no memory in reserve."""
    stages = bounds(LIMIT)
    said = stages.memory(1, 4, False)
    assert said.shape == (2, 15)
    for (start, stop), bytes_ in zip(EVERY, said[0], strict=True):
        _, memory = ways(start, stop, BEHIND)
        assert bytes_ <= memory.min() * (1 + 1e-9)
        if stop - start == 1:
            assert bytes_ == pytest.approx(memory.min(), abs=0.1)


def test_prices_are_around_what_recomputation_costs_per_byte() -> None:
    """From an eighth of the cheap operators' to twice the dear ones', of one micro-batch each."""

    def prices(*forward_and_kept: tuple[float, float], in_flight: int = 1) -> list[float]:
        """Seconds, and bytes of activations."""
        names = [f"layer{i}-0-conv1" for i in range(len(forward_and_kept))]
        rows = {
            RowKey(operator=name, micro_batch=1, tp=1, split=0): make_row(
                forward, activations=kept / 2**20
            )
            for name, (forward, kept) in zip(names, forward_and_kept, strict=True)
        }
        return made(names, rows)._prices(1, in_flight).tolist()

    alike = prices((1e-3, 1e9), (2e-3, 2e9), (5e-3, 0.0), (0.0, 4e9))
    assert len(alike) == 14
    assert (alike[0], alike[-1]) == (0.0, 1e-6)
    between = np.array(alike[1:-1])
    assert between[0] == pytest.approx(1e-12 / 8)
    assert between[-1] == pytest.approx(2e-12)
    assert between[1:] / between[:-1] == pytest.approx([16 ** (1 / 11)] * 11)
    half = prices((1e-3, 1e9), (2e-3, 2e9), in_flight=2)
    assert half == pytest.approx([0.0, *(between / 2), 1e-6])
    # of a hundred that are spread evenly, the third and the seventy-first
    spread = prices(*((k * 1e-5, 1e9) for k in range(1, 102)))
    assert (spread[1], spread[-2]) == pytest.approx((3e-14 / 8, 71e-14 * 2))
    none = prices((1e-3, 0.0), (1e-3, 0.0))
    assert (none[1], none[-2]) == pytest.approx((1e-6 / 8, 2e-15))
