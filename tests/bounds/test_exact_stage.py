"""The fastest legal way to run one stage is the one that enumeration finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.bounds.arrays import INFINITE
from ilp_planner.bounds.exact_stage import StageOptimum, compile_ahead, solve_stage
from ilp_planner.bounds.labels import grow
from ilp_planner.bounds.prices import completion, search_price
from ilp_planner.bounds.sweep import Chain, spread
from ilp_planner.costs import COST_MODELS
from ilp_planner.numerics import ROUNDING
from ilp_planner.profiles.table import MIB, RowKey
from tests.examples import examples
from tests.tiny import every_way, make_problem, make_profile, make_row, price_stages, random_profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.costs.operators import StageTables

ENOUGH = 10**9
SAME = 1e-9  # relative
NAMES = {
    "resnet": ["{}", "{}", "{}-bn3", "{}-conv1", "{}-downsample"],
    "gpt": [
        "enc-1st-layernorm",
        "enc-attention-softmax",
        "enc-attention-dropout",
        "enc-attention-qkv",
        "enc-MLP-gelu",
        "enc-post-MLP-dropout",
    ],
}


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
    problem = make_problem(
        operators,
        "resnet",
        make_profile(rows),
        cost_model="native",
        limit=math.inf,
        micro_batches=(1,),
        global_batch=8,
        devices=1,
    )
    tables = problem.costs.tables(1, 1, 8)
    assert tables is not None
    case = Case(tables, 0, 5, 2, False, False)
    limit = 48 * unit * MIB
    assert optimum_of(case, limit) == pytest.approx(42e-3)
    result = case.solve(limit)
    assert result.flags.tolist() == [True, True, True, False, False]
    assert result.time == pytest.approx(42e-3)
    assert result.bound == pytest.approx(42e-3)
