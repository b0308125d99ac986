"""Docstrings of this package as Markdown, an extension of Griffe for the page on Python.

A section such as `Parameters` has entries `name, other: what they are`, and the fields of a class
are such entries without a heading: both become lists.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

HEADING = re.compile(r"^(\w+)\n-+\n", re.MULTILINE)
ENTRY = re.compile(r"^([a-zA-Z_]\w*(?:, \w+)*): ", re.MULTILINE)


class Lists(griffe.Extension):
    """Write sections and fields of docstrings as lists."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring with its sections as lists."""
    parts = []
    for part in HEADING.sub(r"**\1**\n\n", text).split("\n\n"):
        if ENTRY.match(part) and not part.startswith(" "):
            part = ENTRY.sub(r"* `\1`: ", part)
            part = re.sub(r"\n +(?=\S)", "\n  ", part)
        parts.append(part)
    return "\n\n".join(parts)
