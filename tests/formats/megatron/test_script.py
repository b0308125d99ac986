"""Launches of Megatron-LM in scripts, as people write them."""

from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.notes import unmodelled
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.script import read_launch, read_script

MODEL = (
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32"
)

WITH_TEXTS = f"""#!/bin/bash
# Arguments as one text, as scripts of 2023 have them.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=4
MASTER_ADDR=localhost
NNODES=2
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT_PATH=<Specify path>
VOCAB_FILE=<Specify path to file>/gpt2-vocab.json

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES \\
    --node_rank $NODE_RANK \\
    --master_addr $MASTER_ADDR
"
GPT_ARGS="
    --tensor-model-parallel-size 2 \\
    {MODEL} \\
    --micro-batch-size 2 \\
    --global-batch-size 64 \\
    --bf16
"
DATA_ARGS="
    --vocab-file $VOCAB_FILE \\
    --split 949,50,1
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    $GPT_ARGS \\
    $DATA_ARGS \\
    --distributed-backend nccl \\
    --save $CHECKPOINT_PATH \\
    --save-interval 100 \\
    --load $CHECKPOINT_PATH
"""

WITH_ARRAYS = f"""#!/bin/bash
# Arrays, defaults, and parts that depend on tests, as scripts of 2025 have them.
export CUDA_DEVICE_MAX_CONNECTIONS=${{CUDA_DEVICE_MAX_CONNECTIONS:-1}}
CHECKPOINT=${{1:-"checkpoints/a"}}
TOKENIZER=${{2:-"MOCK"}}
mkdir -p "$(dirname "$CHECKPOINT")"
NUM_NODES=${{SLURM_NNODES:-1}}
TP=2
DTYPE="fp8"
DISTRIBUTED=(
    --nproc_per_node 8
    --nnodes $NUM_NODES
    --master_port ${{MASTER_PORT:-6000}}
)
MODEL=(
    {MODEL}
    # --swiglu
    --disable-bias-linear   # no biases
)
TRAINING=(
    --micro-batch-size 1
    --global-batch-size 128
    --bf16
)
TRAINING+=(--use-distributed-optimizer)
if [[ "$DTYPE" == "fp8" ]]; then
    TRAINING+=("--fp8-format hybrid")
fi
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 1000")
else
    DATA+=("--data-path $TOKENIZER")
fi
if [ -n "${{WANDB_API_KEY}}" ]; then
    DATA+=(--wandb-project ${{WANDB_PROJECT:-"x"}})
fi
if [ ! -f pretrain_gpt.py ]; then
    echo "not here"
    exit 1
fi
torchrun ${{DISTRIBUTED[@]}} \\
    "pretrain_gpt.py" \\
    ${{MODEL[@]}} ${{TRAINING[@]}} ${{DATA[@]}} \\
    --tensor-model-parallel-size $TP \\
    --save "$CHECKPOINT" --save-interval 10
set +x
"""

WITH_SLURM = f"""#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=8
options="{MODEL} --micro-batch-size 1 --global-batch-size 64 --vocab-size 1000"
run_cmd="python -u /opt/megatron/pretrain_gpt.py $@ ${{options}}"
srun -l --container-image x sh -c "${{run_cmd}}"
"""


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return path


def test_arguments_as_texts(tmp_path: Path) -> None:
    args = read_script(script(tmp_path, WITH_TEXTS), environment={})
    assert (args.world, args.devices_per_node, args.world_said) == (8, 4, True)
    assert args.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    job = job_of_arguments(args)
    assert (job.tp, job.dp, job.model.layers, job.settings.precision) == (2, 4, 8, "bf16")


def test_arguments_as_arrays(tmp_path: Path) -> None:
    path = script(tmp_path, WITH_ARRAYS)
    args = read_script(path, environment={})
    assert args.world == 8
    assert args.text("fp8") == "hybrid"
    assert args.text("save") == "checkpoints/a"
    assert args.on("mock_data")
    assert not args.on("swiglu")
    assert "wandb_project" not in args.values
    assert job_of_arguments(args).model.vocab == 1001  # with the end of a document
    assert read_script(path, environment={"SLURM_NNODES": "4"}).world == 32
    assert read_script(path, 16, environment={}).world == 16
    given = read_script(path, arguments=["a", "b"], environment={})
    assert given.words("data_path") == ("b",)
    keyed = read_script(path, environment={"WANDB_API_KEY": "k"})
    assert keyed.text("wandb_project") == "x"


def test_a_job_of_slurm(tmp_path: Path) -> None:
    args = read_script(script(tmp_path, WITH_SLURM), environment={})
    assert (args.world, args.program) == (32, "/opt/megatron/pretrain_gpt.py")
    assert job_of_arguments(args).dp == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"TP=2\ntorchrun pretrain_gpt.py {MODEL} \\\n --tensor-model-parallel-size $TPP",
         r"line 3: variable TPP is not set \(in the value of --tensor-model-parallel-size\): "
         "expected its value: --set TPP=VALUE"),
        (f"ARGS='{MODEL}'\nARGS+=\" --micro-batch-size $MBS\"\ntorchrun pretrain_gpt.py $ARGS",
         r"line 2: variable MBS is not set \(in the value of --micro-batch-size\)"),
        (f"torchrun pretrain_gpt.py {MODEL} $EXTRA",
         r"line 1: --micro-batch-size: found none; not set, and so read as nothing: \$EXTRA: "
         "--set EXTRA=VALUE"),
        (f"torchrun --nproc_per_node $GPUS pretrain_gpt.py {MODEL}", "variable GPUS is not set"),
        (f"N=$1\ntorchrun pretrain_gpt.py {MODEL} --micro-batch-size $N",
         r"line 1: \$1 is not set .*argument 1 of the script: --set 1=VALUE"),
        (f"N=$(nproc)\ntorchrun --nproc_per_node $N pretrain_gpt.py {MODEL}",
         r"line 1: found \$\(nproc\).*which only running the script would tell, expected a "
         "value: --set N=VALUE, --world-size N or --gpus NxGPU"),
        (f"torchrun --nproc_per_node $(nproc) pretrain_gpt.py {MODEL}",
         r"expected a value: --set '\$\(nproc\)=VALUE', --world-size N or --gpus NxGPU"),
        (f"N=<Specify a number>\ntorchrun pretrain_gpt.py {MODEL} --micro-batch-size $N",
         "found <Specify a number> .*expected a value in its place: --set N=VALUE"),
        (f"B=1\nif [ -f x ]; then B=2; fi\ntorchrun pretrain_gpt.py {MODEL} "
         "--micro-batch-size $B",
         r"line 2: \$B is 2 or 1 \(in the value of --micro-batch-size\), as `\[ -f x \]` of "
         "line 2 decides, expected one: --set B=2"),
        (f"A=()\nif [ -f x ]; then A+=(--swiglu); fi\ntorchrun pretrain_gpt.py {MODEL} "
         '"${A[@]}"',
         r"line 2: \$A is --swiglu or nothing \(among the arguments\), as `\[ -f x \]` of "
         "line 2 decides, expected one: --set A=VALUE"),
        ("echo hello", "found no launch of pretrain_gpt.py and no other program, expected one by"),
        ("cd /opt\npython serve.py --port 80\n./clean.sh",
         "found no launch of pretrain_gpt.py but `python serve.py --port 80` in line 2, exp.*; "
         "`--megatron-args` takes the arguments"),
        (f"torchrun -m {'x' * 90}", r"but `torchrun -m \.\.\.` in line 1"),
        ("./other.sh", r"but `\./other\.sh` in line 1"),
        ('{"model_type": "llama"}', "found a Hugging Face configuration"),
        ("python pretrain_t5.py --num-layers 2", "trains T5"),
        (f"torchrun pretrain_gpt.py {MODEL} --bogus", r"run\.sh: line 1: --bogus"),
        ('echo "', r'line 1: " is not closed'),
    ],
)  # fmt: skip
def test_what_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        read_script(script(tmp_path, text), environment={})
    assert str(caught.value).startswith(str(tmp_path / "run.sh"))
    assert "\n" not in str(caught.value)


def test_unknown_places_do_not_matter(tmp_path: Path) -> None:
    text = (
        f"P=$1\ntorchrun --master_addr $ADDR --node_rank $RANK --nproc_per_node 2 pretrain_gpt.py "
        f"{MODEL} --micro-batch-size 1 --data-path $P/data --log-interval 1"
    )
    assert read_script(script(tmp_path, text), environment={}).words("data_path") == ("$1/data",)


def test_no_such_script(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="gone: no such file"):
        read_script(tmp_path / "gone")
    (tmp_path / "bytes.sh").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="UTF-8"):
        read_script(tmp_path / "bytes.sh")


def test_launches_of_all_kinds(tmp_path: Path) -> None:
    line = f"pretrain_gpt.py {MODEL} --micro-batch-size 1"
    assert read_launch(line).values == read_launch(line.removeprefix("pretrain_gpt.py ")).values
    path = script(tmp_path, f"torchrun --nproc_per_node 2 {line}")
    assert read_launch(str(path), environment={}).world == 2
    (tmp_path / "a.json").write_text('{"argv": 3}')
    with pytest.raises(SpecError, match=r"a\.json: argv: expected the arguments"):
        read_launch(str(tmp_path / "a.json"))


def test_other_launches_are_told(tmp_path: Path) -> None:
    """A script may launch twice, as an evaluation after the training; the first one is read."""
    path = tmp_path / "run.sh"
    line = f"torchrun --nproc-per-node 1 pretrain_gpt.py {MODEL} --micro-batch-size"
    path.write_text(f"{line} 1\n{line} 2\n")
    args = read_script(path, environment={})
    assert args["micro_batch_size"] == 1
    assert args.remarks == ("line 2: another launch, not read; the one of line 1 is",)
    assert args.remarks[0] in unmodelled(args)


def test_an_array_that_is_expanded_without_quotes(tmp_path: Path) -> None:
    """Megatron's own example for GPT-3 has a schedule of batch sizes with a blank in it."""
    script = f"""#!/bin/bash
TRAINING_ARGS=(
    --micro-batch-size 1
    --step-batch-size-schedule '0:32 2.4B:320'
)
torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} ${{TRAINING_ARGS[@]}}
"""
    path = tmp_path / "run.sh"
    path.write_text(script)
    with pytest.raises(SpecError) as caught:
        read_script(path)
    assert str(caught.value) == (
        f"{path}: line 6: '2.4B:320': expected an argument that begins with --, found this value: "
        "'0:32 2.4B:320' of line 4 falls apart as line 6 expands ${TRAINING_ARGS[@]} without "
        'quotes; "${TRAINING_ARGS[@]}" keeps it whole'
    )
    path.write_text(script.replace("${TRAINING_ARGS[@]}", '"${TRAINING_ARGS[@]}"'))
    assert read_script(path).text("step_batch_size_schedule") == "0:32 2.4B:320"


LAUNCH = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --micro-batch-size 1 --vocab-size 9"
ENDS = [
    ('if [ -z "$DATA" ]; then\n  exit 1\nfi', "line 2: .*: `exit 1`; .*--set DATA=VALUE"),
    ("[ $# -lt 1 ] && exit 2", "line 1: .*: `exit 2`; expected a script that launches"),
    ('test -n "$1" || { echo usage; exit; }', "line 1: .*: `exit`; not set, .* --set 1=VALUE"),
    ("exec ./go.sh a", r"line 1: .*: `exec \./go\.sh a` runs in its place"),
    ("if [ -f x ]; then exit 1; else exit 2; fi", "line 1: .*: `exit 2`"),
    ("while true; do A=1; done", "line 1: .*: `true` never ends"),
    ("f() {\n  exit 3\n}\nf", "line 2: .*: `exit 3`"),
    ("source helper.sh || exit 4\nexit 5", "line 2: .*: `exit 5`"),
    ("case ${1:-} in a) ;; *) exit 6 ;; esac", "line 1: .*: `exit 6`"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ENDS)
def test_a_script_that_ends_itself(tmp_path: Path, text: str, message: str) -> None:
    path = script(tmp_path, f"{text}\n{LAUNCH}\n")
    with pytest.raises(SpecError, match=f"^{path}: {message}"):
        read_script(path, environment={})


def test_a_function_that_fails_before_it_launches(tmp_path: Path) -> None:
    text = (
        f'main() {{\n  [ -d "$1" ] || :\n  case "$1" in "") return 1;; esac\n  {LAUNCH}\n}}\nmain\n'
    )
    with pytest.raises(SpecError, match=r"line 3: .*: `return 1` leaves what it is in"):
        read_script(script(tmp_path, text), environment={})


MANY = "--moe-router-load-balancing-type aux_loss"


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("", "$EXTRA"),  # nobody sets it
        ("if [ a = b ]; then EXTRA=' --swiglu'; fi", "${EXTRA}"),
        ("EXTRA=''", "$EXTRA"),
        ("if [ -f x ]; then EXTRA='--log-interval 5'; fi", "$EXTRA"),
        ("EXTRA='--log-interval 5'", "$EXTRA"),
    ],
)
@pytest.mark.parametrize("behind", [MANY, "--data-path a b", "--cp-comm-type p2p"])
def test_a_variable_behind_an_argument_of_several_values(
    tmp_path: Path, before: str, value: str, behind: str
) -> None:
    """It stands for further arguments, or for nothing, as in bash."""
    text = f'{before}\nRUN="{LAUNCH} {behind} {value}"\neval $RUN\n'
    args = read_script(script(tmp_path, text), environment={})
    alone = read_script(script(tmp_path, f"{LAUNCH} {behind}\n"), environment={})
    assert {**args.values, "log_interval": 0} == {**alone.values, "log_interval": 0}


def test_a_value_of_several_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    path = script(
        tmp_path, f"{LAUNCH} --moe-layer-freq $(cat f) --rampup-batch-size 1 $(cat f) 3\n"
    )
    with pytest.raises(SpecError, match=r"found \$\(cat f\) .in the value of --moe-layer-freq"):
        read_script(path, environment={})


@pytest.mark.parametrize(
    ("tokenizer", "vocab"),
    [
        ("meta-llama/Llama-3.1-70B", 128256),
        ("META-LLAMA/llama-3.1-70b", 128256),
        ("/data/models/meta-llama/Llama-3.1-70B/", 128256),
        ("llama3-8b", 128256),
        ("Qwen/Qwen3-32B", 151936),
    ],
)
def test_a_tokenizer_of_a_model_that_is_known(tmp_path: Path, tokenizer: str, vocab: int) -> None:
    line = LAUNCH.replace(
        "--vocab-size 9", f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {tokenizer}"
    )
    args = read_script(script(tmp_path, line), environment={})
    assert job_of_arguments(args).model.vocab == vocab
    assert any(f"--vocab-size: found none: {vocab} of " in note for note in unmodelled(args))
    said = read_script(script(tmp_path, f"{line} --vocab-size 77"), environment={})
    assert job_of_arguments(said).model.vocab == 77
    assert not any("--vocab-size" in note for note in unmodelled(said))


def test_a_tokenizer_of_no_model_that_is_known(tmp_path: Path) -> None:
    line = LAUNCH.replace(
        "--vocab-size 9", "--tokenizer-type HuggingFaceTokenizer --tokenizer-model a/b"
    )
    with pytest.raises(SpecError, match="the vocabulary of HuggingFaceTokenizer of a/b"):
        job_of_arguments(read_script(script(tmp_path, line), environment={}))


def test_a_file_beside_a_script_is_read_where_it_lies_there(tmp_path: Path) -> None:
    """It is sent with the script, or was not written: its default counts then, with a remark."""
    text = (
        '#!/bin/bash\nHERE=$(cd "$(dirname "$0")" && pwd)\n'
        '[ -f "$HERE/env.sh" ] && source "$HERE/env.sh"\n'
        f"{LAUNCH} --micro-batch-size ${{MICRO:-3}}\n"
    )
    path = script(tmp_path, text)
    here = {"PWD": str(Path.cwd())}
    args = read_script(path, environment=here)
    assert args.whole("micro_batch_size") == 3
    assert any("env.sh is not there, and so not taken" in remark for remark in args.remarks)
    (tmp_path / "env.sh").write_text("MICRO=5\n")
    assert read_script(path, environment=here).whole("micro_batch_size") == 5


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "pretrain_mine.py"])
def test_what_only_the_newest_megatron_refuses_is_left_to_others(
    tmp_path: Path, program: str
) -> None:
    """Programs of others run earlier releases, and have sources of data of their own."""
    more = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"
    line = f"{LAUNCH} {more} --data-path a --train-data-path b"
    args = read_script(script(tmp_path, line.replace("pretrain_gpt.py", program)), environment={})
    findings = [str(one) for one in check_arguments(args)]
    refused = [one for one in findings if "--cross-entropy" in one or "--data-path" in one]
    assert len(refused) == (2 if program == "pretrain_gpt.py" else 0), findings
