"""What is kept, and what is dropped for it."""

from ilp_planner.costs.layer_rows import Kept


def test_what_came_first_is_dropped_where_there_is_too_much() -> None:
    kept = Kept[str](10)
    for key, size in (("a", 4), ("b", 5), ("c", 1)):
        kept.keep((key,), key.upper(), size)
    assert [*kept.values] == [("a",), ("b",), ("c",)]
    assert (kept.size, kept.get(("b",)), kept.get(("z",))) == (10, "B", None)
    kept.keep(("d",), "D", 1)
    assert [*kept.values] == [("b",), ("c",), ("d",)]
    assert (kept.size, kept.get(("a",))) == (7, None)
    kept.keep(("e",), "E", 11)
    assert (kept.size, kept.values) == (0, {})
