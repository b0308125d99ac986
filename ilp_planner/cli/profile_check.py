"""`ilp-plan profile check`."""

from ilp_planner.errors import UsageError


def check() -> None:
    """Not there yet."""
    raise UsageError("profile check: not there yet")
