"""Following a launch script without running it: assignments, tests that can be decided, commands.

A test that only running would decide (is there a file?) is not taken either way; what its branches
set is not known afterwards.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ilp_planner.errors import SpecError
from ilp_planner.launch_scripts.lexer import ASSIGNMENT, Token
from ilp_planner.launch_scripts.syntax import (
    Case,
    Chain,
    Choice,
    Function,
    Loop,
    Node,
    Simple,
    parse_script,
)
from ilp_planner.launch_scripts.values import (
    MARK,
    Variables,
    expand_text,
    expand_words,
    first_mark,
    mark,
    whole_number,
)

DECLARING = ("export", "declare", "local", "readonly", "typeset")
SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh")
MOST_ROUNDS = 1000  # of a loop
DEEPEST = 50  # functions and evaluated texts in one another
NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that the script would run. environment: exported so far and set before it."""

    words: tuple[str, ...]
    line: int
    environment: Mapping[str, str]


class _End(Exception):  # noqa: N818 - the end of a script is no error
    """The script ends here."""


@dataclass(slots=True)
class _Evaluation:
    source: str
    variables: Variables
    functions: dict[str, Function] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    depth: int = 0

    def run(self, nodes: Sequence[Node]) -> bool | None:
        """Follow commands; return whether the last one succeeds, None: unknown."""
        result: bool | None = True
        for node in nodes:
            result = self.node(node)
        return result

    def node(self, node: Node) -> bool | None:
        if isinstance(node, Simple):
            return self.simple(node)
        if isinstance(node, Function):
            self.functions[node.name] = node
            return True
        if isinstance(node, Choice):
            return self.choice(node)
        if isinstance(node, Case):
            return self.case(node)
        if isinstance(node, Loop):
            return self.loop(node)
        return self.chain(node)

    def chain(self, node: Chain) -> bool | None:
        result = self.node(node.nodes[0])
        for operator, following in zip(node.operators, node.nodes[1:], strict=True):
            wanted = operator == "&&"
            if result is None:
                # What fails on its own does not go on: the usual `command || exit` is no ending.
                if wanted:
                    self.forget([following], node.line)
            elif result is wanted:
                result = self.node(following)
        return result

    def choice(self, node: Choice) -> bool | None:
        for test, body in node.branches:
            verdict = self.run(test) if test else True
            if verdict is None:
                self.forget([n for _, branch in node.branches for n in branch], node.line)
                return None
            if verdict:
                return self.run(body)
        return True

    def case(self, node: Case) -> bool | None:
        word = expand_text(node.word.text, node.word.line, self.variables)
        if first_mark(word):
            self.forget([n for _, branch in node.branches for n in branch], node.line)
            return None
        for patterns, body in node.branches:
            texts = [expand_text(p.text, p.line, self.variables) for p in patterns]
            if any(fnmatch.fnmatchcase(word, text) for text in texts):
                return self.run(body)
        return True

    def loop(self, node: Loop) -> bool | None:
        words = [w for t in node.words for w in expand_words(t.text, t.line, self.variables)]
        if not node.name or len(words) > MOST_ROUNDS or any(first_mark(w) for w in words):
            self.forget(node.body, node.line)
            return None
        result: bool | None = True
        for word in words:
            self.variables.values[node.name] = word
            result = self.run(node.body)
        return result

    def forget(self, nodes: Sequence[Node], line: int) -> None:
        """Mark what commands would set as not known."""
        for name in _assigned(nodes):
            self.variables.values[name] = mark(f"${name}", line)

    def simple(self, node: Simple) -> bool | None:
        tokens = list(node.words)
        if tokens[0].text == "!" and len(tokens) > 1:
            result = self.simple(Simple(words=tuple(tokens[1:]), line=node.line))
            return None if result is None else not result
        if tokens[0].kind == "arithmetic":
            return _truth(whole_number(tokens[0].text, node.line, self.variables))
        before: dict[str, str] = {}
        while tokens and (match := ASSIGNMENT.match(tokens[0].text)):
            token = tokens.pop(0)
            if tokens and token.kind == "word" and not self.ends(tokens):
                value = expand_text(token.text[match.end() :], token.line, self.variables)
                before[match[1]] = value
            else:
                self.assign(token)
        if not tokens:
            return True
        words = [w for t in tokens for w in self.words(t)]
        if not words:
            return True
        return self.command(words, tokens, before, node.line)

    @staticmethod
    def ends(tokens: list[Token]) -> bool:
        """Whether nothing but assignments follows."""
        return all(ASSIGNMENT.match(token.text) for token in tokens)

    def words(self, token: Token) -> list[str]:
        if token.kind in ("operator", "array", "arithmetic"):
            return [token.text]
        return expand_words(token.text, token.line, self.variables)

    def command(
        self, words: list[str], tokens: list[Token], before: dict[str, str], line: int
    ) -> bool | None:
        name = words[0]
        if name in DECLARING:
            for token in tokens[1:]:
                self.declare(token, exported=name == "export")
            return True
        if name in ("[", "test", "[["):
            return _Test(words, self.variables, line).verdict()
        if name in ("true", ":", "false"):
            return name != "false"
        if name == "exit":
            raise _End
        if name == "unset":
            for word in words[1:]:
                self.variables.values.pop(word, None)
            return True
        if name == "shift":
            self.variables.arguments = tuple(self.variables.arguments[1:])
            return True
        if name == "eval":
            return self.text(" ".join(words[1:]), line)
        if name in self.functions:
            return self.call(self.functions[name], words[1:], line)
        at = next((k for k, word in enumerate(words[:-1]) if word == "-c"), None)
        if at and words[at - 1] in SHELLS:
            inner = self.inner(words[at + 1], line)
            words = [*words[: at - 1], *inner] if inner else words
        exported = {
            name: value
            for name in sorted(self.variables.exported)
            if isinstance(value := self.variables.get(name), str)
        }
        environment = {**exported, **before}
        self.commands.append(Command(words=tuple(words), line=line, environment=environment))
        return None

    def inner(self, text: str, line: int) -> list[str]:
        """Return the last command of a text that a shell would run."""
        own = _Evaluation(self.source, self.variables, self.functions, depth=self.depth + 1)
        own.text(text, line)
        return list(own.commands[-1].words) if own.commands else []

    def text(self, text: str, line: int) -> bool | None:
        if self.depth > DEEPEST:
            raise SpecError(f"{self.source}: line {line}: nested too deeply")
        self.depth += 1
        result = self.run(parse_script(text, f"{self.source}: line {line}"))
        self.depth -= 1
        return result

    def call(self, function: Function, arguments: list[str], line: int) -> bool | None:
        if self.depth > DEEPEST:
            raise SpecError(f"{self.source}: line {line}: {function.name} calls itself")
        saved, self.variables.arguments = self.variables.arguments, tuple(arguments)
        self.depth += 1
        result = self.run(function.body)
        self.depth -= 1
        self.variables.arguments = saved
        return result

    def declare(self, token: Token, *, exported: bool) -> None:
        match = ASSIGNMENT.match(token.text)
        if match:
            self.assign(token)
        name = match[1] if match else token.text
        if exported:
            self.variables.exported.add(name)

    def assign(self, token: Token) -> None:
        match = ASSIGNMENT.match(token.text)
        assert match is not None
        name, adds = match[1], match[2] == "+="
        old = self.variables.get(name)
        if token.kind == "array":
            if old is None:
                self.variables.values[name] = []
            parts = [w for t in token.parts for w in self.words(t)]
            start = old if adds and isinstance(old, list) else [old] if adds and old else []
            self.variables.values[name] = [*start, *parts]
            return
        if old is None:  # `A="$A more"` starts from nothing
            self.variables.values[name] = ""
        value = expand_text(token.text[match.end() :], token.line, self.variables)
        if adds and isinstance(old, list):
            old[0:1] = [(old[0] if old else "") + value]
        else:
            self.variables.values[name] = (old if adds and isinstance(old, str) else "") + value


class _Test:
    """`[ .. ]` and `[[ .. ]]`."""

    def __init__(self, words: list[str], variables: Variables, line: int) -> None:
        closing = {"[": "]", "[[": "]]"}.get(words[0])
        self.rest = words[1:-1] if closing and words[-1] == closing else words[1:]
        self.variables = variables
        self.line = line

    def verdict(self) -> bool | None:
        """Return what a test says; None: only running would tell."""
        return self._or() if self.rest else False

    def _or(self) -> bool | None:
        return self._joined(("||", "-o"), self._and, True)

    def _and(self) -> bool | None:
        return self._joined(("&&", "-a"), self._not, False)

    def _joined(
        self, operators: tuple[str, str], part: Callable[[], bool | None], decides: bool
    ) -> bool | None:
        """Return what parts say together; one that `decides` is enough."""
        result = part()
        while self.rest and self.rest[0] in operators:
            self.rest.pop(0)
            both = (result, part())
            result = decides if decides in both else None if None in both else not decides
        return result

    def _not(self) -> bool | None:
        if self.rest and self.rest[0] == "!":
            self.rest.pop(0)
            result = self._not()
            return None if result is None else not result
        if self.rest and self.rest[0] == "(":
            self.rest.pop(0)
            result = self._or()
            if self.rest and self.rest[0] == ")":
                self.rest.pop(0)
            return result
        return self._primary()

    def _primary(self) -> bool | None:
        first = self.rest.pop(0)
        if re.fullmatch(r"-[a-zA-Z]", first) and self.rest and self.rest[0] not in ("&&", "||"):
            value = self.rest.pop(0)
            if first in ("-n", "-z"):
                if first_mark(value):
                    return _presence(value, first)
                return bool(value) is (first == "-n")
            return None if first != "-v" else self.variables.get(value) is not None
        if not self.rest or self.rest[0] in ("&&", "||", ")", "-a", "-o"):
            return None if first_mark(first) else bool(first)
        operator = self.rest.pop(0)
        second = self.rest.pop(0) if self.rest else ""
        if first_mark(first) or first_mark(second):
            return None
        if operator in ("=", "==", "!="):
            return fnmatch.fnmatchcase(first, second) is (operator != "!=")
        if operator == "=~":
            try:
                return re.search(second, first) is not None
            except re.error:
                return None
        if operator in NUMBERS:
            expression = f"{first or 0} {NUMBERS[operator]} {second or 0}"
            return _truth(whole_number(expression, self.line, self.variables))
        if operator in ("<", ">"):
            return first < second if operator == "<" else first > second
        return None


def evaluate_script(
    text: str,
    source: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[Command, ...]:
    """Return the commands that a script would run, as far as that can be told.

    Parameters
    ----------
    arguments: of the script. environment: what is set before it starts.

    Raises
    ------
    SpecError: what is no bash.
    """
    variables = Variables(environment=environment or {}, arguments=tuple(arguments))
    evaluation = _Evaluation(source, variables)
    try:
        evaluation.run(parse_script(text, source))
    except _End:
        pass
    except SpecError as error:
        where = "" if str(error).startswith(source) else f"{source}: "
        raise SpecError(f"{where}{error}") from None
    return tuple(evaluation.commands)


def _presence(value: str, test: str) -> bool | None:
    """Return whether a variable that is not set is there: `-n "$X"` says no."""
    found = first_mark(value)
    bare = found is not None and re.fullmatch(r"\$[A-Za-z_0-9]\w*", found[0])
    return (test == "-z") if bare and len(MARK.findall(value)) == 1 else None


def _truth(number: str) -> bool | None:
    return None if first_mark(number) else number != "0"


def _assigned(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the names that commands would set."""
    for node in nodes:
        if isinstance(node, Simple):
            for token in node.words:
                if match := ASSIGNMENT.match(token.text):
                    yield match[1]
        elif isinstance(node, Choice | Case):
            for _, body in node.branches:
                yield from _assigned(body)
        elif isinstance(node, Loop):
            yield from _assigned(node.body)
        elif isinstance(node, Chain):
            yield from _assigned(node.nodes)
