"""The variables that commands may set, found without following them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.lexer import ASSIGNMENT
from ilp_planner.formats.launch_scripts.nodes import Count, For, Function, Node, Simple, parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
