"""The fastest legal way to run one stage is the one that enumeration finds."""

import math
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.models import COST_MODELS
from ilp_planner.costs.operators import StageTables
from ilp_planner.costs.profiles.table import MIB, RowKey
from ilp_planner.optimize.bounds import exact_stage
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import StageOptimum, compile_ahead, solve_stage
from ilp_planner.optimize.bounds.labels import grow
from ilp_planner.optimize.bounds.prices import completion, search_price
from ilp_planner.optimize.bounds.sweep import Chain, spread
from tests.examples import examples, for_each
from tests.optimize.bounds.fixed_parts import body
from tests.tiny import every_way, make_problem, make_row, one_device, price_stages, random_profile

ENOUGH = 10**9
SAME = 1e-9  # relative
NAMES = {
    "resnet": ["{}", "{}", "{}-bn3", "{}-conv1", "{}-downsample"],
    "gpt": [
        "enc-1st-layernorm", "enc-attention-softmax", "enc-attention-dropout", "enc-attention-qkv",
        "enc-MLP-gelu", "enc-post-MLP-dropout",
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A stage: operators [start, stop) of a chain at a place, and all ways to run it."""

    tables: StageTables
    start: int
    stop: int
    in_flight: int
    enters_node: bool
    leaves_node: bool

    @property
    def chain(self) -> Chain:
        return spread(self.tables)

    def price(
        self, ways: NDArray[np.int64], flags: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return price_stages(
            self.tables,
            self.start,
            self.stop,
            ways,
            flags,
            in_flight=self.in_flight,
            enters_node=self.enters_node,
            leaves_node=self.leaves_node,
        )

    def priced(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return seconds and bytes of every way."""
        return self.price(*every_way(len(self.tables.options), self.stop - self.start))

    def solve(self, limit: float, cutoff: float = INFINITE, effort: int = ENOUGH) -> StageOptimum:
        return solve_stage(
            self.chain,
            self.start,
            self.stop,
            in_flight=self.in_flight,
            limit=limit,
            enters_node=self.enters_node,
            leaves_node=self.leaves_node,
            cutoff=cutoff,
            effort=effort,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a stage that can be run."""
    devices, degrees, splits, most = draw(
        st.sampled_from([(1, (1,), (0,), 10), (2, (1, 2), (0,), 7), (2, (1, 2), (0, 1), 5)])
    )
    micro_batches = (1, 2) if devices == 2 else (1,)
    length = draw(st.integers(1, most))
    family = draw(st.sampled_from(sorted(NAMES)))
    numbers = st.integers(0, max(1, length - 1))
    names = st.tuples(st.sampled_from(NAMES[family]), numbers)
    drawn = draw(st.lists(names, min_size=length, max_size=length))
    operators = [name.format(number) for name, number in drawn]
    profile = random_profile(
        draw(st.integers(0, 2**32 - 1)),
        operators,
        micro_batches=micro_batches,
        degrees=degrees,
        splits=splits,
        holes=draw(st.sampled_from([0.0, 0.0, 0.1])),
        ties=draw(st.sampled_from([0.0, 0.3, 0.9])),
    )
    assume(profile.rows)
    problem = make_problem(
        operators,
        family,
        profile,
        cost_model=draw(st.sampled_from(sorted(COST_MODELS))),
        limit=math.inf,
        micro_batches=micro_batches,
        global_batch=8,
        devices=devices,
    )
    tables = problem.costs.tables(micro_batches[-1], devices, 4)
    assume(tables is not None)
    start = draw(st.integers(0, length - 1)) if draw(st.booleans()) else 0
    in_flight = draw(st.integers(1, 4))
    case = Case(tables, start, length, in_flight, draw(st.booleans()), draw(st.booleans()))
    assume(np.isfinite(case.priced()[0]).any())
    return case


# coarse: the search and the evaluator may differ on a limit within 1e-9 of what a way needs
SHARES = st.integers(-50, 1050).map(lambda x: (x + 0.37) / 1000)


def limit_of(case: Case, share: float) -> float:
    """Return a limit between the bytes of the leanest and of the fastest way."""
    time, memory = case.priced()
    fits = np.isfinite(time)
    least, most = memory[fits].min(), memory[fits][time[fits].argmin()]
    return float(max(least + share * (most - least), least * 0.9, MIB))


def optimum_of(case: Case, limit: float) -> float:
    time, memory = case.priced()
    return float(time[memory <= limit * (1 + ROUNDING)].min(initial=math.inf))


def check_way(case: Case, result: StageOptimum, limit: float) -> None:
    """The way found takes the time it claims, and fits."""
    if result.time >= INFINITE:
        return
    time, memory = case.price(result.choices[None], result.flags[None])
    assert time[0] == pytest.approx(result.time, rel=SAME)
    assert memory[0] <= limit * (1 + ROUNDING)


@examples(100, more=8)
@given(cases(), SHARES)
def test_the_optimum_of_a_stage_is_that_of_enumeration(case: Case, share: float) -> None:
    limit = limit_of(case, share)
    optimum = optimum_of(case, limit)
    result = case.solve(limit)
    assert result.exact
    check_way(case, result, limit)
    if math.isinf(optimum):
        assert result.time >= INFINITE
        assert result.bound >= INFINITE
    else:
        assert result.time == pytest.approx(optimum, rel=SAME)
        assert result.bound == pytest.approx(optimum, rel=SAME)


@examples(100)
@given(cases(), SHARES, st.floats(0.7, 1.5))
def test_a_cutoff_hides_only_what_is_not_below_it(case: Case, share: float, factor: float) -> None:
    limit = limit_of(case, share)
    optimum = optimum_of(case, limit)
    assume(math.isfinite(optimum) and abs(factor - 1) > 1e-6)
    result = case.solve(limit, cutoff=optimum * factor)
    assert result.exact
    check_way(case, result, limit)
    assert result.bound == pytest.approx(min(optimum, optimum * factor), rel=SAME)
    if factor > 1:
        assert result.time == pytest.approx(optimum, rel=SAME)


@examples(100)
@given(cases(), SHARES, st.sampled_from([0, 10, 200, 2000]))
def test_little_effort_gives_a_bound_below_the_optimum_and_a_way_above_it(
    case: Case, share: float, effort: int
) -> None:
    limit = limit_of(case, share)
    optimum = optimum_of(case, limit)
    result = case.solve(limit, effort=effort)
    check_way(case, result, limit)
    assert result.bound <= min(optimum, INFINITE) * (1 + SAME)
    assert result.time >= min(optimum, INFINITE) * (1 - SAME)
    if result.exact:
        assert result.bound == pytest.approx(min(optimum, INFINITE), rel=SAME)


@examples(3)
@given(cases())
def test_another_process_compiles_for_the_types_that_stages_have(case: Case) -> None:
    """Each kernel is compiled for one kind of arguments, the ones that `compile_ahead` gives."""
    compile_ahead()
    case.solve(float(np.median(case.priced()[1])))
    for kernel in (completion, search_price, grow):
        assert len(kernel.signatures) == 1


def test_a_recompute_run_between_two_sizes_of_pairs_is_charged_what_it_takes() -> None:
    """A run of 1 + 7 = 8 units is above its largest pair, and not the 11 of the next larger one."""
    activations, forward = (1, 7, 4, 11, 5), (5, 2, 5, 7, 6)
    operators = [f"l{i}" for i in range(5)]
    unit = 64.0  # MiB
    rows = {
        RowKey(operator=name, micro_batch=1, tp=1, split=0): make_row(
            f * 1e-3, 1e-3, message=0, weights=0, activations=a * unit
        )
        for name, a, f in zip(operators, activations, forward, strict=True)
    }
    tables = one_device(operators, rows)
    case = Case(tables, 0, 5, 2, False, False)
    limit = 48 * unit * MIB
    assert optimum_of(case, limit) == pytest.approx(42e-3)
    result = case.solve(limit)
    assert result.flags.tolist() == [True, True, True, False, False]
    assert result.time == pytest.approx(42e-3)
    assert result.bound == pytest.approx(42e-3)


def fixed_case(
    degrees: tuple[int, ...] = (1, 2), seed: int = 1, cost_model: str = "native"
) -> Case:
    """Return a stage of five operators on two devices; memory is reserved by all of them."""
    operators = ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3", "layer0-1-conv1")
    profile = random_profile(seed, operators, micro_batches=(1, 2), degrees=degrees, ties=0.0)
    problem = make_problem(
        operators,
        "resnet",
        profile,
        cost_model=cost_model,
        limit=math.inf,
        micro_batches=(2,),
        global_batch=8,
        devices=2,
    )
    tables = problem.costs.tables(2, 2, 4)
    assert tables is not None
    return Case(tables, 0, 5, 3, False, True)


@for_each("degrees", [(1, 2), (2,)])
@for_each("seed", [1, 2, 3])
@for_each("cost_model", sorted(COST_MODELS))
def test_the_optimum_of_a_fixed_stage_is_that_of_enumeration(
    degrees: tuple[int, ...], seed: int, cost_model: str
) -> None:
    case = fixed_case(degrees, seed, cost_model)
    for share in (-0.05, 0.2, 0.7, 1.05):
        body(test_the_optimum_of_a_stage_is_that_of_enumeration)(case, share)
        body(test_little_effort_gives_a_bound_below_the_optimum_and_a_way_above_it)(case, share, 0)
    for factor in (0.9, 1.1):
        body(test_a_cutoff_hides_only_what_is_not_below_it)(case, 0.5, factor)


def test_the_best_price_of_a_stage_is_none_where_memory_does_not_bind() -> None:
    case = fixed_case()
    free = case.solve(1e15, effort=0)
    assert (free.price, free.open, free.exact) == (0.0, (), True)
    bound = case.solve(limit_of(case, 0.5), effort=0)
    assert 0 < bound.price < 1e-6
    assert not bound.exact
    assert not bound.searched
    assert case.solve(limit_of(case, 0.5)).searched


def test_prices_leave_room_for_what_a_class_and_its_operators_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pair keeps at least what its class says, and all operators but the last reserve memory."""
    rooms, original = [], exact_stage.search_price

    def priced(operators, ends, memory, pair_most, room, way):
        rooms.append((pair_most, memory.limit - room))
        return original(operators, ends, memory, pair_most, room, way)

    monkeypatch.setattr(exact_stage, "search_price", priced)
    case = fixed_case((2,), 2)
    case.solve(limit_of(case, 0.5), effort=0)
    reserved = sum(
        max(float(table[case.tables.kind[q], 0]) for q in range(4))
        for table in (case.tables.forward_reserved, case.tables.backward_reserved)
    )
    assert reserved > MIB
    sizes = sorted({float(case.tables.activations[case.tables.kind[q], 0]) for q in range(4)})
    sizes = [size for size in sizes if size >= 0.02 * sizes[-1]]
    assert len(sizes) > 1
    runs = [sizes[-1] * 1.2**k for k in range(1, 9)]
    assert [most for most, _ in rooms] == pytest.approx([*sizes, *runs, math.inf])
    least = [0.0, *sizes, *runs]
    assert [taken - reserved for _, taken in rooms] == pytest.approx(least, abs=1.0)


@pytest.mark.parametrize("count", [6, 7])
def test_of_many_sizes_of_pairs_six_make_classes(count: int) -> None:
    """And one operator has no pair, whatever it keeps."""
    names = [f"layer{i}-0-conv1" for i in range(count + 1)]
    rows = {
        RowKey(operator=name, micro_batch=1, tp=1, split=0): make_row(activations=100.0 + 10 * i)
        for i, name in enumerate(names)
    }
    tables = one_device(names, rows)
    classes = exact_stage._pair_classes(spread(tables), 0, count + 1)
    sizes = [100.0 + 10 * i for i in range(count)]
    kept = sizes if count == 6 else [sizes[k] for k in (0, 1, 2, 3, 4, 6)]
    assert [c.pair_most / MIB for c in classes[:6]] == pytest.approx(kept)
    assert len(classes) == 6 + 9
    assert exact_stage._pair_classes(spread(tables), 0, 1) == [exact_stage.Ceilings()]


def test_where_the_last_run_may_be_dropped_there_is_one_class() -> None:
    """Whatever a pair keeps: the operator before the last shares its memory."""
    case = fixed_case(cost_model="aceso")
    assert case.tables.shared.tolist() == [False, True, False, True, False]
    assert exact_stage._pair_classes(case.chain, 0, 5) == [exact_stage.Ceilings()]
    assert len(exact_stage._pair_classes(case.chain, 0, 4)) > 2


class Grown:
    """Labels that find nothing: what they are asked, by the class's number of its bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: int) -> None:
        self.work, self.searches, self.batches = work, [], []
        original = exact_stage.side_by_side
        monkeypatch.setattr(exact_stage, "grow", self.grow)

        def side_by_side(function, items):
            self.batches.append(len(items))
            return original(function, items)

        monkeypatch.setattr(exact_stage, "side_by_side", side_by_side)

    def grow(self, operators, ends, memory, ceilings, alike, ahead, search, way):
        self.searches.append(search)
        return INFINITE, 0.0, False, self.work


def test_labels_look_below_what_is_known_and_are_stopped_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One class after the other, where nothing else is said, with the effort that is left."""
    case = fixed_case()
    limit = limit_of(case, 0.5)
    known = case.solve(limit, effort=0)
    assert len(known.open) > 2
    grown = Grown(monkeypatch, 40)
    assert not case.solve(limit, effort=100).exact
    assert [search.effort for search in grown.searches[:4]] == [100, 60, 20, 0]
    assert {search.cutoff for search in grown.searches} == {known.time}
    assert set(grown.batches) == {1}
    grown.searches.clear()
    cutoff = (known.bound + known.time) / 2
    case.solve(limit, cutoff=cutoff)
    assert {search.cutoff for search in grown.searches} == {cutoff}
    grown.searches.clear()
    assert case.solve(limit, cutoff=known.bound).exact  # which no class is below
    assert grown.searches == []


def test_several_are_called_in_a_thread_each() -> None:
    """In their order; a single one where it is asked."""

    def thread(item: int) -> tuple[int, int]:
        together.wait(10)
        return item, threading.get_ident()

    together = threading.Barrier(1)
    assert exact_stage.side_by_side(thread, []) == []
    assert exact_stage.side_by_side(thread, [7]) == [(7, threading.get_ident())]
    for count in (2, 3):
        together = threading.Barrier(count)  # which breaks where one waits for the other
        found = exact_stage.side_by_side(thread, list(range(count)))
        assert [item for item, _ in found] == list(range(count))
        assert threading.get_ident() not in {ident for _, ident in found}
