"""Compiled code is kept where it can be, and kernels work where it cannot."""

import ast
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import FunctionType, ModuleType

import numba
import pytest

import ilp_planner
from ilp_planner.base import kernels
from ilp_planner.faces.cli.main import COMMANDS
from ilp_planner.faces.report.console import COMPILING, tell_of_compiling
from ilp_planner.profiler.commands.profile import COMMANDS as PROFILE_COMMANDS
from tests.sources import statements, tree_of

SOURCE = """
from ilp_planner.base.kernels import inner, kernel

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


HELPERS = """
from ilp_planner.base.kernels import inlined, inner
from constants import FACTOR

def plain(x): return 2 * x

deepest = inner(plain)

@inner
def helper(x, again=1): return FACTOR * deepest(x) * again

@inlined
def drawn_in(x): return x + 5
"""
PARTS = {
    "constants": "FACTOR, TUNED = 3, (1, 2)\n",
    "shapes": "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n",
    "helpers": HELPERS,
    "caller": """
import constants
from ilp_planner.base.kernels import kernel
from constants import TUNED
from shapes import Pair
from helpers import drawn_in, helper

@kernel
def total(pair):
    other = Pair(pair.b, TUNED[0])
    return 100 * helper(pair.a) + drawn_in(other.a) + 2 * other.b

@kernel
def beside(x): return x
""",
}


@pytest.fixture
def total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Return what imports the parts anew, after texts in them were replaced."""
    texts = dict(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))

    def imported(part: str = "caller", old: str = "", new: str = "") -> ModuleType:
        assert old in texts[part]
        texts[part] = texts[part].replace(old, new, 1)
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        invalidate_caches()
        return import_module("caller")

    return imported


def taken(module: ModuleType) -> tuple[int, int]:
    """Return the result for two numbers, and how often kept code was taken for it."""
    found = module.total(module.Pair(a=1, b=2))
    return found, sum(module.total.stats.cache_hits.values())


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("part", "old", "new", "result"),
    [
        ("helpers", "FACTOR * deepest", "1 + FACTOR * deepest", 709),
        ("helpers", "2 * x", "4 * x", 1209),
        ("helpers", "x + 5", "x + 6", 610),
        ("helpers", "again=1", "again=2", 1209),
        ("helpers", "inner(plain)", "inner(lambda x: x)", 309),
        ("constants", "= 3", "= 4", 809),
        ("constants", "= 3", "= 3.0", 609),
        ("constants", "(1, 2)", "(2, 2)", 611),
        ("shapes", "a: int\n    b: int", "b: int\n    a: int", 610),
        ("shapes", "    b: int", "    b: int\n    c: int = 0", 609),
        ("caller", "100", "10", 69),
    ],
)
def test_a_kernel_is_compiled_anew_when_anything_in_it_changes(
    total: Callable[..., ModuleType], part: str, old: str, new: str, result: int
) -> None:
    """Its functions in whatever module, constants, and the fields of arguments, by position."""
    assert taken(total()) == (609, 0)
    assert taken(total()) == (609, 1)
    assert taken(total(part, old, new)) == (result, 0)
    assert taken(total()) == (result, 1)


def test_a_kernel_stays_when_other_things_change(total: Callable[..., ModuleType]) -> None:
    total().total(total().Pair(1, 2))
    assert taken(total("caller", "return x", "return x + 1")) == (609, 1)
    assert taken(total("helpers", "def plain", "UNUSED = 1\n\ndef plain")) == (609, 1)


def test_code_of_before_is_removed(total: Callable[..., ModuleType], tmp_path: Path) -> None:
    """What is kept of a kernel is of its last version, wherever in its file it stood; files of
    other kernels stay, those of Numba's own index go."""
    files = (tmp_path / "kept").rglob
    module = total()
    taken(module)
    module.beside(1)
    first = set(files("caller.total-*"))
    base = next(iter(first)).name.split(".")[2]
    for end in ("nbi", "1.nbc"):
        next(iter(first)).with_name(f"caller.total-3.{base}.{end}").touch()
    taken(total("caller", "@kernel", "\n\n@kernel"))
    taken(total("constants", "= 3", "= 4"))
    last = set(files("caller.total-*"))
    assert len(first) == len(last) == 1
    assert first != last
    assert len(set(files("caller.beside-*"))) == 1


def test_what_nobody_can_tell_apart_is_not_kept(total: Callable[..., ModuleType]) -> None:
    changed = "caller", "TUNED[0]", "constants.TUNED[0]"  # of a module without a version
    assert taken(total(*changed)) == (609, 0)
    assert taken(total()) == (609, 0)


def test_every_kernel_of_the_package_is_kept() -> None:
    """Nothing in them is of a kind that cannot be told from what it was."""
    found = 0
    for path in ROOT.rglob("*.py"):
        if "ilp_planner.base.kernels import" in path.read_text():
            name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
            for value in list(vars(import_module(name)).values()):
                if hasattr(value, "py_func"):
                    assert list(kernels._ingredients(value, []))
                    found += 1
    assert found > 50


class WorseError(Exception):
    """What no reader of a cache thinks of."""


class Hostile:
    def __reduce__(self) -> object:
        return (worse, ())


def worse() -> None:
    raise WorseError


def sealed(content: bytes) -> bytes:
    return sha256(content).digest() + content


BROKEN: list[Callable[[bytes], bytes]] = [
    lambda content: b"",
    lambda content: content[:10],
    lambda content: content[: len(content) // 2],
    lambda content: content[:-1],
    lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
    lambda content: content[:-9] + bytes([content[-9] ^ 128]) + content[-8:],
    lambda content: bytes(len(content)),
    lambda content: b"no code at all" * 100,
    lambda content: sealed(b""),
    lambda content: sealed(b"no pickle"),
    lambda content: sealed(pickle.dumps(None)),
    lambda content: sealed(pickle.dumps({"a": 1})),
    lambda content: sealed(pickle.dumps(Hostile())),
    lambda content: sealed(b"cno_such_module\nname\n."),
]


def test_kept_code_that_is_broken_is_compiled_anew(
    total: Callable[..., ModuleType], tmp_path: Path
) -> None:
    """Whatever reading it raises; and what was compiled takes its place."""
    assert taken(total()) == (609, 0)
    for broken in BROKEN:
        (file,) = (tmp_path / "kept").rglob("caller.total-*")
        file.write_bytes(broken(file.read_bytes()))
        assert taken(total()) == (609, 0)
        assert taken(total()) == (609, 1)


@pytest.mark.parametrize("there", ["a folder", "a loop", "nothing", "a file for the folder"])
def test_a_place_that_is_broken_is_as_good_as_none(
    total: Callable[..., ModuleType], tmp_path: Path, there: str
) -> None:
    assert taken(total()) == (609, 0)
    (file,) = (tmp_path / "kept").rglob("caller.total-*")
    file.unlink()
    if there == "a folder":
        (file / "inside").mkdir(parents=True)
    elif there == "a loop":
        file.symlink_to(file.name)
    elif there == "a file for the folder":
        for other in file.parent.iterdir():
            other.unlink()
        file.parent.rmdir()
        file.parent.touch()
    assert taken(total()) == (609, 0)


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


def test_a_first_solve_that_compiles_says_so(
    module: Path, read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, also where that is no terminal; of kernels that are kept it says nothing."""
    tell_of_compiling()
    assert load(module).twice_and_one(3) == 7
    assert capsys.readouterr() == ("", f"{COMPILING}\n")
    tell_of_compiling()
    assert load(module).twice_and_one(3) == 7
    assert capsys.readouterr() == ("", "")


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
    verbs = {"ilp_planner.faces.api.problem": "problem", "ilp_planner.faces.api.sweep": "sweep"}
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
    assert too_many(path, "ilp_planner.faces.cli.solve") == ["mixed", "method"]


def test_one_module_says_how_kernels_are_compiled() -> None:
    users = [path for path in ROOT.rglob("*.py") if "numba" in imported(tree_of(path))]
    assert users == [ROOT / "base" / "kernels.py"]


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
        "x.sum(), a[0]",
        # Numba compiles these for seconds.
        *(
            pytest.param(code, marks=pytest.mark.slow)
            for code in ("(a @ a)[0], np.dot(x, x)", "np.convolve(x, x), np.linalg.inv(a)")
        ),
    ],
)
def test_no_linear_algebra_is_imported_to_compile_a_kernel(others: str) -> None:
    """All of `scipy.linalg` would be, for products of matrices that no kernel has. Other code
    that has some is compiled all the same."""
    lines = (
        "import sys, numpy as np",
        "from ilp_planner.optimize.bounds import sweep, paths, arrays",
        "from ilp_planner.base.kernels import kernel",
        "@kernel",
        "def total(x): return x.sum()",
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
