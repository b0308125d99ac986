"""Compilation of the numerical kernels, and the cache of compiled code.

A kernel is compiled at its first call, in up to two seconds. The code is kept in the folder that
`NUMBA_CACHE_DIR` names, beside the module or among the user's caches, and if none of these can be
written, in a temporary folder of this user. Without this folder, every process compiles anew. With
`NUMBA_DISABLE_JIT=1` kernels are plain Python: slow, but followed by debuggers and line coverage.

Kept code is of one kernel with all that was compiled into it (`_ingredients`). It is found again
only if every function that it calls, every constant, the fields of its arguments, Python, NumPy and
Numba are unchanged, as this process has imported them. Bounds are proofs, so code of before an
update may never be called.

Compilation is slow less by the length of a kernel than by its use of NumPy: copies of rows,
sorting, joins, minima of whole arrays and masks are compiled from Python each time; the first copy
of a row takes two seconds. So kernels loop, and sort and grow by `bounds.arrays`.
"""

from __future__ import annotations

import gc
import os
import pickle
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ilp_planner.base.children import Watched, cores
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.interrupts import postponed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_WAIT, LOOK = 120.0, 0.1  # seconds, and between two looks at the other process
SEAL = 32  # bytes of a SHA-256, before kept code
PLAIN = (int, float, complex, str, bytes, type(None), type(...))  # told by their text

_to_tell: list[Callable[[], None]] = []
_ahead: list[str] = []  # modules whose `compile_ahead` a second process calls
_helpers: list[subprocess.Popen[bytes]] = []


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls; other threads run while it does."""
    return _compiled(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call."""
    return _compiled(function, no_cpython_wrapper=True)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function as a part of every kernel that calls it."""
    import numba

    return numba.njit(inline="always")(function)


def before_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, before the first kernel that this process has to compile from now on."""
    _to_tell[:] = [tell]


def compile_beside(module: str) -> None:
    """Once this process has to compile, let another one call the module's `compile_ahead()`.

    Numba compiles in one thread at a time. This process reads the other one's results from the
    cache; `compiled_beside` waits for that.
    """
    _ahead.append(module)


def compiled_beside() -> None:
    """Wait for the other process, if there is one; this one compiles the rest."""
    while _helpers:
        helper = _helpers[-1]
        _wait(helper)
        if helper in _helpers:
            _helpers.remove(helper)


def _wait(helper: subprocess.Popen[bytes]) -> None:
    """Wait for a process, unless it takes for ever or stands still."""
    watched, end = Watched(helper.pid), Deadline(LONGEST_WAIT)
    while end.goon():
        with suppress(subprocess.TimeoutExpired):
            helper.wait(LOOK)
            return
        if watched.frozen:
            helper.kill()


def compile_alone(module: str) -> None:
    """Compile the kernels of `compile_beside`: the other process does this."""
    ahead = import_module(module).compile_ahead
    _ahead.clear()
    ahead()


def _begin_beside() -> None:
    """Start the other process, if there is a second core for it."""
    if _ahead and cores() > 1:
        steps = "".join(f"kernels.compile_alone({module!r});" for module in _ahead)
        nothing = subprocess.DEVNULL
        with suppress(OSError):
            helper = subprocess.Popen(
                [sys.executable, "-c", f"from ilp_planner.base import kernels;{steps}"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
            )
            _helpers.append(helper)
    _ahead.clear()


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    with postponed():
        import numba

    if numba.config.DISABLE_JIT:
        return function

    _listen()
    compiled = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    compiled.compile = _in_one_go(compiled.compile)
    try:
        compiled.enable_caching()
    except RuntimeError:  # of the folders that Numba knows, none can be written
        _keep(compiled, temporary_folder())
    if compiled._cache.cache_path is not None:
        kept = _Kept(compiled)
        compiled._cache.load_overload, compiled._cache.save_overload = kept.load, kept.save
    return compiled


def _in_one_go(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Let a signal wait until a kernel is compiled or read.

    Numba registers functions by generators, and an exception ends these for good, and its callbacks
    and finalisers drop exceptions.
    """

    def compiled(*arguments: Any) -> Any:
        with postponed():
            _do_without_blas()
            return compile_(*arguments)

    return compiled


@cache
def _do_without_blas() -> None:
    """Let Numba do without the BLAS that it would import all of `scipy.linalg` for.

    Kernels multiply no matrices, and the import is a fifth of the time until a first plan. Other
    code of the process that does imports BLAS when it is compiled, as it always has; only
    `np.correlate` and `np.convolve` change, to plain loops.
    """
    from numba.np import linalg

    def ensure_blas() -> None:
        raise ImportError("kernels multiply no matrices")

    own, linalg.ensure_blas = linalg.ensure_blas, ensure_blas
    try:
        import numba.np.arraymath  # noqa: F401  # asks once, when it is imported
    finally:
        linalg.ensure_blas = own


class _Kept:
    """The compiled code of one kernel, in one file for each kind of arguments, in the folder that
    Numba finds for it. Numba's own index would know the file of the kernel alone."""

    def __init__(self, kernel: Any) -> None:
        self._kernel, self._numba = kernel, kernel._cache._impl

    @cached_property
    def _stamp(self) -> str:
        """Distinguish the kernel from all changed versions; asked for at its first call, as its
        callees may stand below it."""
        import numba

        own = sys.version, numba.__version__
        return _digest(*own, *_ingredients(self._kernel, []))

    def _file(self, signature: Any, codegen: Any) -> Path:
        kinds = [part for kind in getattr(signature, "args", signature) for part in _layout(kind)]
        name = f"{self._numba.filename_base}.{self._stamp}"
        which = _digest(*kinds, repr(codegen.magic_tuple()))
        return Path(self._numba.locator.get_cache_path(), f"{name}.{which}.nbc")

    def load(self, signature: Any, target: Any) -> Any:
        """Return the cached code; None if there is none, or it cannot be read."""
        with suppress(Exception):
            target.refresh()
            content = self._file(signature, target.codegen()).read_bytes()
            if sha256(content[SEAL:]).digest() == content[:SEAL]:
                return self._numba.rebuild(target, pickle.loads(content[SEAL:]))
        return None

    def save(self, signature: Any, code: Any) -> None:
        """Keep compiled code in place of other versions, if possible; a full disk is as good as
        none."""
        from numba.core.serialize import dumps

        with suppress(Exception):
            if not self._numba.check_cachable(code):
                return
            file = self._file(signature, code.codegen)
            content = dumps(self._numba.reduce(code))
            self._numba.locator.ensure_cache_path()
            temporary = file.with_suffix(f".{os.getpid()}")
            try:
                temporary.write_bytes(sha256(content).digest() + content)
                temporary.replace(file)
            finally:
                temporary.unlink(missing_ok=True)
            anywhere = self._numba.filename_base.replace(f"-{self._numba._lineno}.", "-*.")
            for other in file.parent.glob(f"{anywhere}.*"):
                if self._stamp not in other.name:
                    other.unlink(missing_ok=True)


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:SEAL]


def _layout(kind: Any) -> Iterator[str]:
    """Yield the distinction of an argument's type from others; Numba finds fields by their
    positions."""
    known = getattr(kind, "instance_class", None)
    yield str(kind)
    if known is not None:
        yield f"{known.__module__}.{known.__qualname__}{known._fields}"
    for inner in getattr(kind, "types", ()):
        yield from _layout(inner)


def _ingredients(value: Any, seen: list[Any]) -> Iterator[str]:
    """Yield as texts all that is compiled into a kernel: its code, and everything that it names.

    Raises
    ------
    TypeError: a value that cannot be compared with the earlier one.
    """
    yield type(value).__qualname__
    if any(value is known for known in seen):
        return
    if hasattr(value, "py_func"):
        yield repr(sorted(value.targetoptions.items()))
        yield from _ingredients(value.py_func, seen)
    elif isinstance(value, FunctionType):
        seen.append(value)
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        known = value.__globals__
        named = {name: known[name] for name in sorted(_names(value.__code__)) if name in known}
        for part in (value.__code__, value.__defaults__, *cells, *named, *named.values()):
            yield from _ingredients(part, seen)
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        for part in (value.co_names, value.co_varnames, value.co_freevars, value.co_consts):
            yield from _ingredients(part, seen)
    elif isinstance(value, tuple):
        yield str(len(value))
        for part in value:
            yield from _ingredients(part, seen)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}{getattr(value, '_fields', '')}"
    elif isinstance(value, ModuleType):
        yield f"{value.__name__} {value.__version__}"
    elif isinstance(value, PLAIN):
        yield repr(value)
    else:
        raise TypeError(value)


def _names(code: CodeType) -> set[str]:
    """Return the names that code asks for, with those of functions inside it."""
    inside = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inside)


def _keep(compiled: Any, folder: Path | None) -> None:
    """Keep compiled code in a folder, if there is one that can be written."""
    from numba import config

    if folder is None:
        return
    named, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        with suppress(RuntimeError):
            compiled.enable_caching()
    finally:
        config.CACHE_DIR = named


@cache
def temporary_folder() -> Path | None:
    """Return a temporary folder that nobody else can write, as code is run from it; None if there
    is none."""
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"ilp-plan-kernels-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            return None if status.st_mode & 0o022 else folder
    return None


@cache
def _listen() -> None:
    """Have Numba say when it compiles, and collect no garbage meanwhile.

    Its results are large and live on: collections would take an eighth of the time and find little.
    """
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        depth = 0  # kernels that wait for those which they call; one thread compiles at a time
        collects = False

        def on_start(self, event: Any) -> None:
            while _to_tell:
                _to_tell.pop()()
            if self.depth == 0:
                if event.data["dispatcher"].stats.cache_path is not None:
                    _begin_beside()
                self.collects = gc.isenabled()
                gc.disable()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()

    event.register("numba:compile", Listener())
