"""Control flow of a launch script: branches that can be decided, loops, functions, shells.

A test that only running would decide (is there a file?) is followed both ways; what differs
afterwards is unknown, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.expressions import decide
from ilp_planner.formats.launch_scripts.grammar import COMMAND, DEEPEST, PIECE, Node, parse
from ilp_planner.formats.launch_scripts.state import State, Status, Why
from ilp_planner.formats.launch_scripts.unknowns import LOST
from ilp_planner.formats.launch_scripts.words import Words

LEFT = {"return": "function", "break": "loop", "continue": "round"}
Act = Callable[[], Status]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the script would run.

    environment: exported so far and set before it. doubt: a test that only running would decide
    and that the command depends on, and its line.
    """

    words: tuple[str, ...]
    line: int
    environment: Mapping[str, str]
    doubt: Why | None = None


class Leave(Exception):  # noqa: N818 - it is no error
    """The end of a function, a loop, a round of one or a shell, by the command `kind`. why: what
    ends it, for people, and the line."""

    def __init__(self, kind: str, status: Status = 0, why: Why = ("", 0)) -> None:
        super().__init__(kind)
        self.kind, self.status, self.why = kind, status, why


class Flow(Words):
    """A script while it is followed: a method for each kind of node of the grammar.

    commands: that it would run. frames: functions, loops and their rounds that are followed, with
    the states in which a branch left them. doubts: tests that were not decided, the innermost last.
    """

    def __init__(self, source: str, state: State, supplied: Mapping[str, str]) -> None:
        super().__init__(source, state, supplied)
        self.commands: list[Command] = []
        self.frames: list[tuple[str, list[State]]] = []
        self.doubts: list[Why] = []
        self.texts: dict[tuple[str, int], tuple[Node, ...]] = {}
        self.nested = 0
        self.substituted: Status = 0  # how the last `$(..)` ended

    def run(self, nodes: Sequence[Node]) -> Status:
        """Follow commands; return how the last one ends."""
        self.nested += 1
        result: Status = 0
        try:
            for node, following in zip(nodes, (*nodes[1:], None), strict=False):
                if act := self._act(node):
                    self.budget.spend(COMMAND, node.line)
                    if self.nested > 2 * DEEPEST:
                        raise SpecError(f"line {node.line}: nested too deeply")
                    apart = following is not None and following.kind == "&"
                    result = self.status = self._subshell(node) and 0 if apart else act(node)
        finally:
            self.nested -= 1
        return result

    def _act(self, node: Node) -> Callable[[Node], Status] | None:
        return getattr(self, f"_{node.kind}", None) if node.kind.isidentifier() else None

    def _test_command(self, node: Node) -> Status:
        opening, *parts, _ = node.parts
        expand = opening.kind == "[["
        kept = [[p.text] if expand else self.words(p, test=True) for p in parts]
        return decide([w for ws in kept for w in ws], self, node.line, expand=expand)

    def _arithmetic(self, node: Node) -> Status:
        value = self.number(node.text, node.line, zero=True)
        return int(as_whole(value) == 0) if re.fullmatch(r"-?\d+", value) else None

    def _negated_command(self, node: Node) -> Status:
        result = self.run(node.parts)
        return result if result is None else int(result == 0)

    def _function_definition(self, node: Node) -> Status:
        self.state.functions[node.of("name")[0].text] = node
        return 0

    def _compound_statement(self, node: Node) -> Status:
        return self.run(node.parts)

    _do_group = _else_clause = _compound_statement

    def _subshell(self, node: Node) -> Status:
        inside = node.parts if node.kind == "subshell" else (node,)
        result, self.state.printed = self.apart(lambda: self.run(inside))
        return result

    def _list(self, node: Node) -> Status:
        first, *rest = [part for part in node.parts if part.kind != "\n"]
        result, last = self.run((first,)), first
        for operator, following in zip(rest[::2], rest[1::2], strict=True):
            act, wanted = partial(self.run, (following,)), operator.kind == "&&"
            if result is None:
                ways, why = (act, _well), (f"how `{shown(last)}` ends", node.line)
                result = self.either(ways if wanted else ways[::-1], why, doubt=False)
            elif (result == 0) is wanted:
                result = act()
            else:
                continue
            last = following
        return result

    def _if_statement(self, node: Node) -> Status:
        then = next(k for k, part in enumerate(node.parts) if part.kind == "then")
        clauses, test = node.of("elif_clause", "else_clause"), node.parts[1:then]
        body = partial(self.run, [part for part in node.parts[then:] if part not in clauses])
        clause = clauses[0] if clauses else Node("else_clause", node.line, "")
        if clause.kind == "elif_clause":  # an `if` in `else`
            clause = replace(clause, kind="if_statement", parts=(*clause.parts, *clauses[1:]))
        verdict = self.run(test)
        if verdict is None:
            ways = (body, partial(self.run, (clause,)))
            return self.either(ways, (f"`{shown(test[0])}`", node.line))
        return self.run((clause,)) if verdict else body()

    def _case_statement(self, node: Node) -> Status:
        subject, sure = node.parts[1].text, False
        ways: list[Act] = []
        word = self.empty_unset(self.text(subject, node.line))
        for item in node.of("case_item"):
            if item.parts[-1].kind in (";&", ";;&"):
                raise SpecError(f"line {item.line}: {item.parts[-1].kind} is not followed")
            found = [self.matches(word, p.text, node.line) for p in item.of("value") if not sure]
            sure = True in found
            if sure or None in found:
                ways.append(partial(self.run, [p for p in item.parts if p.role != "value"]))
            if sure:
                break
        ways += [] if sure else [_well]
        return ways[0]() if len(ways) == 1 else self.either(ways, (f"`case {subject}`", node.line))

    def either(self, ways: Sequence[Act], why: Why, *, doubt: bool = True) -> Status:
        """Follow several branches of which only running would tell which one is taken, and go on
        with what is the same after all of them."""
        before, left = self.state, (Leave("exit"), self.state)
        ends: list[State] = []
        results: list[Status] = []
        self.doubts += [why] if doubt else []
        for way in ways:
            self.budget.spend(before.size, why[1])
            self.state = before.copy()
            try:
                results.append(way())
                ends.append(self.state)
            except Leave as leave:
                frames = [ends for kind, ends in self.frames if kind == LEFT.get(leave.kind)]
                for frame in frames[-1:]:
                    frame.append(self.state)
                left = (leave, self.state) if left[0].kind == "exit" else left
        if doubt:
            self.doubts.pop()
        if not ends:
            self.state = left[1]
            raise left[0]
        self.merge(ends, why)
        return results[0] if all(result == results[0] for result in results) else None

    def within(self, kind: str, act: Act, line: int) -> Status:
        """Follow a function, a loop or a round, which a command or a branch may leave."""
        ends: list[State] = []
        self.frames.append((kind, ends))
        try:
            result = act()
        except Leave as leave:
            if LEFT.get(leave.kind) != kind:
                raise
            result = leave.status
        finally:
            self.frames.pop()
        if ends:
            self.merge([self.state, *ends], ("the branch taken through", line))
        return result

    def _round(self, node: Node) -> Status:
        return self.within("round", partial(self.run, node.of("body")), node.line)

    def _for_statement(self, node: Node) -> Status:
        name, line = node.of("variable")[0].text, node.line
        values = node.of("value") if node.of("in") else [Node("word", line, '"$@"')]
        words = [word for value in values for word in self.words(value, test=True)]
        marks = [mark for word in words if (mark := self.unknowns.alone(word))]
        if node.of("select") or any(not (mark.empty or mark.single) for mark in marks):
            listed = " ".join(value.text for value in values)
            self.forget(name, line, f"each of {listed}")
            return self._loose(node, (f"`for {name} in {listed}`", line))

        def act() -> Status:
            result: Status = 0
            for word in words:
                self.budget.spend(COMMAND, line)
                self.assign(name, word, line)
                result = self._round(node)
            return result

        return self.within("loop", act, line)

    def _c_style_for_statement(self, node: Node) -> Status:
        match = re.match(r"for\s*\(\((.*?);(.*?);(.*?)\)\)", node.text, re.DOTALL)
        if match is None:
            raise SpecError(f"line {node.line}: expected for ((first; test; step))")
        first, test, step = (Node("arithmetic", node.line, part.strip()) for part in match.groups())
        self._arithmetic(first)
        return self._until_done(node, [test] if test.text else [], [step])

    def _while_statement(self, node: Node) -> Status:
        return self._until_done(node, node.of("condition"), ())

    def _until_done(self, node: Node, tests: Sequence[Node], step: Sequence[Node]) -> Status:
        line, why = node.line, (f"`{shown(tests[0]) if tests else ''}`", node.line)

        def act() -> Status:
            result: Status = 0
            while True:
                before = self.state.copy()
                self.budget.spend(COMMAND + before.size, line)
                verdict = self.run(tests)
                if verdict is None:
                    return self._loose(node, why)
                if bool(verdict) is not bool(node.of("until")):
                    return result
                result = self._round(node)
                self.run(step)
                if self.state == before:
                    kind = "break" if self.frames[-1][1] else "exit"
                    raise Leave(kind, None, (f"{why[0]} never ends", line))

        return self.within("loop", act, line)

    def _loose(self, node: Node, why: Why) -> Status:
        """Follow a loop of which only running would tell how often it is passed: once to find what
        it changes, and once more with that unknown."""
        once = partial(self.within, "loop", partial(self._round, node), why[1])
        before, count = self.state, len(self.commands)
        self.budget.spend(PIECE * len(node.text), node.line)
        self.either((once, _well), why)
        values, self.state = self.state.values, before.copy()
        del self.commands[count:]
        for name in values:
            if values[name] != before.values.get(name):
                self.forget(name, why[1], f"the loop {why[0]} of line {why[1]}")
        self.either((once, _well), why)
        return None

    def apart(self, act: Act, state: State | None = None) -> tuple[Status, str | None]:
        """Follow commands in a shell of their own, which leaves nothing behind but its output."""
        before, frames, owned = self.state, self.frames, self.locals
        self.budget.spend(before.size)
        self.state, self.frames = state or before.copy(), []
        self.locals = [dict(row) for row in owned]
        try:
            return act(), self.state.printed
        except Leave as leave:
            return leave.status, self.state.printed
        finally:
            self.state, self.frames, self.locals = before, frames, owned

    def _pipeline(self, node: Node) -> Status:
        parts = [part for part in node.parts if self._act(part)]
        negated = parts[0].kind == "negated_command"  # `!` is of them all
        result: Status = 0
        for part in parts:
            inside = part.parts if part is parts[0] and negated else (part,)
            result, _ = self.apart(partial(self.run, inside))
        self.print(LOST)
        return result if result is None or not negated else int(result == 0)

    def output(self, text: str, shown: str, line: int) -> str:
        """Return what the commands of `$(..)` print, or a mark. shown: as it is written."""
        self.budget.spend(COMMAND, line)
        if shown in self.supplied:
            return self.mark(shown, line, "")
        count, nodes = len(self.commands), self.parsed(text, line)
        state = replace(self.state.copy(), printed="")
        self.substituted, printed = self.apart(lambda: self.run(nodes), state)
        programs = len(self.commands) > count
        del self.commands[count:]
        if programs or LOST in (printed or "") or (self.substituted is None and not printed):
            return self.mark(shown, line, "only running the script would tell")
        return (printed or "").rstrip("\n")

    def parsed(self, text: str, line: int) -> tuple[Node, ...]:
        """Return the commands of a text that stands in a line."""
        if (text, line) not in self.texts:
            self.texts[text, line] = parse(text, self.budget, line)
        return self.texts[text, line]

    def call(self, words: Sequence[str], node: Node) -> Status:
        """Follow a function."""
        name, saved = words[0], self.state.arguments
        if len(self.locals) > DEEPEST / 2:
            raise SpecError(f"line {node.line}: {name} calls itself, or nested too deeply")
        body = self.state.functions[name].of("body")
        self.state.arguments = tuple(words[1:])
        self.locals.append({})
        try:
            return self.within("function", partial(self.run, body), node.line)
        finally:
            self.put_back()
            self.state.arguments = saved


def _well() -> Status:
    """Return how a command ends that goes well, or that is passed over."""
    return 0


def shown(node: Node) -> str:
    """Return a command as it is written, for messages."""
    text = " ".join(node.text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
