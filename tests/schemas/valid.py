"""Whether an output or a file is as its published schema says."""

import functools
from typing import Any

import pytest

from ilp_planner.faces.schemas import schema

WHY = "jsonschema is not installed: pip install 'ilp-planner[test]'"
PREFIX = "ilp-planner/"


@functools.cache
def validator(name: str) -> Any:
    """Return what validates by a schema; the test is skipped without the package."""
    jsonschema = pytest.importorskip("jsonschema", reason=WHY)
    return jsonschema.Draft202012Validator(schema(name))


def faults(name: str, value: Any) -> list[str]:
    """Return what an output has that its schema does not allow, one line each."""
    found = validator(name).iter_errors(value)
    return [f"{error.json_path}: {error.message:.300}" for error in found]


def check_printed(value: Any) -> None:
    """Hold what a command has printed against its schema. Without the package nothing is known."""
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        return
    assert value["schema"].startswith(PREFIX), value["schema"]
    found = faults(value["schema"].removeprefix(PREFIX), value)
    assert not found, "; ".join(found)
