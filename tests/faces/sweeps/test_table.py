"""Tables: prices, fronts, formats; and pictures of them."""

import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.sweeps.plot import along_of, lines_of, plotted, write_plot
from ilp_planner.faces.sweeps.table import (
    Wish,
    check_output,
    frame_of,
    pareto_front,
    rows_of,
    write_table,
)
from ilp_planner.specs.prices import PriceList
from tests.faces.sweeps.cases import sweep_of

BOTH = ("time", "price")
NUMBERS = st.one_of(st.integers(0, 5).map(float), st.just(math.nan))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_the_front_is_what_nothing_is_better_than(pairs: list[tuple[float, float]]) -> None:
    def better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one[0] <= other[0] and one[1] <= other[1] and one != other

    expected = [
        not any(map(math.isnan, pair)) and not any(better(other, pair) for other in pairs)
        for pair in pairs
    ]
    assert pareto_front(pairs) == expected


def row(gpus: int, batch: int, step: float | None, price: float | None = None) -> dict:
    """Return what a journal has of a point."""
    known = {"key": f"{gpus} {batch}", "gpus": gpus, "gpu": "H100-80GB"}
    values = {"gpus": f"{gpus}xH100-80GB", "global_batch": f"{batch}"}
    if step is None:
        return {**known, "values": values, "status": "infeasible", "reason": "too large"}
    return {
        **known,
        "values": values,
        "status": "optimal",
        "step_s": step,
        "gap": 0.0,
        "tokens_per_s": 1000 * batch / step,
        "billed": [["H100-80GB", gpus, price, 0.5]],
        "peak_memory_bytes": 2.0**30,
    }


@pytest.fixture
def sweep():
    return sweep_of(gpus="8,16,32xH100", global_batch=[64, 128])


@pytest.fixture
def rows():
    return [
        row(16, 64, 6.0),
        row(8, 64, 10.0),
        row(8, 128, 19.0),
        row(16, 128, 10.0),
        row(32, 64, None),
        row(64, 64, 1.0),  # of a run before, no longer asked for
    ]


def test_rows_are_in_the_order_of_points_with_what_they_cost(sweep, rows) -> None:
    wish = Wish(objectives=BOTH, tokens=1e9, prices=PriceList({"H100-80GB": 2.0}))
    found = rows_of(sweep, rows, wish)
    assert [one["key"] for one in found] == ["8 64", "8 128", "16 64", "16 128", "32 64"]
    first = found[0]
    assert first["price_per_hour"] == 16.0
    tokens_per_s = 64_000 / 10
    assert first["days"] == pytest.approx(1e9 / tokens_per_s / 86400)
    assert first["price"] == pytest.approx(16 * 1e9 / tokens_per_s / 3600)
    assert first["price_per_1e9_tokens"] == pytest.approx(first["price"])
    assert found[-1]["price"] is None


def test_the_front_is_of_steps_and_hours_unless_tokens_are_said(sweep, rows) -> None:
    by_step = rows_of(sweep, rows, Wish(objectives=BOTH, prices=PriceList({"H100-80GB": 2.0})))
    assert [one["key"] for one in by_step if one["pareto"]] == ["8 64", "16 64"]
    by_run = rows_of(
        sweep, rows, Wish(objectives=BOTH, tokens=1e9, prices=PriceList({"H100-80GB": 2.0}))
    )
    assert [one["key"] for one in by_run if one["pareto"]] == ["8 128", "16 128"]
    fastest = rows_of(sweep, rows, Wish())
    assert [one["key"] for one in fastest if one["pareto"]] == ["16 64"]
    unpriced = rows_of(sweep, rows, Wish(objectives=BOTH))
    assert not any(one["pareto"] for one in unpriced)


def test_prices_of_the_cluster_hold_where_nothing_else_is_said(sweep) -> None:
    (one,) = rows_of(sweep, [row(8, 64, 1.0, price=3.0)], Wish())
    assert one["price_per_hour"] == 24.0
    (spot,) = rows_of(sweep, [row(8, 64, 1.0, price=3.0)], Wish(prices=PriceList({}, spot=True)))
    assert spot["price_per_hour"] == 4.0


def test_a_csv_reads_back_as_the_frame(sweep, rows, tmp_path: Path) -> None:
    frame = frame_of(sweep, rows_of(sweep, rows, Wish(tokens=1e9)))
    write_table(tmp_path / "t.csv", frame)
    back = pd.read_csv(tmp_path / "t.csv")
    assert list(back.columns) == list(frame.columns)
    assert back["global_batch"].tolist() == [64, 128, 64, 128, 64]
    assert back["step_s"].tolist()[:4] == [10.0, 19.0, 6.0, 10.0]
    assert math.isnan(back["step_s"][4])
    assert back["reason"][4] == "too large"


def test_a_parquet_reads_back_as_the_frame(sweep, rows, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow, the extra `parquet`, is not installed")
    frame = frame_of(sweep, rows_of(sweep, rows, Wish(tokens=1e9)))
    write_table(tmp_path / "t.parquet", frame)
    back = pd.read_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)


def test_a_field_that_is_also_found_has_a_column_of_its_own() -> None:
    sweep = sweep_of(tp=["1", "1,2"], price=[2, 3])
    known = {"values": {"tp": "1,2", "price": "3"}, "gpus": 8, "gpu": "x", "status": "optimal"}
    (found,) = rows_of(sweep, [{**known, "key": "k", "step_s": 1.0, "tp": 2}], Wish())
    frame = frame_of(sweep, [found])
    assert frame.loc[0, ["asked_tp", "tp", "asked_price"]].tolist() == ["1,2", 2, 3]


@pytest.mark.parametrize("name", ["t.txt", "t"])
def test_other_formats_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"expected a name that ends in \.csv or \.parquet, as t"):
        check_output(Path(name))


def test_lines_are_over_the_first_field_of_numbers(sweep, rows) -> None:
    assert along_of(sweep) == "gpus"
    found = rows_of(sweep, rows, Wish())
    lines = lines_of(sweep, found, "gpus", "step_s")
    assert [(line.name, line.x, line.y) for line in lines] == [
        ("global_batch 64", [8, 16], [10.0, 6.0]),
        ("global_batch 128", [8, 16], [19.0, 10.0]),
    ]
    assert along_of(sweep_of(recompute=["none", "full"], layers=[2, 4])) == "layers"
    with pytest.raises(UsageError, match="found no field with several numbers"):
        along_of(sweep_of(recompute=["none", "full"], layers=[2]))


@pytest.mark.parametrize("objectives", [("time",), BOTH])
def test_pictures_show_every_point_with_a_plan(
    sweep, rows, objectives: tuple[str, ...], tmp_path: Path
) -> None:
    wish = Wish(objectives=objectives, prices=PriceList({"H100-80GB": 2.0}))
    found = rows_of(sweep, rows, wish)
    (axes,) = plotted(sweep, found, wish).axes
    drawn = sorted(float(y) for line in axes.lines for y in line.get_ydata())
    column = "price_per_hour" if len(objectives) > 1 else "step_s"
    assert drawn == sorted(one[column] for one in found if one[column] is not None)
    write_plot(tmp_path / "p.svg", sweep, found, wish)
    assert "</svg>" in (tmp_path / "p.svg").read_text()


def test_a_picture_of_no_plan_is_drawn(sweep, tmp_path: Path) -> None:
    for objectives in (("time",), BOTH):
        wish = Wish(objectives=objectives)
        write_plot(tmp_path / "p.png", sweep, rows_of(sweep, [row(8, 64, None)], wish), wish)
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
