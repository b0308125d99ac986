"""How the numerical kernels are compiled, and where the compiled code is kept.

A kernel is compiled when it is first called, which takes up to two seconds. The code is kept in the
folder that `NUMBA_CACHE_DIR` names, beside the module or among the user's caches, and where none of
these can be written in a temporary folder of this user. Where there is no such folder either, every
process compiles anew.

What makes compilation slow is less the length of a kernel than what it uses of NumPy: copies of
rows, sorting, joins, minima of whole arrays and masks are compiled from Python each time; the first
copy of a row takes two seconds. So kernels loop, and sort and grow by `bounds.arrays`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_to_tell: list[Callable[[], None]] = []


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


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    import numba

    _listen()
    compiled = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    try:
        compiled.enable_caching()
    except RuntimeError:  # of the folders that Numba knows, none can be written
        _keep(compiled, temporary_folder())
    code = compiled._cache
    code.load_overload = _forgiving(code.load_overload)
    code.save_overload = _forgiving(code.save_overload)
    return compiled


def _forgiving(access: Callable[..., Any]) -> Callable[..., Any]:
    """Let compiled code that cannot be read or written, as on a full disk, be as good as none."""

    def accessed(*arguments: Any) -> Any:
        with suppress(OSError, EOFError, UnpicklingError):
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
    """Have Numba say when it compiles."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            while _to_tell:
                _to_tell.pop()()

        def on_end(self, event: Any) -> None:
            """Nothing to say."""

    event.register("numba:compile", Listener())
