"""Aceso's scorer, where it is."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

ORACLE = Path(__file__).parents[2] / "shared" / "oracles" / "aceso_score.py"


@cache
def oracle() -> ModuleType:
    """Return the scorer as a module."""
    spec = importlib.util.spec_from_file_location("aceso_score", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
