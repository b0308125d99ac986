"""The command `ilp-plan`: its commands, and the one place that turns errors into a line and a code.

Before a command, limits and variables of the process are mended that would end it in a library.
"""

import atexit
import contextlib
import importlib
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import typer

from ilp_planner.base.errors import PlannerError, interruptible
from ilp_planner.base.parts import part
from ilp_planner.base.units import format_bytes
from ilp_planner.faces.cli.help import HELP, Group
from ilp_planner.faces.cli.terminal import (
    GONE,
    drop_output,
    echo,
    end_like_ctrl_c,
    ignore,
    open_streams,
)

TRACEBACK = "ILP_PLAN_TRACEBACK"
# What all complaints about the command line are: Click's, that of the copy of Click in Typer, or
# Typer's own, as its version has it.
CommandError: Any = typer.BadParameter.__mro__[2]
# Of the causes of complaints about numbers: what is said of the limit.
BOUNDS = {"greater_than_equal": "at least", "less_than_equal": "at most"}
INTERRUPTED = 130
BUG = 1
LONGEST = 2000  # characters of a message
# What is said of a library that no memory is left for
UNMAPPED = ("failed to map segment", "Could not find/load shared object")

# Command -> its module and function. Only the one that is asked for is imported: half of the time
# of a quick command would go into the others.
COMMANDS = {
    "solve": ("ilp_planner.faces.cli.solve", "solve"),
    "evaluate": ("ilp_planner.faces.cli.evaluate", "evaluate"),
    "simulate": ("ilp_planner.faces.cli.simulate", "simulate"),
    "show": ("ilp_planner.faces.cli.show", "show"),
    "sweep": ("ilp_planner.faces.cli.sweep", "sweep"),
    "size": ("ilp_planner.faces.cli.size", "size"),
    "capture": ("ilp_planner.faces.cli.capture", "capture"),
    "fit": ("ilp_planner.faces.cli.fit", "fit"),
    "why": ("ilp_planner.faces.cli.why", "why"),
    "replan": ("ilp_planner.faces.cli.replan", "replan"),
    "analyze": ("ilp_planner.faces.cli.analyze", "analyze"),
    "export": ("ilp_planner.faces.cli.export", "export"),
    "import": ("ilp_planner.faces.cli.import_", "import_plan"),
    "compare": ("ilp_planner.faces.cli.compare", "compare"),
    "doctor": ("ilp_planner.faces.cli.doctor", "doctor"),
    "tune": ("ilp_planner.faces.cli.tune", "tune"),
    "models": ("ilp_planner.faces.cli.models", "models"),
    "supports": ("ilp_planner.faces.cli.supports", "supports"),
    "gpus": ("ilp_planner.faces.cli.gpus", "gpus"),
    "runtimes": ("ilp_planner.faces.cli.runtimes", "runtimes"),
    "calibrate": ("ilp_planner.faces.cli.calibrate", "calibrate"),
    "schema": ("ilp_planner.faces.cli.schema", "schema"),
    "mcp": ("ilp_planner.faces.cli.mcp", "mcp"),
}
GROUP = "profile"  # of commands
REPLACED = {"--tie": "--prefer-plain"}  # options of before
RENAMED = {"device-memory": "memory-limit"}  # options of before that mean the same
# Command -> the class in faces/cli/options.py of how its words are taken, if it is of its own.
CLASSES = {
    **dict.fromkeys(("solve", "size", "import"), "ManyNumbers"),
    **dict.fromkeys(("fit", "analyze", "compare", "tune"), "WithScript"),
    "capture": "BeforeCommand",
}


def command_line(arguments: Sequence[str]) -> Any:
    """Return the command line, as Click's group, with the command that is asked for, or with all of
    them. It is made once: that takes longer than many a command."""
    first = arguments[0] if arguments else ""
    if first == GROUP:
        return _made(first, tuple(arguments[1:2]))
    return _made(first if first in COMMANDS else "", ())


@cache
def _made(first: str, following: tuple[str, ...]) -> Any:
    """Return the command line of a first word and, of a group, the one that follows."""
    app = typer.Typer(
        name="ilp-plan",
        cls=Group,
        context_settings={
            "help_option_names": HELP,
            "token_normalize_func": lambda name: RENAMED.get(name, name),
        },
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="The fastest distributed-training plan, with a proof of how far from the best it can "
        "be.",
    )
    if first not in COMMANDS:
        profile_app = part("profiler.commands.profile:profile_app")
        app.add_typer(profile_app(following if first == GROUP else None), name=GROUP)
    from ilp_planner.faces.cli import options

    for name in (first,) if first in COMMANDS else () if first == GROUP else COMMANDS:
        module, function = COMMANDS[name]
        command = getattr(importlib.import_module(module), function)
        app.command(name, cls=getattr(options, CLASSES.get(name, "Command")))(command)
    app.callback(invoke_without_command=True)(no_command)
    return typer.main.get_command(app)


def no_command(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Show the help when nothing was asked for."""
    if version:
        from ilp_planner import __version__

        echo(f"ilp-plan {__version__}")
    elif ctx.invoked_subcommand is None:
        echo(ctx.get_help())


def words_to_complete() -> list[str]:
    """Return the words of the line that a shell asks to complete; none if it asks nothing."""
    if "_ILP_PLAN_COMPLETE" not in os.environ:
        return []
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    open_streams()
    end_like_ctrl_c()
    code = run(sys.argv[1:] if arguments is None else list(arguments))
    ignore()  # what a signal asks for has happened
    if arguments is None:  # else the process is somebody else's
        leave(code)
    sys.exit(code)


def leave(code: int) -> NoReturn:
    """End the process at once, after all registered functions and with nothing left to be written.
    Freeing the data of a large search takes Python half a second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run the command line; return its exit code, with one line on stderr for an error. Time limits
    begin here."""
    begun = time.monotonic()
    try:
        mend_environment()
        fit_address_space()
        with interruptible():
            code = command_line(words_to_complete() or arguments)(
                args=arguments, prog_name="ilp-plan", standalone_mode=False, obj=begun
            )
            if code == INTERRUPTED:  # what Typer makes of a Ctrl-C
                raise KeyboardInterrupt
        sys.stdout.flush()
    except (PlannerError, CommandError) as error:
        return _fail(error, _text_of(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort) as error:
        return _fail(error, "interrupted", INTERRUPTED)
    except MemoryError as error:
        return _fail(error, "out of memory", BUG)
    except Exception as error:
        if isinstance(error, OSError) and error.errno and error.filename is None:
            drop_output()
            if error.errno in GONE:
                return BUG
            return _fail(error, f"standard output: cannot be written: {error.strerror}", BUG)
        if isinstance(error, (ImportError, OSError)) and any(t in str(error) for t in UNMAPPED):
            return _fail(error, "out of memory", BUG)
        line = f"this is a bug in ilp-plan: {type(error).__name__}: {error}; "
        return _fail(error, line + f"{TRACEBACK}=1 shows where", BUG)
    return code if isinstance(code, int) else 0


def _text_of(error: Any) -> str:
    if isinstance(error, PlannerError):
        from ilp_planner.faces.cli.wording import as_typed

        return as_typed(str(error))
    if (option := getattr(error, "option_name", "")) in REPLACED:
        return f"{option}: found an option of earlier versions, expected {REPLACED[option]}"
    if hasattr(error, "possibilities") and (hint := _in_other_words(error)):
        return hint
    text: str = error.format_message().replace("Value error, ", "")
    # What was found is lost in the message of a value of the wrong type, and kept in its cause.
    details = getattr(error.__cause__, "errors", None)
    if details is None or repr(details()[0]["input"]) in text:
        return text
    (detail, *_), option = details(), text.partition(": ")[0]
    if detail["type"] in BOUNDS and error.param is not None:
        (limit,) = detail["ctx"].values()
        kind = f"a number of {BOUNDS[detail['type']]} {limit:g}"
        if isinstance(limit, int):
            kind = f"a whole number of {BOUNDS[detail['type']]} {limit}"
        return f"{error.param.opts[0]}: found {detail['input']}, expected {kind}"
    expected = detail["msg"].replace("Input should be", "expected")
    return f"{option}: found {detail['input']!r}, {expected}"


def _in_other_words(error: Any) -> str:
    """Return what is said of an unknown option that another command has, or that is a word of a
    training system; empty: it is neither, or the command has no option for it."""
    from ilp_planner.faces.cli.unknown_option import elsewhere, instead_of, own_option

    word, command = error.option_name, getattr(error.ctx, "command", None)
    has = options_of(command)
    own, system = own_option(word, has)
    if own and not instead_of(word, has):
        whose = f"a word of {system}" if system else "no option"
        return f"{word}: found {whose}, expected {own}"
    every = command_line(()).commands
    others = [name for name in COMMANDS if word in options_of(every[name])]
    return elsewhere(word, getattr(error.ctx, "command_path", "ilp-plan"), has, others)


def options_of(command: Any) -> set[str]:
    """Return the options of a command, of Click."""
    return {option for one in getattr(command, "params", ()) for option in one.opts}


def _fail(error: BaseException, message: str, code: int) -> int:
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    line = " ".join(message.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError, ValueError):
        echo(f"ilp-plan: {line}", err=True)
        if excerpt := getattr(error, "excerpt", ""):
            echo(excerpt, err=True)
        sys.stderr.flush()
    return code


# ---- surroundings of the process -----------------------------------------------------------------


LEAST = 512 * 2**20
"""Bytes with which a first solve, which compiles the kernels, has ended well. With less, libraries
end the process in messages of their own, or wait for ever for memory that nobody gives back."""
BLOCK = 1024  # bytes that `ulimit` counts in
COUNT = re.compile(r"\s*\+?0*[1-9][0-9]{0,4}\s*")


def fit_address_space() -> None:
    """Let libraries that are imported from now on ask for little of an address space that is
    limited: OpenBLAS maps 32 MB for each core, and spins at its import if it gets none.

    Raises
    ------
    PlannerError: there is too little for any library.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if limit < LEAST:
        raise PlannerError(
            f"address space: found a limit of {format_bytes(limit)}, expected at least "
            f"{format_bytes(LEAST)} (`ulimit -v {LEAST // BLOCK}`); what a search may hold is "
            "bounded by `solve --max-memory`"
        )


class Variable(NamedTuple):
    """A variable that is replaced unless it is `fine`. instead: None: it is dropped."""

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
