"""Compiled code is kept where it can be, and kernels work where it cannot."""

import ast
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import numba
import pytest

import ilp_planner
from ilp_planner import kernels
from ilp_planner.cli.main import COMMANDS
from ilp_planner.cli.profile import COMMANDS as PROFILE_COMMANDS
from tests.sources import statements, tree_of

SOURCE = """
from ilp_planner.kernels import inner, kernel

@inner
def twice(x):
    return 2 * x

@kernel
def twice_and_one(x):
    return twice(x) + 1
"""
MOST_PARAMETERS = 15
pytestmark = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT), reason="NUMBA_DISABLE_JIT: nothing is compiled"
)
ROOT = Path(ilp_planner.__file__).parent


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Find the temporary folder anew in every test."""
    kernels.temporary_folder.cache_clear()
    yield
    kernels.temporary_folder.cache_clear()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return a module with a kernel."""
    path = tmp_path / "installed" / "arithmetic.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


@pytest.fixture
def read_only(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let no folder that Numba knows be written, whoever asks; return the one for temporary files.

    Where a folder should be there is a file.
    """
    file = tmp_path / "file"
    file.touch()
    (module.parent / "__pycache__").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(file / "numba"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


def load(path: Path) -> ModuleType:
    """Import a module from a file, anew each time."""
    spec = importlib.util.spec_from_file_location("arithmetic", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_compiled_code_is_kept_beside_the_module(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    kernel = load(module).twice_and_one
    assert kernel(3) == 7
    assert Path(kernel.stats.cache_path) == module.parent / "__pycache__"
    again = load(module).twice_and_one
    assert again(4) == 9
    assert sum(again.stats.cache_hits.values()) == 1


def test_a_read_only_installation_keeps_it_in_a_temporary_folder(
    module: Path, read_only: Path
) -> None:
    kernel = load(module).twice_and_one
    assert kernel(3) == 7
    folder = kernels.temporary_folder()
    assert folder is not None
    assert folder.parent == read_only
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder in Path(kernel.stats.cache_path).parents
    again = load(module).twice_and_one
    assert again(3) == 7
    assert sum(again.stats.cache_hits.values()) == 1
    assert str(folder) != numba.config.CACHE_DIR  # other packages' code is not ours to move


@pytest.mark.parametrize("theirs", ["writable by others", "a link", "a file"])
def test_code_is_not_run_from_what_others_may_write(
    module: Path, read_only: Path, tmp_path: Path, theirs: str
) -> None:
    """A folder of that name that someone else could fill is left alone; kernels work without."""
    folder = read_only / f"ilp-plan-kernels-{os.getuid()}"
    if theirs == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif theirs == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    kernel = load(module).twice_and_one
    assert kernels.temporary_folder() is None
    assert kernel(3) == 7
    assert kernel.stats.cache_path is None
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())


def test_kernels_work_where_nothing_can_be_written(
    module: Path, read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(read_only.parent / "file" / "tmp"))
    kernel = load(module).twice_and_one
    assert kernels.temporary_folder() is None
    assert kernel(3) == 7
    assert kernel.stats.cache_path is None


def test_a_folder_that_is_full_or_gone_is_as_good_as_none(module: Path, read_only: Path) -> None:
    kernel = load(module).twice_and_one
    folder = kernels.temporary_folder()
    assert folder is not None
    for kept in folder.iterdir():
        kept.rmdir()
    folder.rmdir()
    folder.touch()
    assert kernel(3) == 7


def test_code_for_a_class_that_has_moved_is_as_good_as_none(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update may move what a kernel takes, and leave the kernel's own file as it is."""
    shapes = ModuleType("shapes")
    monkeypatch.setitem(sys.modules, "shapes", shapes)
    definition = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n"
    module.write_text(SOURCE + "\n@kernel\ndef total(pair):\n    return pair.a + pair.b\n")
    exec(definition, vars(shapes))
    assert load(module).total(shapes.Pair(1, 2)) == 3
    moved = ModuleType("figures")
    monkeypatch.setitem(sys.modules, "figures", moved)
    exec(definition, vars(moved))
    del shapes.Pair
    assert load(module).total(moved.Pair(3, 4)) == 7


def test_kernels_are_plain_python_where_nothing_may_be_compiled(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `NUMBA_DISABLE_JIT=1`, which Numba reads when it is imported."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    kernel = load(module).twice_and_one
    assert isinstance(kernel, FunctionType)
    assert kernel(3) == 7


def test_it_is_said_before_something_is_compiled_and_only_then(
    module: Path, read_only: Path
) -> None:
    said = []
    kernels.before_compiling(lambda: said.append("compiling"))
    kernel = load(module).twice_and_one
    assert said == []
    kernel(3)
    assert said == ["compiling"]
    kernel(3.0)  # of another type: compiled, and not said again
    assert said == ["compiling"]
    kernels.before_compiling(lambda: said.append("again"))
    assert load(module).twice_and_one(3) == 7  # was kept
    assert said == ["compiling"]


@pytest.mark.parametrize("fails", [False, True])
def test_another_process_compiles_meanwhile(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What it compiled is read from where it is kept; without it this process compiles."""
    ahead = "raise ValueError" if fails else "later(3)"
    module.write_text(
        f"{SOURCE}\n@kernel\ndef later(x):\n    return 5 * x\n\ndef compile_ahead():\n    {ahead}\n"
    )
    folder = str(tmp_path / "kept")
    monkeypatch.setenv("NUMBA_CACHE_DIR", folder)
    monkeypatch.setattr(numba.config, "CACHE_DIR", folder)
    monkeypatch.syspath_prepend(module.parent)
    monkeypatch.setattr(kernels, "cores", lambda: 2)
    monkeypatch.setattr(kernels, "_ahead", [])
    arithmetic = load(module)
    kernels.compile_beside("arithmetic")
    assert arithmetic.twice_and_one(3) == 7
    kernels.compiled_beside()
    assert arithmetic.later(3) == 15
    assert sum(arithmetic.later.stats.cache_hits.values()) == int(not fails)


def test_one_core_compiles_alone(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cores", lambda: 1)
    monkeypatch.setattr(kernels, "_ahead", ["no such module"])
    monkeypatch.setattr(kernels, "_helpers", [])
    assert load(module).twice_and_one(3) == 7
    assert kernels._helpers == []


def imported(tree: ast.AST) -> set[str]:
    """Return the packages that a module imports, at the top or later."""
    names = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).split(".")[0])
    return names


def too_many(path: Path, module: str) -> list[str]:
    """Return the functions of a file with too many parameters; commands have one per option."""
    every = (*COMMANDS.values(), *PROFILE_COMMANDS.values())
    commands = {function for of, function in every if of == module}
    # Two verbs of Python have a keyword for each option of their commands.
    verbs = {"ilp_planner.api.problem": "problem", "ilp_planner.api.sweep": "sweep"}
    commands |= {verbs[module]} if module in verbs else set()
    return [
        node.name
        for node in statements(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
        > MOST_PARAMETERS
        and node.name not in commands
    ]


def test_no_function_takes_more_parameters_than_one_can_keep_apart() -> None:
    """What belongs together is a NamedTuple, for kernels too."""
    found = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        found[module] = too_many(path, module)
    assert {module: names for module, names in found.items() if names} == {}


def test_the_guard_counts_every_kind_of_parameter(tmp_path: Path) -> None:
    names = [f"a{x}" for x in range(MOST_PARAMETERS)]
    path = tmp_path / "module.py"
    path.write_text(
        f"def fits({', '.join(names)}): ...\n"
        f"def mixed({', '.join(names[:5])}, /, b, *, {', '.join(names[5:])}): ...\n"
        f"class C:\n    def method(self, {', '.join(names)}): ...\n"
        f"def solve({', '.join(names)}, b): ...\n"
    )
    assert too_many(path, "module") == ["mixed", "method", "solve"]
    assert too_many(path, "ilp_planner.cli.solve") == ["mixed", "method"]


def test_one_module_says_how_kernels_are_compiled() -> None:
    users = [path for path in ROOT.rglob("*.py") if "numba" in imported(tree_of(path))]
    assert users == [ROOT / "kernels.py"]


def test_a_signal_waits_until_a_kernel_is_compiled(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What numba was doing is done: the kernel works, and the interrupt is not lost."""
    kernel = load(module).twice_and_one
    seen = []

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    inside = kernel.targetctx.refresh

    def interrupted() -> None:
        signal.raise_signal(signal.SIGTERM)
        inside()
        seen.append(1)

    monkeypatch.setattr(kernel.targetctx, "refresh", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernel(2)
    assert seen
    monkeypatch.undo()
    signal.signal(signal.SIGTERM, before)
    assert kernel(2) == 5


@pytest.mark.parametrize(
    "others",
    [
        "(a @ a)[0], np.dot(x, x)",
        # Numba compiles these for seconds.
        pytest.param("np.convolve(x, x), np.linalg.inv(a)", marks=pytest.mark.slow),
    ],
)
def test_no_linear_algebra_is_imported_to_compile_a_kernel(others: str) -> None:
    """All of `scipy.linalg` would be, for products of matrices that no kernel has. Other code
    that has some is compiled all the same."""
    lines = (
        "import sys, numpy as np",
        "from ilp_planner.bounds import sweep, paths, arrays",
        "from ilp_planner.kernels import kernel",
        "@kernel",
        "def total(x): return x.sum() + np.sort(x)[0]",
        "assert total(np.arange(4.0)) == 6.0",
        "assert 'scipy.linalg' not in sys.modules",
        "import numba",
        "@numba.njit",
        f"def others(a, x): return {others}",
        "a, x = 2 * np.eye(2), np.array([1.0, 3.0])",
        "wanted = others.py_func(a, x)",
        "assert all(np.allclose(f, w) for f, w in zip(others(a, x), wanted))",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
