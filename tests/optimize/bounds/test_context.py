"""Arcs without a context, and chains of some of the candidates."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from ilp_planner.optimize.bounds.context import Context, no_context, no_seats
from ilp_planner.optimize.bounds.group_chain import Cards, ChainStages, GroupChain, first_stops


def test_arcs_of_a_plain_graph_stand_anywhere_and_send_for_nothing() -> None:
    graph: Any = SimpleNamespace(arcs=3, operators=4, nodes=6)
    found = no_context(graph)
    assert found.behind.tolist() == [4, 4, 4]
    assert found.level.tolist() == [0] * 6
    assert found.level_of.tolist() == [0] * 5
    assert found.kind.tolist() == found.row.tolist() == [0, 0, 0]
    assert found.send_time.tolist() == found.send_extra.tolist() == [[0.0]]
    assert found.single.tolist() == [-1, -1, -1]
    assert found.demand.shape == (3, 0)
    assert found.after.shape == found.near.shape == (0, 0, 0)
    assert found.rest.shape == (0, 0)
    assert found.apart.tolist() == [0]


def test_a_context_of_some_arcs_has_theirs_and_the_same_tables() -> None:
    numbers = np.arange(4)
    whole = Context(
        behind=10 + numbers,
        level=np.zeros(2, np.int64),
        level_of=np.zeros(3, np.int64),
        kind=20 + numbers,
        row=30 + numbers,
        send_time=np.ones((1, 1)),
        send_extra=np.ones((1, 1)),
        **{**no_seats(4), "demand": 40 + numbers[:, None], "single": 50 + numbers},
    )
    some = whole.only(np.array([1, 3]))
    assert [x.tolist() for x in (some.behind, some.kind, some.row, some.demand, some.single)] == [
        [11, 13], [21, 23], [31, 33], [[41], [43]], [51, 53],
    ]  # fmt: skip
    assert some.send_time is whole.send_time
    assert some.level_of is whole.level_of


def test_a_chain_of_some_candidates_knows_where_they_stop() -> None:
    """Four candidates that stop at layers 1, 1, 2 and 3 of three."""
    stop = np.array([1, 1, 2, 3])
    assert first_stops(stop, 3).tolist() == [0, 0, 2, 3, 4]
    columns: Any = [np.arange(4) + 10 * k for k in range(11)]
    chain = GroupChain(
        layers=3,
        weight=1.0,
        types=1,
        capacity=(4, 9),
        cards=Cards(unit=0.5, use=np.arange(4)[:, None]),
        choice=100 + np.arange(4),
        stop=stop,
        stages=ChainStages(first_stops(stop, 3), *columns),
        sending=None,  # type: ignore[arg-type]
        states=None,  # type: ignore[arg-type]
        alike=np.arange(2),
        regions=None,  # type: ignore[arg-type]
    )
    assert chain.arcs == 4
    some = chain.only(np.array([1, 3]))
    assert (some.arcs, some.choice.tolist(), some.stop.tolist()) == (2, [101, 103], [1, 3])
    assert some.stages.first.tolist() == [0, 0, 1, 1, 2]
    assert some.cards.use.tolist() == [[1], [3]]
    assert some.below(1.25).capacity == (4, 2)  # whole units of half a second
    assert some.below(60.0).capacity == (4, 4)  # no more than all of them take
    assert [column.tolist() for column in some.stages[1:]] == [
        [10 * k + 1, 10 * k + 3] for k in range(11)
    ]
