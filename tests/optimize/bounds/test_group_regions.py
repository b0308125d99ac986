"""Devices that are counted while stages stay among some types."""

import numpy as np

from ilp_planner.optimize.bounds import group_states
from ilp_planner.optimize.bounds.group_states import Regions, regions
from tests.examples import for_each
from tests.optimize.bounds.test_arrays import plain

TYPES = [(0,), (1, 2), (0, 1), (2,)]


def two() -> Regions:
    """Three types of 4, 2 and 7 devices: the first alone, in pairs, the others together, the last
    of them in threes."""
    return regions(TYPES, [4, 2, 7], [[0], [1, 2]], [2, 1, 3])


def test_a_class_is_in_the_region_of_all_its_types() -> None:
    found = two()
    assert found.of.tolist() == [0, 1, -1, 1]
    assert found.home.tolist() == [0, 1, 1]
    assert found.stride.tolist() == [1, 1, 3]
    assert found.most == 9  # none to two of the second type, none to two units of the third
    none = regions(TYPES, [4, 2, 7], [], [1, 1, 1])
    assert (none.of.tolist(), none.most) == ([-1] * 4, 1)


def test_a_number_counts_whole_units_of_what_a_group_takes_in_its_region() -> None:
    use = np.array([[3, 0, 0, 9], [0, 2, 5, 9], [1, 1, 0, 9], [0, 0, 7, 9]])
    assert two().numbers(use, np.arange(4)).tolist() == [1, 2 + 3, 0, 6]


@for_each(
    ("own", "to", "number", "behind", "expected"),
    [
        (0, 0, 1, 1, 2),  # four devices of the first type
        (0, 0, 2, 1, -1),  # and no six
        (1, 3, 1, 4, 5),  # one of the second type before one of it and three of the third
        (1, 3, 2, 4, -1),
        (1, 3, 3, 4, 7),
        (1, 0, 3, 2, 3),  # in another region it is counted anew
        (2, 0, 0, 2, 0),  # in none nothing is
        (0, 2, 2, 0, 2),
    ],
)
def test_devices_are_counted_on_within_a_region(
    own: int, to: int, number: int, behind: int, expected: int
) -> None:
    found = plain(group_states.onwards)(own, to, number, behind, two())
    assert found == expected


def test_what_is_used_of_a_region_has_a_number() -> None:
    used = np.array([3, 2, 6])
    counted = [plain(group_states.taken_in)(own, used, two()) for own in range(4)]
    assert counted == [1, 2 + 2 * 3, 0, 2 + 2 * 3]
