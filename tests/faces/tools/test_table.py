"""Tools take what their commands take, and refuse the rest in one line."""

from functools import cache
from typing import Any

import jsonschema
import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli.help import HELP
from ilp_planner.faces.cli.main import command_line
from ilp_planner.faces.tools.table import (
    JSON,
    TOOLS,
    input_schema,
    output_schema,
    parameters,
    words_of,
)
from tests.examples import for_each

EVERY = [(name, key) for name in TOOLS for key in parameters(name)]
MOST = 60.0


def sample(name: str, key: str) -> Any:
    """Return a value of a property's type."""
    said = input_schema(name)["properties"][key]
    if "enum" in said:
        return said["enum"][-1]
    number = 0.5 if key == "lora_dropout" else 1.5
    samples = {"boolean": True, "integer": 2, "number": number, "array": ["a=1", "b=2"]}
    return samples.get(str(said["type"]), "2")


def required(name: str) -> dict[str, Any]:
    return {key: sample(name, key) for key in input_schema(name)["required"]}


@cache
def made(name: str) -> tuple[jsonschema.Draft202012Validator, Any]:
    """Return what validates a tool's values, and its command."""
    validator = jsonschema.Draft202012Validator(input_schema(name))
    return validator, command_line([name]).commands[name]


@for_each(("name", "key"), EVERY)
def test_a_property_arrives_as_the_option_that_it_is_named_after(name: str, key: str) -> None:
    value = sample(name, key)
    validator, command = made(name)
    validator.validate({**required(name), key: value})
    words = words_of(name, {**required(name), key: value}, MOST)
    assert words[0] == name
    option = parameters(name)[key].option
    context = command.make_context(name, words[1:], obj=0.0, help_option_names=HELP)
    (found,) = [
        context.params[one.name]
        for one in command.params
        if (
            option in one.opts if option else (one.metavar or "").lower().replace("...", "s") == key
        )
    ]
    several = isinstance(found, list | tuple)
    said = value if isinstance(value, list) else [value]
    assert list(map(str, found if several else [found])) == list(map(str, said))
    assert context.params["as_json"] is True


@for_each(("name", "key"), EVERY)
def test_no_is_said_where_a_switch_has_a_word_for_it(name: str, key: str) -> None:
    row = parameters(name)[key]
    said = words_of(name, {**required(name), key: False}, MOST)
    negatives = [word for word in said if word.startswith("--no-")]
    assert negatives == ([row.negative] if row.negative else [])
    if row.negative:
        _, command = made(name)
        context = command.make_context(name, said[1:], obj=0.0, help_option_names=HELP)
        assert context.params[key] is False


@for_each("name", TOOLS)
def test_schemas_are_schemas(name: str) -> None:
    for one in (input_schema(name), output_schema(name)):
        jsonschema.Draft202012Validator.check_schema(one)
        assert one["type"] == "object"
    hidden = {JSON, "--verbose", "--help"}
    command = command_line([name]).commands[name]
    options = {one for p in command.params for one in p.opts if one.startswith("--")}
    assert {row.option for row in parameters(name).values()} - {""} == options - hidden


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no tool": ("capture", {}, "tool: found 'capture', expected one of solve, fit, why"),
    "a typing error": ("solve", {"modle": "x"}, r"found 'modle', .*; did you mean model\?"),
    "a switch as text": ("solve", {"text_only": "yes"}, "text_only: found 'yes', expected boolean"),
    "a text as switch": ("solve", {"model": True}, "model: found true, expected a text or"),
    "an object": ("solve", {"tp": {"min": 2}}, "tp: found .*, expected a text or a number"),
    "none of a file": ("why", {}, "plan: found none, expected a saved plan"),
    "none of several": ("compare", {"plans": []}, "plans: found none, expected a saved plan"),
    "an option as file": ("why", {"plan": "--help"}, r"plan: found '--help', .* \./--help"),
    "too long": ("solve", {"time_limit": 61}, "time_limit: found 61, expected at most 60 s"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_by_name(case: str) -> None:
    name, given, message = WRONG[case]
    with pytest.raises(UsageError, match=message) as refused:
        words_of(name, given, MOST)
    assert "\n" not in str(refused.value)


def test_searches_get_no_more_time_than_a_call_may_take() -> None:
    def limits(name: str, most: float, **given: Any) -> list[str]:
        words = words_of(name, {**required(name), **given}, most)
        return [word for word in words if word.startswith("--time-limit")]

    assert limits("solve", MOST) == ["--time-limit=60"]
    assert limits("solve", MOST, time_limit=5) == ["--time-limit=5"]
    assert limits("why", MOST) == []  # 12 s by itself
    assert limits("why", 5) == ["--time-limit=5"]
    assert limits("compare", MOST) == []  # refused where nothing is searched
    assert limits("compare", MOST, solvers="cpsat") == ["--time-limit=60"]


def test_words_that_a_value_has_stay_one() -> None:
    given = {"model": "a b --json", "without": ["node1", "2"], "cluster": None, "text_only": False}
    words = words_of("solve", given, MOST)
    assert words[1:4] == ["--model=a b --json", "--without=node1", "--without=2"]
    assert not [word for word in words if word.startswith(("--cluster", "--text-only"))]
