"""Sources as trees, for tests that read the package's own code: each file is parsed once."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a module; not to be changed."""
    return ast.parse(path.read_text())
