"""What becomes of a program, by its words."""

import pytest

from ilp_planner.formats.captured.programs import HARMLESS, LAUNCHES, PLACING, Kind, ruling_on

RULINGS = {
    "cat a": Kind.RUN,
    "date +%s": Kind.RUN,
    "date -s 2020-01-01": Kind.NOTED,
    "sed s/a/b/ x": Kind.RUN,
    "sed -i s/a/b/ x": Kind.NOTED,
    "sed -i.bak s/a/b/ x": Kind.NOTED,
    "find . -name x": Kind.RUN,
    "find . -name x -delete": Kind.NOTED,
    "hostname -I": Kind.RUN,
    "hostname": Kind.RUN,
    "ip addr": Kind.RUN,
    "ip link set eth0 down": Kind.NOTED,
    "git -C x rev-parse HEAD": Kind.RUN,
    "git clone https://x/y": Kind.NOTED,
    "git reset --hard": Kind.NOTED,
    "nvidia-smi -L": Kind.RUN,
    "nvidia-smi topo -m": Kind.RUN,
    "nvidia-smi --query-gpu=name --format=csv": Kind.RUN,
    "nvidia-smi -pm 1": Kind.NOTED,
    "nvidia-smi --gpu-reset -i 0": Kind.NOTED,
    "nvidia-smi -mig 1": Kind.NOTED,
    "scontrol show hostnames a[1-2]": Kind.RUN,
    "scontrol update jobid=1": Kind.NOTED,
    "scancel 1": Kind.NOTED,
    "pip list": Kind.RUN,
    "pip install x": Kind.NOTED,
    "python -c print(1)": Kind.RUN,
    "python -V": Kind.RUN,
    "python -u -W ignore -X dev -c print(1)": Kind.RUN,
    "python -": Kind.RUN,
    "python tool.py": Kind.LAUNCH,
    "python -m pip install x": Kind.LAUNCH,
    "ray stop --force": Kind.NOTED,
    "ray start --head": Kind.NOTED,
    "ray job submit -- python train.py": Kind.LAUNCH,
    "ray job stop x": Kind.NOTED,
    "accelerate config": Kind.NOTED,
    "accelerate launch x.py": Kind.LAUNCH,
    "megatron export --x": Kind.NOTED,
    "sudo rm -rf x": Kind.NOTED,
    "sudo -E bash x.sh": Kind.INNER,
    "docker ps": Kind.NOTED,
    "ssh host": Kind.NOTED,
    "ssh -p 22 host torchrun x": Kind.INNER,
    "sbatch": Kind.INNER,
    "srun -N 2 hostname": Kind.LAUNCH,
    "srun -N 2 bash x.sh": Kind.INNER,
    "/opt/x/whatever": Kind.NOTED,
    "rm -rf x": Kind.NOTED,
    "kill -9 1": Kind.NOTED,
    "dd if=a of=b": Kind.NOTED,
}


@pytest.mark.parametrize("line", RULINGS)
def test_a_ruling(line: str) -> None:
    words = line.split()
    assert ruling_on(words).kind is RULINGS[line]
    assert ruling_on([f"/some/where/{words[0]}", *words[1:]]).kind is RULINGS[line]


@pytest.mark.parametrize(
    "line", ["rm x", "pip install x", "git clone x", "ray stop", "python tool.py", "python -m tool"]
)
def test_the_user_may_allow_a_program(line: str) -> None:
    words = line.split()
    assert ruling_on(words).kind is not Kind.RUN
    assert ruling_on(words, (words[0],)).kind is Kind.RUN


@pytest.mark.parametrize("name", [*LAUNCHES, *PLACING])
def test_no_launcher_ever_runs(name: str) -> None:
    """Whatever the user allows."""
    for behind in LAUNCHES.get(name, ()) or ((),):
        words = [name, *behind, "x.py"]
        assert ruling_on(words, (name, "x.py"), script=True).kind is Kind.LAUNCH


def test_a_program_of_python_may_be_allowed_by_its_own_name() -> None:
    assert ruling_on(["python", "a/count.py"], ("count.py",)).kind is Kind.RUN
    assert ruling_on(["python", "a/other.py"], ("count.py",)).kind is Kind.LAUNCH
    assert ruling_on(["python", "a/pretrain_gpt.py"], ("pretrain_gpt.py", "python")).kind is (
        Kind.LAUNCH
    )


def test_what_is_not_named_as_training_is_a_launch_only_if_nothing_else_is() -> None:
    assert not ruling_on(["python", "tools/convert.py"]).sure
    assert ruling_on(["python", "train.py"]).sure
    assert ruling_on(["python", "x.py", "--num-layers", "2", "--hidden-size=8"]).sure


def test_no_program_is_in_two_tables() -> None:
    assert not HARMLESS.keys() & {*LAUNCHES, *PLACING, "sbatch"}
