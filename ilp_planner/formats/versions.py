"""What ran: the packages whose version can change a result."""

import platform
from importlib.metadata import PackageNotFoundError, version

OWN = "ilp-planner"
PACKAGES = (OWN, "ortools", "pulp", "numpy", "numba")


def versions() -> dict[str, str]:
    """Return package -> version, of those that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
