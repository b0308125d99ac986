"""The table of inputs, and the faces that are made of it."""

from dataclasses import fields, replace
from typing import get_type_hints

import pytest

from ilp_planner.base.errors import UsageError, described
from ilp_planner.faces.cli.request_options import SOLVE, request_options
from ilp_planner.faces.sweeps.fields import ALIASES, find_field
from ilp_planner.formats.inputs_json import decode_inputs, encode_inputs
from ilp_planner.formats.json_fields import Fields
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.keywords import KEYWORDS, Inputs
from ilp_planner.inputs.likeness import other_costs, other_limits
from ilp_planner.inputs.request import Reference, Request, request_of
from ilp_planner.inputs.table import (
    BY_KEYWORD,
    BY_NAME,
    COSTS,
    INPUTS,
    SET,
    Flag,
    Input,
    Price,
    Size,
    Text,
    Whole,
    Wholes,
)
from ilp_planner.spaces.registry import OPTIONS, SPACES, space_of
from tests.examples import for_each
from tests.inputs.keywords import FILE, text

FILES = {"profile": Reference(name="analytic")}
EXAMPLES = {
    Text: ("other", "other"),
    Price: ("a100=2.5", "a100=2.5"),
    Whole: ("4", 4),
    Wholes: ("4,2", (4, 2)),
    Size: ("28 GiB", 28.0 * 2**30),
    Flag: ("true", True),
}


def example(row: Input) -> tuple[str, object]:
    """Return a text that a row may say, and its value."""
    return (row.values[-1], row.values[-1]) if row.values else EXAMPLES[type(row.kind)]


def test_every_field_of_a_request_has_its_row() -> None:
    derived = {"files", "constraints", "memory_limits", "micro_batch_sizes"}
    assert {field.name for field in fields(Request)} - derived == {row.name for row in INPUTS}
    assert len(BY_KEYWORD) == len(INPUTS)


def test_keywords_are_those_of_the_table() -> None:
    """`python -m tests.inputs.keywords` writes them."""
    assert FILE.read_text() == text()
    assert {row.said for row in INPUTS} <= {*KEYWORDS}
    assert get_type_hints(Inputs)["max_tp"]


@for_each("row", INPUTS)
def test_all_faces_say_the_same(row: Input) -> None:
    said, value = example(row)
    request = request_of(FILES, {row.said: said})
    assert getattr(request, row.name) == value
    assert request_of(FILES, {row.said: value}) == request
    typed = [said] if isinstance(row.kind, Wholes) else value if isinstance(value, int) else said
    options = {name: default for name, (_, default) in SOLVE.items()}
    assert request_options()(**{**options, row.said: typed}) == request
    if row.said != "price":
        for name in (row.said, row.alias or row.said):
            assert find_field(name, (), request).put(Request(files=FILES), said) == request
    assert ALIASES.get(row.alias, row.said) == row.said


@for_each("row", [row for row in INPUTS if not isinstance(row.kind, Flag)])
def test_a_saved_plan_keeps_it(row: Input) -> None:
    _, value = example(row)
    usual = Request(files=FILES, global_batch=8)
    request = replace(usual, **{row.attribute: value})
    saved = encode_inputs(request)
    assert saved.keys() - encode_inputs(usual).keys() <= {row.saved}
    assert decode_inputs(Fields(saved, file="plan.json", where="inputs")) == request
    asked = replace(usual, **{row.name: value})
    assert encode_inputs(asked) != encode_inputs(usual)  # points of sweeps differ
    if isinstance(row.kind, Whole):
        least = replace(usual, **{row.name: row.kind.least})
        assert encode_inputs(least)[row.saved] == row.kind.least


def test_inputs_that_change_neither_costs_nor_plans_are_few() -> None:
    """Those of a model's content, of a price, and of memory, which `other_memory` tells."""
    assert {row.name for row in INPUTS if not row.changes} == {"text_only", "price", "memory_limit"}


def test_axes_of_sweeps_have_the_names_of_options_too() -> None:
    assert ALIASES == {
        "runtime": "space",
        "global_batch_size": "global_batch",
        "micro_batch_size": "micro_batch_sizes",
    }


def test_the_first_value_is_the_usual_one() -> None:
    usual = {row.name: row.usual for row in INPUTS if row.values and row.usual}
    assert usual
    assert usual == {name: BY_NAME[name].values[0] for name in usual}


@for_each("row", [row for row in INPUTS if row.changes])
def test_another_value_is_told(row: Input) -> None:
    """A proof of before is about the same plans and costs, or names the difference."""
    usual = Request(files=FILES)
    request = replace(usual, **{row.attribute: example(row)[1]})
    told = {COSTS: [*other_costs(usual, request)], SET: [*other_limits(usual, request)]}
    assert len(told[row.changes]) == 1
    assert sum(map(len, told.values())) == 1


@for_each("row", [row for row in INPUTS if row.name in OPTIONS])
def test_a_space_without_an_input_refuses_it(row: Input) -> None:
    """But for the value that is meant where nothing is said."""
    others = [name for name, entry in SPACES.items() if row.name not in entry.options]
    assert others
    for space in others:
        cost_model, *_ = SPACES[space].cost_models
        for said in {*row.values} - {row.usual} or {example(row)[0]}:
            request = request_of(FILES, {row.said: said, "space": space, "cost_model": cost_model})
            with pytest.raises(UsageError, match=row.name):
                space_of(InputFiles(request))


@for_each("row", [row for row in INPUTS if isinstance(row.kind, Whole | Wholes | Size | Flag)])
def test_nonsense_names_the_keyword_and_the_option(row: Input) -> None:
    for value in ("many", "1e30GB", [], 0.5j, -1, 10**30):
        if isinstance(row.kind, Wholes) and value == []:
            continue
        with pytest.raises(UsageError, match=f"^{row.said}[: ]") as refused:
            request_of(FILES, {row.said: value})
        assert f"found {described(value)}" in str(refused.value)
        with pytest.raises(UsageError, match=f"^{row.typed}[: ]"):
            request_of(FILES, {row.said: value}, typed=True)
