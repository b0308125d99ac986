"""Every path satisfies every row, and nothing else does."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.solvers.arc_flow import above, capacity_rows, cover_rows, flow_rows
from ilp_planner.optimize.solvers.arc_reduction import reduced
from ilp_planner.optimize.solvers.backend import incumbent
from tests.examples import examples
from tests.optimize.solvers.graphs import chain, general_graphs, graphs, make_graph, paths_of

quick = examples(50)


@quick
@given(graph=general_graphs(), least=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_covering_rows_force_the_peaks(graph: StageGraph, least: float) -> None:
    """Within one row of a path's largest arc, the least value and the excess make its peak."""
    graph = reduced(dataclasses.replace(graph, use=np.zeros(0, np.int64), capacity=())).graph
    for peak in graph.peaks:
        floor = least * float(peak.min())
        excess = above(cover_rows(graph), peak, floor)
        assert (excess.low == floor).all()
        rows = list(excess.entries())
        for path in paths_of(graph):
            chosen = set(path)
            totals = [
                floor + sum(v for c, v in zip(columns, values, strict=True) if c in chosen)
                for columns, values in rows
            ]
            assert max(totals, default=floor) == pytest.approx(peak[list(path)].max())


def test_capacities_are_divided_by_what_all_uses_share() -> None:
    graph = dataclasses.replace(
        chain(1.0, 2.0), use=np.array([[8, 0, 3], [24, 0, 1]]), capacity=(31, 5, 2)
    )
    rows = capacity_rows(graph)
    assert list(rows.entries()) == [([0, 1], [1.0, 3.0]), ([0, 1], [3.0, 1.0])]
    assert rows.high.tolist() == [3.0, 2.0]


@quick
@given(graph=graphs(), entries=st.sampled_from([0.0, 1.0, 3.0, 1e9]))
def test_the_covering_rows_force_the_bottleneck(graph: StageGraph, entries: float) -> None:
    """Whatever rows are left out, each arc stays in one, and no row holds two arcs of a path."""
    graph = reduced(graph).graph
    rows = list(cover_rows(graph, entries).entries())
    assert {arc for columns, _ in rows for arc in columns} == set(range(graph.arcs))
    for columns, values in rows:
        assert values == graph.time[columns].tolist()
        for path in paths_of(graph):
            assert len(set(columns) & set(path)) == 1


def test_operators_under_the_same_arcs_share_a_row() -> None:
    arcs = [(0, 50, 0, 1, 1.0), (50, 100, 1, 1, 1.0), (0, 100, 0, 2, 1.5)]
    rows = cover_rows(make_graph(100, arcs, 2))
    assert [columns for columns, _ in rows.entries()] == [[0, 2], [1, 2]]


def test_flow_rows_of_a_chain() -> None:
    rows = flow_rows(chain(1.0, 2.0))
    found = sorted((c, v, low) for (c, v), low in zip(rows.entries(), rows.low, strict=True))
    assert found == [([0], [1.0], 1.0), ([0, 1], [1.0, -1.0], 0.0), ([1], [1.0], 1.0)]


def test_several_sources_share_one_unit() -> None:
    graph = dataclasses.replace(
        chain(1.0, 2.0),
        nodes=4,
        sources=(0, 3),
        tail=np.array([0, 2, 3]),
        head=np.array([2, 1, 1]),
        start=np.array([0, 1, 0]),
        stop=np.array([1, 2, 2]),
        time=np.array([1.0, 2.0, 4.0]),
        extra=np.zeros(3),
        peaks=np.zeros((0, 3)),
        use=np.zeros((3, 0), np.int64),
    )
    assert ([0, 2], [1.0, 1.0]) in list(flow_rows(graph).entries())
    assert set(paths_of(graph)) == {(0, 1), (2,)}
    assert incumbent(graph) == (0, 1)
