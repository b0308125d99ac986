"""The protocols reach what is asked of them, and beat the regression on the same rows."""

import pytest

from tests.benchmarks import alpa as study


@pytest.fixture(scope="module")
def rows() -> dict[str, study.Row]:
    if not study.ALPA.exists():
        pytest.skip("Alpa's database is not in ../shared/data/alpa")
    return {row.protocol: row for row in study.alpa_rows()}


def test_every_limit_is_kept(rows) -> None:
    limits = {name: row for name, row in rows.items() if row.asked}
    assert len(limits) >= 5
    for row in limits.values():
        assert row.mape <= row.asked[0], row
        assert row.median <= row.asked[-1], row


def test_ours_beats_the_regression_on_the_same_rows(rows) -> None:
    compared = [row for row in rows.values() if row.regression is not None]
    assert compared
    for row in compared:
        assert row.mape < row.regression[0]
        assert row.median < row.regression[1]


def test_unseen_groups_on_two_hosts(rows) -> None:
    row = rows["two hosts: devices per host from other numbers of them"]
    assert row.mape < 15


@pytest.mark.skipif(not study.VTRAIN.exists(), reason="vTrain's tables are not in ../shared/data")
def test_other_machines() -> None:
    found = {row.protocol: row for row in study.vtrain_rows()}
    assert found["vTrain: each size from the others"].mape < 1
    assert found["vTrain, 8 x A100: group sizes from other ones"].mape < 5
