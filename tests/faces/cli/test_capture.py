"""`ilp-plan capture`, and the commands that take its file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done
from tests.formats.captured.conftest import unguarded

Command = Callable[..., Done]
pytestmark = pytest.mark.skipif(bool(unguarded()), reason=unguarded())

MEGATRON = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
    "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 32 --vocab-size 32000 "
    "--bf16"
)
LAUNCH = (
    f"torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size ${{1:-1}} {MEGATRON}"
)
GPUS = ("--gpus", "8xA100-80GB")


def write(folder: Path, text: str, name: str = "run.sh") -> Path:
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    return folder / name


def differences(one: dict[str, object], other: dict[str, object]) -> set[str]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def test_a_captured_job_is_the_job_of_its_script(ilp_plan: Command, folder: Path) -> None:
    """It is read as the launch line is, and with the arguments that the script had."""
    write(folder, f"pkill -9 nobody\n{LAUNCH}")
    done = ilp_plan("capture", "--output", "j.json", "--", "bash", "run.sh", "2")
    assert done.code == 0, done.err
    assert "`bash run.sh 2` itself is run now" in done.err
    assert "not run: pkill -9 nobody" in done.err
    assert "launch 1: torchrun" in done.out
    for command in ("fit", "analyze"):
        one, other = (
            json.loads(ilp_plan(command, file, *GPUS, "--json", *words).out)
            for file, *words in (("j.json",), ("run.sh", "--", "2"))
        )
        assert differences(one, other) <= {"model", "name", "source"}


def test_arguments_of_a_script(ilp_plan: Command, folder: Path) -> None:
    write(folder, LAUNCH)
    plain, given = (ilp_plan("fit", "run.sh", *GPUS, *words) for words in ((), ("--", "4")))
    assert "tp 1," in plain.out
    assert "tp 4," in given.out
    done = ilp_plan("fit", "llama3-8b", *GPUS, "--", "4")
    assert done.code == 2
    assert "-- 4: found arguments of a script, expected a launch script before them" in done.err


def test_print_runs_nothing(ilp_plan: Command, folder: Path) -> None:
    write(folder, "touch ran; torchrun x")
    done = ilp_plan("capture", "--print", "--", "bash", "run.sh")
    assert done.code == 0
    assert "would run: bash run.sh" in done.out
    assert "torchrun" in done.out
    assert not (folder / "ran").exists()
    assert not (folder / "job.json").exists()
    done = ilp_plan("capture", "--print", "--allow", "jet")
    rows = dict(line.split(": ", 1) for line in done.out.replace("\n    ", " ").splitlines()[:3])
    always, limited = ({*rows[name].replace(";", ",").split(", ")} for name in list(rows)[1:])
    assert {"cat", "bash", "jet"} <= always
    assert {"sed", "find", "git", "nvidia-smi"} <= limited
    assert not always & limited


CASES = {
    "without a launch": ("echo hello", "ended without a launch, expected one by torchrun"),
    "failing before": ("set -e; false; torchrun x", "ended with status 1 before any launch"),
    "killed": ("kill -TERM $$", "was killed by signal 15 before any launch"),
    "asking for a password": (
        "read -rs -p password: X || exit 7; torchrun x",
        "ended with status 7 before any launch; it read its standard input, which is closed",
    ),
    "waiting": ("while :; do :; done", "still ran after 2 s without a launch, and was ended"),
    "not bash": ("if [", "ended with status 2 before any launch"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("case", CASES)
def test_a_script_without_a_launch_is_refused(ilp_plan: Command, folder: Path, case: str) -> None:
    """In one line, after what the script itself printed, and nothing is written."""
    text, message = CASES[case]
    write(folder, text)
    done = ilp_plan("capture", "--time-limit", "2", "--", "bash", "run.sh")
    assert done.code == 1
    assert f"ilp-plan: bash run.sh: {message}" in done.err.splitlines()[-1]
    assert not (folder / "job.json").exists()


def test_of_several_launches_one_is_asked_for(ilp_plan: Command, folder: Path) -> None:
    """Both are kept. The same launch of several nodes is one."""
    write(folder, f"for k in 0 1; do torchrun --node_rank $k {MEGATRON} & done; wait; {LAUNCH}")
    command = ("--", "bash", "run.sh")
    done = ilp_plan("capture", *command)
    assert done.code == 2
    assert (
        "job.json: holds 2 launches, and a job is one of them: --launch 1 to --launch 2" in done.err
    )
    assert len(json.loads((folder / "job.json").read_text())["launches"]) == 2
    done = ilp_plan("fit", "job.json", *GPUS)
    assert done.code == 2
    assert "job.json: launch: found 2 launches, expected the number of one" in done.err
    assert ilp_plan("capture", "--launch", "3", *command).code == 2
    assert ilp_plan("capture", "--launch", "2", *command).code == 0
    assert ilp_plan("fit", "job.json", *GPUS).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "capture: found no command, expected the one that starts the script"),
        (("run.sh",), "run.sh: found a file that is no program, expected a command"),
        (("--", "bash", "no.sh"), "no.sh: no such file, expected the script to run"),
        (("--", "nosuchprogram"), "nosuchprogram: no such program, expected a command"),
        (("--allow", "srun", "--", "bash", "run.sh"), "--allow: found srun, which starts training"),
        (("--output", "no/j.json", "--", "bash", "run.sh"), "no/j.json: no such folder"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(
    ilp_plan: Command, folder: Path, words: tuple[str, ...], message: str
) -> None:
    write(folder, "touch ran")
    done = ilp_plan("capture", *words)
    assert done.code in (1, 2)
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("launch", "system"),
    [
        ("deepspeed --module openrlhf.cli.train_sft --max_len 2048", "OpenRLHF"),
        ("axolotl train x.yaml", "Axolotl"),
        ("torchrun my_own_training.py --x 1", "my_own_training.py"),
    ],
)
def test_a_launch_of_another_system_is_named(
    ilp_plan: Command, folder: Path, launch: str, system: str
) -> None:
    write(folder, launch)
    assert ilp_plan("capture", "--", "bash", "run.sh").code == 0
    done = ilp_plan("fit", "job.json", *GPUS)
    assert done.code == 1
    assert f"job.json: launch 1: found a launch of {system}, which no command reads" in done.err


def test_what_is_asked_of_a_job(ilp_plan: Command, folder: Path) -> None:
    """Arguments may be added; its variables have been set, and unknown ranks are asked for."""
    write(folder, f"srun torchrun --nproc_per_node gpu pretrain_gpt.py {MEGATRON}")
    assert ilp_plan("capture", "--", "bash", "run.sh").code == 0
    done = ilp_plan("analyze", "job.json")
    assert "--world-size N or --gpus NxGPU" in done.err
    assert ilp_plan("analyze", "job.json", "--world-size", "8").code == 0
    done = ilp_plan("analyze", "job.json", "--world-size", "8", "--set", "TP=2")
    assert "--set TP: found a variable, which the script has had already" in done.err
    words = ("job.json", *GPUS, "--set", "--tensor-model-parallel-size=2")
    assert "tp 2," in ilp_plan("fit", *words).out
