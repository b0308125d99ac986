"""Data flows one way: a module imports only from its own layer or from those above it."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import ilp_planner
from tests.examples import for_each
from tests.sources import tree_of

ROOT = Path(ilp_planner.__file__).parent
LAYERS = (
    ("checker",),
    ("base",),
    ("schedule",),
    ("specs",),
    ("settings",),
    ("job",),
    ("plan",),
    ("costs",),
    ("inputs",),
    ("evaluate",),
    ("optimize",),
    ("spaces",),
    ("formats",),
    ("analysis",),
    ("faces",),
    ("peers",),
    ("profiler",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"__init__", "__main__"}  # the package's face: it may name everything
SOLVER_FREE = {"evaluate", "formats"}
SOLVERS = ("ilp_planner.optimize.solvers", "ilp_planner.optimize.solve")


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
        elif not isinstance(node, ast.expr):
            yield from runtime_imports(node)


def imported(path: Path) -> set[str]:
    """Return the parts of the package that a module imports when it runs."""
    found = set()
    for node in runtime_imports(tree_of(path)):
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


def test_imports_go_up_only() -> None:
    for path in modules():
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert part in RANK, f"{part} has no layer: give it one here"
        below = {name for name in imported(path) if RANK[name] > RANK[part]}
        assert not below, path
        if part in SOLVER_FREE:
            assert not [target for target in targets(path) if target.startswith(SOLVERS)], path


def test_the_check_sees_what_it_should(tmp_path: Path) -> None:
    """Guard the guard: a wrong import is found, one for types only is not."""
    module = tmp_path / "module.py"
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "from ilp_planner.optimize.solve import solve\n"
        "if TYPE_CHECKING:\n    from ilp_planner.faces.cli.main import run\n"
        "def f():\n    import ilp_planner.faces.report.tables\n"
    )
    assert imported(module) == {"optimize", "faces"}


def named(path: Path) -> str:
    """Return a module's dotted name."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def edges() -> dict[str, set[str]]:
    """Return the modules that each module imports when it runs."""
    every = {named(path): path for path in sorted(ROOT.rglob("*.py"))}
    return {
        name: {target for target in targets(path) if target in every and target != name}
        for name, path in every.items()
    }


def targets(path: Path) -> Iterator[str]:
    """Yield the names that a module imports when it runs, as modules and as names in modules."""
    for node in runtime_imports(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle; none where there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_in_a_circle() -> None:
    assert circle(edges()) == []


DRIVERS = tuple(
    f"ilp_planner.{name}"
    for name in (
        "evaluate",
        "optimize",
        "formats.program",
        "faces.report",
        "faces.page",
        "faces.cli",
    )
)
SHARED = {
    "base",
    "climb",
    "graph_space",
    "layers",
    "objectives",
    "registry",
    "throughput",
}  # of spaces/: of no space in particular


def spaces_named(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the drivers that import a space by its name, and what they import."""
    return {
        (module, goal)
        for module, goals in graph.items()
        for goal in goals
        if module.startswith(DRIVERS)
        and goal.startswith("ilp_planner.spaces.") and goal.split(".")[2] not in SHARED
    }  # fmt: skip


def test_no_driver_names_a_space() -> None:
    assert spaces_named(edges()) == set()


def test_a_driver_that_names_a_space_is_seen() -> None:
    graph = {"ilp_planner.faces.cli.solve": {"ilp_planner.spaces.groups.build", "ilp_planner.plan"}}
    assert spaces_named(graph) == {
        ("ilp_planner.faces.cli.solve", "ilp_planner.spaces.groups.build")
    }


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


GUIDES = ("AGENTS.md", "CONTRIBUTING.md", "tests/README.md", "docs/dev/architecture.md")
FILE = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|json)|/))`")
OURS = ("ilp_planner", "tests", *(name for name in RANK if (ROOT / name).is_dir()))


def absent(text: str) -> list[str]:
    """Return the names of files and folders in a text that are not there."""
    bases = ROOT, ROOT.parent, ROOT.parent / "tests"
    return [n for n in FILE.findall(text) if not any((base / n).exists() for base in bases)]


@for_each("guide", GUIDES)
def test_guides_name_files_that_are_there(guide: str) -> None:
    """A file that moves takes its name in the guides along."""
    text = (ROOT.parent / guide).read_text()
    assert FILE.search(text)
    assert set(absent(text)) <= {"config.json"}


def test_pages_name_files_that_are_there() -> None:
    for page in sorted((ROOT.parent / "docs").rglob("*.md")):
        assert [n for n in absent(page.read_text()) if n.split("/")[0] in OURS] == [], page


DOTTED = re.compile(r"`([a-z_]\w*(?:\.\w+)+)`")
ENDINGS = {"py", "toml", "json", "jsonl", "h", "cpp", "pkl"}
OTHERS = {
    "alpa", "dask", "deepspeed", "ilp", "megatron", "moe_utils", "np", "numpy", "pandas",
    "parallel_state", "scipy", "time", "torch", "torchtitan", "experimental", "self_attention",
}  # fmt: skip
"""Modules of other people, and parts of their models, that docstrings name."""


def unknown(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the dotted names in back-ticks that no module, no name in one and no field has.

    texts: of every module, by its dotted name. In their code a name counts, in back-ticks not.
    """
    code = {name: re.sub(r"`[^`\n]*`", "", text) for name, text in texts.items()}
    every = "\n".join(code.values())
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        for dotted in DOTTED.findall(text):
            parts = dotted.split(".")
            if parts[0] in OTHERS or parts[-1] in ENDINGS or dotted in every:
                continue
            heads = {".".join(parts[:n]): parts[n : n + 1] for n in range(1, len(parts) + 1)}
            if not any(
                f".{module}.".endswith(f".{head}.")
                and all(re.search(rf"\b{r}\b", code[module]) for r in rest)
                for module in code
                for head, rest in heads.items()
            ):
                found.setdefault(name, []).append(dotted)
    return found


def test_docstrings_name_modules_that_are_there() -> None:
    """A module that moves takes its name in docstrings and comments along."""
    assert unknown({named(path): path.read_text() for path in sorted(ROOT.rglob("*.py"))}) == {}


def test_a_name_of_a_former_module_is_seen() -> None:
    texts = {"a.job.work": "def seconds(): self.kept.first", "a.b": "`job.work` `work.seconds`"}
    assert unknown(texts) == {}
    texts["a.c"] = "`anatomy.work` `work.minutes` `kept.first`"
    assert unknown(texts) == {"a.c": ["anatomy.work", "work.minutes"]}


def test_the_architecture_has_every_room() -> None:
    text = (ROOT.parent / "docs" / "dev" / "architecture.md").read_text()
    assert [name for name in RANK if f"`{name}`" not in text and f"`{name}/`" not in text] == []
