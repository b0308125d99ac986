"""Values of any TOML file as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def toml_text(values: Mapping[str, object]) -> str:
    """Return a file that `tomllib` reads as these values, one line per key of the root: texts,
    numbers, booleans, lists and tables of them."""
    return "".join(f"{quoted(key)} = {_value(value)}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """Return a text as TOML has it, also as a key."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {_value(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)
