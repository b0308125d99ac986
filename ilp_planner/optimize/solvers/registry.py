"""The backends by name; a backend and its solver library are imported when they are asked for."""

from __future__ import annotations

import difflib
import importlib
from functools import partial
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.optimize.solvers.backend import Backend

# name -> (module:class, its keyword arguments)
BACKENDS: dict[str, tuple[str, dict[str, str]]] = {
    "dp": ("ilp_planner.optimize.solvers.chain_dp:ChainDP", {}),
    "cp-sat": ("ilp_planner.optimize.solvers.cpsat:CpSat", {}),
    "milp": ("ilp_planner.optimize.solvers.milp:Milp", {"backend": "highs"}),
    "milp-scip": ("ilp_planner.optimize.solvers.milp:Milp", {"backend": "scip"}),
    "pulp": ("ilp_planner.optimize.solvers.pulp_backend:Pulp", {}),
    "brute-force": ("ilp_planner.optimize.solvers.brute_force:BruteForce", {}),
    "gradient": ("ilp_planner.optimize.solvers.gradient:Gradient", {}),
    "anneal": ("ilp_planner.optimize.solvers.anneal:Anneal", {}),
}
HEURISTICS = ("gradient", "anneal")  # those that do not prove what they find
SEEDLESS = ("dp", "brute-force")  # those that draw nothing
ONE_THREAD = (*SEEDLESS, "milp", "milp-scip", "pulp")  # whatever `workers` says


def backends() -> dict[str, Callable[[], Backend]]:
    """Return a constructor for each backend, in the order in which to offer them."""
    return {name: partial(get, name) for name in BACKENDS}


def is_heuristic(name: str) -> bool:
    """Tell whether a solver only looks for good paths; nothing is imported."""
    return name in HEURISTICS


def get(name: str) -> Backend:
    """Return a new backend.

    Raises
    ------
    UsageError: there is none of that name.
    """
    if name not in BACKENDS:
        nearest = difflib.get_close_matches(name.lower().replace("_", "-"), BACKENDS, 1, 0.5)
        guess = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise UsageError(f"solver: expected one of {', '.join(BACKENDS)}, found {name!r}{guess}")
    place, options = BACKENDS[name]
    module, _, kind = place.partition(":")
    backend: Backend = getattr(importlib.import_module(module), kind)(**options)
    return backend
