"""Values of any TOML file as text, one line per key of the root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.specs.cluster_writer import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


def toml_text(values: Mapping[str, object]) -> str:
    """Return a file that `tomllib` reads as these values: texts, numbers, booleans, lists and
    tables of them."""
    return "".join(f"{quoted(key)} = {_value(value)}\n" for key, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {_value(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)
