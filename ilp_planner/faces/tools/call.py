"""A call of a tool: its command in a process of its own, which ends with the call or at the limit.

Nothing that is read can reach the process that serves: a command that fails, runs out of memory or
is killed costs its own answer alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.tools.table import words_of

GRACE = 20.0  # seconds that a command may take to end after its own limit


class Answer(NamedTuple):
    """What a call gives. found: what the command printed; None: an error. text: for people: its
    messages, one line each. code: of the command's exit."""

    found: dict[str, Any] | None
    text: str
    code: int


async def call(name: str, given: dict[str, Any], most: float) -> Answer:
    """Call a tool.

    Parameters
    ----------
    given: the values of its properties. most: seconds that it may take.
    """
    try:
        words = words_of(name, given, most)
    except UsageError as error:
        return Answer(None, str(error), error.exit_code)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ilp_planner",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, said = await asyncio.wait_for(process.communicate(), most + GRACE)
    except TimeoutError:
        return Answer(None, f"{name}: found no end after {most:g} s, and was stopped", 4)
    finally:
        with suppress(ProcessLookupError):  # its searches are processes of their own
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    messages = said.decode(errors="replace").strip()
    code = process.returncode or 0
    try:
        found = json.loads(printed)
    except ValueError:
        return Answer(None, messages or f"{name}: ended with status {code}", code)
    return Answer(found, messages, code)
