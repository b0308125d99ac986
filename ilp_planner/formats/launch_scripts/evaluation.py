"""Reading of a launch script: what it would start, found without running it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.expressions import decide
from ilp_planner.formats.launch_scripts.flow import Command, Flow, Leave
from ilp_planner.formats.launch_scripts.grammar import ASSIGNMENT, WORD, Node
from ilp_planner.formats.launch_scripts.state import IDENTIFIER, State, Status, Why
from ilp_planner.formats.launch_scripts.unknowns import LOST, known, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_ARGUMENTS = 10_000  # of a script
MOST_WORDS = 10_000  # that `seq` prints
SHELLS, SUBMITTING = ("bash", "sh", "zsh", "dash"), ("sbatch", "qsub", "bsub")
BEFORE = ("nohup", "time", "env", "sudo", "stdbuf", "command", "builtin")
NOTHING = ("shopt", "trap", "alias", "wait", "sleep", "umask", "ulimit", "hash")
ENDS = {"true": 0, ":": 0, "false": 1} | dict.fromkeys(NOTHING, 0)
SAME = {".": "source", "[": "test", "return": "exit", "break": "exit", "continue": "exit"}
SAME |= dict.fromkeys(("read", "mapfile", "readarray", "getopts", "let"), "setting")


def evaluate_script(
    text: str,
    source: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    supplied: Mapping[str, str] | None = None,
    read_file: Callable[[str], str | None] = lambda name: None,
) -> Reading:
    """Return the commands that a script would run, as far as that can be told.

    Parameters
    ----------
    arguments: of the script. environment: what is set before it starts.
    supplied: values of variables that the script does not set, or sets to what only running would
        tell.
    read_file: the text of a file that the script reads in (`source`); None: not there.

    Raises
    ------
    SpecError: what is no bash, or more than is followed.
    """
    supplied = {name: plain(value) for name, value in (supplied or {}).items()}
    given = {as_whole(name): value for name, value in supplied.items() if name.isdecimal()}
    if (last := max(given, default=0)) > MOST_ARGUMENTS:
        raise SpecError(
            f"{source}: found a value for argument {last:.4g}, expected at most {MOST_ARGUMENTS} "
            "arguments"
        )
    numbered = [*arguments, *[""] * (last - len(arguments))]
    numbered = [given.get(k, word) for k, word in enumerate(numbered, 1)]
    before: dict[str, Any] = {"0": source, "BASH_SOURCE": (source,)} if source else {}
    before |= {**(environment or {}), **supplied}
    state = State(
        values={
            name: plain(value) if isinstance(value, str) else value
            for name, value in before.items()
            if name.isidentifier() or name == "0"
        },
        exported=frozenset(environment or {}),
        arguments=tuple(map(plain, numbered)),
    )
    reading = Reading(source, state, supplied, read_file)
    try:
        reading.run(reading.parsed(plain(text), 0))
    except Leave as leave:
        reading.ended = leave.why
    except RecursionError:
        raise SpecError(f"{source}: nested too deeply") from None
    except SpecError as error:
        where = "" if str(error).startswith(source) else f"{source}: "
        raise SpecError(f"{where}{error}") from None
    return reading


class Reading(Flow):
    """A script that was followed: its simple commands, a method for each that the shell does.

    remarks: on files that were not read. ended: what ends it before its last line, and the line of
    that; None: nothing does. files: here-documents that were written to files.
    """

    def __init__(
        self, source: str, state: State, supplied: Mapping[str, str],
        read_file: Callable[[str], str | None],
    ) -> None:  # fmt: skip
        super().__init__(source, state, supplied)
        self.read_file = read_file
        self.remarks: list[str] = []
        self.ended: Why | None = None
        self.files: dict[str, str] = {}

    def _redirected_statement(self, node: Node) -> Status:
        body = (*node.of("body"), Node("command", node.line, ""))[0]
        if body.kind == "command":
            return self._command(replace(body, parts=(*body.parts, *node.redirects())))
        return self.run((body,)) if not self.state.printed else self.print(LOST)

    def _command(self, node: Node) -> Status:
        redirects, self.substituted = tuple(node.redirects()), 0
        parts = (node,) if node.kind == "variable_assignment" else node.parts
        words = [part for part in parts if part.kind == "word"]
        for redirect in redirects:  # words may stand behind a redirection
            targets = redirect.of("destination", "argument")
            words += targets if redirect.kind == "heredoc_redirect" else targets[1:]
        settings = [part for part in parts if part.kind == "variable_assignment"]
        if not words:
            for setting in settings:
                self._assign(setting)
            return self.substituted
        pairs = [(*setting.text.partition("="), setting.line) for setting in settings]
        extra = {name: self.text(value, line) for name, _, value, line in pairs}
        test = words[0].text in ("[", "test")
        kept = [found for word in words for found in self.words(word, test=test)]
        return self._called(kept, extra, replace(node, parts=redirects))

    _variable_assignment = _variable_assignments = _command

    def _act_of(self, name: str) -> Callable[[list[str], Node], Status] | None:
        return getattr(self, f"_do_{SAME.get(name, name)}", None)

    def _called(self, words: list[str], extra: Mapping[str, str], node: Node) -> Status:
        """Follow a command whose words are expanded. extra: variables set before it. node: its
        parts are redirections."""
        if not words or words[0] in ENDS:
            return ENDS[words[0]] if words else self.substituted
        act = self.call if words[0] in self.state.functions else self._act_of(words[0])
        if act is None:
            return self._program(words, extra, node)
        before = {key: value for key, value in self.state.values.items() if key in extra}
        self.state.values |= extra
        try:
            return act(words, node)
        finally:
            for key in extra:
                self.state.values.pop(key, None)
            self.state.values |= before

    def _assign(self, node: Node) -> None:
        match = ASSIGNMENT.match(node.text)
        assert match is not None
        name, line, text = match["name"], node.line, node.text[match.end() :]
        self.start(name, text)
        old, adds, array = self.state.values.get(name), match["how"] == "+=", node.of("array")
        if array and re.search(r"(?:^|\s|\()\[[^\]]*\]=", text):
            self.forget(name, line, "its entries have places or names of their own")
        elif array:
            words = [old] if isinstance(old, str) and old else [*(old or ())]
            added = [word for part in array[0].parts[1:-1] for word in self.words(part)]
            self.assign(name, (*words, *added) if adds else tuple(added), line)
        elif match["index"] is not None or isinstance(old, tuple):
            value, index = self.text(text, line), match["index"] or "0"
            place = self.place(index, line)
            before = self.empty_unset(self.element(name, index, place, line)) if adds else ""
            self.set_entry(name, place, before + value, line)
        else:
            value = self.text(text, line)
            self.assign(name, f"{self.state.values.get(name, '')}{value}" if adds else value, line)

    def _declaration_command(self, node: Node) -> Status:
        command, values = node.parts[0].kind, self.state.values
        flags = {"export": "x", "readonly": "r"}.get(command, "")
        for part in node.parts[1:]:
            for word in [part.text] if part.parts else self.words(part):
                match, line = ASSIGNMENT.match(word), part.line
                name = match["name"] if match else word
                flags += word[1:] if word[:1] == "-" else ""
                if not IDENTIFIER.fullmatch(name) or {*flags} & {*"fp"}:
                    continue
                before = values.get(name)
                if match and part.parts:
                    self._assign(part)
                elif match:
                    self.assign(name, word[match.end() :], line)
                if command not in ("export", "readonly") and "g" not in flags:
                    # Its own value is that of outside while it is read: `local A=$A`.
                    value = values.pop(name) if match else () if "a" in flags else ""
                    values |= {} if before is None else {name: before}
                    self.make_local(name)
                    values[name] = value
                if {*flags} & {*"Ainr"}:
                    pointed = values.get(name, "") if "n" in flags else ""
                    self.state.special |= {name, str(pointed)}
                    for one in IDENTIFIER.findall(f"{name} {pointed}") if flags != "r" else ():
                        self.assign(one, "", line)
                self.state.exported |= {name} if "x" in flags else set()
        return 0

    def _unset_command(self, node: Node) -> Status:
        for name in (word for part in node.parts[1:] for word in self.words(part)):
            if "[" in name:
                self.forget(name.partition("[")[0], node.line, "an entry of it is unset")
            self.state.values.pop(name, None)
            self.state.functions.pop(name if node.parts[1].text == "-f" else "", None)
        return 0

    def _document(self, node: Node) -> str | None:
        """Return the text that a redirection gives a command; None: none does."""
        for redirect in node.of("heredoc_redirect"):
            text = "".join(part.text for part in redirect.of("heredoc_body"))
            text = re.sub(r"(?m)^\t+", "", text) if redirect.of("<<-") else text
            quoted = re.search(r"['\"\\]", redirect.of("heredoc_start")[0].text)
            return text if quoted else self.text(text, redirect.line, document=True)
        return None

    def _program(self, words: list[str], extra: Mapping[str, str], node: Node) -> Status:
        """Follow a program that is started: a shell as far as its commands are known."""
        if words[0] == "exec" and words[1:]:
            self._program(words[1:], extra, node)
            first = " ".join(map(self.unknowns.shown, words[:3]))
            raise Leave("exit", None, (f"`{first}` runs in its place", node.line))
        if words[0] == "exec":
            return 0
        if words[0] in BEFORE and words[1:] and (words[1] in ENDS or self._act_of(words[1])):
            return self._called(words[1:], {}, node)
        line, environment = node.line, {**self.state.environment, **extra}
        doubt = self.doubts[-1] if self.doubts else None
        self.print(LOST)
        started = self._shell_of(words, node)
        if started is None:
            self.commands.append(Command(tuple(words), line, environment, doubt))
            return None
        text, before, arguments = started
        state = State({**environment, "0": arguments[0]}, frozenset(environment))
        state.arguments, state.read = tuple(arguments[1:]), self.state.read
        first_new = len(self.commands)
        status, _ = self.apart(lambda: self.run(self.parsed(text, line)), state)
        for k, command in enumerate(self.commands[first_new:], first_new):
            whole = (*before, *command.words)
            self.commands[k] = Command(whole, line, command.environment, command.doubt or doubt)
        return status if not before else None

    def _shell_of(
        self, words: Sequence[str], node: Node
    ) -> tuple[str, Sequence[str], Sequence[str]] | None:
        """Return the text that a shell follows, the words that start the shell, $0 and what
        follows; None: it is no shell, or its text is unknown."""
        for at, word in enumerate(words):
            name = PurePosixPath(word).name
            submits = name in SUBMITTING and not at
            if name not in SHELLS and not submits:
                continue
            rest = words[at + 1 :]
            texts = [k for k, w in enumerate(rest[:-1]) if re.fullmatch(r"-[a-z]*c", w)]
            files = [k for k, w in enumerate(rest) if w[:1] != "-"]
            if texts and not submits:
                return rest[texts[0] + 1], words[:at], rest[texts[0] + 2 :] or [name]
            document = self._document(node) if not at else None
            if document is not None and (submits or not files):
                return document, (), [name]
            # Words before a file may be values of options of what submits it.
            for first in files if submits else files[:1]:
                if text := self._file(rest[first]):
                    return text, () if submits else words[:at], rest[first:]
        text = self.files.get(words[0].removeprefix("./")) if "/" in words[0] else None
        return None if text is None else (text, (), words)

    def _file(self, name: str) -> str | None:
        """Return the text of a file: one that the script wrote, or one beside it."""
        found = self.files.get(name.removeprefix("./"))
        return self.read_file(name) if found is None and name and known(name) else found

    def lies_there(self, path: str, line: int) -> bool | None:
        """Tell whether there is a file of bash in the folder of the script, with which it is sent:
        what scripts read in where it is there."""
        folder = self._absolute(str(PurePosixPath(self.budget.source).parent))
        target = PurePosixPath(self._absolute(path) or "")
        if target.suffix not in (".sh", ".env") or str(target.parent) != folder:
            return None
        there = self._file(path) is not None
        if not there:
            self.remarks.append(f"line {line}: {path} is not there, and so not taken")
        return there

    def _do_source(self, words: list[str], node: Node) -> Status:
        name, saved, line = "".join(words[1:2]), self.state.arguments, node.line
        text, nodes = self._file(name), None
        try:
            nodes = self.parsed(text, line) if text is not None else None
        except SpecError:
            self.budget.spend(0, line)  # it is no bash, or none that is followed
        if nodes is not None:
            self.state.arguments = tuple(words[2:]) or saved
            try:
                return self.within("function", lambda: self.run(nodes), line)
            finally:
                self.state.arguments = saved if words[2:] else self.state.arguments
        shown = self.unknowns.shown(name)
        self.state.read = self.state.read or (shown, line)
        self.remarks.append(
            f"line {line}: {words[0]} {shown}: not read: what is set before it counts as it is"
        )
        return None

    def _do_dirname(self, words: list[str], node: Node) -> Status:
        """Follow `dirname` of a path that is known, as that of the script itself is."""
        paths = [word for word in words[1:] if word != "--"]
        if len(paths) != 1 or not known(paths[0]):
            return self.print(LOST)
        return self.print(f"{PurePosixPath(paths[0]).parent}\n")

    def _do_seq(self, words: list[str], node: Node) -> Status:
        """Follow `seq` of whole numbers, as far as there are not too many."""
        if not 1 < len(words) < 5 or not all(re.fullmatch(r"-?\d{1,9}", w) for w in words[1:]):
            return self.print(LOST)
        first, step, last = (1, 1, *map(int, words[1:]))[-3:] if len(words) != 3 else (
            int(words[1]), 1, int(words[2])
        )  # fmt: skip
        numbers = range(first, last + (1 if step > 0 else -1), step) if step else range(MOST_WORDS)
        if len(numbers) >= MOST_WORDS:
            return self.print(LOST)
        self.budget.spend(WORD * len(numbers), node.line)
        return self.print("".join(f"{number}\n" for number in numbers))

    def _do_pwd(self, words: list[str], node: Node) -> Status:
        """Follow `pwd`."""
        return self.print(f"{self.value('PWD', node.line)}\n")

    def _do_cd(self, words: list[str], node: Node) -> Status:
        """Follow `cd` to the folder of the script or one around it; others may not be there."""
        named = [word for word in words[1:] if word not in ("--", "-P", "-L")]
        target = self._absolute(named[0]) if len(named) == 1 else None
        own = self._absolute(str(PurePosixPath(self.budget.source).parent))
        if target is None or own is None or not PurePosixPath(own).is_relative_to(target):
            self.forget("PWD", node.line, f"`{' '.join(words[:2])}` sets it")
            return self._program(words, {}, node)
        self.state.values["PWD"] = target
        return 0

    def _absolute(self, path: str) -> str | None:
        """Return a path from the folder that the script is started in; None: unknown."""
        here = self.value("PWD", 0)
        if not known(path) or not isinstance(here, str) or not known(here):
            return None
        return os.path.normpath(PurePosixPath(here) / path)

    def _do_eval(self, words: list[str], node: Node) -> Status:
        return self.run(self.parsed(" ".join(words[1:]), node.line))

    def _do_exit(self, words: list[str], node: Node) -> Status:
        """Follow `exit`, `return`, `break` and `continue`."""
        kinds, status, given = [kind for kind, _ in self.frames], self.status, words[1:2]
        why = f"`{self.unknowns.shown(' '.join(words[:2]))}`"
        if given:
            status = as_whole(given[0]) % 256 if given[0].isdecimal() else None
        if words[0] in ("break", "continue"):
            if kinds[-1:] != ["round"]:
                return 0
            if given not in ([], ["1"]):
                raise SpecError(f"line {node.line}: {why} is not followed")
            status = 0
        elif words[0] == "return":
            if "function" not in kinds and not self.locals:
                return 2  # nothing to return from
            why += " leaves what it is in"
            if status:  # what failed is why, if nothing is launched later
                self.ended = why, node.line
        raise Leave(words[0], status, (why, node.line))

    def _do_test(self, words: list[str], node: Node) -> Status:
        return decide(words[1:], self, node.line, expand=False)

    def _do_shift(self, words: list[str], node: Node) -> Status:
        count, arguments = (*words, "1")[1], self.state.arguments
        if not count.isdecimal():
            marks = (self.mark(f"${k + 1}", node.line, "") for k in range(len(arguments)))
            self.state.arguments = tuple(marks)
            return None
        enough = as_whole(count) <= len(arguments)
        self.state.arguments = arguments[as_whole(count) :] if enough else arguments
        return int(not enough)

    def _do_set(self, words: list[str], node: Node) -> Status:
        rest = words[1:]
        while rest and rest[0][:1] in ("-", "+") and rest[0] != "--":
            rest = rest[1 + rest[0].endswith("o") :]
        if rest:
            self.state.arguments = tuple(rest[rest[0] == "--" :])
        return 0

    def _do_echo(self, words: list[str], node: Node) -> Status:
        rest, end = words[1:], "\n"
        while rest and re.fullmatch(r"-[neE]+", rest[0]):
            end = "" if "n" in rest.pop(0) else end
        return self.print(" ".join(rest) + end)

    def _do_printf(self, words: list[str], node: Node) -> Status:
        """Follow `printf` of texts, as many as the form has places."""
        into = words[2] if words[1:2] == ["-v"] and words[3:] else ""
        form, *values = words[3:] if into else words[1:] or [""]
        parts = re.split("%s|%d", form.replace(r"\n", "\n"))
        if len(parts) == len(values) + 1 and not re.search(r"[%\\]", "".join(parts)):
            text = "".join(a + b for a, b in zip(parts, [*values, ""], strict=True))
        else:
            text = self.mark(" ".join(words), node.line, "printf makes it")
        if not into:
            return self.print(text)
        self.assign(into, text, node.line)
        return 0

    def _do_setting(self, words: list[str], node: Node) -> Status:
        """Follow a command that sets variables to what only running would tell."""
        found = IDENTIFIER.findall(" ".join(word for word in words[1:] if word[:1] != "-"))
        for name in dict.fromkeys(found):
            self.forget(name, node.line, f"only running the script would tell, by `{words[0]}`")
        return None

    def _do_cat(self, words: list[str], node: Node) -> Status:
        """Follow `cat` of a here-document, which may go to a file that is started later."""
        text = self._document(node)
        if text is None or words[1:] not in ([], ["-"]):
            return self.print(LOST)
        for redirect in node.parts:
            if redirect.of(">"):
                name = self.text(redirect.of("destination")[0].text, node.line)
                self.files[name.removeprefix("./")] = text
        return self.print(text)
