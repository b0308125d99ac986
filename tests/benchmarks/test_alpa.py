"""The protocols reach what is asked of them, and beat the regression on the same rows."""

from functools import cache

import numpy as np
import pytest

from ilp_planner.peers.alpa.profile import read_alpa
from ilp_planner.profiler.predict.collectives import CollectivePredictor
from tests.benchmarks import alpa as study
from tests.examples import for_each


@pytest.fixture(scope="module")
def rows() -> dict[str, study.Row]:
    if not study.ALPA.exists():
        pytest.skip("Alpa's database is not in ../shared/data/alpa")
    return {row.protocol: row for row in study.alpa_rows()}


@pytest.mark.slow
def test_every_limit_is_kept(rows) -> None:
    limits = {name: row for name, row in rows.items() if row.asked}
    assert len(limits) >= 5
    for row in limits.values():
        assert row.mape <= row.asked[0], row
        assert row.median <= row.asked[-1], row


@pytest.mark.slow
def test_ours_beats_the_regression_on_the_same_rows(rows) -> None:
    compared = [row for row in rows.values() if row.regression is not None]
    assert compared
    for row in compared:
        assert row.mape < row.regression[0]
        assert row.median < row.regression[1]


@pytest.mark.slow
def test_unseen_groups_on_two_hosts(rows) -> None:
    row = rows["two hosts: devices per host from other numbers of them"]
    assert row.mape < 15


@cache
def collectives() -> CollectivePredictor:
    return CollectivePredictor(read_alpa(study.ALPA))


@pytest.mark.skipif(not study.ALPA.exists(), reason="Alpa's database is not in ../shared/data")
@for_each(
    ("name", "speed", "apart"),
    [
        ("all_gather", 2.63e9, 0.09),
        ("all_reduce", 3.00e9, 0.16),
        ("all_to_all", 2.25e9, 0.25),
        ("reduce_scatter", 2.67e9, 0.09),
    ],
)
def test_four_hosts_are_near_what_their_networks_let_through(
    name: str, speed: float, apart: float
) -> None:
    """Large messages, by the formula of bytes through a host's network at its fitted speed.

    What each of the c = 8 / r groups of a host sends, r of its 8 devices in each; the speeds are
    those published for the two-host rows of this database.
    """
    predictor = collectives()
    sizes = 2.0 ** np.arange(26, 32)
    errors = []
    for r in (1, 2, 4, 8):
        g = 4 * r
        sent = sizes * (g - 1) / g * (8 / r) * (2 if name == "all_reduce" else 1)
        if name == "all_to_all":
            sent = 8 * (sizes / g) * (g - r) / g
        found = predictor.seconds(name, sizes, group_size=g, hosts=4, stride=8 // r, groups=8 // r)
        errors.append(np.abs(found / (sent / speed) - 1))
    assert np.mean(errors) < apart


@pytest.mark.skipif(not study.VTRAIN.exists(), reason="vTrain's tables are not in ../shared/data")
def test_other_machines() -> None:
    found = {row.protocol: row for row in study.vtrain_rows()}
    assert found["vTrain: each size from the others"].mape < 1
    assert found["vTrain, 8 x A100: group sizes from other ones"].mape < 5
