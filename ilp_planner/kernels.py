"""How the numerical kernels are compiled, and where the compiled code is kept.

A kernel is compiled when it is first called, which takes up to two seconds. The code is kept in the
folder that `NUMBA_CACHE_DIR` names, beside the module or among the user's caches, and where none of
these can be written in a temporary folder of this user. Where there is no such folder either, every
process compiles anew. With `NUMBA_DISABLE_JIT=1` kernels are plain Python: slow, but followed by
debuggers and line coverage.

What makes compilation slow is less the length of a kernel than what it uses of NumPy: copies of
rows, sorting, joins, minima of whole arrays and masks are compiled from Python each time; the first
copy of a row takes two seconds. So kernels loop, and sort and grow by `bounds.arrays`.
"""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from ilp_planner.children import Watched
from ilp_planner.deadline import Deadline
from ilp_planner.interrupts import postponed

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_WAIT, LOOK = 120.0, 0.1  # seconds, and between two looks at the other process

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

    Numba compiles in one thread at a time. This process reads what the other one compiled from
    where it is kept; `compiled_beside` waits for that.
    """
    _ahead.append(module)


def compiled_beside() -> None:
    """Wait for the other process, if there is one; what it did not compile, this one will."""
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
    """Compile what `compile_beside` was asked for: the other process does this."""
    ahead = import_module(module).compile_ahead
    _ahead.clear()
    ahead()


def cores() -> int:
    """Return how many cores this process may use."""
    own = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(own(0)) if own else os.cpu_count() or 1


def _begin_beside() -> None:
    """Start the other process, if there is a second core for it."""
    if _ahead and cores() > 1:
        steps = "".join(f"kernels.compile_alone({module!r});" for module in _ahead)
        nothing = subprocess.DEVNULL
        with suppress(OSError):
            helper = subprocess.Popen(
                [sys.executable, "-c", f"from ilp_planner import kernels;{steps}"],
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
    code = compiled._cache
    code.load_overload = _forgiving(code.load_overload)
    code.save_overload = _forgiving(code.save_overload)
    return compiled


def _in_one_go(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Let a signal wait until a kernel is compiled or read.

    Numba registers functions by generators, which an exception ends for good, and its callbacks and
    finalisers drop exceptions.
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
    code of the process that does imports BLAS when it is compiled, as it always has; what changes
    for it is that `np.correlate` and `np.convolve` run as plain loops.
    """
    from numba.np import linalg

    def ensure_blas() -> None:
        raise ImportError("kernels multiply no matrices")

    own, linalg.ensure_blas = linalg.ensure_blas, ensure_blas
    try:
        import numba.np.arraymath  # noqa: F401  # asks once, when it is imported
    finally:
        linalg.ensure_blas = own


def _forgiving(access: Callable[..., Any]) -> Callable[..., Any]:
    """Let compiled code that cannot be read or written, as on a full disk, be as good as none; or
    that was compiled for a class that has moved since."""

    def accessed(*arguments: Any) -> Any:
        with suppress(OSError, EOFError, UnpicklingError, AttributeError, ImportError):
            return access(*arguments)
        return None

    return accessed


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
    """Return a temporary folder that nobody else can write, which matters as code is run from it;
    None where there is none."""
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

    What it builds is large and lives on: collections would take an eighth of the time and find
    little.
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
