"""Following a launch script without running it: assignments, tests that can be decided, commands.

A test that only running would decide (is there a file?) is followed both ways; what differs
afterwards is not known, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.budget import COMMAND, DEEPEST, MOST, Budget
from ilp_planner.formats.launch_scripts.commands import Commands
from ilp_planner.formats.launch_scripts.expansion import Expander
from ilp_planner.formats.launch_scripts.flow import Frame, Leave, Output, Reading
from ilp_planner.formats.launch_scripts.loops import Loops
from ilp_planner.formats.launch_scripts.nodes import (
    Case,
    Chain,
    Choice,
    Count,
    For,
    Function,
    Group,
    Node,
    Pipe,
    Simple,
    While,
    written,
)
from ilp_planner.formats.launch_scripts.patterns import matches
from ilp_planner.formats.launch_scripts.scope import ReadOnly, Scope
from ilp_planner.formats.launch_scripts.state import State, merged
from ilp_planner.formats.launch_scripts.syntax import parse_script
from ilp_planner.formats.launch_scripts.unknowns import Unknowns, known, plain

MOST_ARGUMENTS = 10_000  # of a script
Status = int | None  # how a command ends; None: only running would tell
ReadFile = Callable[[str], str | None]


def evaluate_script(
    text: str,
    source: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    supplied: Mapping[str, str] | None = None,
    read_file: ReadFile = lambda name: None,
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
    before = {**(environment or {}), **supplied}
    given = {as_whole(name): value for name, value in supplied.items() if name.isdecimal()}
    if (last := max(given, default=0)) > MOST_ARGUMENTS:
        raise SpecError(
            f"{source}: found a value for argument {last:.4g}, expected at most {MOST_ARGUMENTS} "
            "arguments"
        )
    numbered = [*arguments]
    numbered += ["" for _ in range(len(numbered), max(given, default=0))]
    for number, value in given.items():
        if number:
            numbered[number - 1] = value
    state = State(
        values={name: plain(value) for name, value in before.items() if name.isidentifier()},
        attributes=dict.fromkeys(environment or {}, "x"),
        arguments=tuple(map(plain, numbered)),
    )
    evaluation = Evaluation(source, state, supplied, read_file)
    evaluation.scope.used.update(name for name in supplied if name.isdecimal())
    if len(text) > MOST:
        evaluation.budget.spend(len(text))
    evaluation.follow(plain(text))
    return evaluation.reading


class Evaluation:
    """One script while it is followed.

    frames: of functions and loops, which `return` and `break` leave. printed: what each `$(..)` in
    which the reading is has printed. input: lines that `read` takes, None: not known. doubts: tests
    that were not decided, the innermost last. files: here-documents that were written to files.
    """

    def __init__(
        self, source: str, state: State, supplied: Mapping[str, str], read_file: ReadFile
    ) -> None:
        self.source, self.read_file = source, read_file
        self.budget = Budget(source)
        self.scope = Scope(state, Unknowns(), self.budget, supplied)
        self.words = Expander(self.scope, self.budget, self)
        self.commands = Commands(self)
        self.loops = Loops(self)
        self.reading = Reading(unknowns=self.scope.unknowns, scope=self.scope)
        self.frames: list[Frame] = []
        self.printed: list[Output] = []
        self.input: list[str] | None = None
        self.doubts: list[tuple[str, int]] = []
        self.depth = self.testing = 0
        self.files: dict[str, str] = {}

    def follow(self, text: str) -> None:
        """Follow a whole script."""
        try:
            self.lines(parse_script(text, self.source))
        except Leave as leave:
            self.reading.ended = leave.why
        except RecursionError:
            raise SpecError(f"{self.source}: nested too deeply") from None
        except SpecError as error:
            where = "" if str(error).startswith(self.source) else f"{self.source}: "
            raise SpecError(f"{where}{error}") from None

    def lines(self, nodes: Sequence[Node]) -> Status:
        """Follow the lines of a script; what goes wrong in one ends that line alone."""
        result: Status = 0
        bad = 0
        for node in nodes:
            if node.line == bad:
                continue
            depth = len(self.frames), len(self.scope.locals), self.depth, self.testing
            try:
                result = self.run((node,))
            except ReadOnly:
                while len(self.scope.locals) > depth[1]:
                    self.scope.put_back()
                del self.frames[depth[0] :]
                self.depth, self.testing, bad = depth[2], depth[3], node.line
        return result

    def run(self, nodes: Sequence[Node]) -> Status:
        """Follow commands; return how the last one ends."""
        result: Status = 0
        for node in nodes:
            result = self.scope.status = self.node(node)
            stops = result not in (0, None) and not self.testing and isinstance(node, Simple)
            if stops and "errexit" in self.state.options:
                why = f"`set -e` holds, and `{written((node,))}` fails"
                raise Leave("exit", status=result, why=(why, node.line))
        return result

    @property
    def state(self) -> State:
        """Return the variables at this moment."""
        return self.scope.state

    def node(self, node: Node) -> Status:
        """Follow one command."""
        self.budget.spend(COMMAND, node.line)
        self.depth += 1
        if self.depth > 8 * DEEPEST:
            raise SpecError(f"line {node.line}: nested too deeply")
        try:
            return self._node(node)
        finally:
            self.depth -= 1

    def _node(self, node: Node) -> Status:
        if isinstance(node, Simple):
            return self.commands.simple(node)
        if isinstance(node, Function):
            self.state.functions[node.name] = node
            return 0
        if isinstance(node, Choice):
            return self.choice(node.branches, node.line)
        if isinstance(node, Case):
            return self.case(node)
        if isinstance(node, For):
            return self.loops.over_words(node)
        if isinstance(node, Count):
            return self.loops.counting(node)
        if isinstance(node, While):
            return self.loops.repeated(node)
        if isinstance(node, Group):
            return self.group(node)
        if isinstance(node, Pipe):
            return self.pipe(node)
        return self.chain(node)

    def test(self, nodes: Sequence[Node]) -> Status:
        """Follow commands whose end decides something, so that a failure is none."""
        self.testing += 1
        result = self.run(nodes)
        self.testing -= 1
        return result

    def chain(self, node: Chain) -> Status:
        """Follow `a && b || c`."""
        result = self.test((node.nodes[0],))
        for at, (operator, following) in enumerate(
            zip(node.operators, node.nodes[1:], strict=True)
        ):
            last = at == len(node.operators) - 1
            goes_on: Status
            if result is None:
                why = (f"how `{written([node.nodes[at]])}` ends", node.line)
                act: Callable[[], Status] = partial(self.run, (following,))
                ways = (act, _well) if operator == "&&" else (_well, act)
                goes_on = self.either(ways, why, doubt=False)
            elif (result == 0) is (operator == "&&"):
                goes_on = self.run((following,)) if last else self.test((following,))
            else:
                continue
            result = goes_on
        return result

    def choice(
        self, branches: Sequence[tuple[Sequence[Node], Sequence[Node]]], line: int
    ) -> Status:
        """Follow `if`."""
        for at, (test, body) in enumerate(branches):
            verdict = self.test(test) if test else 0
            if verdict == 0:
                return self.run(body)
            if verdict is None:
                return self.doubtful(branches[at:], line)
        return 0

    def doubtful(
        self, branches: Sequence[tuple[Sequence[Node], Sequence[Node]]], line: int
    ) -> Status:
        """Follow the first of several branches and those behind it, for nobody knows which."""
        (test, body), *rest = branches
        return self.either(
            [lambda: self.run(body), lambda: self.choice(rest, line)], (f"`{written(test)}`", line)
        )

    def case(self, node: Case) -> Status:
        """Follow `case`."""
        word = self.scope.empty_unset(self.words.text(node.word.text, node.word.line))
        self.budget.spend(len(word), node.line)
        why = (f"`case {node.word.text}`", node.line)
        ways: list[Callable[[], Status]] = []
        sure = False
        falls = False
        for at, (patterns, _, _) in enumerate(node.branches):
            verdict: bool | None = falls
            for token in patterns:
                pattern = self.words.pattern(token.text, token.line)
                found = matches(word, pattern) if known(word) and known(pattern) else None
                found = True if pattern == "*" else found
                verdict = (
                    True
                    if True in (verdict, found)
                    else None
                    if None in (verdict, found)
                    else False
                )
            if verdict is False:
                continue
            ways.append(partial(self.fall, node, at))
            if verdict:
                sure = True
                break
        if not ways:
            return 0
        if sure and len(ways) == 1:
            return ways[0]()
        return self.either(ways if sure else [*ways, lambda: 0], why)

    def fall(self, node: Case, at: int) -> Status:
        """Follow a branch of `case`, and those that it falls through to."""
        result = self.run(node.branches[at][1])
        while node.branches[at][2] == ";&" and at + 1 < len(node.branches):
            at += 1
            result = self.run(node.branches[at][1])
        return result

    def either(
        self, ways: Sequence[Callable[[], Status]], why: tuple[str, int], *, doubt: bool = True
    ) -> Status:
        """Follow several ways of which only running would tell which one is taken, and go on with
        what is the same after all of them."""
        before, printed = self.state, [p.copy() for p in self.printed]
        ends: list[State] = []
        results: list[Status] = []
        outputs: list[list[Output]] = []
        read, left = self.input, why
        if doubt:
            self.doubts.append(why)
        for way in ways:
            self.budget.spend(before.size, why[1])
            self.scope.state = before.copy()
            self.printed = [p.copy() for p in printed]
            self.input = list(read) if read is not None else None
            try:
                results.append(way())
            except Leave as leave:
                self.loops.leave_later(leave)
                left = leave.why
                continue
            ends.append(self.state)
            outputs.append(self.printed)
        if doubt:
            self.doubts.pop()
        if not ends:
            raise Leave("dead", why=left)
        self.scope.state = merged(ends, self.scope.unknowns, self.scope.supplied, why)
        self.printed = outputs[0]
        if any(other != outputs[0] for other in outputs):
            for place in self.printed:
                place.known = False
        return results[0] if all(r == results[0] for r in results) else None

    def group(self, node: Group) -> Status:
        """Follow `{ .. }`, `( .. )`, and what redirections stand behind."""
        before, self.input = self.input, self.commands.new_input(node.redirects, self.input)
        kept = self.commands.kept_output(node.redirects)
        try:
            if not node.apart:
                return self.run(node.body)
            result = self.apart(lambda: self.run(node.body))
            return result if node.waits else 0
        finally:
            self.input = before
            kept()

    def apart(self, act: Callable[[], Status], state: State | None = None) -> Status:
        """Follow commands in a shell of their own, which leaves nothing behind but its output."""
        before, frames, owned = self.state, self.frames, self.scope.locals
        self.budget.spend(before.size)
        self.scope.state = state or before.copy()
        self.scope.locals = [dict(row) for row in owned] if state is None else []
        self.frames = []
        try:
            return act()
        except ReadOnly:
            return 1
        except Leave as leave:
            return leave.status if leave.kind in ("exit", "return") else None
        finally:
            self.scope.state, self.frames, self.scope.locals = before, frames, owned

    def pipe(self, node: Pipe) -> Status:
        """Follow commands joined by |, each in a shell of its own."""
        if len(node.nodes) == 1:
            result = self.test(node.nodes)
        else:
            result = 0
            for at, part in enumerate(node.nodes):
                before, self.input = self.input, None if at else self.input
                last = at == len(node.nodes) - 1
                kept = None if last else self.commands.swallowed()
                result = self.apart(partial(self.test, (part,)))
                self.input = before
                if kept is not None:
                    kept()
            if self.printed:
                self.printed[-1].known = False
            if "pipefail" in self.state.options and result == 0:
                result = None
        return result if result is None or not node.negated else int(result == 0)

    def output(self, text: str, written_as: str, line: int) -> str:
        """Return what the commands of `$(..)` print, or a mark."""
        self.budget.spend(COMMAND + len(text), line)
        if written_as in self.scope.supplied:
            return self.scope.take_supplied(written_as)
        place = Output()
        count = len(self.reading.commands)
        self.printed.append(place)
        try:
            nodes = parse_script(text, f"{self.source}: line {line}", line)
            depth = self.depth
            self.depth += 4
            result = self.apart(lambda: self.run(nodes))
            self.depth = depth
        finally:
            place = self.printed.pop()
        programs = len(self.reading.commands) > count
        del self.reading.commands[count:]
        self.scope.substituted = result
        if programs or not place.known or (result is None and not place.parts):
            return self.words.unknown(written_as, line, "only running the script would tell")
        return "".join(place.parts).rstrip("\n")

    def text(self, text: str, line: int, source: str = "") -> Status:
        """Follow a text that becomes commands."""
        self.budget.spend(len(text), line)
        return self.run(parse_script(text, source or f"{self.source}: line {line}", line))

    def shell(
        self, text: str, line: int, arguments: Sequence[str], extra: Mapping[str, str]
    ) -> Status:
        """Follow a text in a new shell, which knows what is exported. arguments: $0 and others."""
        state = self.state.child()
        state.values |= {**extra, "0": arguments[0] if arguments else "bash"}
        state.attributes |= dict.fromkeys(extra, "x")
        state.arguments = tuple(arguments[1:])
        self.budget.spend(len(text), line)
        nodes = parse_script(text, f"{self.source}: line {line}", line)
        return self.apart(lambda: self.lines(nodes), state)

    def call(self, function: Function, arguments: Sequence[str], line: int) -> Status:
        """Follow a function."""
        if len(self.scope.locals) > DEEPEST:
            raise SpecError(f"line {line}: {function.name} calls itself, or nested too deeply")
        saved = self.state.arguments
        self.state.arguments = tuple(arguments)
        self.scope.locals.append({})
        try:
            return self.loops.within("function", lambda: self.run(function.body), line)
        finally:
            self.scope.put_back()
            self.state.arguments = saved


def _well() -> Status:
    """Return how a command ends that goes well, or that is passed over."""
    return 0
