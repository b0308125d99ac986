"""Sources as trees, for tests that read the package's own code: each file is parsed once."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a module; not to be changed.

    Collections of garbage meanwhile would take three times as long as the tree itself.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a tree, and what holds some, as a handler of errors does: not what is
    in expressions, which are most of a tree and hold no statement."""
    for part in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(tree, part, ()):
            yield node
            yield from statements(node)
