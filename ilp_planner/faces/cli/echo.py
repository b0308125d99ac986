"""The streams of a command's own lines, and missing streams."""

import contextlib
import errno
import io
import os
import sys

from ilp_planner.base.printable import printable

# Whoever read our output, a pipe or a terminal, has closed it: nobody is left to tell.
GONE = (errno.EPIPE, errno.EIO)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text to stdout or stderr, as a terminal may show it."""
    print(printable(text), end="\n" * nl, file=sys.stderr if err else sys.stdout)


def open_streams() -> None:
    """Give every standard stream that was closed a place, lest a file that is opened takes it, and
    let no character be one that a stream cannot write.

    Writing to a stdout that was closed is an OSError when it is flushed; to a stderr, nothing.
    """
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            flag = os.O_WRONLY if place == 2 else os.O_RDONLY
            handle = os.open(os.devnull, flag)
            if handle != place:
                os.dup2(handle, place)
                os.close(handle)
            stream = open(place, "r" if place == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Drop all further output to stdout: Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
