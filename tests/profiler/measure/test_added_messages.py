"""The messages of a shard that was measured alone: their seconds, and how far to trust them."""

import pytest

from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.measure.sweep import MessageAdder

SIZES = (2**10, 2**16, 2**20, 2**22)
LINKS = measurements_of(
    [
        {"record": "collective", "device": "a", "name": "all_reduce", "group_size": 2,
         "bytes": size, "time_s": 1e-4 + size * 1e-9}
        for size in SIZES
    ],
    "links.csv",
)  # fmt: skip


def added(size: float, *, tp: int = 2, device: str = "a") -> dict:
    values = {"time_s": 3e-3, "forward_s": 1e-3, "backward_s": 2e-3}
    MessageAdder(LINKS, device).add(values, ([size], [size]), tp)
    return values


def test_a_measured_size() -> None:
    found = added(2**20)
    assert found["time_s"] == pytest.approx(3e-3 + 2 * (1e-4 + 2**20 * 1e-9))
    assert found["time_s"] == pytest.approx(found["forward_s"] + found["backward_s"])
    assert "provenance" not in found


def test_a_size_between_two_says_so_with_its_error() -> None:
    found = added(2**18)
    assert found["provenance"] is Provenance.INTERPOLATED
    assert 0 < found["error"] < 0.5


@pytest.mark.parametrize(("tp", "device"), [(4, "a"), (2, "b")], ids=["group", "device"])
def test_no_error_is_made_up(tp: int, device: str) -> None:
    found = added(2**20, tp=tp, device=device)
    assert found["provenance"] is Provenance.EXTRAPOLATED
    assert "error" not in found
