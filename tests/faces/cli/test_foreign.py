"""Options in the words of training systems lead to those of this program."""

from collections.abc import Callable

import pytest

from ilp_planner.faces.cli.help import with_values
from ilp_planner.faces.cli.main import RENAMED, command_line
from ilp_planner.faces.cli.unknown_option import OF_INPUTS, PARALLEL, own_option, systems
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.settings.base import Setting
from ilp_planner.settings.domains import CLOSED, SWITCH
from ilp_planner.settings.table import SETTINGS
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
ALSO = [*OF_INPUTS.values(), *(row.also for row in SETTINGS)]
COMMANDS = ("solve", "fit", "analyze", "size", "tune")


def options_of(command: str) -> set[str]:
    parameters = command_line((command,)).commands[command].params
    return {option for one in parameters for option in one.opts}


ALL = {command: options_of(command) for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_of_a_setting_leads_to_its_option(command: str) -> None:
    """Of every row with an option, and every system that has a key of its own for it."""
    led = 0
    for row in SETTINGS:
        for key in row.keys:
            if not key.name or option_of(row.name) not in ALL[command]:
                continue
            own, system = own_option(f"--{key.name}", ALL[command])
            assert own == option_of(row.name), key.name
            assert system
            led += 1
    assert led > 15


@pytest.mark.parametrize("system", systems(), ids=lambda system: system.name)
def test_every_key_that_is_an_argument_leads_to_its_option(system: object) -> None:
    for key, says in system.rows.items():  # type: ignore[attr-defined]
        said = isinstance(says, str) and any(says in words for words in ALSO)
        if said and option_of(key) not in ALL["solve"] | ALL["fit"]:
            own, _ = own_option(f"--{key.replace('_', '-')}", ALL["solve"] | ALL["fit"])
            assert own, key


def test_every_option_that_is_named_is_one() -> None:
    named = {*OF_INPUTS, *PARALLEL.values(), *(row.name for row in SETTINGS if row.also)}
    every = set.union(*ALL.values())
    assert {option_of(name) for name in named} <= every
    rows = {row.name for row in SETTINGS if row.domain is not CLOSED}
    assert {option_of(name) for name in rows - {"max_devices", "without", "keep"}} <= every


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("--tensor-model-parallel-size", "--tp"), ("--tp_size", "--tp"), ("--tp-degree", "--tp"),
        ("--zero-stage", "--sharding"), ("--per_device_train_batch_size", "--micro-batch-size"),
        ("--tensor-parallel-size", "--tp"), ("--ep-size", "--ep"), ("--num-gpus", "--gpus"),
        ("--parallelism.tensor_parallel_degree", "--tp"),
        ("--gradient_checkpointing", "--recompute"),
        ("--recompute-granularity", "--recompute"), ("--bf16", "--precision"),
    ],
)  # fmt: skip
def test_the_message_names_the_option(ilp_plan: Command, word: str, option: str) -> None:
    for command in ("solve", "fit"):
        done = ilp_plan(command, "llama3-8b", word, "2")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"ilp-plan: {word}: found ")
        assert done.err.endswith(f"expected {option}\n")


@pytest.mark.parametrize("word", ["--foo", "--tpp", "--num-experts-of-mine", "--=3", "--é"])
def test_other_words_are_left_alone(ilp_plan: Command, word: str) -> None:
    assert own_option(word, ALL["solve"]) == ("", "")
    assert "expected --" not in ilp_plan("solve", "llama3-8b", word, "2").err


ALONE = [row for row in SETTINGS if row.alone]


@pytest.mark.parametrize("row", ALONE, ids=lambda row: row.name)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_said_alone_has_the_value_of_its_row(command: str, row: Setting) -> None:
    option = option_of(row.name)
    assert option in ALL[command]
    assert row.alone in row.domain.values
    positions = ["llama3.2-1b", "lama3-8b", "mistralai/Nemo", "run.sh", "8xH100", "a100-4x8"]
    for more in ([], ["--tp", "2"], ["-h"], *([one] for one in positions)):
        assert [*with_values([option, *more], ALL[command])] == [option, row.alone, *more]
    for value in (*row.domain.values, ",".join(row.domain.values), "both", f"{row.alone}x"):
        assert [*with_values([option, value], ALL[command])] == [option, value]
    for kept in (["--", option], ["--", option, "maybe"]):  # of a launch script
        assert [*with_values(kept, ALL[command])] == kept
    assert [*with_values([option, "maybe"], ())] == [option, "maybe"]  # of another program


@pytest.mark.parametrize("row", ALONE, ids=lambda row: row.name)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_word_behind_an_option_that_is_no_value_is_said(
    ilp_plan: Command, command: str, row: Setting
) -> None:
    option = option_of(row.name)
    expected = f"expected {' or '.join(row.domain.values)}, or no value, which is {row.alone}\n"
    for word in ("maybe", "1", "nf4", "True", "some,more"):
        for args in (("llama3-8b", option, word), (option, word, "llama3-8b"), (option, word)):
            done = ilp_plan(command, *args)
            assert (done.code, done.out) == (2, "")
            assert done.err == f"ilp-plan: {option}: found {word!r}, {expected}"


def test_settings_that_are_on_or_off_may_be_said_alone() -> None:
    on_or_off = {row.name for row in SETTINGS if row.domain.values == SWITCH and row.help}
    assert on_or_off <= {row.name for row in ALONE}


@pytest.mark.parametrize("option", ["--qlora", "--fused-loss"])
def test_one_command_takes_what_the_other_says(ilp_plan: Command, option: str) -> None:
    job = ("llama3.2-1b", "--gpus", "1xH100", "--global-batch-size", "8", "--lora", "8")
    (row,) = (row for row in ALONE if option_of(row.name) == option)
    alone = ilp_plan("fit", *job, option, "--verdict")
    assert alone.code == 0, alone.err
    assert ilp_plan("fit", *job, option, row.alone, "--verdict").out == alone.out
    off = next(value for value in row.domain.values if value in ("off", "none"))
    nothing = ilp_plan("fit", *job, "--verdict").out
    assert ilp_plan("fit", *job, option, off, "--verdict").out == nothing != alone.out


def test_adapters_beside_a_setting_of_others_are_named_as_they_name_them(ilp_plan: Command) -> None:
    job = ("llama3.2-1b", "--gpus", "1xH100", "--global-batch-size", "8", "--lora", "8")
    done = ilp_plan("fit", *job, "--fused-loss", "liger", "--verdict")
    assert "judged as torchtitan" in done.out
    assert "its times are not known" not in done.out


@pytest.mark.parametrize("command", ["fit", "analyze", "solve", "size"])
@pytest.mark.parametrize("former", sorted(RENAMED))
def test_a_renamed_option_is_taken_by_both_names(
    ilp_plan: Command, command: str, former: str
) -> None:
    job = ("llama3.2-1b", "--gpus", "8xA100-40GB", f"--{former}")
    of_before = ilp_plan(command, *job, "40")
    now = ilp_plan(command, *job[:-1], f"--{RENAMED[former]}", "40")
    assert of_before.code == now.code == 2
    assert of_before.err == now.err
    assert f"--{RENAMED[former]} must have a unit" in now.err
