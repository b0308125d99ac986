"""`ilp-plan profile import` and `ilp-plan profile export`."""

from ilp_planner.errors import UsageError


def import_profile() -> None:
    """Not there yet."""
    raise UsageError("profile import: not there yet")


def export_profile() -> None:
    """Not there yet."""
    raise UsageError("profile export: not there yet")
