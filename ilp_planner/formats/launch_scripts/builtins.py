"""What bash does itself, and a few programs that only compute: `read`, `printf`, `shift`, `seq`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ilp_planner.base.limits import DIGITS, as_whole
from ilp_planner.formats.launch_scripts.arithmetic import ArithmeticMistakeError, evaluate
from ilp_planner.formats.launch_scripts.budget import WORD
from ilp_planner.formats.launch_scripts.conditions import decide_words
from ilp_planner.formats.launch_scripts.flow import Leave
from ilp_planner.formats.launch_scripts.state import Array
from ilp_planner.formats.launch_scripts.unknowns import known

if TYPE_CHECKING:
    from ilp_planner.formats.launch_scripts.evaluation import Evaluation

Status = int | None
Builtin = Callable[["Evaluation", list[str], int], Status]
OPTIONS = {"e": "errexit", "u": "nounset", "x": "xtrace", "f": "noglob"}
CONVERSION = re.compile(r"%(?:%|([-0 +#]*)(\d*)(?:\.(\d+))?([sdiuxXofgeqb]))")
ESCAPE = re.compile(r"\\(n|t|r|a|\\|\"|0)")


def _exit(script: Evaluation, words: list[str], line: int) -> Status:
    status = _status(script, words)
    raise Leave("exit", status=status, why=(f"`{' '.join(words[:2])}`", line))


def _return(script: Evaluation, words: list[str], line: int) -> Status:
    if not script.scope.locals and not any(f.kind == "function" for f in script.frames):
        return 2  # nothing to return from
    status = _status(script, words)
    why = f"`{' '.join(words[:2])}` leaves what it is in", line
    if status:  # what failed is why, if nothing is launched later
        script.reading.ended = why
    raise Leave("return", status=status, why=why)


def _status(script: Evaluation, words: list[str]) -> Status:
    if len(words) < 2:
        return script.scope.status
    if not known(words[1]):
        return None
    return int(words[1]) % 256 if re.fullmatch(r"-?\d{1,9}", words[1]) else 2


def _leave_loop(script: Evaluation, words: list[str], line: int) -> Status:
    around = 0
    for frame in reversed(script.frames):
        if frame.kind != "loop":
            break
        around += 1
    if not around:
        return 0
    levels = as_whole(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
    raise Leave(words[0], levels=max(1, min(levels, around)))


def _test(script: Evaluation, words: list[str], line: int) -> Status:
    return decide_words(words, script.words, script.scope, line)


def _unset(script: Evaluation, words: list[str], line: int) -> Status:
    for word in words[1:]:
        if words[1] == "-f":
            script.state.functions.pop(word, None)
        elif word not in ("-v", "-n"):
            script.scope.unset(word)
    return 0


def _shift(script: Evaluation, words: list[str], line: int) -> Status:
    count = as_whole(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
    if count > len(script.state.arguments):
        return 1
    script.state.arguments = script.state.arguments[count:]
    return 0


def _set(script: Evaluation, words: list[str], line: int) -> Status:
    options = set(script.state.options)
    rest = words[1:]
    while rest and rest[0][:1] in ("-", "+") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        names = [OPTIONS[c] for c in word[1:] if c in OPTIONS]
        if "o" in word[1:] and rest and rest[0][:1] not in ("-", "+"):
            names.append(rest.pop(0))
        for name in names:
            if word[0] == "-":
                options.add(name)
            else:
                options.discard(name)
    script.state.options = frozenset(options)
    if rest:
        script.state.arguments = tuple(rest[1:] if rest[0] in ("--", "-") else rest)
    return 0


def _let(script: Evaluation, words: list[str], line: int) -> Status:
    result: Status = 1
    for word in words[1:]:
        result = script.commands.arithmetic(word, line)
    return result


def _echo(script: Evaluation, words: list[str], line: int) -> Status:
    rest, end = words[1:], "\n"
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        end = "" if "n" in rest[0] else end
        rest = rest[1:]
    _print(script, " ".join(rest) + end)
    return 0


def _print(script: Evaluation, text: str) -> None:
    script.budget.spend(len(text))
    if script.printed:
        script.printed[-1].parts.append(text)


def _printf(script: Evaluation, words: list[str], line: int) -> Status:
    rest, name = words[1:], ""
    if len(rest) > 1 and rest[0] == "-v":
        name, rest = rest[1], rest[2:]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if not rest:
        return 2
    text = formatted(rest[0], rest[1:])
    if text is None:
        text = script.words.unknown(" ".join(words), line, "what printf makes of it")
    if name:
        script.scope.assign(name, text, line)
    else:
        _print(script, text)
    return 0


def formatted(form: str, values: list[str]) -> str | None:
    """Return what printf makes of values; None: it is not known here."""
    if not known(form):
        return None
    made, rest = [], list(values)
    while True:
        before, at = len(rest), 0
        for match in CONVERSION.finditer(form):
            made.append(_unescaped(form[at : match.start()]))
            at = match.end()
            if match[0] == "%%":
                made.append("%")
                continue
            one = _converted(match, rest.pop(0) if rest else "")
            if one is None:
                return None
            made.append(one)
        made.append(_unescaped(form[at:]))
        if not rest or len(rest) == before:
            return "".join(made)


def _converted(match: re.Match[str], value: str) -> str | None:
    flags, width, precision, kind = match[1], as_whole(match[2] or "0"), match[3], match[4]
    if width > 1000 or (precision and as_whole(precision) > 1000) or kind in "bq":
        return None
    if kind == "s":
        text = value if precision is None else value[: as_whole(precision)]
        plain = known(value) or (not width and precision is None)
        padded = text.ljust(width) if "-" in flags else text.rjust(width)
        return padded if plain else None
    if not known(value):
        return value if kind in "di" and not flags and not width else None
    try:
        number = float(value or 0) if kind in "fge" else int((value or "0")[:DIGITS], 0)
    except ValueError:
        return None
    limit = "" if precision is None else f".{precision}"
    return f"%{flags}{width or ''}{limit}{'d' if kind in 'iu' else kind}" % number


def _unescaped(text: str) -> str:
    signs = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "0": "\0"}
    return ESCAPE.sub(lambda m: signs.get(m[1], m[1]), text)


def _read(script: Evaluation, words: list[str], line: int) -> Status:
    names, into, rest = [], "", words[1:]
    known_options = True
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            names.append(word)
        elif word[-1] in "dnNptuia":
            value = rest.pop(0) if rest else ""
            into = value if word[-1] == "a" else into
            known_options &= word[-1] in "pa"
    line_read = script.input.pop(0) if script.input else None
    ends = script.input is not None and line_read is None
    if script.input is None or not known_options:
        for name in [into] if into else names or ["REPLY"]:
            script.scope.forget(name, f"${name}", line, "only running the script would read it")
        return None
    text = "" if line_read is None else line_read
    blanks = "".join(c for c in script.scope.separators if c in " \t\n")
    if into:
        script.scope.assign(into, Array.of(_divided(script, text)), line)
    elif len(names) < 2:
        value = text.strip(blanks) if names else text
        script.scope.assign(names[0] if names else "REPLY", value, line)
    else:
        _assign_fields(script, names, text.strip(blanks), line)
    return 1 if ends else 0


def _assign_fields(script: Evaluation, names: list[str], text: str, line: int) -> None:
    """Give each name a field of a line, the last one what is left."""
    separators = script.scope.separators
    for name in names[:-1]:
        at = next((k for k, c in enumerate(text) if c in separators), len(text))
        script.scope.assign(name, text[:at], line)
        text = text[at:].lstrip(" \t") if text[at : at + 1] in " \t" else text[at + 1 :]
    script.scope.assign(names[-1], text, line)


def _divided(script: Evaluation, text: str) -> list[str]:
    separators = script.scope.separators
    if all(c in " \t\n" for c in separators):
        return [field for field in script.scope.fields(text) if field]
    fields = re.split(f"[{re.escape(separators)}]", text)
    return fields[:-1] if fields and fields[-1] == "" else fields


def _mapfile(script: Evaluation, words: list[str], line: int) -> Status:
    rest = words[1:]
    trims = any(word.startswith("-") and "t" in word for word in rest)
    name = next((word for word in reversed(rest) if not word.startswith("-")), "MAPFILE")
    if script.input is None or any(not re.fullmatch(r"-t|\w+", word) for word in rest):
        script.scope.forget(name, f"${name}", line, "only running the script would read it")
        return None
    rows = [row if trims else f"{row}\n" for row in script.input]
    script.input = []
    script.scope.assign(name, Array.of(rows), line)
    return 0


def _getopts(script: Evaluation, words: list[str], line: int) -> Status:
    scope, form, name = script.scope, words[1] if len(words) > 1 else "", ([*words, "", ""])[2]
    arguments = words[3:] or list(script.state.arguments)
    index, _, inner = str(scope.state.values.get("OPTIND", "1")).partition(".")
    place, offset = as_whole(index) if index.isdecimal() else 1, as_whole(inner or "0") or 1
    word = arguments[place - 1] if place <= len(arguments) else ""
    if not known(word):
        scope.forget(name, f"${name}", line, "an argument that is not known")
        return None
    if not word.startswith("-") or word in ("-", "--"):
        scope.assign(name, "?", line)
        return 1
    letter = word[offset]
    at = form.find(letter)
    takes = at >= 0 and form[at + 1 : at + 2] == ":"
    scope.unset("OPTARG")
    following = f"{place}.{offset + 1}" if offset + 1 < len(word) else str(place + 1)
    if takes:
        rest = word[offset + 1 :]
        following = str(place + 1 if rest else place + 2)
        scope.assign("OPTARG", rest or "".join(arguments[place : place + 1]), line)
    scope.assign("OPTIND", following, line)
    scope.assign(name, letter if at >= 0 else "?", line)
    return 0


def _cat(script: Evaluation, words: list[str], line: int) -> Status:
    if (words[1:] and words[1:] != ["-"]) or script.input is None:
        if script.printed:
            script.printed[-1].known = False
        return None
    _print(script, "".join(f"{row}\n" for row in script.input))
    script.input = []
    return 0


def _seq(script: Evaluation, words: list[str], line: int) -> Status:
    numbers = words[1:]
    if not 1 <= len(numbers) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", n) for n in numbers):
        return _unknown_output(script)
    values = list(map(int, numbers))
    first, last = (1, values[0]) if len(values) == 1 else (values[0], values[-1])
    step = values[1] if len(values) == 3 else 1
    if not step:
        return 1
    script.budget.spend(max(0, (last - first) // step + 1) * WORD, line)
    for value in range(first, last + (1 if step > 0 else -1), step):
        _print(script, f"{value}\n")
    return 0


def _expr(script: Evaluation, words: list[str], line: int) -> Status:
    if len(words) != 4 or words[2] not in ("+", "-", "*", "/", "%") or not all(map(known, words)):
        return _unknown_output(script)
    try:
        value = evaluate(f"({words[1]}) {words[2]} ({words[3]})", script.scope.at(line))
    except ArithmeticMistakeError:
        return 2
    _print(script, f"{value}\n")
    return int(value == 0)


def _basename(script: Evaluation, words: list[str], line: int) -> Status:
    if not 2 <= len(words) <= 3 or words[1].startswith("-") or not all(map(known, words)):
        return _unknown_output(script)
    path = words[1].rstrip("/") or "/"
    name = path.rpartition("/")[2] or "/"
    suffix = words[2] if len(words) > 2 else ""
    _print(script, (name.removesuffix(suffix) if name != suffix else name) + "\n")
    return 0


def _dirname(script: Evaluation, words: list[str], line: int) -> Status:
    if len(words) != 2 or words[1].startswith("-") or not known(words[1]):
        return _unknown_output(script)
    folder, slash, _ = words[1].rstrip("/").rpartition("/")
    _print(script, (folder.rstrip("/") or slash or ".") + "\n")
    return 0


def _unknown_output(script: Evaluation) -> Status:
    if script.printed:
        script.printed[-1].known = False
    return None


def _source(script: Evaluation, words: list[str], line: int) -> Status:
    return script.commands.shells.read_in(words, line)


def _nothing(script: Evaluation, words: list[str], line: int) -> Status:
    return 0


def _false(script: Evaluation, words: list[str], line: int) -> Status:
    return 1


BUILTINS: Mapping[str, Builtin] = {
    "exit": _exit, "return": _return, "break": _leave_loop, "continue": _leave_loop,
    "[": _test, "test": _test, "unset": _unset, "shift": _shift, "set": _set, "let": _let,
    "echo": _echo, "printf": _printf, "read": _read, "mapfile": _mapfile, "readarray": _mapfile,
    "getopts": _getopts, "cat": _cat, "seq": _seq, "expr": _expr, "basename": _basename,
    "dirname": _dirname, "source": _source, ".": _source, "true": _nothing, ":": _nothing,
    "false": _false, "shopt": _nothing, "trap": _nothing, "alias": _nothing, "wait": _nothing,
    "sleep": _nothing, "umask": _nothing, "ulimit": _nothing, "hash": _nothing,
}  # fmt: skip
