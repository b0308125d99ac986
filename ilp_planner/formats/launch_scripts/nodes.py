"""What a shell script is made of, once read: commands in one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.formats.launch_scripts.lexer import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A command with its arguments, a test or `(( .. ))`; assignments alone are one as well."""

    words: tuple[Token, ...]
    line: int
    redirects: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`if`: (test, what then) one after the other; an empty test always holds."""

    branches: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`case`: (patterns, what then, how it ends: `;;`, `;&` or `;;&`)."""

    word: Token
    branches: tuple[tuple[tuple[Token, ...], tuple[Node, ...], str], ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class For:
    """`for` or `select` over words; words None: over the arguments."""

    name: str
    words: tuple[Token, ...] | None
    body: tuple[Node, ...]
    line: int
    asks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """`for ((first; test; step))`."""

    parts: tuple[str, str, str]
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class While:
    """`while` or `until`."""

    test: tuple[Node, ...]
    body: tuple[Node, ...]
    line: int
    until: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`{ .. }`, or what runs in a shell of its own: `( .. )` and what `&` follows."""

    body: tuple[Node, ...]
    line: int
    apart: bool = False
    redirects: tuple[Token, ...] = ()
    waits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function's definition."""

    name: str
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """Commands joined by |, or one or more with ! before them."""

    nodes: tuple[Node, ...]
    negated: bool
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Commands joined by && and ||; operators[i] stands before nodes[i + 1]."""

    nodes: tuple[Node, ...]
    operators: tuple[str, ...]
    line: int


Node = Simple | Choice | Case | For | Count | While | Group | Function | Pipe | Chain


def parts_of(node: Node) -> Iterator[Node]:
    """Yield the commands directly inside one."""
    if isinstance(node, Choice):
        for test, body in node.branches:
            yield from (*test, *body)
    elif isinstance(node, Case):
        for _, body, _ in node.branches:
            yield from body
    elif isinstance(node, While):
        yield from (*node.test, *node.body)
    elif isinstance(node, For | Count | Group | Function):
        yield from node.body
    elif isinstance(node, Pipe | Chain):
        yield from node.nodes


def written(nodes: Sequence[Node]) -> str:
    """Return the first command as it is written, for messages."""
    node = nodes[0] if nodes else None
    while node is not None and not isinstance(node, Simple):
        node = next(parts_of(node), None)
    text = " ".join(token.text for token in node.words) if node else "..."
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
