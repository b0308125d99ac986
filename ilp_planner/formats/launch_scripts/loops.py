"""Loops, and what else is left from inside: rounds that are counted, and those that are not.

The variables that commands may set, found without following them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.budget import COMMAND
from ilp_planner.formats.launch_scripts.flow import Frame, Leave
from ilp_planner.formats.launch_scripts.lexer import ASSIGNMENT
from ilp_planner.formats.launch_scripts.nodes import (
    Count,
    For,
    Function,
    Node,
    Simple,
    While,
    parts_of,
    written,
)
from ilp_planner.formats.launch_scripts.state import State, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.formats.launch_scripts.evaluation import Evaluation


# ---- assigned ------------------------------------------------------------------------------------


SETTING = ("read", "mapfile", "readarray", "printf", "let", "getopts", "unset")
COUNTED = re.compile(r"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%&|^]?=(?!=))")
NAME = re.compile(r"[A-Za-z_]\w*")


def assigned_names(nodes: Sequence[Node], functions: Mapping[str, Function]) -> list[str]:
    """Return the names that commands and the functions that they call may set, in order."""
    found: dict[str, None] = {}
    todo, called = list(reversed(nodes)), set()
    while todo:
        node = todo.pop()
        todo += reversed(list(parts_of(node)))
        if isinstance(node, For):
            found[node.name] = None
        elif isinstance(node, Count):
            found |= dict.fromkeys(_counted(" ".join(node.parts)))
        elif isinstance(node, Simple):
            found |= dict.fromkeys(_of_command(node))
            name = node.words[0].text if node.words else ""
            if name in functions and name not in called:
                called.add(name)
                todo += functions[name].body
    return list(found)


def _of_command(node: Simple) -> list[str]:
    found: list[str] = []
    first = node.words[0].text if node.words else ""
    for token in node.words:
        if token.kind == "arithmetic":
            found += _counted(token.text)
        if match := ASSIGNMENT.match(token.text):
            found.append(match["name"])
        elif first in SETTING and NAME.fullmatch(token.text):
            found.append(token.text)
        if first == "let":
            found += _counted(token.text)
        found += re.findall(r"\$\{(\w+):?=", token.text)
        for inside in re.findall(r"\$\(\((.*?)\)\)", token.text):
            found += _counted(inside)
    if first == "read":
        found.append("REPLY")
    return [name for name in found if name not in SETTING]


def _counted(expression: str) -> list[str]:
    return [first or second for first, second in COUNTED.findall(expression)]


# ---- loops ---------------------------------------------------------------------------------------


Status = int | None


class Loops:
    """The loops and functions of one script."""

    def __init__(self, script: Evaluation) -> None:
        self.script = script

    def leave_later(self, leave: Leave) -> None:
        """Keep what is known on a way that ends what it stands in, for where that goes on."""
        if leave.kind in ("exit", "dead"):
            return
        wanted = "function" if leave.kind == "return" else "loop"
        levels = max(1, leave.levels)
        for frame in reversed(self.script.frames):
            if frame.kind == wanted:
                levels -= 1
                if not levels:
                    ends = frame.again if leave.kind == "continue" else frame.ends
                    ends.append(self.script.state)
                    return
            elif wanted == "loop":
                return

    def join(self, states: list[State], line: int) -> None:
        """Go on with what is the same here and in other states."""
        if states:
            ways = [self.script.state, *states]
            self.script.scope.state = merged(
                ways,
                self.script.scope.unknowns,
                self.script.scope.supplied,
                ("the way taken through", line),
            )
            states.clear()

    def within(self, kind: str, act: Callable[[], Status], line: int) -> Status:
        """Follow what a `return` or a `break` may leave."""
        frame = Frame(kind)
        self.script.frames.append(frame)
        leaves = "return" if kind == "function" else "break"
        try:
            result = act()
        except Leave as leave:
            if leave.kind == leaves and leave.levels <= 1:
                result = leave.status
            elif leave.kind == "dead" and frame.ends:
                self.script.scope.state, result = frame.ends.pop(), None
            elif leave.kind in ("break", "continue") and leave.levels > 1 and kind == "loop":
                levels = leave.levels - 1
                raise Leave(leave.kind, levels=levels, status=leave.status) from None
            else:
                raise
        finally:
            self.script.frames.pop()
        self.join(frame.ends, line)
        return result

    def round(self, body: Sequence[Node], line: int) -> Status:
        """Follow a loop's body once."""
        frame = self.script.frames[-1]
        try:
            result = self.script.run(body)
        except Leave as leave:
            if leave.kind == "continue" and leave.levels <= 1:
                result = 0
            elif leave.kind == "dead" and frame.again:
                self.script.scope.state, result = frame.again.pop(), None
            else:
                raise
        self.join(frame.again, line)
        return result

    def over_words(self, node: For) -> Status:
        """Follow `for`."""
        if node.words is None:
            words = list(self.script.state.arguments)
        else:
            words = [w for t in node.words for w in self.script.commands.kept_words(t)]
        unknowns = self.script.scope.unknowns
        found = map(unknowns.alone, words)
        open_words = any(word and not (word.empty or word.single) for word in found)
        if node.asks or open_words:
            shown = " ".join(t.text for t in node.words or ())
            self.script.scope.forget(node.name, f"${node.name}", node.line, f"each of {shown}")
            return self.loose(node.body, (f"`for {node.name} in {shown}`", node.line))

        def act() -> Status:
            result: Status = 0
            for word in words:
                self.script.budget.spend(COMMAND, node.line)
                self.script.scope.assign(node.name, word, node.line)
                result = self.round(node.body, node.line)
            return result

        return self.within("loop", act, node.line)

    def counting(self, node: Count) -> Status:
        """Follow `for ((..))`."""
        first, test, step = node.parts
        self.script.commands.arithmetic(first, node.line)
        return self.until_done(
            lambda: self.script.commands.arithmetic(test or "1", node.line),
            node.body,
            lambda: self.script.commands.arithmetic(step, node.line) if step else 0,
            (f"`(({test}))`", node.line),
        )

    def repeated(self, node: While) -> Status:
        """Follow `while` and `until`."""

        def test() -> Status:
            result = self.script.test(node.test)
            return result if result is None or not node.until else int(result == 0)

        return self.until_done(
            test, (*node.body,), lambda: 0, (f"`{written(node.test)}`", node.line), node.test
        )

    def until_done(
        self,
        test: Callable[[], Status],
        body: Sequence[Node],
        step: Callable[[], Status],
        why: tuple[str, int],
        tested: Sequence[Node] = (),
    ) -> Status:
        """Follow a loop as long as a test holds."""

        def act() -> Status:
            result: Status = 0
            while True:
                before, left = (
                    self.script.state.copy(),
                    self.script.input and len(self.script.input),
                )
                self.script.budget.spend(COMMAND + before.size, why[1])
                verdict = test()
                if verdict is None:
                    return self.loose((*body, *tested), why)
                if verdict:
                    return result
                result = self.round(body, why[1])
                step()
                if self.script.state == before and left == (
                    self.script.input and len(self.script.input)
                ):
                    raise Leave("dead", why=(f"{why[0]} never ends", why[1]))

        return self.within("loop", act, why[1])

    def loose(self, body: Sequence[Node], why: tuple[str, int]) -> Status:
        """Follow a loop of which only running would tell how often it is passed."""
        names = assigned_names(body, self.script.state.functions)

        def forget() -> None:
            for name in names:
                self.script.scope.forget(
                    name, f"${name}", why[1], f"the loop {why[0]} of line {why[1]}"
                )

        def once() -> Status:
            self.within("loop", lambda: self.round(body, why[1]), why[1])
            return 0

        forget()
        self.script.either([once, lambda: 0], why)
        forget()
        return None
