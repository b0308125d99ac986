"""Every demand of a search is an option of commands that judge or plan, or says why not."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ilp_planner.faces.cli.main import command_line
from ilp_planner.inputs.table import INPUTS, PEERS
from ilp_planner.settings.domains import CLOSED
from ilp_planner.settings.table import BY_NAME, SETTINGS
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]

JOBS = ("fit", "analyze", "tune", "doctor")  # of one job
SEARCHES = ("solve", "size")
# Inputs of searches that say nothing of one job, and those that a command says otherwise.
OF_SEARCHES = {
    "cost_model": "jobs have the costs of training systems",
    "space": "a job names its system by its settings, or its file does",
    "memory_rule": "jobs need all that they hold",
    "placement": "the ranks of a job fill nodes in order",
    "shares": "replicas of a job are alike",
    "stage_tp": "stages of a job are alike",
    "seats": "ranks of a job fill nodes in order",
    "max_stages": "a job has its stages",
    "max_tp": "a job has its degree",
    "max_cp": "a job has its degree",
    "max_stage_nodes": "a job has its stages",
    "experiment": "jobs have no measured profile",
    "hidden": "the model says it",
    "vocabulary": "the model says it",
}
SAID_BY_SIZE = {"max_devices": "--max-gpus", "without": "--gpus", "keep": "no saved plan"}


def options_of(command: str) -> set[str]:
    """Return the options of a command."""
    parameters = command_line((command,)).commands[command].params
    return {option for one in parameters for option in one.opts}


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def demands() -> Iterator[str]:
    return (row.name for row in SETTINGS if row.domain is not CLOSED)


@pytest.mark.parametrize("command", JOBS)
def test_every_demand_is_an_option_of_jobs_or_says_why_not(command: str) -> None:
    has = options_of(command)
    for name in demands():
        row = BY_NAME[name]
        missing = option_of(name) not in has
        assert missing == bool(row.not_of_jobs or row.of_devices), name
        assert not (row.not_of_jobs and row.of_jobs), name


@pytest.mark.parametrize("command", SEARCHES)
def test_every_demand_is_an_option_of_searches(command: str) -> None:
    has = options_of(command)
    missing = {name for name in demands() if option_of(name) not in has}
    assert missing == ({*SAID_BY_SIZE} if command == "size" else set())


@pytest.mark.parametrize("command", JOBS)
def test_every_input_is_an_option_of_jobs_or_says_why_not(command: str) -> None:
    has = options_of(command)
    for row in INPUTS:
        of_others = row.section == PEERS or row.name in OF_SEARCHES
        if row.name == "price" and command != "fit":  # no other one of jobs tells money
            of_others = True
        assert (row.typed in has) != of_others, row.name


def values_of_jobs() -> Iterator[tuple[str, str]]:
    for row in SETTINGS:
        if row.of_jobs and not row.job_option:
            yield from ((row.name, value) for value in row.domain.values)


@pytest.mark.slow
def test_an_option_of_jobs_is_the_value_of_a_search(ilp_plan: Command) -> None:
    """Of every value that goes with a small job: `analyze` says the settings of the choice."""
    counted = 0
    for name, value in values_of_jobs():
        row, beside = BY_NAME[name], BESIDE.get(name, ())
        job = ("analyze", "llama3-8b", "--gpus", "8xH100", *beside, "--json")
        done = ilp_plan(*job, option_of(name), value)
        if done.code not in (0, 6):  # of experts alone
            assert f"found {value}" in done.err or "experts" in done.err, (name, value, done.err)
            continue
        assert row.choice
        unsaid = row.of_jobs and row.of_jobs.unsaid
        same = json.loads(done.out) == json.loads(ilp_plan(*job).out)
        noted = any(name.replace("_", " ") in note for note in json.loads(done.out)["notes"])
        assert same == (value == unsaid) or noted, (name, value)
        counted += 1
    assert counted > 15


BESIDE: dict[str, tuple[Any, ...]] = {
    "fp8_attention": ("--precision", "fp8-current"),
    "sharding_copies": ("--sharding", "optimizer"),
    "optimizer_offload": ("--sharding", "optimizer"),
    "overlap": ("--sharding", "optimizer"),
    "tensor_overlap": ("--tp", "2", "--sequence-parallel"),
    "defer_embedding_wgrad": ("--pp", "2"),
    "expert_overlap": ("--ep", "1"),
}
