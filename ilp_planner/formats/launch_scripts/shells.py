"""Programs that a script starts: shells with commands of their own, and all others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.builtins import BUILTINS
from ilp_planner.formats.launch_scripts.flow import Leave
from ilp_planner.formats.launch_scripts.syntax import parse_script
from ilp_planner.formats.launch_scripts.unknowns import known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.formats.launch_scripts.evaluation import Evaluation
    from ilp_planner.formats.launch_scripts.nodes import Node, Simple

Status = int | None
SHELLS = ("bash", "sh", "zsh", "dash")
SUBMITTING = ("sbatch", "qsub", "bsub")
BEFORE = ("nohup", "time", "exec", "env", "sudo", "stdbuf", "command", "builtin")


class Shells:
    """Programs of one script."""

    def __init__(self, script: Evaluation) -> None:
        self.script = script

    def program(self, words: list[str], extra: dict[str, str], node: Simple) -> Status:
        """Follow a program that is started: a shell as far as its commands are known."""
        script, line = self.script, node.line
        if words[0] == "exec":
            if len(words) == 1:
                return 0
            self.program(words[1:], extra, node)
            shown = " ".join(map(script.scope.unknowns.shown, words[:3]))
            raise Leave("exit", status=None, why=(f"`{shown}` runs in its place", line))
        if words[0] in BEFORE and len(words) > 1 and words[1] in BUILTINS:
            return BUILTINS[words[1]](script, words[1:], line)
        inner = self._inline(words, extra, line)
        if inner is None:
            inner = self._of_file(words, extra, node)
        if inner is not None:
            return inner[0]
        self._keep_written(words, node)
        script.commands.note(words, extra, line)
        return None

    def _inline(self, words: list[str], extra: dict[str, str], line: int) -> tuple[Status] | None:
        """Follow `bash -c text`, with what stands before it before each of its commands."""
        for at, word in enumerate(words[:-1]):
            if not re.fullmatch(r"-[a-z]*c", word):
                continue
            shell = at - 1
            while shell > 0 and words[shell].startswith("-"):
                shell -= 1
            if shell >= 0 and PurePosixPath(words[shell]).name in SHELLS:
                rest = words[at + 2 :]
                return (self._shell(words[at + 1], words[:shell], rest, extra, line),)
        return None

    def _of_file(
        self, words: list[str], extra: dict[str, str], node: Simple
    ) -> tuple[Status] | None:
        """Follow the script that a shell reads from a here-document, or from a file."""
        script = self.script
        name = PurePosixPath(words[0]).name
        starts = name in SHELLS or name in SUBMITTING
        rest = [word for word in words[1:] if not word.startswith("-")] if starts else words[:1]
        for token in node.redirects:
            if (
                starts
                and token.text.lstrip("0123456789") in ("<<", "<<-")
                and (not rest or name in SUBMITTING)
            ):
                document = script.commands.document(token)
                return (self._shell(document, [], ["bash"], extra, node.line),)
        for at, word in enumerate(words[:-1]):  # `srun .. bash inner.sh`
            file = words[at + 1]
            if not at or PurePosixPath(word).name not in SHELLS or file[:1] == "-":
                continue
            text = script.read_file(file) if known(file) and script.depth < 40 else None
            if text is not None:
                return (self._shell(text, words[:at], words[at + 1 :], extra, node.line),)
        for at, word in enumerate(rest if starts else [w for w in rest if "/" in w]):
            text = script.files.get(_file(word)) if known(word) else None
            if text is None and starts and not at and known(word) and script.depth < 40:
                text = script.read_file(word)
            if text is not None:
                arguments = words[words.index(word) :]
                return (self._shell(text, [], arguments, extra, node.line),)
        return None

    def _shell(
        self,
        text: str,
        before: Sequence[str],
        arguments: Sequence[str],
        extra: dict[str, str],
        line: int,
    ) -> Status:
        """Follow a text in a new shell. before: words that start it, put before its commands.
        arguments: $0 and what follows."""
        script = self.script
        if script.printed:
            script.printed[-1].known = False
        first = len(script.reading.commands)
        doubt = script.doubts[-1] if script.doubts else None
        script.depth += 4
        status = script.shell(text, line, arguments, extra)
        script.depth -= 4
        commands = script.reading.commands
        for k in range(first, len(commands)):
            words = (*before, *commands[k].words)
            commands[k] = replace(
                commands[k], words=words, line=line, doubt=commands[k].doubt or doubt
            )
        return status if not before else None

    def _keep_written(self, words: list[str], node: Simple) -> None:
        """Forget a file that something else is written to."""
        for token in node.redirects:
            target = self.script.words.text(token.parts[0].text, token.line)
            if token.text in (">", ">>"):
                self.script.files.pop(_file(target), None)

    def keep_document(self, node: Simple) -> None:
        """Keep the here-document that `cat` writes to a file, which may be started later."""
        script = self.script
        documents = [t for t in node.redirects if t.text in ("<<", "<<-")]
        targets = [t for t in node.redirects if t.text == ">"]
        if documents and targets:
            name = script.words.text(targets[-1].parts[0].text, node.line)
            if known(name):
                script.files[_file(name)] = script.commands.document(documents[-1])

    def read_in(self, words: list[str], line: int) -> Status:
        """Follow a file that is read into this shell, where it is there."""
        script = self.script
        name = words[1] if len(words) > 1 else ""
        text = script.files.get(_file(name)) if known(name) else None
        if text is None and known(name) and name and script.depth < 100:
            text = script.read_file(name)
        nodes: tuple[Node, ...] = ()
        try:
            nodes = parse_script(text or "", f"{script.source}: line {line}", line)
        except SpecError:
            text = None  # it is no bash, or none that is followed
        if text is None:
            shown = script.scope.unknowns.shown(name)
            script.state.read = script.state.read or (shown, line)
            script.reading.remarks.append(
                f"line {line}: {words[0]} {shown}: not read: what is set before it counts as it is"
            )
            return None
        saved = script.state.arguments
        if len(words) > 2:
            script.state.arguments = tuple(words[2:])
        try:
            script.budget.spend(len(text), line)
            return script.loops.within("function", lambda: script.run(nodes), line)
        finally:
            if len(words) > 2:
                script.state.arguments = saved


def _file(name: str) -> str:
    return name.removeprefix("./")
