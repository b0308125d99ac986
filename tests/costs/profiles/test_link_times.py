"""Measured links: which groups they are of, and the lines through what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.profiles.link_times import SEND, LinkGroup, link_times, relative_line
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.profiles.table import Provenance

SIZES = (2**10, 2**16, 2**22, 2**28)
PAIR = LinkGroup(2, 1, 1, "H100")


def row(size, seconds, name="all_gather", **more):
    kind = "point_to_point" if name == SEND else "collective"
    own = {"record": kind, "name": name, "bytes": size, "time_s": seconds, "device": "H100"}
    return own | ({"group_size": 2} if kind == "collective" else {}) | more


def links(*rows):
    return link_times(measurements_of(rows, "links.csv"))


def straight(**more):
    return [row(size, 1e-5 + size / 1e10, **more) for size in SIZES]


def test_a_table_without_links_has_none():
    assert links() is None
    assert links({**row(8, 1.0), "group_size": 1}) is None
    assert links({**row(8, 1.0), "provenance": "interpolated", "error": 0.1}) is None


def test_only_groups_that_were_measured_are_known():
    found = links(*straight(hosts=2, stride=8), *straight(name=SEND, stride=4))
    assert found.knows("all_gather", LinkGroup(2, 2, 4, "h100"))  # the stride is within a host
    assert found.knows(SEND, LinkGroup(2, 1, 4, "H100"))
    for name, group in (
        ("all_gather", LinkGroup(2, 1, 8, "H100")),
        ("all_gather", LinkGroup(4, 2, 8, "H100")),
        ("all_reduce", LinkGroup(2, 2, 8, "H100")),
        ("all_gather", LinkGroup(2, 2, 8, "A100")),
        ("all_gather", LinkGroup(2, 2, 8, None)),
        (SEND, LinkGroup(2, 1, 1, "H100")),
    ):
        assert not found.knows(name, group), (name, group)
    anyone = links(*straight(device=""))
    assert anyone.knows("all_gather", LinkGroup(2, 1, 1, "A100"))


def test_a_straight_line_is_found_again():
    found = links(*straight())
    latency, per_byte = found.line("all_gather", PAIR, 1e4, 1e8)
    assert (latency, per_byte) == pytest.approx((1e-5, 1e-10), rel=1e-6)
    assert found.seconds("all_gather", SIZES[1], PAIR) == pytest.approx(1e-5 + SIZES[1] / 1e10)


@pytest.mark.parametrize("name", [SEND, "all_gather"])
def test_groups_share_a_network_that_was_measured_with_fewer(name):
    """On hosts of one device, where no second group had room."""
    found = links(*straight(name=name, hosts=2, groups=1))
    alone, eight = (
        found.seconds(name, SIZES[-1], LinkGroup(2, 2, 8, "H100", sharing)) for sharing in (1, 8)
    )
    assert eight == pytest.approx(8 * alone, rel=0.01)
    shared = LinkGroup(2, 2, 8, "H100", 8)
    assert found.origin(name, SIZES[-1], shared).provenance is Provenance.EXTRAPOLATED


def test_origins_are_those_of_the_size():
    found = links(*straight())
    for size, own, of_a_line in (
        (SIZES[2], Provenance.MEASURED, Provenance.INTERPOLATED),
        (SIZES[2] + 4, Provenance.INTERPOLATED, Provenance.INTERPOLATED),
        (8 * SIZES[-1], Provenance.EXTRAPOLATED, Provenance.EXTRAPOLATED),
    ):
        seconds = found.seconds("all_gather", size, PAIR)
        assert found.origin("all_gather", size, PAIR).provenance is own
        origin = found.origin("all_gather", size, PAIR, 1.25 * seconds)
        assert origin.provenance is of_a_line
        assert origin.error is None or origin.error >= 0.25 - 1e-9


@given(
    times=st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=8),
    least=st.floats(1.0, 1e9),
    reach=st.floats(1.01, 1e6),
)
def test_lines_are_never_negative_and_best_among_their_neighbours(times, least, reach):
    sizes, seconds = np.geomspace(least, least * reach, len(times)), np.array(times)
    latency, per_byte = relative_line(sizes, seconds)
    assert latency >= 0
    assert per_byte >= 0
    assert latency + per_byte > 0

    def off(a, b):
        return float((((a + b * sizes) / seconds - 1) ** 2).sum())

    best, little = off(latency, per_byte), 0.01 * min(times)
    for a in (0.9 * latency, latency, 1.1 * latency, latency + little):
        for b in (0.9 * per_byte, per_byte, 1.1 * per_byte, per_byte + little / sizes[0]):
            assert best <= off(a, b) * (1 + 1e-6) + 1e-9
