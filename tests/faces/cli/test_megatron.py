"""`ilp-plan import megatron` and `ilp-plan export --to megatron`: there and back."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.formats.saved_json import read_saved
from tests.faces.cli.conftest import Done, mps_optimum

Command = Callable[..., Done]
LINE = (
    "pretrain_gpt.py --num-layers 8 --hidden-size 256 --ffn-hidden-size 704 "
    "--num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 --vocab-size 1000 "
    "--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 --bf16 "
    "--micro-batch-size 1 --global-batch-size 16 --use-distributed-optimizer"
)
SPLIT = (
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--pipeline-model-parallel-layout Et*5|t*3L"
)
CLUSTER = ("--cluster", "b200-1x8")


@pytest.fixture
def imported(ilp_plan: Command) -> Path:
    """Return the plan of a launch line."""
    done = ilp_plan("import", "megatron", f"{LINE} {SPLIT}", *CLUSTER, "--output", "plan.json")
    assert done.code == 0, done.err
    assert "legal" in done.out
    assert "note: plan-model.toml: the model of the launch line" in done.err
    return Path("plan.json")


def test_a_line_becomes_a_plan(imported: Path, ilp_plan: Command) -> None:
    plan = read_saved(imported).plan
    assert [(stage.start, stage.stop) for stage in plan.stages] == [(0, 6), (6, 10)]
    assert [stage.dp for stage in plan.stages] == [2, 2]
    assert plan.settings is not None
    assert plan.settings.sequence_parallel
    assert ilp_plan("evaluate", imported).code == 0


@pytest.mark.parametrize("file", ["run.sh", "run.args.json", "other.json"])
def test_there_and_back(imported: Path, ilp_plan: Command, file: str) -> None:
    done = ilp_plan("export", imported, "--to", "megatron", "--output", file)
    assert done.code == 0, done.err
    stem = file.partition(".")[0]
    assert Path(f"{stem}.sh").is_file()
    assert f"2 pipeline ranks of {read_saved(imported).plan.model} for megatron" in done.err
    done = ilp_plan("import", "megatron", file, *CLUSTER, "--output", "plan2.json")
    assert done.code == 0, done.err
    again = json.loads(Path("plan2.json").read_text())["plan"]
    first = json.loads(imported.read_text())["plan"]
    # The script has stand-ins for what the line did not say, which the second plan carries.
    carried = [plan["settings"].pop("carried") for plan in (first, again)]
    assert set(carried[0]) <= set(carried[1])
    assert {**again, "model": ""} == {**first, "model": ""}


CARRIED = (
    "--lr 1e-05 --min-lr 1e-06 --train-samples 1000 --lr-decay-samples 900 --clip-grad 1.0 "
    "--tokenizer-type NullTokenizer --data-path /data/a /data/b --save $RUNS/here "
    "--save-interval 100 --rotary-base 10000 --init-method-std 0.01 --no-load-optim "
    "--log-throughput --distributed-backend nccl --manual-gc --moe-of-a-fork 3 --fork-switch"
)


def test_what_is_not_modelled_is_carried_and_written_back(ilp_plan: Command) -> None:
    """Every flag of a line is in the export of its plan, in the script and in the JSON."""
    line = f"{LINE} {SPLIT} {CARRIED}"
    done = ilp_plan("import", "megatron", line, *CLUSTER, "--output", "plan.json")
    assert done.code == 0, done.err
    assert "--moe-of-a-fork, --fork-switch: not read: Megatron-LM has no such argument" in done.err
    done = ilp_plan("export", "plan.json", "--to", "megatron", "--output", "run")
    assert done.code == 0, done.err
    assert "settings.carried: --moe-of-a-fork, --fork-switch: written as they were" in done.err
    argv = json.loads(Path("run.args.json").read_text())["argv"]
    script = Path("run.sh").read_text()
    assert set(CARRIED.split()) <= set(argv)
    for word in CARRIED.split():
        assert word in script
    assert '--save "$RUNS/here"' in script
    assert "--mock-data" not in script
    done = ilp_plan("export", "plan.json", "--to", "torchtitan", "--output", "titan")
    assert "settings.carried: " in done.err or done.code


def test_a_script_with_values_supplied(ilp_plan: Command) -> None:
    Path("run.sh").write_text(
        f"N=$(cat hostfile | wc -l)\ntorchrun --nnodes $N --nproc_per_node $G {LINE} --load $S/x\n"
    )
    asked = "run.sh: line 1: found $(cat hostfile | wc -l) (in the value of --nnodes), which only"
    done = ilp_plan("analyze", "--megatron-script", "run.sh")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert asked in done.err
    assert "--set N=VALUE --set G=VALUE, --world-size N or --gpus NxGPU" in done.err
    for given in (["--set", "N=1", "--set", "G=8"], ["--world-size", "8"], CLUSTER):
        done = ilp_plan("analyze", "--megatron-script", "run.sh", *given, "--json")
        assert done.code == 0, done.err
        assert '"world": 8' in done.out
    done = ilp_plan("import", "megatron", "run.sh", *CLUSTER, "--set", "N=1", "--output", "p.json")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--megatron-args", "--num-layers 2", "--set", "A=1"],
            "--set: expected --megatron-script",
        ),
        (["--megatron-script", "x.sh", "--set", "A"], "--set: found 'A', expected NAME=VALUE"),
        (["--model", "gpt3-1.3b", "--strict"], "--strict: expected --megatron-args or"),
    ],
)
def test_values_that_nothing_takes(ilp_plan: Command, arguments: list[str], message: str) -> None:
    done = ilp_plan("analyze", *arguments)
    assert done.code == 2
    assert message in done.err


QUANTISED = (
    "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --first-last-layers-bf16 "
    "--num-layers-at-end-in-bf16 0 --tp-comm-overlap --cuda-graph-impl transformer_engine "
    "--cuda-graph-modules attn mlp"
)


def test_products_in_8_bits_there_and_back(ilp_plan: Command) -> None:
    line = f"{LINE} {SPLIT} {QUANTISED}"
    done = ilp_plan("import", "megatron", line, *CLUSTER, "--output", "plan.json")
    assert done.code == 0, done.err
    assert "mxfp8" in done.out
    saved = read_saved(Path("plan.json"))
    assert saved.inputs.precision == "mxfp8"
    assert saved.plan.settings is not None
    kernels = saved.plan.settings.kernels
    assert (kernels.quantised, kernels.exact_first, kernels.exact_last) == ("mxfp8", 1, 0)
    done = ilp_plan("export", "plan.json", "--to", "megatron", "--output", "run")
    assert done.code == 0, done.err
    arguments = json.loads(Path("run.args.json").read_text())["argv"]
    assert set(QUANTISED.split()) <= set(arguments)
    done = ilp_plan("import", "megatron", "run.sh", *CLUSTER, "--output", "plan2.json")
    assert done.code == 0, done.err
    assert read_saved(Path("plan2.json")).plan.settings == saved.plan.settings


def test_a_recipe_that_a_gpu_lacks(ilp_plan: Command) -> None:
    line = f"{LINE} {SPLIT} {QUANTISED}"
    done = ilp_plan("import", "megatron", line, "--cluster", "h100-8x8", "--output", "plan.json")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("ilp-plan: --precision: found mxfp8 on device")
    assert "(precision fp8-delayed, fp8-current, fp8-blockwise)" in done.err


def test_the_files_tell_time_and_memory(imported: Path, ilp_plan: Command) -> None:
    assert ilp_plan("export", imported, "--to", "megatron", "--output", "run").code == 0
    script = Path("run.sh").read_text()
    assert "# expected iteration: " in script
    assert script.count("MiB") + script.count("GiB") == 2
    launch = json.loads(Path("run.args.json").read_text())
    assert launch["world_size"] == 8
    assert all(stage["peak_memory_bytes"] > 0 for stage in launch["stages"])


def test_a_plan_is_never_overwritten(imported: Path, ilp_plan: Command) -> None:
    before = imported.read_text()
    done = ilp_plan("export", imported, "--to", "megatron", "--output", imported)
    assert done.code == 2
    assert "would write plan.json over the plan" in done.err
    assert imported.read_text() == before
    done = ilp_plan("export", imported, "--to", "megatron", "--output", "run.txt")
    assert done.code == 2
    assert "expected a name that ends in .sh, .args.json" in done.err


def test_a_known_model_is_named(ilp_plan: Command, imported: Path) -> None:
    arguments = ["megatron", f"{LINE} {SPLIT}", *CLUSTER, "--output", "b.json"]
    done = ilp_plan("import", *arguments, "--model", "plan-model.toml")
    assert done.code == 0, done.err
    assert not Path("b-model.toml").exists()
    done = ilp_plan("import", *arguments, "--model", "gpt3-1.3b")
    assert done.code == 1
    assert "gpt3-1.3b: layers: found 24, expected 8 as the launch line says" in done.err


def test_a_plan_whose_model_has_changed(imported: Path, ilp_plan: Command) -> None:
    """The plan holds its model: only where that is accepted, today's counts."""
    model = Path("plan-model.toml")
    model.write_text(model.read_text().replace("ffn = 704", "ffn = 768"))
    arguments = ["export", imported, "--to", "megatron", "--output", "run"]
    for more, size in ((), 704), (("--accept-changed",), 768):
        assert ilp_plan(*arguments, *more).code == 0
        assert f"--ffn-hidden-size {size}" in Path("run.sh").read_text()
    model.unlink()
    assert ilp_plan(*arguments).code == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--tensor-model-parallel-size 3", "world size: found 8, expected a multiple of 3"),
        ("--num-attention-heads 12 --tensor-model-parallel-size 8 --kv-channels 16",
         "--num-attention-heads: found 12, expected a multiple of --tensor-model-parallel-size"),
        ("--pipeline-model-parallel-size 8 --num-layers 9",
         "--pipeline-model-parallel-layout 'Et*2|(t|)*6tL' would do"),
        ("--global-batch-size 15", "--global-batch-size 16 would do"),
        ("--strict: --tensor-parallel-size 2", "did you mean --tensor-model-parallel-size?"),
        ("--hybrid-layer-pattern M-M-", "found 4 layers, expected --num-layers"),
        ("--strict: --tokenizer-type Llama2Tokenizer --bogus",
         "--bogus: Megatron-LM has no such argument"),
    ],
)  # fmt: skip
def test_lines_that_cannot_run(ilp_plan: Command, more: str, message: str) -> None:
    strict = ["--strict"] if more.startswith("--strict: ") else []
    line = f"{LINE} {more.removeprefix('--strict: ')}"
    done = ilp_plan("import", "megatron", line, *CLUSTER, "--output", "p.json", *strict)
    assert done.code == 1
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("p.json").exists()


def test_other_things_that_cannot_be(ilp_plan: Command) -> None:
    line = LINE.replace("pretrain_gpt.py", "torchrun --nproc_per_node 4 pretrain_gpt.py")
    done = ilp_plan("import", "megatron", line, *CLUSTER, "--output", "p.json")
    assert done.code == 1
    assert "found 8 devices, expected 4, one for each rank" in done.err
    Path("run.sh").write_text(f"torchrun --nproc_per_node 8 {LINE} --micro-batch-size $MBS")
    done = ilp_plan("import", "megatron", "run.sh", *CLUSTER, "--output", "p.json")
    assert done.code == 1
    assert "run.sh: line 1: variable MBS is not set" in done.err
    for option, value in (
        ("--profile", "analytic"), ("--cost-model", "native"), ("--global-batch-size", 8),
        ("--micro-batch-size", 4), ("--max-stages", 2),
    ):  # fmt: skip
        done = ilp_plan("import", "megatron", LINE, *CLUSTER, "--output", "p.json", option, value)
        assert done.code == 2
        assert f"{option}: expected none with megatron" in done.err


def test_a_plan_that_megatron_cannot_run(ilp_plan: Command, saved: Path) -> None:
    """A plan of operators, cut inside a layer, or its nearest neighbour is named."""
    done = ilp_plan("export", saved, "--to", "megatron", "--output", "run")
    assert done.code == 1
    assert done.err.startswith("ilp-plan: plan.json: ")
    assert not Path("run.sh").exists()


@pytest.mark.parametrize("joint", [" ", "="])
def test_arguments_alone_are_a_launch(ilp_plan: Command, joint: str) -> None:
    words = LINE.removeprefix("pretrain_gpt.py ")
    line = re.sub(r"(--[a-z-]+) (?=[^-])", rf"\1{joint}", words)
    done = ilp_plan("import", "megatron", line, *CLUSTER, "--output", "plan.json")
    assert done.code == 0, done.err
    assert read_saved(Path("plan.json")).plan.global_batch == 16


def test_dropout_that_the_line_leaves_to_megatron(ilp_plan: Command) -> None:
    line = LINE.replace("--hidden-dropout 0 --attention-dropout 0 ", "")
    named = (*CLUSTER, "--output", "plan.json", "--model", "own.toml")
    assert ilp_plan("import", "megatron", LINE, *CLUSTER, "--output", "own.json").code == 0
    Path("own.toml").write_text(Path("own-model.toml").read_text())
    done = ilp_plan("import", "megatron", line, *named)
    assert done.code == 1
    repair = re.search(r"dropout: found 0.0, expected 0.1 .*: add (--.*) to it", done.err)
    assert repair, done.err
    assert ilp_plan("import", "megatron", f"{line} {repair[1]}", *named).code == 0


def test_an_order_of_ranks_that_other_runtimes_lack(ilp_plan: Command) -> None:
    """The refusal says which plans have no order; such a plan of the same model is exported."""
    line = f"{LINE} --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping --global-batch-size 32"
    named = ("--cluster", "a100-4x8", "--output", "plan.json")
    assert ilp_plan("import", "megatron", line, *named).code == 0
    done = ilp_plan("export", "plan.json", "--to", "torchtitan", "--output", "job.py")
    assert done.code == 1
    repair = re.search(r"settings.order: .*; plans of one stage, which (--\S+ \d+) asks", done.err)
    assert repair, done.err
    asked = ("plan-model.toml", "a100-4x8", "--runtime", "megatron", "--global-batch-size", "32")
    assert ilp_plan("solve", *asked, *repair[1].split(), "--output", "one.json").code == 0
    assert ilp_plan("export", "one.json", "--to", "torchtitan", "--output", "job.py").code == 0


def test_the_exported_program_of_a_solved_plan_has_its_time_as_optimum(
    imported: Path, ilp_plan: Command
) -> None:
    asked = ["--model", "plan-model.toml", *CLUSTER, "--runtime", "megatron"]
    done = ilp_plan(
        "solve", *asked, "--global-batch-size", "16", "--output", "solved.json", "--verbose"
    )
    assert done.code == 0, done.err
    assert "confirmed by cp-sat" in done.out
    done = ilp_plan("export", "solved.json", "--to", "mps", "--output", "solved.mps")
    assert done.code == 0, done.err
    result = json.loads(Path("solved.json").read_text())["result"]
    assert result["confirmed_by"] == "cp-sat"
    assert mps_optimum(Path("solved.mps")) == pytest.approx(result["objective_s"], rel=1e-6)
    done = ilp_plan("export", imported, "--to", "mps", "--output", "imported.mps")
    assert done.code == 1
    assert "certificate: found none" in done.err


@pytest.mark.parametrize("tokenizer", ["", "NullTokenizer", "GPT2BPETokenizer"])
def test_the_vocabulary_survives_beside_any_tokenizer(ilp_plan: Command, tokenizer: str) -> None:
    said = f"--tokenizer-type {tokenizer} --vocab-size 50000" if tokenizer else ""
    line = f"{LINE} {SPLIT} {said}"
    assert ilp_plan("import", "megatron", line, *CLUSTER, "--output", "a.json").code == 0
    assert ilp_plan("export", "a.json", "--to", "megatron", "--output", "run").code == 0
    for again in ("run.sh", "run.args.json"):
        done = ilp_plan("import", "megatron", again, *CLUSTER, "--output", "b.json")
        assert done.code == 0, done.err
        first, second = (vocabulary(Path(name)) for name in ("a.json", "b.json"))
        assert first == second


def vocabulary(plan: Path) -> int:
    """Return the entries of the vocabulary that a saved plan's model has."""
    text = json.loads(plan.read_text())["inputs"]["model"]["text"]
    return int(re.search(r"(?m)^vocab = (\d+)", text)[1])


def test_launches_of_a_release(ilp_plan: Command) -> None:
    """A launch is held against the arguments of the release that is named."""
    asked = [f"{LINE} {SPLIT}", *CLUSTER, "--output", "plan.json"]
    assert ilp_plan("import", "megatron@0.16", *asked).code == 0
    asked[0] += " --enable-hyper-connections"
    told = ilp_plan("import", "megatron@0.19", *asked).err
    assert "--enable-hyper-connections, which the main branch after 0.19.0 has" in told
    told = ilp_plan("import", "slurm", *asked).err
    assert "FORMAT: found 'slurm', expected aceso, megatron or megatron@RELEASE" in told
