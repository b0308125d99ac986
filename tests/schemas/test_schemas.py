"""The published schemas: they are schemas, they say what every key means, and outputs and files are
as they say."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.schemas import VERSION, names, schema
from ilp_planner.formats.saved_json import VERSION as PLAN_VERSION
from ilp_planner.formats.saved_json import read_saved, write_saved
from tests.examples import for_each
from tests.schemas.build import DECLARED, schemas
from tests.schemas.cases import examples
from tests.schemas.titles import FILES, OUTPUTS
from tests.schemas.valid import WHY, faults

ROOT = Path(__file__).parents[2]
SPECS = [
    *(("model", file) for file in sorted((ROOT / "models").glob("*.toml"))),
    *(("cluster", file) for file in sorted((ROOT / "clusters").glob("*.toml"))),
]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all inside it."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def test_there_is_a_schema_of_every_output_and_file() -> None:
    assert set(names()) == {*OUTPUTS, *FILES}


@for_each("name", names())
def test_each_is_a_schema_that_says_what_keys_mean(name: str) -> None:
    found = schema(name)
    version = PLAN_VERSION if name == "plan" else VERSION
    assert found["$id"] == f"urn:ilp-planner:{name}:{version}"
    for part in objects(found):
        for key, inner in part.get("properties", {}).items():
            if isinstance(inner, dict) and "const" not in inner and part.get("type") == "object":
                assert inner["description"].endswith("."), (name, key)
        if "properties" in part and part.get("type") == "object":
            assert "additionalProperties" in part, name
        # A closed object without keys, as of what no example had, refuses every output that has it.
        assert part.get("properties") != {} or "patternProperties" in part, (name, part)
    jsonschema = pytest.importorskip("jsonschema", reason=WHY)
    jsonschema.Draft202012Validator.check_schema(found)


@for_each("name", OUTPUTS)
def test_outputs_say_which_schema_they_have(name: str) -> None:
    properties = schema(name)["properties"]
    assert properties["schema"]["const"] == f"ilp-planner/{name}"
    assert properties["version"]["const"] == VERSION
    assert {"schema", "version"} <= set(schema(name)["required"])


@for_each("name", DECLARED)
def test_schemas_of_files_are_what_their_readers_declare(name: str) -> None:
    assert json.loads(json.dumps(DECLARED[name]())).items() <= schema(name).items()


@for_each(("name", "file"), SPECS)
def test_models_and_clusters_are_as_their_schemas_say(name: str, file: Path) -> None:
    assert faults(name, tomllib.loads(file.read_text())) == []


def test_saved_plans_are_as_their_schema_says(tmp_path: Path) -> None:
    """Those of before, written again."""
    for file in sorted((ROOT / "solutions").glob("*.json")):
        write_saved(tmp_path / file.name, read_saved(file))
        assert faults("plan", json.loads((tmp_path / file.name).read_text())) == [], file.name


@for_each(
    ("place", "value"),
    [("more", 1), ("version", PLAN_VERSION + 1), ("schema", "a plan"), ("plan", None)],
)
def test_what_is_no_plan_is_told(place: str, value: object) -> None:
    file = ROOT / "solutions" / "gpt3-1.3b--v100-1x4.json"
    good = json.loads(file.read_text()) | {"version": PLAN_VERSION}
    assert faults("plan", good | {place: value})


def test_a_name_that_is_none_is_told_with_all() -> None:
    with pytest.raises(UsageError, match="found 'solv', expected one of analyze, analyze-costs"):
        schema("solv")


@pytest.mark.slow
def test_schemas_are_those_of_what_commands_print(tmp_path: Path) -> None:
    """`python -m tests.schemas` writes them anew; every key of theirs is in some output."""
    found = examples(tmp_path)
    made = schemas(found)
    for name in names():
        assert schema(name) == json.loads(json.dumps(made[name])), name
        for value in found.get(name, ()):
            assert faults(name, value) == []
