"""What is found without counting the stages behind bounds every pipeline, and leaves none out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds import fewest
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.fewest import FewestBehind
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.bounds.pipelines import OpenStages, fewest_before
from ilp_planner.optimize.bounds.stages import EXACT
from ilp_planner.schedule.formulas import OneForwardOneBackward
from tests.examples import examples
from tests.optimize.bounds.fixed_parts import FIXED, body, fixed_part
from tests.optimize.bounds.test_pipeline import Listed, listed, listed_part
from tests.tiny import stands

FEW = examples(10)
SAME = 1e-9  # relative
FACTORS = st.sampled_from([1.0001, 1.1, 2.0])
DIGITS = st.sampled_from([1, 2, 5, EXACT])


def relaxed(part: Listed, digits: int, cutoff: float) -> FewestBehind:
    """Return the pipelines of a part up to `cutoff` seconds."""
    own = part.part
    own.stages.set_longest(cutoff / own.micro_batches, digits=digits)
    cluster = own.problem.cluster
    return FewestBehind(
        own.stages,
        devices=cluster.device_count,
        per_node=cluster.devices_per_node,
        max_stages=own.problem.max_stages,
    )


def arcs(graph: OpenStages) -> set[tuple[int, int, int, int, int, bool, bool]]:
    """Return the stages of a graph: devices before, devices, operators, and which ends cross."""
    found, wide = set(), graph.graph.operators + 1
    assert wide > 1
    for arc, (start, stop) in enumerate(zip(graph.graph.start, graph.graph.stop, strict=True)):
        at = graph.places[graph.place[arc]]
        found.add((at.devices, int(start), int(stop), at.enters_node, at.leaves_node))
    return found


@examples(6, more=20)
@given(listed(), DIGITS, FACTORS)
def test_no_pipeline_is_faster_or_left_out(part: Listed, digits: int, factor: float) -> None:
    best, _ = part.best()
    assume(math.isfinite(best))
    cutoff = best * factor
    scape = relaxed(part, digits, cutoff)
    low = part.least_slowest()
    assert scape.exists(low * (1 + SAME))
    weight = part.count - 1.0
    total = scape.least_total(weight, cutoff, low * (1 - SAME), 0.0)
    assert weight * low * (1 - SAME) <= total
    assert min(total, cutoff) <= best * (1 + SAME)
    found = scape.open_graph(weight, cutoff, low * (1 - SAME))
    assert best_path(found.graph)[1] <= best * (1 + SAME)
    for stages, times in part.pipelines:
        if max(times) * part.count <= cutoff:  # of longer stages, nothing is said
            assert scape.least_sum(max(times) * (1 + SAME)) <= sum(times) * (1 + SAME)
        if OneForwardOneBackward(part.count).iteration_time(times) < cutoff * (1 - SAME):
            assert {(g, i, j, e, x) for g, i, j, _, e, x in stages} <= arcs(found)


@FEW
@given(listed(), DIGITS)
def test_the_fewest_stages_behind_are_no_more_than_any_pipeline_has(
    part: Listed, digits: int
) -> None:
    assume(part.pipelines)
    slowest = max(max(times) for _, times in part.pipelines)
    known = relaxed(part, digits, slowest * part.count * 2).suffixes(slowest * (1 + SAME))
    for stages, _ in part.pipelines:
        used = 0
        for count, (devices, start, *_) in enumerate(reversed(stages), 1):
            used += devices
            assert known.behind[used, start] <= count
            assert known.total[used, start] < INFINITE
            assert known.window[used, 0] <= start <= known.window[used, 1]


@FEW
@given(listed(), DIGITS, st.sampled_from([0.9, 1.0001, 1.5]))
def test_exact_stages_raise_the_bound_to_no_more_than_the_optimum(
    part: Listed, digits: int, factor: float
) -> None:
    best, _ = part.best()
    assume(math.isfinite(best))
    own = part.part
    own.counted, own.digits = False, digits
    own.bound_by_work()
    own.bound_by_stages(best * factor)
    assert own.bound <= best * (1 + SAME)
    cutoff = best * factor  # of pipelines that take longer, nothing is said
    graph = own.expand(cutoff).graph
    for _ in range(20):
        path, value = best_path(graph)
        if not path or not own.refine(path, 10.0):
            break
        assert min(value, cutoff) <= best * (1 + SAME)
    path, value = best_path(graph)
    assert not path or min(value, cutoff) <= best * (1 + SAME)
    assert path or factor < 1 + SAME or math.isinf(best)


@examples(40)
@given(
    st.integers(1, 3), st.integers(1, 6), st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1)
)
def test_the_fewest_stages_on_the_first_devices_are_those_of_enumeration(
    nodes: int, per_node: int, groups: set[int]
) -> None:
    devices = nodes * per_node
    found = fewest_before(devices, per_node, sorted(groups))
    least = np.full(devices + 1, devices + 1)
    for count in range(devices + 1):
        for sizes in itertools.product(sorted(groups), repeat=count) if count <= 6 else ():
            begins = [0, *itertools.accumulate(sizes)]
            fits = all(stands(b, g, per_node) for b, g in zip(begins, sizes, strict=False))
            if fits and begins[-1] <= devices:
                least[begins[-1]] = min(least[begins[-1]], count)
    for d in range(devices + 1):
        if found[d] <= 6 or least[d] <= 6:
            assert found[d] == least[d]


def test_the_clock_is_looked_at() -> None:
    class LateError(Exception):
        pass

    def check() -> None:
        raise LateError

    from ilp_planner.optimize.bounds.operator_part import OperatorPart
    from tests.tiny import fixed_problem

    problem = fixed_problem()
    part = OperatorPart(problem, problem.micro_batch_sizes[0], check=check)
    part.counted = False
    with pytest.raises(LateError):
        part.bound_by_stages(1e9)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("at_once", [1, 4])
def test_what_is_found_of_fixed_pipelines_bounds_them(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fewest, "AT_ONCE", at_once)
    problem = fixed_part(name)
    for digits in (1, EXACT):
        body(test_the_fewest_stages_behind_are_no_more_than_any_pipeline_has)(
            listed_part(problem), digits
        )
        for factor in (1.0001, 2.0):
            body(test_no_pipeline_is_faster_or_left_out)(listed_part(problem), digits, factor)
            body(test_exact_stages_raise_the_bound_to_no_more_than_the_optimum)(
                listed_part(problem), digits, factor
            )


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_tables_of_stages_are_kept_in_one_array(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is known of a stage later is seen there; states are kept of one length."""
    monkeypatch.setattr(fewest, "AT_ONCE", at_once)
    part = listed_part(fixed_part(name))
    least = part.least_slowest()
    scape = relaxed(part, EXACT, 2 * part.best()[0])
    known = scape.suffixes(least * (1 + SAME))
    assert scape.suffixes(least * (1 + SAME)) is known
    assert not scape.exists(1e-9)
    assert scape.exists(least * (1 + SAME))
    found = scape.open_graph(part.count - 1.0, 2 * part.best()[0], 0.0)
    tables = (scape.offset >= 0).sum(axis=(1, 2))
    assert scape.flat.size == (tables * 2 * scape.entries).sum()
    for place in found.places:
        assert np.shares_memory(scape.stages.times(place), scape.flat)
    for arc, (number, entry) in enumerate(zip(found.place, found.entry, strict=True)):
        assert found.graph.time[arc] == scape.stages.times(found.places[number])[entry]


@pytest.mark.parametrize(("chunk", "looks"), [(1, 4), (3, 2), (4, 1), (64, 1)])
def test_the_clock_is_looked_at_after_so_many_devices(
    chunk: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fewest, "CHUNK", chunk)
    part = listed_part(fixed_part("nodes"))
    scape, asked = relaxed(part, EXACT, 2 * part.best()[0]), list[int]()
    scape.check = lambda: asked.append(1)
    scape.suffixes(part.least_slowest() * 2)
    assert len(asked) == looks
