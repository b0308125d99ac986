"""Data flows one way: a module imports only from its own layer or from those above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ilp_planner

ROOT = Path(ilp_planner.__file__).parent
LAYERS = (
    ("errors", "units", "files", "file_kinds", "kernels", "library", "numerics"),
    ("specs",),
    ("anatomy",),
    ("profiles",),
    ("costs",),
    ("problem", "graph"),
    ("plan", "result"),
    ("evaluate", "coverage"),
    ("bounds",),
    ("solvers",),
    ("search_state", "confirm", "solve", "certificate", "heuristic"),
    ("mixed",),
    ("analysis",),
    ("formats",),
    ("report",),
    ("cli",),
    ("api",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"__init__", "__main__"}  # the package's face: it may name everything
SOLVER_FREE = {"evaluate", "formats"}


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0][:-3] not in OUTSIDE)


def runtime_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield imports that run; those under `if TYPE_CHECKING:` do not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for branch in node.orelse:
                yield from runtime_imports(branch)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from runtime_imports(node)


def imported(path: Path) -> set[str]:
    """Return the parts of the package that a module imports when it runs."""
    found = set()
    for node in runtime_imports(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "ilp_planner" and rest:
                found.add(rest.split(".")[0])
    return found & set(RANK)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_up_only(path: Path) -> None:
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert part in RANK, f"{part} has no layer: give it one here"
    below = {name for name in imported(path) if RANK[name] > RANK[part]}
    assert not below
    if part in SOLVER_FREE:
        assert not {"solvers", "solve"} & imported(path)


def test_the_check_sees_what_it_should(tmp_path: Path) -> None:
    """Guard the guard: a wrong import is found, one for types only is not."""
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "from ilp_planner.solve import solve\n"
        "if TYPE_CHECKING:\n    from ilp_planner.cli.main import run\n"
        "def f():\n    import ilp_planner.report.tables\n"
    )
    assert imported(module) == {"solve", "report"}
