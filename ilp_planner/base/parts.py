"""Parts of the package that it does without until somebody asks for them.

`peers/` has one folder per system that this project reproduces, `profiler/` the tools that measure,
predict and check profiles. The planner imports neither: it asks for a name in them here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def part(name: str) -> Any:
    """Return an object of a part, imported now.

    name: `module:attribute` below the package, such as `profiler.predict.answers:complete`.
    """
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"ilp_planner.{module}"), attribute)
