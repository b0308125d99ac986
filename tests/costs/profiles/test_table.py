"""The table of profiled rows: looked up by key, and as a data frame."""

import dataclasses

from ilp_planner.costs.profiles.table import OperatorRow, Provenance, RowKey
from tests.tiny import make_profile, make_row

KEYS = [
    RowKey(operator="enc-MLP-gelu", micro_batch=1, tp=1, split=0),
    RowKey(operator="enc-MLP-gelu", micro_batch=2, tp=1, split=0),
    RowKey(operator="enc-1st-layernorm", micro_batch=1, tp=2, split=1),
]
ROWS = {key: make_row(forward=float(i), message=float(i)) for i, key in enumerate(KEYS)}


def test_a_row_is_found_by_all_parts_of_its_key() -> None:
    profile = make_profile(ROWS)
    for key, row in ROWS.items():
        assert profile.row(key.operator, key.micro_batch, key.tp, key.split) is row


def test_a_combination_that_was_not_profiled_has_no_row() -> None:
    profile = make_profile(ROWS)
    assert profile.row("enc-MLP-gelu", 1, 2, 0) is None
    assert profile.row("enc-MLP-gelu", 4, 1, 0) is None
    assert profile.row("enc-MLP-gelu", 1, 1, 1) is None
    assert profile.row("enc-MLP-GEMM-1", 1, 1, 0) is None


def test_the_frame_has_a_line_per_row_and_a_column_per_field() -> None:
    analytic = dataclasses.replace(ROWS[KEYS[2]], provenance=Provenance.ANALYTIC)
    frame = make_profile({**ROWS, KEYS[2]: analytic}).frame()
    keys = [f.name for f in dataclasses.fields(RowKey)]
    values = [f.name for f in dataclasses.fields(OperatorRow)]
    assert list(frame.columns) == keys + values
    assert len(frame) == len(ROWS)
    for (_, line), key in zip(frame.iterrows(), KEYS, strict=True):
        row = analytic if key == KEYS[2] else ROWS[key]
        assert RowKey(**{name: line[name] for name in keys}) == key
        assert OperatorRow(**{name: line[name] for name in values}) == row
    assert frame["provenance"].tolist() == ["measured", "measured", "analytic"]


def test_the_frame_of_nothing_has_the_columns() -> None:
    frame = make_profile({}).frame()
    assert frame.empty
    assert "forward" in frame.columns
