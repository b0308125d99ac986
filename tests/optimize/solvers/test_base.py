"""Limits of a search: what they are called, and what is none."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.optimize.solvers.base import Limits


def test_the_name_of_before_says_the_same() -> None:
    assert Limits(tie=0.25) == Limits(prefer_plain=0.25)
    assert replace(Limits(tie=0.25), seconds=1.0).prefer_plain == 0.25
    with pytest.raises(UsageError, match="prefer_plain: found 2"):
        Limits(tie=2)
