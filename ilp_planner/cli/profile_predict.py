"""`ilp-plan profile predict`."""

from ilp_planner.errors import UsageError


def predict() -> None:
    """Not there yet."""
    raise UsageError("profile predict: not there yet")
