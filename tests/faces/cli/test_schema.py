"""`ilp-plan schema`."""

import json
from collections.abc import Callable

import pytest

from ilp_planner.faces.schemas import names, schema
from tests.faces.cli.conftest import Done
from tests.schemas.valid import WHY, check_printed


def test_schemas_are_listed_and_printed(ilp_plan: Callable[..., Done]) -> None:
    done = ilp_plan("schema")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == names()
    assert json.loads(ilp_plan("schema", "solve").out) == schema("solve")
    done = ilp_plan("schema", "nothing")
    assert done.code == 2
    assert done.err.startswith("ilp-plan: NAME: found 'nothing', expected one of ")


def test_an_output_with_another_key_is_told(ilp_plan: Callable[..., Done]) -> None:
    """Guard the guard, which every other test of a command has."""
    pytest.importorskip("jsonschema", reason=WHY)
    value = json.loads(ilp_plan("gpus", "--json").out)
    check_printed(value)
    for spoiled in (value | {"more": 1}, value | {"gpus": 3}, value | {"version": 2}):
        with pytest.raises(AssertionError):
            check_printed(spoiled)
