"""How many ranks and nodes a token goes to: formula against counting all choices."""

from itertools import combinations

import pytest

from ilp_planner.job.messages import _needed
from ilp_planner.specs.decoder import Experts
from tests.examples import for_each


def counted(experts: Experts, parts: int) -> float:
    """Return the share of all choices of groups and experts in which the first part has one."""
    size = experts.count // experts.groups
    first = set(range(experts.count // parts))
    found = []
    for groups in combinations(range(experts.groups), experts.top_groups or experts.groups):
        pool = [group * size + i for group in groups for i in range(size)]
        found += [bool(first & set(taken)) for taken in combinations(pool, experts.top_k)]
    return sum(found) / len(found)


@for_each("parts", [1, 2, 4, 8])
@for_each(("groups", "top"), [(1, 0), (4, 0), (4, 2), (4, 3), (2, 1), (8, 3)])
def test_parts_that_a_token_needs_are_those_of_all_choices(parts, groups, top):
    experts = Experts(count=8, top_k=2, ffn=1, groups=groups, top_groups=top)
    assert _needed(experts, parts) == pytest.approx(counted(experts, parts))


def test_groups_must_divide_the_experts_and_hold_those_that_are_chosen():
    with pytest.raises(ValueError, match="groups must divide count"):
        Experts(count=8, top_k=2, ffn=1, groups=3)
    with pytest.raises(ValueError, match="at least top_groups"):
        Experts(count=8, top_k=2, ffn=1, groups=2, top_groups=3)
    with pytest.raises(ValueError, match="at least top_k"):
        Experts(count=8, top_k=3, ffn=1, groups=4, top_groups=1)
