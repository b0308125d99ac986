"""Every value that the help of a constraint names is one, wherever constraints are said."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli.constraint_options import OPTIONS, demanded
from ilp_planner.faces.sweeps.fields import find_field
from ilp_planner.inputs.constraints import ANY, CHOICES, constraints_of
from ilp_planner.inputs.constraints_file import read_constraints
from ilp_planner.inputs.demand import demanded as demanded_by_why
from ilp_planner.inputs.request import Request
from ilp_planner.settings.domains import BOTH, SWITCH
from ilp_planner.spaces.objectives.objective import objective_named
from tests.examples import for_each
from tests.faces.cli.conftest import Done
from tests.faces.cli.test_help import parser_of

NUMBERED = ("gradients", "sharding_copies", "lora_targets")  # two examples, and no switch
OF_FILES = ("keep", "constraints")  # whose values are files


def named_values(text: str) -> list[str]:
    """Return the values that a help names: after its last colon, `some of` or `as`."""
    text = re.sub(r"\([^)]*\)", "", text).rstrip(".")
    values: list[str] = []
    for clause in text.split("; "):
        for listed in clause.split(": ")[1:] or [clause]:
            for piece in re.split(r",? or |,? and |, ", listed.strip().removeprefix("some of ")):
                word = piece.split(" as ")[-1].strip().strip("'")
                if word and not re.search(r"\s", word):
                    values.append(word)
        if ": " in clause:
            break
    return values


def helps() -> dict[str, str]:
    """Return the help of every constraint of `solve` by name, without those of `likewise`."""
    parser, _ = parser_of(["solve"])
    found = {option.name: option.help for option in parser.params if option.name in OPTIONS}
    assert found.keys() == OPTIONS.keys()
    return {name: text for name, text in found.items() if not re.search("; likewise[.;]", text)}


NAMED = [
    (name, value)
    for name, text in helps().items()
    if name not in OF_FILES
    for value in named_values(text)
]


def test_the_helps_name_values() -> None:
    by_name: dict[str, list[str]] = {}
    for name, value in NAMED:
        by_name.setdefault(name, []).append(value)
    assert by_name["tensor_overlap"] == ["on", "off", "both"]
    assert by_name["tp"] == ["4", "2,4", "2..8"]
    for name, known in CHOICES.items():
        said = by_name[name]
        if len(known) == len(SWITCH) and name not in NUMBERED:
            assert {*said} == {*known, BOTH}, name
        assert set(said) <= {*known, BOTH} or name in ("optimizer_offload", "activation_offload",
            "sharding_copies", "muon_steps", "lora", "lora_targets", "freeze"), name  # fmt: skip


@for_each(("name", "value"), NAMED)
def test_a_named_value_is_accepted_everywhere(name: str, value: str, tmp_path: Path) -> None:
    said = constraints_of({name: value})
    assert said != ANY
    assert demanded(None, {name: [value] if name == "without" else value}) == said
    if not re.search(r"['| *]", value):
        assert demanded_by_why(f"{name}={value}", "--not") == said
    file = tmp_path / "mine.toml"
    file.write_text(f'[constraints]\n{name} = "{value}"\n')
    assert read_constraints(file) == said
    find_field(name, (), Request(files={})).check(value)


@for_each("name", [name for name, known in CHOICES.items() if known == SWITCH])
def test_both_is_a_search_over_both_values(name: str) -> None:
    both = constraints_of({name: BOTH})
    assert both == constraints_of({name: ",".join(SWITCH)}) == constraints_of({name: list(SWITCH)})
    assert all(both.allows(name, value) for value in SWITCH)


def test_both_is_of_two_values_alone() -> None:
    with pytest.raises(UsageError, match="dispatcher: found 'both', expected some of alltoall"):
        constraints_of({"dispatcher": BOTH})
    with pytest.raises(UsageError, match="compile: found 'maybe', expected some of off, on, or bo"):
        constraints_of({"compile": "maybe"})


def test_every_objective_of_the_help_is_one() -> None:
    parser, _ = parser_of(["solve"])
    text = next(option.help for option in parser.params if option.name == "objective")
    values = re.findall(r"(?:: |; or |; )(\w+), (?:of|as (\S+):)", text)
    named: list[Any] = [word for pair in values for word in pair if word]
    assert {"time", "price", "both", "time,price"} == {*named}
    assert objective_named("both") is objective_named("time,price")
    assert {objective_named(word).name for word in ("time", "price")} == {"time", "price"}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [name for name, known in CHOICES.items() if known == SWITCH])
def test_a_solve_takes_both(ilp_plan: Callable[..., Done], name: str) -> None:
    titan = name in ("compile", "qlora")
    model, runtime = ("llama3.2-1b", "torchtitan") if titan else ("tiny.toml", "megatron")
    gpus, beside = "2xA100-80GB", ()
    if name == "fp8_attention":
        model, gpus, beside = "llama3.2-1b", "2xH100", ("--precision", "fp8-delayed")
    if name == "muon_packing":
        beside = ("--precision", "bf16")
    done = ilp_plan(
        "solve", model, "--gpus", gpus, "--global-batch-size", "4",
        "--runtime", runtime, f"--{name.replace('_', '-')}", "both", *beside,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert f"{name.replace('_', ' ')} off or on" in " ".join(done.out.split())
