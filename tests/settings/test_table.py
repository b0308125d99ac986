"""The table of settings, and the faces that are made of it."""

import inspect
from collections.abc import Mapping
from itertools import permutations
from typing import Any, get_type_hints

import pytest

import ilp_planner
from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli.analyze_job import UNSAID
from ilp_planner.faces.cli.constraint_options import OPTIONS
from ilp_planner.inputs.keywords import Demands
from ilp_planner.settings.base import Setting
from ilp_planner.settings.domains import Together
from ilp_planner.settings.job_options import (
    CHANGED,
    CHOSEN,
    JOB_OPTIONS,
    changed_options,
    with_options,
)
from ilp_planner.settings.table import (
    BRIDGE_EXAMPLE,
    BY_NAME,
    DEMANDS,
    PEFT_EXAMPLE,
    SCAN_EXAMPLE,
    SETTINGS,
)
from ilp_planner.specs.training import Settings
from ilp_planner.specs.tuning import BRIDGE_NAMES, OF_SCANS, PEFT_NAMES


def test_names_are_there_once() -> None:
    assert len(BY_NAME) == len(SETTINGS)


def test_all_faces_have_the_same_names() -> None:
    named = [setting.name for setting in DEMANDS if setting.help]
    assert [name for name in OPTIONS if name != "constraints"] == named
    assert [*Demands.__annotations__] == named
    assert {*named}.isdisjoint(inspect.signature(ilp_planner.problem).parameters)
    assert get_type_hints(Demands)["tp"]


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tq'"):
        ilp_planner.problem("llama3-8b", gpus="8xH100", tq=4)  # type: ignore[call-arg]


@pytest.mark.parametrize("row", DEMANDS, ids=lambda row: row.name)
def test_a_demand_is_read_from_its_own_text(row: Setting) -> None:
    examples = {"layout": ["even", "10,11,11"], "keep": ["plan.json:stage0"], "headroom": ["2 GiB"]}
    for example in examples.get(row.name, [*row.domain.values] or ["4"]):
        value = row.domain.read(row.name, example)
        assert value != row.domain.blank
        assert row.domain.read(row.name, row.domain.text(value)) == value
        hash(value)
    with pytest.raises(UsageError, match=f"^{row.name}: found "):
        row.domain.read(row.name, 0.5j)


TOGETHER = [row for row in DEMANDS if isinstance(row.domain, Together) and row.domain.alone]


@pytest.mark.parametrize("row", TOGETHER, ids=lambda row: row.name)
def test_nothing_is_said_alone(row: Setting) -> None:
    """The word for nothing beside something is refused, wherever it stands."""
    domain = row.domain
    assert isinstance(domain, Together)
    assert domain.read(row.name, [domain.alone, domain.alone]) == (domain.alone,)
    for other in (name for name in domain.names if name != domain.alone):
        for both in permutations((domain.alone, other)):
            for join in ",+":
                with pytest.raises(UsageError, match=f"expected '{domain.alone}' alone"):
                    domain.read(row.name, join.join(both))


@pytest.mark.parametrize("column", ["change", "label", "job_label"])
def test_every_place_is_taken_once(column: str) -> None:
    """The order of changes and of words is never that of the rows."""
    places = [entry.place for row in SETTINGS if (entry := getattr(row, column))]
    assert len(places) == len({*places}) > 1


def test_people_read_every_choice_of_a_plan() -> None:
    """With the label of its own row, or of the one that says both together."""
    together = {"sharding_copies": "sharding", "optimizer_offload": "activation_offload"}
    together |= dict.fromkeys(("muon_tp_mode", "muon_packing", "muon_steps"), "optimizer")
    together |= dict.fromkeys(("lora_targets", "lora_dropout", "qlora", "freeze"), "lora")
    for row in SETTINGS:
        if row.choice:
            assert BY_NAME[together.get(row.name, row.name)].label, row.name


def test_options_of_jobs_say_what_they_were_given() -> None:
    usual = {
        name: option.unsaid if UNSAID[name] is None else UNSAID[name]
        for name, option in JOB_OPTIONS.items()
    }
    said = [(name, value) for name in CHOSEN.keys() & {*CHANGED} for value in values_of(name)]
    taken = [one for one in said if _taken(usual, *one)]
    assert {name for name, _ in taken} == CHOSEN.keys() & {*CHANGED}
    assert {("fused_loss", "none"), ("fused_loss", "native"), ("fused_loss", "liger")} <= {*taken}


def values_of(name: str) -> tuple[str, ...]:
    return BY_NAME[name].domain.values


def _taken(usual: Mapping[str, Any], name: str, value: str) -> bool:
    """Tell whether a job of no other options takes a value, and see that it says it again."""
    try:
        settings = with_options(Settings(), {**usual, name: value})
    except UsageError:
        return False
    assert changed_options(settings)[name] == value
    return True


def test_names_of_products_are_like_those_of_their_system() -> None:
    """So that a runtime that has some of them is asked for any of them, and both for names that
    both have."""
    row = BY_NAME["lora_targets"]
    systems = ((PEFT_NAMES, PEFT_EXAMPLE), (BRIDGE_NAMES, BRIDGE_EXAMPLE))
    for names, example in systems:
        own = [name for name in names if name not in OF_SCANS]
        assert {*map(row.domain.like, (*own, f"{own[0]}+in_proj", "+".join(names)))} == {*example}
    assert {*map(row.domain.like, OF_SCANS)} == {*SCAN_EXAMPLE}


@pytest.mark.parametrize("parts", ["layers:5-2", "layers", "layers:01", "embedding+layers:3-1"])
def test_parts_that_no_model_has_are_refused_where_they_are_read(parts: str) -> None:
    with pytest.raises(UsageError, match=r"^freeze: found 'layers"):
        BY_NAME["freeze"].domain.read("freeze", parts)
