"""The tools: commands with JSON schemas of what they take and print.

What a tool takes is what its command takes: a property for each option, in the same words, and for
each argument. What it gives is what the command prints with `--json`. A call is the command in a
process of its own, which ends with the call or at the limit: a command that fails, runs out of
memory or is killed costs its own answer alone.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from ilp_planner.base.errors import UsageError, shown
from ilp_planner.faces.cli.main import COMMANDS
from ilp_planner.faces.schemas import schema

JSON = "--json"
LEFT_OUT = (JSON, "--verbose")  # which say how a result is printed
LIMIT = "time_limit"
WORD = 2**16  # bytes of one that a process is given: Linux takes twice as many


class Tool(NamedTuple):
    """A tool. outputs: schemas of what it may give. about: for whoever chooses one. searching:
    property beside which it searches; empty: it always does."""

    outputs: tuple[str, ...]
    about: str
    searching: str = ""


TOOLS = {
    "solve": Tool(
        ("solve",),
        "Find the fastest distributed-training plan of a model on a cluster, with a proof of how "
        "far from the best it can be. `output` saves the plan, which `why` and `compare` take.",
    ),
    "fit": Tool(
        ("fit",),
        "Judge whether a training job fits in the memory of every GPU, with its time and the "
        "cheapest changes that make it fit or faster. The job is a launch script or configuration "
        "of Megatron-LM, NeMo, torchtitan and others, which is read and never run, or a model with "
        "its degrees.",
    ),
    "why": Tool(
        ("why", "why-not"),
        "Explain a saved plan: what limits it, where its seconds go, the proved gain of each "
        "change; with `not`, why another plan is slower.",
    ),
    "compare": Tool(
        ("compare",),
        "Judge saved plans and launch scripts side by side on the problem of the first.",
        searching="solvers",
    ),
    "doctor": Tool(
        ("doctor",),
        "Say why a training run takes as long as its log says: its steps beside the prediction and "
        "the proved best, causes with evidence, and what to change.",
    ),
}


class Parameter(NamedTuple):
    """A property of what a tool takes. option: of the command line; empty: an argument. negative:
    the option that says no; empty: there is none."""

    option: str
    kind: Any
    required: bool
    about: str
    default: Any
    negative: str = ""


@cache
def parameters(name: str) -> dict[str, Parameter]:
    """Return the properties of a tool, by the names of the command's options and arguments."""
    from typer.utils import get_params_from_function

    module, function = COMMANDS[name]
    command = getattr(importlib.import_module(module), function)
    found: dict[str, Parameter] = {}
    arguments: dict[str, Parameter] = {}
    for row in get_params_from_function(command).values():
        info = row.default
        if not hasattr(info, "param_decls") or info.hidden:  # the context of the command line
            continue
        default = None if info.default is ... else info.default
        said = (row.annotation, info.default is ..., info.help or "", default)
        if info.param_decls:
            option, _, negative = info.param_decls[0].partition("/")
            if option not in LEFT_OUT:
                key = option.lstrip("-").replace("-", "_")
                found[key] = Parameter(option, *said, negative)
        else:
            word = info.metavar.lower()
            arguments[f"{word.removesuffix('...')}s" if "..." in word else word] = Parameter(
                "", *said
            )
    return {key: one for key, one in arguments.items() if key not in found} | found


def input_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of what a tool takes."""
    rows = parameters(name)
    properties = {
        key: {
            **_type_of(row.kind),
            "description": row.about,
            **({"default": row.default} if row.default not in (None, False, "", ()) else {}),
        }
        for key, row in rows.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key, row in rows.items() if row.required],
        "additionalProperties": False,
    }


def output_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of what a tool gives."""
    first, *others = map(schema, TOOLS[name].outputs)
    return {"type": "object", "anyOf": [first, *others]} if others else first


def _type_of(kind: Any) -> dict[str, Any]:
    """Return the JSON type of a parameter of Python."""
    if get_origin(kind) is list:
        return {"type": "array", "items": {"type": "string"}}
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    rest = [one for one in get_args(kind) if one is not type(None)]
    if rest:
        return _type_of(rest[0])
    named = {bool: "boolean", int: "integer", float: "number"}
    # A text may be a number: a degree, as `4` or `2..8`.
    return {"type": named[kind]} if kind in named else {"type": ["string", "number"]}


def words_of(name: str, given: dict[str, Any], most: float) -> list[str]:
    """Return the words of the command line that a call of a tool is.

    Parameters
    ----------
    most: seconds that a call may take; a search without a limit of its own gets no more.

    Raises
    ------
    UsageError: an unknown tool or property, or a value that its command could not be given.
    """
    if name not in TOOLS:
        raise UsageError(f"tool: found {name!r}, expected one of {', '.join(TOOLS)}")
    rows = parameters(name)
    words: list[str] = []
    behind: list[str] = []
    for key, value in given.items():
        if key not in rows:
            near = difflib.get_close_matches(key, rows, n=1)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{name}: found {key!r}, expected one of {', '.join(rows)}{guess}")
        row = rows[key]
        is_list = list in (get_origin(row.kind), *(get_origin(k) for k in get_args(row.kind)))
        for each in value if is_list and isinstance(value, list) else [value]:
            if each is None or each is False:
                words += [row.negative] if row.negative and each is False else []
                continue
            switch = _type_of(row.kind) == {"type": "boolean"}
            if isinstance(each, list | dict) or (each is True) != switch:
                expected = "a list of texts" if is_list else _expected(row)
                raise UsageError(f"{key}: found {shown(each)}, expected {expected}")
            if isinstance(each, str) and not _is_word(each):
                expected = f"a text without NUL and half characters, at most {WORD:,} bytes"
                raise UsageError(f"{key}: found {shown(each)}, expected {expected}")
            if row.option:
                words.append(row.option if each is True else f"{row.option}={each}")
            elif str(each).startswith("-"):
                raise UsageError(f"{key}: found {each!r}, expected a file, as ./{each}")
            else:
                behind.append(str(each))
    for key, row in rows.items():
        if row.required and given.get(key) in (None, []):
            raise UsageError(f"{key}: found none, expected {row.about[:1].lower()}{row.about[1:]}")
    limit, beside = given.get(LIMIT), TOOLS[name].searching
    if isinstance(limit, int | float) and limit > most:
        raise UsageError(
            f"{LIMIT}: found {limit:g}, expected at most {most:g} s, which `ilp-plan mcp "
            "--time-limit` says"
        )
    searches = LIMIT in rows and (not beside or given.get(beside))
    if limit is None and searches and (rows[LIMIT].default or most + 1) > most:
        words.append(f"{rows[LIMIT].option}={most:g}")
    return [name, *words, JSON, *behind]


def _is_word(text: str) -> bool:
    """Tell whether a process can be given a text: half characters, NUL and long texts it cannot."""
    try:
        return len(os.fsencode(text)) <= WORD and "\0" not in text
    except UnicodeEncodeError:
        return False


def _expected(row: Parameter) -> str:
    kind = _type_of(row.kind)
    named = kind.get("type", "")
    return str(named) if isinstance(named, str) and named else "a text or a number"


# ---- a call --------------------------------------------------------------------------------------

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
