"""The job file: what it holds, what it leaves out, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.captured.guard import Started
from ilp_planner.formats.captured.job_file import (
    CapturedJob,
    Launch,
    files_of,
    job_object,
    launch_of,
    read_job,
    world_of,
    write_job,
)
from ilp_planner.formats.captured.reader import read_recorded
from tests.schemas.valid import faults

LAUNCH = Launch(
    words=("torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--num-layers", "2"),
    outer=(("srun", "-N", "2"),),
    folder="/work",
    environment={"NCCL_IB_HCA": "mlx5"},
    world=16,
)
JOB = CapturedJob(
    command=("bash", "run.sh", "a b"),
    folder="/work",
    launches=(LAUNCH, Launch(words=("torchrun", "x.py"))),
    launch=1,
    not_run=(("pkill", "python"),),
    files={"/work/hosts": "a slots=8\n"},
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_job(tmp_path / "j.json", JOB)
    assert read_job(tmp_path / "j.json") == JOB
    assert faults("job", json.loads((tmp_path / "j.json").read_text())) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, "version: found 2, expected 1; a newer ilp-plan may have written it"),
        ({"launch": 3}, "launch: found 3, expected a whole number from 1 to 2"),
        ({"launch": 0}, "launch: found 0"),
        ({"launches": []}, "launches: found a list of 0, expected at least one"),
        ({"launches": [{**job_object(JOB)["launches"][0], "words": []}]}, "launches[0].words"),
        ({"launches": [{"words": ["a"]}]}, "launches[0].outer: found nothing, expected a list"),
        ({"not_run": [[]]}, "not_run[0]: found none, expected at least one word"),
        ({"not_run": ["a"]}, "not_run[0].words: found 'a', expected a list"),
        ({"files": {"a": 1}}, "files.a: found 1, expected a text"),
        ({"more": 1}, "more: found an unknown key"),
        ({"command": "bash"}, "command: found 'bash', expected a list"),
    ],
)
def test_what_is_no_job_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    file = tmp_path / "j.json"
    file.write_text(json.dumps({**job_object(JOB), **changed}))
    with pytest.raises(PlanError) as refused:
        read_job(file)
    assert str(refused.value).startswith(f"{file}: {message}")


def test_keys_and_passwords_are_left_out() -> None:
    words = (
        "torchrun x.py --wandb-key SECRET --hf-token=SECRET --tokenizer-type kept WANDB_API_KEY="
        "SECRET --api_key SECRET --num-tokens 5 --password SECRET"
    )
    environment = dict.fromkeys(
        ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "HOME", "SLURM_JWT_SECRET"), "SECRET"
    ) | {"NCCL_DEBUG": "INFO", "SLURM_NNODES": "2"}
    kept = launch_of(
        Started(tuple(words.split()), environment, "/", outer=(("env", "A_PASSWORD=SECRET"),))
    )
    held = (*kept.words, *sum(kept.outer, ()), *kept.environment.values())
    assert not [word for word in held if word.endswith("SECRET")]
    assert {"kept", "5"} <= {*kept.words}
    assert kept.environment == {"NCCL_DEBUG": "INFO", "SLURM_NNODES": "2"}


def test_files_that_a_launch_names_are_kept(tmp_path: Path) -> None:
    """Texts of some kinds, no others, and none that is long."""
    (tmp_path / "ds.json").write_text("{}")
    (tmp_path / "hosts").write_text("a slots=8\n")
    (tmp_path / "weights.bin").write_text("x")
    (tmp_path / "long.yaml").write_text("x" * 2**21)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    words = (
        "deepspeed --hostfile hosts train.py --deepspeed_config=ds.json weights.bin long.yaml "
        "binary.json no.json ."
    )
    found, long = files_of([Launch(words=tuple(words.split()), folder=str(tmp_path))])
    assert long == [str(tmp_path / "long.yaml")]
    assert found == {str(tmp_path / "ds.json"): "{}", str(tmp_path / "hosts"): "a slots=8\n"}


ARGUMENTS = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 128 "
    "--max-position-embeddings 64 --micro-batch-size 1"
)


RAY = '{"env_vars":{"CUDA_DEVICE_MAX_CONNECTIONS":"1"}}'


@pytest.mark.parametrize(
    "before",
    [
        "mpirun -np 8 -x CUDA_DEVICE_MAX_CONNECTIONS=1 -x PATH python",
        f"ray job submit --runtime-env-json={RAY} -- python",
        f"ray job submit --runtime-env-json {RAY} -- python",
    ],
)
def test_variables_that_a_launcher_gives_count(before: str) -> None:
    launch = Launch(words=(*before.split(), "pretrain_gpt.py", *ARGUMENTS.split()))
    args = read_recorded(launch, {}, "job")
    assert args.environment is not None
    assert args.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


@pytest.mark.parametrize(
    ("line", "outer", "world", "each"),
    [
        ("torchrun --nproc_per_node 8 --nnodes 4", (), 32, 8),
        ("torchrun --nproc_per_node 8 --nnodes 4", (("srun", "-N", "4"),), 32, 8),
        ("python", (("srun", "-N", "2", "--ntasks-per-node", "8"),), 16, 8),
        ("mpirun -np 16 --hostfile hosts python", (), 16, 8),
        ("torchrun --nproc_per_node 4", (("sudo", "-E"),), 4, 4),
        ("python", (), 16, 8),
    ],
)
def test_ranks_come_of_all_launchers(
    line: str, outer: tuple[tuple[str, ...], ...], world: int, each: int
) -> None:
    """And of the environment, if no launcher says them."""
    environment = {} if outer or line != "python" else {"WORLD_SIZE": "16"}
    launch = Launch(
        words=(*line.split(), "pretrain_gpt.py", *ARGUMENTS.split()),
        outer=outer,
        folder="/work",
        environment=environment,
    )
    files = {"/work/hosts": "a slots=8\nb slots=8\n"}
    args = read_recorded(launch, files, "job")
    assert (args.world, args.devices_per_node) == (world, each)
    assert world_of(launch) == world
    args = read_recorded(replace(launch, world=world // 2), files, "job")
    assert args.world == world // 2


@pytest.mark.parametrize("line", ["torchrun --nproc_per_node gpu", "srun", "deepspeed"])
def test_ranks_that_are_left_open_are_no_number(line: str) -> None:
    assert world_of(Launch(words=(*line.split(), "pretrain_gpt.py", *ARGUMENTS.split()))) is None
