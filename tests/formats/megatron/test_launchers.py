"""Idioms of launchers: each says how many ranks there are, or which number is missing."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.ranks import Gpus
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.formats.megatron.values import MegatronArguments
from tests.examples import examples, for_each

MODEL = (
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --micro-batch-size 1 --vocab-size 100"
)
RUN = f"pretrain_gpt.py {MODEL}"
TWO_NODES = Gpus(16, 8, "16xH100")
HOSTS = "a slots=8\nb slots=8\nc slots=8\n"
ASKED = r"--world-size N or --gpus NxGPU$"

# What stands before the program; ranks and those of a node without a cluster, or what is asked for;
# the same beside two nodes of 8; and what is said of that.
IDIOMS = [
    # torchrun
    ("torchrun --nproc_per_node 8 --nnodes 2", (16, 8), (16, 8), "as 16xH100 has them"),
    ("torchrun --nproc-per-node=8 --nnodes=4", (32, 8), (32, 8), "more than the 16 of 16xH100"),
    ("torchrun --standalone --nproc_per_node 8", (8, 8), (8, 8), "fewer than the 16"),
    ("torchrun", (1, 1), (1, 1), "1 rank, on one node, fewer than the 16"),
    ("torchrun --nnodes 1:4 --nproc_per_node 8", "--nnodes: found 1:4", (16, 8), "--nnodes 1:4"),
    ("torchrun --nnodes 4:8 --nproc_per_node 8", "--nnodes: found 4:8", (32, 8), "more than"),
    ("torchrun --nnodes 2:2 --nproc_per_node 8", (16, 8), (16, 8), "as 16xH100"),
    ("torchrun --nproc-per-node gpu",
     "--nproc-per-node: found gpu", (8, 8), "--nproc-per-node gpu"),
    ("torchrun --nnodes 2 --nproc-per-node auto", "found auto", (16, 8), "taken from 16xH100"),
    ("torchrun --nproc_per_node 4 --nnodes 4", (16, 4), (16, 4), "nodes of 16xH100 have 8 GPUs"),
    ("python -m torch.distributed.launch --nproc_per_node 8 --nnodes 2 --use_env",
     (16, 8), (16, 8), "as"),
    ("python3 -u -m torch.distributed.run --nproc_per_node=8", (8, 8), (8, 8), "fewer"),
    ("torchrun $DISTRIBUTED_ARGS", "DISTRIBUTED_ARGS", (16, 8), r"\$DISTRIBUTED_ARGS: taken from"),
    ("torchrun --nproc_per_node 8 --nnodes $N",
     r"--set N=VALUE, --w", (16, 8), r"--nnodes \$N: taken"),
    ("torchrun --nproc_per_node $G --nnodes 2", r"--set G=VALUE, --w", (16, 8), r"\$G: taken"),
    ("torchrun --nproc_per_node $G --nnodes $N",
     r"--set N=VALUE --set G=V", (16, 8), r"\$G: taken"),
    # srun
    ("srun -N 2 --ntasks-per-node=8 python -u", (16, 8), (16, 8), "as 16xH100"),
    ("srun -N2 -n16 python", (16, 8), (16, 8), "as 16xH100"),
    ("srun --ntasks=16 --gpus-per-node=8 python", (16, 8), (16, 8), "as 16xH100"),
    ("srun -n 16 --gres=gpu:h100:4 python", (16, 4), (16, 4), "nodes of 16xH100 have 8"),
    ("srun --nodes=2 --ntasks-per-node=8 --gpus-per-task=1 python", (16, 8), (16, 8), "as"),
    ("srun --nodes=2 --gres=gpu:8 python", "found no --ntasks-per-node", (16, 8), "taken from"),
    ("srun --ntasks-per-node=8 python", (None, "fewest"), (16, 8), "as 16xH100"),
    ("srun -l --ntasks-per-node=1 torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES",
     "SLURM_NNODES=VALUE", (16, 8), r"\$SLURM_NNODES: taken from 16xH100"),
    ("srun -N 4 --ntasks-per-node=1 torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES",
     (32, 8), (32, 8), "more than the 16"),
    ("srun --nodes=2 torchrun --nproc_per_node 8 --nnodes 2", (16, 8), (16, 8), "as 16xH100"),
    ("srun -N 2 --ntasks-per-node=8 torchrun --nproc_per_node 1 --nnodes 16",
     (16, 8), (16, 8), "as"),
    ("srun -N 4 torchrun --nproc_per_node 8", "starts it 4 times", "starts it 4 times", ""),
    ("srun -N 4 -n 4 torchrun --nproc_per_node 8 --nnodes 2", "expected as many", "expected", ""),
    ("srun -N 2 --gres=gpu:4 torchrun --nproc_per_node 8 --nnodes 2", "given 4 GPUs", "given", ""),
    # MPI
    ("mpirun -np 16 python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun -np 16 -npernode 8 python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun --allow-run-as-root -np 16 -N 8 -x PATH python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun -n 16 --map-by ppr:8:node python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun --map-by ppr:4:socket python", "ppr:N:node", (16, 8), "taken"),
    ("mpirun -np 16 --map-by slot python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun -H a:8,b:8 python", (16, 8), (16, 8), "as 16xH100"),
    ("mpirun --hostfile hosts python", (24, 8), (24, 8), "more than the 16"),
    ("mpirun --hostfile hosts -np 16 -npernode 8 python", (16, 8), (16, 8), "as"),
    ("mpiexec --hostfile gone python", "gone is not there", (16, 8), "taken from"),
    ("mpirun -np $N python", "--set N=VALUE", (16, 8), "-np"),
    ("mpirun -np 2 -npernode 1 torchrun --nproc_per_node 8 --nnodes 2", (16, 8), (16, 8), "as"),
    # DeepSpeed
    ("deepspeed --num_nodes 2 --num_gpus 8", (16, 8), (16, 8), "as 16xH100"),
    ("deepspeed --num_gpus=8", (8, 8), (8, 8), "fewer than the 16"),
    ("deepspeed", "takes all GPUs of a node", (8, 8), "taken from 16xH100"),
    ("deepspeed --hostfile hosts", (24, 8), (24, 8), "more than the 16"),
    ("deepspeed --hostfile=gone", "gone is not there", (16, 8), "taken from"),
    ("deepspeed --include localhost:0,1,2,3", (4, 4), (4, 4), "fewer"),
    ("deepspeed --include a:0,1,2,3@b:0,1,2,3", (8, 4), (8, 4), "fewer"),
    # Accelerate
    ("accelerate launch --num_processes 16 --num_machines 2", (16, 8), (16, 8), "as 16xH100"),
    ("accelerate launch --multi_gpu --num_processes=8", (8, 8), (8, 8), "fewer"),
    ("accelerate launch", "no --num_processes", (16, 8), "taken from 16xH100"),
    # Kubernetes: what the operator sets is not known here
    ("torchrun --nnodes $PET_NNODES --nproc_per_node $PET_NPROC_PER_NODE",
     "--set PET_NNODES=VALUE --set PET_NPROC_PER_NODE=VALUE, --w", (16, 8),
     "PET_NNODES: taken|taken"),
    ("torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=$NPROC_PER_NODE",
     "--set WORLD_SIZE=VALUE --set NPROC_PER_NODE", (16, 8), "taken from"),
    ("torchrun --nnodes=${WORLD_SIZE:-2} --nproc_per_node=8", (16, 8), (16, 8), "as 16xH100"),
    # none
    ("python", (None, "fewest"), (16, 8), "--world-size is not given: the 16 GPUs of 16xH100"),
    ("WORLD_SIZE=16 python -u", (16, 8), (16, 8), "WORLD_SIZE: 16 ranks"),
]  # fmt: skip


def read(
    folder: Path, text: str, gpus: Gpus | None, world: int | None = None, *, strict: bool = True
) -> MegatronArguments:
    (folder / "hosts").write_text(HOSTS)
    path = folder / "run.sh"
    path.write_text(text)
    return read_script(path, world, environment={}, gpus=gpus, strict=strict)


@for_each(("before", "alone", "beside", "words"), IDIOMS)
def test_idioms(
    tmp_path: Path,
    before: str,
    alone: tuple[int, int] | str,
    beside: tuple[int, int] | str,
    words: str,
) -> None:
    line = f"{before} {RUN}\n"
    for gpus, expected in ((None, alone), (TWO_NODES, beside)):
        if isinstance(expected, str):
            with pytest.raises(SpecError, match=expected) as caught:
                read(tmp_path, line, gpus)
            assert str(caught.value).startswith(f"{tmp_path}/run.sh: line 1: ")
            assert "--world-size N" in str(caught.value)
            assert read(tmp_path, line, gpus, 32).world == 32  # which the message says would do
        elif expected[0] is None:
            assert not read(tmp_path, line, gpus).world_said
        else:
            found = read(tmp_path, line, gpus)
            assert (found.world, found.devices_per_node) == expected
            assert found.world_said
    if not isinstance(beside, str):
        (remark,) = read(tmp_path, line, TWO_NODES).remarks[:1]
        assert re.search(words, remark), remark


SPELT = [
    "torchrun --nnodes {nodes} --nproc_per_node {each}",
    "torchrun --nnodes={nodes}:{nodes} --nproc-per-node={each} --rdzv-backend c10d",
    "python -m torch.distributed.run --nproc_per_node {each} --nnodes {nodes}",
    "srun -N {nodes} --ntasks-per-node={each} python",
    "srun -N{nodes} -n{all} -l python -u",
    "srun --nodes {nodes} --ntasks-per-node 1 torchrun --nnodes $N --nproc_per_node {each}",
    "srun -N {nodes} --ntasks-per-node={each} torchrun --nnodes {all} --nproc_per_node 1",
    "mpirun -np {all} -npernode {each} python",
    "mpirun -n {all} --map-by ppr:{each}:node python",
    "deepspeed --num_nodes {nodes} --num_gpus {each}",
    "accelerate launch --num_machines {nodes} --num_processes {all}",
    "ray job submit -- python train.py --actor-num-nodes {nodes} --actor-num-gpus-per-node {each}",
]


@examples(8, more=15)
@given(nodes=st.integers(1, 64), each=st.integers(1, 16), count=st.integers(1, 64))
def test_all_spell_the_same(
    tmp_path_factory: pytest.TempPathFactory, nodes: int, each: int, count: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    gpus = Gpus(8 * count, 8, f"{8 * count}xH100")
    for form in SPELT:
        line = form.format(nodes=nodes, each=each, all=nodes * each)
        ends = "" if "train.py" in line else "pretrain_gpt.py"
        for known in (None, gpus):  # a cluster changes nothing where the line says it
            found = read(folder, f"{line} {ends} {MODEL}\n", known)
            assert (found.world, found.devices_per_node) == (nodes * each, each), line
            assert bool(found.remarks) is (known is not None)


HEADERS = [
    ("--nodes=2 --ntasks-per-node=8", "srun python", (16, 8)),
    ("-N 2 --ntasks-per-node=1 --gres=gpu:8",
     "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE", (16, 8)),
    ("--nodes=4 --gpus-per-node=h100:8",
     "srun --ntasks-per-node=1 torchrun --nnodes $SLURM_JOB_NUM_NODES "
     "--nproc_per_node $SLURM_GPUS_PER_NODE", (32, 8)),
    ("--nodes=2 --ntasks=16", "srun -l python", (16, 8)),
    ("--nodes=2 --ntasks-per-node=8", "srun -n 4 python", (4, 2)),
    ("--nodes=2-4 --ntasks-per-node=8", "srun python", "found|fewest"),
    ("--nodes=2 --ntasks-per-node=1", "mpirun -np 16 -npernode 8 python", (16, 8)),
]  # fmt: skip


@for_each(("header", "line", "expected"), HEADERS)
def test_headers_of_slurm(
    tmp_path: Path, header: str, line: str, expected: tuple[int, int] | str
) -> None:
    text = f"#!/bin/bash\n#SBATCH {header}\n{line} {RUN}\n"
    if isinstance(expected, str):
        assert not read(tmp_path, text, None).world_said
        assert read(tmp_path, text, TWO_NODES).world == 16
        return
    found = read(tmp_path, text, None)
    assert (found.world, found.devices_per_node) == expected


def test_headers_count_inside_another_job_of_slurm(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"#SBATCH --nodes=4 --ntasks-per-node=8\nsrun python {RUN}\n")
    assert read_script(path, environment={"SLURM_NNODES": "1", "SLURM_NTASKS": "1"}).world == 32


def test_a_hostfile_lies_beside_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "hosts").write_text("a slots=2\n")
    monkeypatch.chdir(tmp_path / "here")
    assert read(tmp_path, f"deepspeed --hostfile hosts {RUN}", None).world == 24


TYPED = [row[0] for row in IDIOMS if "hosts" not in row[0] and ":-" not in row[0]]


@for_each("before", TYPED)
def test_a_typed_line_is_read_alike(tmp_path: Path, before: str) -> None:
    line = f"{before} {RUN}"
    for gpus in (None, TWO_NODES):
        try:
            found = read(tmp_path, line, gpus)
        except SpecError:
            with pytest.raises(SpecError, match="--world-size N"):
                read_arguments(line, gpus=gpus, source="--megatron-args")
            continue
        typed = read_arguments(line, gpus=gpus)
        assert (typed.world, typed.devices_per_node) == (found.world, found.devices_per_node)


def test_programs_with_options_of_a_launcher(tmp_path: Path) -> None:
    """Those that train on Ray say it among their own arguments."""
    ray = "ray job submit --address=http://127.0.0.1:8265 -- python3 train.py"
    own = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate"
    text = f"A=({MODEL})\n{ray} {own} ${{A[@]}} --rollout-batch-size 32\n"
    found = read(tmp_path, text, None, strict=False)
    assert (found.world, found.devices_per_node, found.program) == (8, 8, "train.py")
    with pytest.raises(SpecError, match="--set G=VALUE"):
        read(tmp_path, f"{ray} --actor-num-nodes 1 --actor-num-gpus-per-node $G {MODEL}", None)
    for program in ("-m my.trainer", "$TRAINER"):
        found = read(tmp_path, f"torchrun --nproc_per_node 4 {program} {MODEL}", None)
        assert found.world == 4


@pytest.mark.parametrize(
    ("line", "rests_on"),
    [
        ("python", r"\(--world-size is not given: the 16 GPUs of 16xH100 are taken\)$"),
        ("torchrun --nproc_per_node 8", r"\(launch: torchrun: 8 ranks, .* fewer than the 16 .*\)$"),
        ("torchrun --nproc_per_node 8 --nnodes $N", r"\(launch: .*--nnodes \$N: taken from .*\)$"),
    ],
)
def test_a_refused_number_says_which_ranks_it_rests_on(
    tmp_path: Path, line: str, rests_on: str
) -> None:
    args = read(tmp_path, f"{line} {RUN} --global-batch-size 3", TWO_NODES)
    with pytest.raises(SpecError, match=rests_on):
        job_of_arguments(args)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 2000000000 --nproc_per_node 2000000000",
        "mpirun -H a:99999999999999999999999999 python",
        f"mpirun -np {'9' * 50} python",
        "srun -N 99999999999 --ntasks-per-node=8 python",
    ],
)
def test_more_ranks_than_there_can_be(tmp_path: Path, line: str) -> None:
    for gpus in (None, TWO_NODES):
        with pytest.raises(SpecError, match="expected at most 2147483647"):
            read(tmp_path, f"{line} {RUN}", gpus)


@pytest.mark.parametrize("line", ["srun -N 2 --ntasks-per-node=8 bash inner.sh", "bash inner.sh"])
def test_a_script_that_a_launcher_starts(tmp_path: Path, line: str) -> None:
    (tmp_path / "inner.sh").write_text(f"python {RUN} $@\n")
    found = read(tmp_path, f"{line} --global-batch-size 32\n", TWO_NODES)
    assert (found.world, found.whole("global_batch_size")) == (16, 32)
    assert ("srun" in found.remarks[0]) is line.startswith("srun")
