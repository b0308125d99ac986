"""What a result says to type next works when it is typed."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.faces.report.console import BRIEF_WIDTH
from tests import amp_cases
from tests.examples import often
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room
from tests.small import MODEL

HOSTS = ("--hostfile", "hostfile", "--clusterfile", "clusterfile.json")
METIS = (*HOSTS, "--profile", "metis:profile", *SIZE_OPTIONS, "--global-batch-size", "16")
SMALL = ("decoder.toml", "pair.toml", "--global-batch-size", "8")
GPUS = ("llama3.2-1b", "--gpus", "2xH100", "--global-batch-size", "4")
# Every kind of plan, as it is asked for.
ASKED = {
    "operators": ("tiny.toml", *SMALL[1:], "--space", "operators"),
    "groups": (*SMALL, "--space", "groups"),
    "groups of profiles": (*METIS, "--space", "groups"),
    "metis": (*METIS, "--cost-model", "metis", "--space", "metis"),
    "amp": ("--profile", "amp:amp.json", "--cost-model", "amp"),
    "megatron": (*SMALL, "--runtime", "megatron"),
    "two types": ("decoder.toml", "room.toml", "--runtime", "megatron", "--global-batch-size", "8"),
    "torchtitan": (*GPUS, "--runtime", "torchtitan"),
    "torchtitan@0.2.2": (*GPUS, "--runtime", "torchtitan@0.2.2"),
    "deepspeed": (*SMALL, "--runtime", "deepspeed"),
    "adapters": (*GPUS, "--lora", "8"),
    "adapters, 4 bits": (*GPUS, "--runtime", "torchtitan", "--qlora"),
    "price": ("decoder.toml", "room.toml", "--objective", "price", "--global-batch-size", "8"),
    "both": ("decoder.toml", "room.toml", "--objective", "both", "--global-batch-size", "8"),
    "a file with spaces": (*SMALL, "--runtime", "megatron", "--output", "a plan.json"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", often(ASKED, "groups of profiles", "both"))
def test_what_to_type_next_works(ilp_plan: Callable[..., Done], folder: Path, name: str) -> None:
    asked = ASKED[name]
    write_room(folder)
    amp_cases.write(folder, amp_cases.content())
    (folder / "decoder.toml").write_text(MODEL.replace('family = "gpt"', 'family = "decoder"'))
    saved = asked if "--output" in asked else (*asked, "--output", "plan.json")
    done = ilp_plan("solve", *saved)
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= BRIEF_WIDTH
    commands = next_of(done.out)
    assert [command[1] for command in commands][-2:] == ["why", "show"]
    for name, *words in commands:
        assert name == "ilp-plan"
        again = ilp_plan(*words, *["--time-limit", "2"] * (words[0] == "why"))
        assert again.code == 0, again.err
    unsaved = ilp_plan(
        "solve", *(word for word in asked if word not in ("--output", "a plan.json"))
    )
    assert next_of(unsaved.out.replace("this command with --output plan.json, then:", "")) == [
        [word.replace("a plan.json", "plan.json") for word in command] for command in commands
    ]


def next_of(out: str) -> list[list[str]]:
    """Return the commands of the line `next`."""
    found = re.search(r"^next (.*(?:\n  .*)*)", out, re.MULTILINE)
    assert found is not None
    return [shlex.split(command) for command in found[1].split(";")]


def test_a_command_that_would_be_broken_is_not_said(
    ilp_plan: Callable[..., Done], folder: Path
) -> None:
    long = folder / ("a" * 90)
    long.mkdir()
    done = ilp_plan("solve", "tiny.toml", *SMALL[1:], "--output", long / "plan.json")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= BRIEF_WIDTH
    assert "take the path of the plan" in done.out


@pytest.mark.slow
def test_a_model_that_fits_nowhere_leads_to_what_else_could_be_trained(
    ilp_plan: Callable[..., Done],
) -> None:
    job = ("llama3.1-8b", "--gpus", "1xRTX4090", "--global-batch-size", "8")
    hint = "ilp-plan fit with the same model and GPUs"
    assert hint in ilp_plan("solve", *job).out
    assert hint not in ilp_plan("solve", *job, "--lora", "64", "--memory-limit", "8GiB").out
    assert "--lora 16" in ilp_plan("fit", *job[:3], "--time-limit", "0.1").out


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ((), "megatron"),
        (("--lora", "8"), "nemo"),
        (("--lora", "8", "--runtime", "deepspeed"), "peft"),
        (("--freeze", "embedding", "--tp", "2"), ""),
        (("--runtime", "torchtitan@0.2.2"), "torchtitan@0.2.2"),
    ],
)
def test_the_export_that_is_named_takes_the_plan(
    ilp_plan: Callable[..., Done], more: tuple[str, ...], named: str
) -> None:
    done = ilp_plan("solve", *GPUS, *more, "--output", "plan.json")
    assert done.code == 0, done.err
    assert [word for line in next_of(done.out) for word in line if line[1] == "export"][3:5] == (
        ["--to", named] if named else []
    )
