"""Variables of the environment that would end a command in a library, for nothing that it does."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

COUNT = re.compile(r"\s*\+?0*[1-9][0-9]{0,4}\s*")


class Variable(NamedTuple):
    """One that is replaced unless it is `fine`. instead: None: it is dropped."""

    fine: re.Pattern[str]
    instead: str | None


VARIABLES = {
    # Widths of 0 are refused where texts are wrapped.
    "COLUMNS": Variable(COUNT, None),
    "LINES": Variable(COUNT, None),
    # Numba cannot be imported for fewer than one thread. Kernels have one.
    "NUMBA_NUM_THREADS": Variable(COUNT, "1"),
    # A notebook's own, which may not be installed here. Pictures are files.
    "MPLBACKEND": Variable(re.compile("agg"), "agg"),
}


def mend_environment() -> None:
    """Let no variable end this process or its children."""
    for name, variable in VARIABLES.items():
        if name not in os.environ or variable.fine.fullmatch(os.environ[name]):
            continue
        if variable.instead is None:
            del os.environ[name]
        else:
            os.environ[name] = variable.instead
