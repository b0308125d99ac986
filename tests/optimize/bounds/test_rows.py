"""Stages that share an entry hold the same operators, and every stage has one owner."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds.rows import Rows, share_rows
from ilp_planner.optimize.bounds.sweep import Extent, entry_of
from tests.examples import examples

BLOCKS = st.lists(st.integers(0, 3), min_size=1, max_size=5)
KINDS = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=25),
    st.tuples(BLOCKS, BLOCKS, st.integers(1, 5)).map(lambda x: x[0] + x[1] * x[2] + x[0]),
)
FEW = examples(75)


def entries(rows: Rows) -> dict[tuple[int, int], int]:
    """Return the entry of every (start, length) of the whole chain."""
    n = rows.common.size
    length = n - np.arange(n)
    base = np.concatenate([[0], np.cumsum(length - rows.common)])
    return {
        (i, d): int(entry_of(i, d, rows, Extent(length, base)))
        for i in range(n)
        for d in range(1, n - i + 1)
    }


@FEW
@given(KINDS)
def test_a_row_agrees_with_an_earlier_one_as_far_as_it_says(kinds: list[int]) -> None:
    rows = share_rows(np.array(kinds))
    for i, (common, above) in enumerate(zip(rows.common, rows.above, strict=True)):
        if common == 0:
            assert kinds[i] not in kinds[:i]
            continue
        assert above < i
        assert kinds[i : i + common] == kinds[above : above + common]
        assert rows.common[above] < common  # the row above owns the longest shared stage


@FEW
@given(KINDS)
def test_shared_entries_hold_equal_operators(kinds: list[int]) -> None:
    held: dict[int, list[int]] = {}
    for (i, d), entry in entries(share_rows(np.array(kinds))).items():
        assert held.setdefault(entry, kinds[i : i + d]) == kinds[i : i + d]


@FEW
@given(KINDS)
def test_every_stage_has_exactly_one_owner(kinds: list[int]) -> None:
    rows = share_rows(np.array(kinds))
    found = entries(rows)
    owned = [entry for (i, d), entry in found.items() if d > rows.common[i]]
    assert sorted(owned) == list(range(len(owned)))
    assert set(found.values()) == set(owned)


@FEW
@given(KINDS)
def test_rows_branch_off_the_row_that_they_share_with_shortest_first(kinds: list[int]) -> None:
    rows = share_rows(np.array(kinds))
    assert rows.child_start.size == len(kinds) + 1
    seen = []
    for i in range(len(kinds)):
        mine = rows.children[rows.child_start[i] : rows.child_start[i + 1]].tolist()
        assert all(rows.above[c] == i for c in mine)
        lengths = [rows.common[c] for c in mine]
        assert lengths == sorted(lengths)
        seen += mine
    assert sorted(seen) == np.flatnonzero(rows.common > 0).tolist()


def test_a_stage_that_is_too_long_to_matter_has_no_entry() -> None:
    rows = share_rows(np.array([0, 1, 0, 1]))
    base, length = np.array([0, 2, 3, 3, 3]), np.array([2, 1, 2, 1])
    assert entry_of(0, 3, rows, Extent(length, base)) == -1
    assert entry_of(2, 2, rows, Extent(length, base)) == 1
