"""`ilp-plan profile links`."""

from ilp_planner.errors import UsageError


def measure_links() -> None:
    """Not there yet."""
    raise UsageError("profile links: not there yet")
