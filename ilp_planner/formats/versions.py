"""The versions of packages that can change a result, and the releases of Megatron-Core that plans
are written for and launches read of."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

OWN = "ilp-planner"
CORES = ("0.19.0", "0.18.2", "0.17.1", "0.16.1")  # of Megatron-Core
PACKAGES = (OWN, "ortools", "pulp", "numpy", "numba")


def versions() -> dict[str, str]:
    """Return package -> version, of those that are installed."""
    installed = ((package, _installed(package)) for package in PACKAGES)
    return {"python": platform.python_version()} | {name: v for name, v in installed if v}


@cache
def _installed(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
