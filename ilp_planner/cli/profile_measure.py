"""`ilp-plan profile measure`."""

from ilp_planner.errors import UsageError


def measure() -> None:
    """Not there yet."""
    raise UsageError("profile measure: not there yet")
