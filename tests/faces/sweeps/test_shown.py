"""A sweep is shown with a line for each point, however much there is to say."""

import pytest

from ilp_planner.faces.report.console import BRIEF_WIDTH
from ilp_planner.faces.sweeps.shown import EXPENDABLE, TITLES, left_out, sweep_lines, sweep_tables
from ilp_planner.faces.sweeps.table import Wish, column_of
from tests.faces.report.texts import text_of
from tests.faces.sweeps.cases import sweep_of

ROW = {
    "gpus": 1024, "gpu": "H100-80GB + A100-80GB", "status": "feasible", "step_s": 123.456,
    "gap": 0.1234, "tokens_per_s": 123456.7, "tokens_per_s_per_gpu": 12345.6, "mfu": 0.4567,
    "hfu": 0.5678, "bubble": 0.1234, "peak_memory_bytes": 2.0**36, "price_per_hour": 12345.6,
    "price_per_1e9_tokens": 123.45, "days": 1234.5, "price": 12345678.9, "pareto": True,
    "verdict": "MAY NOT FIT", "expected_error": 0.098, "expected_low_s": 111.1,
    "expected_high_s": 150.0, "expected_basis": "dense", "gpus_used": 512,
    "tp": 8, "pp": 16, "cp": 2, "ep": 8, "dp": 64, "virtual_stages": 4,
}  # fmt: skip
FIELDS = {
    "global_batch": (1024, 2048), "pp": (8, 16), "tp": (4, 8), "recompute": ("none", "full"),
    "sequence_length": (4096, 8192), "inter_node.bandwidth": ("50 GB/s", "400 GB/s"),
}  # fmt: skip


@pytest.mark.parametrize("objectives", [("time",), ("price",), ("time", "price")])
@pytest.mark.parametrize("tokens", [0.0, 1e12])
@pytest.mark.parametrize("count", range(len(FIELDS) + 1))
def test_a_point_is_one_line(objectives: tuple[str, ...], tokens: float, count: int) -> None:
    vary = dict(list(FIELDS.items())[:count])
    sweep, wish = sweep_of(gpus=("1024xH100",), **vary), Wish(objectives=objectives, tokens=tokens)
    names = {column_of(field.name): field.name for field in sweep.fields if field.name in vary}
    row = ROW | {column: vary[name][-1] for column, name in names.items()}
    rows = [row, row | {"step_s": 0.5}, row | {"step_s": None, "status": "refused", "reason": "x"}]
    (table,) = sweep_tables(sweep, rows, wish)
    lines = text_of(table, width=BRIEF_WIDTH).splitlines()
    assert max(map(len, lines)) <= BRIEF_WIDTH
    assert len(lines) == 2 + max(title.count("\n") + 1 for title in table.titles)
    titles = {title.replace("_\n", "_").replace("\n", " ") for title in table.titles}
    missing = left_out(sweep, rows, wish)
    assert not titles & {*missing}
    assert {*EXPENDABLE} <= titles | {*missing}
    assert not {TITLES.get(name, "step") for name in wish.columns.values()} & {*missing}
    said = dict(sweep_lines(sweep, rows, wish, None))
    assert all(name in said.get("no room for", "") for name in missing)
