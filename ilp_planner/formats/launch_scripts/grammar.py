"""Syntax of bash: tree-sitter's grammar turns a text into nodes in one another.

Words keep their quotes and variables; `words` expands them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.unknowns import CLOSE, OPEN, PLACE, PLACE_END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Language
    from tree_sitter import Node as Tree

MOST = 4_000_000  # characters read or held, all in all
# Costs of a command, a word and a piece of a word beside their characters, and of a character that
# is parsed.
COMMAND, WORD, PIECE, PARSED = 100, 20, 10, 8
DEEPEST = 40  # functions, groups and texts in one another
# Where something is left open, the parser's memory grows with the square of the signs | and `, and
# its time with the square of the text.
MOST_SIGNS = 2_000
CPU_SECONDS, CPU_SECONDS_PER_BYTE = 1.0, 1e-5
# Places that a template leaves to its user; bash itself would take them for redirections.
OTHERS = r"[^\s'\"`;|&()<>]*"
PLACEHOLDERS = re.compile(rf"(?<![^\s;(])\w+\+?={OTHERS}(?:<[^<>\n&|;$]*>{OTHERS})+")
# What the grammar reads amiss in places: variables (`$A/$B`, `${A:$B}`) and output (`` `a`/`b` ``),
# a last backslash, and several assignments in a line before another command.
VARIABLE = re.compile(
    rf"{PLACE}[^{PLACE_END}]*{PLACE_END}|\$?{OPEN}[^{CLOSE}]*{CLOSE}|\\?\$\w+|\\\$|\$[#?@*$!]|\$\{{\w+\}}|"
    r"\$\{\w+:[ $(\d](?:[^{}'\"`\n]|\$\{[^{}'\"`\n]*\})*\}|`[^`'\"\n]*`"
)
LAST_BACKSLASH = re.compile(r"\\(?=\s*\Z)")
SETTING = r"[A-Za-z_]\w*=(?:[^\s'\"`;|&()<>\\$]|'[^']*'|\"[^\"`$\\]*\")*"
SETTINGS = re.compile(rf"(?<![^\s;]){SETTING}(?:[ \t]+{SETTING})+[ \t]*(?=[\n;#]|\Z)")
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<index>[^\]]*)\])?(?P<how>\+?=)")
STRUCTURE = re.compile(
    r".*_(statement|command|clause|redirect|assignments?|definition|group|item)|program|command|"
    r"pipeline|list|subshell|array"
)
# Kinds that stand for their parts; the grammar gets the precedence of tests wrong.
FLAT = ("binary_expression", "unary_expression", "parenthesized_expression", "list")
OPENINGS = (
    '"',
    "'",
    "`",
    "${",
    "$(",
    "$((",
    "((",
    "(",
    "{",
    "[[",
    "if",
    "case",
    "while",
    "for",
    "do",
)
KEYWORDS = ("fi", "done", "esac", "then", "do", "else", "elif", "}")


@dataclass(slots=True)
class Budget:
    """The characters that are left to spend on a script: every command that is followed, every
    word that is made and every text that is read takes from it."""

    source: str
    left: int = MOST

    def spend(self, amount: int, line: int = 0) -> None:
        """Take from the budget.

        Raises
        ------
        SpecError: it is used up.
        """
        self.left -= amount
        if self.left < 0:
            where = f"line {line}: " if line else ""
            raise SpecError(
                f"{self.source}: {where}found more to follow than {MOST:,} characters of commands "
                "and words, expected a script that comes to its launch in fewer: give the launch "
                "line itself"
            )


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the syntax tree: a word, a sign, or what its parts stand in.

    kind: the grammar's. text: as it is written. role: the grammar's field of a part.
    """

    kind: str
    line: int
    text: str
    parts: tuple[Node, ...] = ()
    role: str = ""

    def of(self, *kinds: str) -> list[Node]:
        """Return the parts of some kinds or roles."""
        return [part for part in self.parts if part.kind in kinds or part.role in kinds]

    def redirects(self) -> Iterator[Node]:
        """Yield the redirections of a command; those behind a here-document are its parts."""
        for part in self.parts:
            if part.kind.endswith("_redirect"):
                yield part
                yield from part.redirects()


def parse(text: str, budget: Budget, line: int = 0) -> tuple[Node, ...]:
    """Return the commands of a text. line: of all of it; 0: a file, whose lines are counted.

    Raises
    ------
    SpecError: it is no bash, with the line; or too long, or nested too deeply.
    """
    from tree_sitter import Parser

    budget.spend(PARSED * len(text), line)
    if max(text.count("|"), text.count("`")) > MOST_SIGNS:
        raise SpecError(f"{budget.source}: found more than {MOST_SIGNS} signs | or `")
    text = PLACEHOLDERS.sub(
        lambda m: m[0].replace("<", f"{PLACE}<").replace(">", f">{PLACE_END}"), text
    ).replace("\r\n", "\n")
    shown = LAST_BACKSLASH.sub(" ", VARIABLE.sub(lambda m: "x" * len(m[0].encode()), text))
    data = SETTINGS.sub(lambda m: re.sub(rf"[ \t](?={SETTING})", ";", m[0]), shown).encode()
    end = time.process_time() + CPU_SECONDS + CPU_SECONDS_PER_BYTE * len(data)
    try:
        root = (
            Parser(_language())
            .parse(
                lambda at, _: data[at : at + 2**16],
                progress_callback=lambda at, _: time.process_time() > end,
            )
            .root_node
        )
    except ValueError:
        raise SpecError(f"{budget.source}: nested too deeply, or no bash") from None
    reader = _Reader(text.encode(), budget.source, line)
    if root.has_error:
        raise reader.complaint(root)
    return reader.node(root, "", 0).parts


@cache
def _language() -> Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


@dataclass(frozen=True, slots=True)
class _Reader:
    """tree-sitter's nodes to those of this module. fixed: the line of all of them; 0: counted."""

    data: bytes
    source: str
    fixed: int

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode(errors="replace")

    def error(self, tree: Tree, what: str) -> SpecError:
        line = self.fixed or tree.start_point[0] + 1
        return SpecError(f"{self.source}: line {line}: {what}")

    def complaint(self, tree: Tree) -> SpecError:
        """Return what is wrong, as far as the grammar tells."""
        while inner := next((c for c in tree.children if c.has_error or c.is_missing), None):
            tree = inner
        tree = tree.parent if tree.is_missing and tree.parent else tree
        found = self.text(*tree.byte_range).strip()
        if opened := [part for part in tree.children if part.type in OPENINGS]:
            return self.error(opened[-1], f"{opened[-1].type} is not closed")
        if found[:1] == "'":
            return self.error(tree, "' is not closed")
        return self.error(tree, f"found {found[:40]!r}, expected bash as its grammar has it")

    def node(self, tree: Tree, role: str, depth: int) -> Node:
        """Return a node with its parts.

        Raises
        ------
        SpecError: it stands in too many others, or is a keyword where a command should be.
        """
        kind, text = tree.type, self.text(*tree.byte_range)
        if depth > 3 * DEEPEST:
            raise self.error(tree, "nested too deeply")
        if kind == "command_name" and text in KEYWORDS:
            raise self.error(tree, f"expected a command, found {text!r}")
        # Such as `export $A=1`.
        amiss = kind == "variable_assignment" and not ASSIGNMENT.match(text)
        if tree.is_named and not kind.startswith("heredoc_"):
            if amiss or not STRUCTURE.fullmatch(kind):
                kind, text = "word", text.lstrip(" \t")
            elif kind in ("compound_statement", "test_command") and text.startswith("(("):
                kind, text = "arithmetic", text[2:-2]
        whole = kind not in ("word", "arithmetic") and tree.child_count
        parts = self.parts(tree, depth) if whole else ()
        node = Node(kind, self.fixed or tree.start_point[0] + 1, text, parts, role)
        at = next((k for k, c in enumerate(tree.children) if c.type == "command_name"), 0)
        gap = self.text(tree.children[at - 1].end_byte, tree.children[at].start_byte) if at else ""
        if kind == "command" and "\n" in gap.replace("\\\n", ""):
            both = (replace(node, parts=parts[:at]), replace(node, parts=parts[at:]))
            return replace(node, kind="compound_statement", parts=both)
        return _moved(node) if kind == "redirected_statement" else node

    def parts(self, tree: Tree, depth: int) -> tuple[Node, ...]:
        """Return the parts of a node; words that touch each other are one."""
        found: list[Node] = []
        rest, last = [*_children(tree)][::-1], tree.start_byte
        while rest:
            child, role = rest.pop()
            if child.type in FLAT and (child.type != "list" or tree.type == "list"):
                rest += [(inner, role) for inner in reversed(child.children)]
            elif child.type != "comment":
                node = self.node(child, role or "", depth + 1)
                touches = self.text(last, child.start_byte) in ("", "\\\n")
                if found and found[-1].kind == node.kind == "word" and touches:
                    node = replace(found[-1], text=f"{found.pop().text}{node.text}")
                found.append(node)
                last = child.end_byte
        return tuple(found)


def _children(tree: Tree) -> Iterator[tuple[Tree, str | None]]:
    cursor = tree.walk()
    there = cursor.goto_first_child()
    while there and cursor.node is not None:
        yield cursor.node, cursor.field_name
        there = cursor.goto_next_sibling()


def _moved(node: Node) -> Node:
    """Return a command with redirections where bash has it: these belong to the last of several
    commands, and what stands behind a here-document follows it."""
    body, *others = node.parts
    if body.kind in ("list", "pipeline"):
        last = _moved(replace(node, parts=(replace(body.parts[-1], role="body"), *others)))
        return replace(body, parts=(*body.parts[:-1], last), role=node.role)
    for document in node.of("heredoc_redirect"):
        for kind in ("pipeline", "list"):
            tail = (
                document.of("pipeline") if kind == "pipeline" else document.of("operator", "right")
            )
            if tail:
                more = tail[0].parts if kind == "pipeline" else tail
                return replace(node, kind=kind, parts=(node, *more))
    return node
