"""Reading YAML that somebody else wrote: safe types alone, each key once, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.files import Document, read_document
from ilp_planner.base.limits import NESTING, check_parsed

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.base.errors import PlannerError

BYTES = 2**18  # of a configuration; parsing takes seconds per MiB
ENTRIES = 10**5  # of all lists and mappings, with those of anchors as often as they are used


def read_yaml(source: Path | Document, error: type[PlannerError]) -> Any:
    """Return the content of a YAML file of one document.

    Parameters
    ----------
    error: class of the exception: one line with the file and, if it applies, line and column.
    """
    document = source if isinstance(source, Document) else read_document(source, error, most=BYTES)
    if len(document.text) > BYTES:
        raise error(f"{document.name}: found more than 256 KiB, expected YAML of at most that")
    try:
        return _parsed(document, error)
    except _yaml().YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        parts = (getattr(problem, "context", None), getattr(problem, "problem", None))
        what = ", ".join(filter(None, parts)) or str(problem).partition("\n")[0]
        raise error(f"{document.name}: {where}not valid YAML: {what}") from None
    except (ValueError, OverflowError, RecursionError) as problem:
        raise error(f"{document.name}: not valid YAML: {problem!s:.100}") from None


def scalar(text: str) -> Any:
    """Return the value that YAML reads in a text of one line; the text itself if it is none."""
    yaml = _yaml()
    try:
        _check_depth(text, ValueError, "")
        return yaml.load(text, Loader=_loader())
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return text


def _yaml() -> Any:
    import yaml

    return yaml


def _parsed(document: Document, error: type[PlannerError]) -> Any:
    _check_depth(document.text, error, document.name)
    value = _yaml().load(document.text, Loader=_loader())
    _check_size(value, {}, error, document.name)
    check_parsed(value, document.name, error)
    return value


def _loader() -> Any:
    """Return the safe loader, which refuses a key that a mapping has twice."""
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                name = self.construct_object(key, deep=True)
                if not isinstance(name, str | int | float | bool | None):
                    raise yaml.constructor.ConstructorError(
                        None, None, "found a list or a mapping as a key", key.start_mark
                    )
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None,
                        None,
                        f"found the key {name!r:.60} twice in one mapping, expected it once",
                        key.start_mark,
                    )
                seen.add(name)
            return super().construct_mapping(node, deep=deep)

    return Loader


def _check_depth(text: str, error: type[Exception], name: str) -> None:
    """Refuse deep nesting before anything is built, which takes a call for each level."""
    yaml, depth = _yaml(), 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > NESTING:
            raise error(
                f"{name}: line {event.start_mark.line + 1}: found lists and mappings more than "
                f"{NESTING} deep in one another, expected at most {NESTING}"
            )


def _check_size(value: Any, known: dict[int, int], error: type[PlannerError], name: str) -> int:
    """Return how many entries a value has; anchors may repeat some, or hold themselves."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = ENTRIES + 1  # of what holds itself
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_check_size(entry, known, error, name) for entry in inside)
    if known[id(value)] > ENTRIES:
        raise error(f"{name}: found more than {ENTRIES:,} entries, expected at most that in YAML")
    return known[id(value)]
