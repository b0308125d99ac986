"""`ilp-plan fit`: the verdict first, then changes in the user's own words; good and bad."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.job.verdict import MARGIN
from ilp_planner.optimize.solvers.base import PREFER_PLAIN
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]

LINE = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 8 --global-batch-size 64 --swiglu "
    "--disable-bias-linear --normalization RMSNorm --position-embedding-type rope --bf16 "
    "--untie-embeddings-and-output-weights --vocab-size 50257 --use-distributed-optimizer "
    "--train-iters 10 --lr 1e-4"
)
SCRIPT = f"""\
#!/bin/bash
torchrun --nproc_per_node 4 --nnodes 1 pretrain_gpt.py {LINE}
"""
A100 = ["--gpus", "4xA100-80GB"]
FEW = ["--memory-limit", "2GiB", "--time-limit", "0.5"]
KEYS = {
    "schema", "version", "model", "fits", "verdict", "gpus", "parallelism", "decides", "notes",
    "seconds", "throughput", "expected_error", "expected_interval",
    "expected_basis", "calibration_runs",
    "price_per_hour", "price_per_iteration", "price_per_1e9_tokens", "run", "changes", "tried",
    "more_gpus", "free", "enough", "otherwise",
}  # fmt: skip


@pytest.fixture
def script(folder: Path) -> Path:
    """Return a launch script."""
    file = folder / "run.sh"
    file.write_text(SCRIPT)
    return file


@pytest.mark.slow
def test_a_script_that_does_not_fit(ilp_plan: Command, script: Path) -> None:
    done = ilp_plan("fit", script, *A100, "--memory-limit", "40GiB")
    assert done.code == 0, done.err
    verdict, holds, takes, *rest = done.out.splitlines()
    assert re.match(r"DOES NOT FIT +\S+ GiB of 40\.00 GiB of \S+ on every GPU: ", verdict)
    assert verdict.endswith("GiB too much")
    assert re.match(r"holds +activations \d+\.\d\d, ", holds)
    assert re.match(r"takes .* for 64 samples, were there room; [\d,]+ tokens/s on 4 GPUs", takes)
    assert any(re.match(r"--micro-batch-size 4 ", line) for line in rest)
    assert re.search(
        r"^tried +\d+ jobs with one setting changed and [\d,]+ with two", done.out, re.M
    )
    assert f"arguments of {script}" in done.out


@pytest.mark.slow
def test_what_is_offered_fits_when_it_is_done(ilp_plan: Command, script: Path) -> None:
    memory = ["--memory-limit", "40GiB"]
    found = json.loads(ilp_plan("fit", script, *A100, *memory, "--json").out)
    assert set(found) == KEYS
    assert not found["fits"]
    assert found["changes"]
    times = [change["seconds"] for change in found["changes"]]
    assert times[0] <= min(times) * (1 + PREFER_PLAIN)
    for change in found["changes"][:4]:
        dropped = {word.removeprefix("--") for word in change["drop"]}
        kept = [part for part in re.split(r" (?=--)", LINE) if part[2:].split()[0] not in dropped]
        script.write_text(SCRIPT.replace(LINE, " ".join([*kept, *change["add"]])))
        again = json.loads(ilp_plan("fit", script, *A100, *memory, "--verdict", "--json").out)
        assert again["fits"]
        assert again["decides"]["left"] == pytest.approx(change["left"])


def test_a_job_that_fits(ilp_plan: Command, script: Path) -> None:
    done = ilp_plan("fit", script, *A100)
    assert done.code == 0
    assert re.match(r"FITS .* GiB left\nholds ", done.out)
    assert "were there room" not in done.out
    found = json.loads(ilp_plan("fit", script, *A100, "--json").out)
    assert found["fits"]
    assert found["tried"]["pairs"] == 0
    assert all(change["relative"] < 1 for change in found["changes"])
    assert all(len(change["settings"]) == 1 for change in found["changes"])


@pytest.mark.slow
def test_where_nothing_fits(ilp_plan: Command, script: Path) -> None:
    done = ilp_plan("fit", script, *A100, *FEW[:2], "--time-limit", "60")
    assert done.code == 0, done.err
    assert "with two; none fits" in done.out
    assert re.search(
        "^free    proved: no Megatron plan with all settings free fits, among ", done.out, re.M
    )
    memory = r"(\S+) GiB on each GPU, 5 % of it to spare; (\S+) GiB with none$"
    enough = re.search(rf"^enough  memory for some Megatron plan .*: {memory}", done.out, re.M)
    assert enough
    spared, bare = map(float, enough.groups())
    assert bare == pytest.approx((1 - MARGIN) * spared, abs=0.01)
    assert re.search(
        r"^enough  GPUs for some Megatron plan: \d+ of these GPUs, 5 % of", done.out, re.M
    )


@pytest.mark.slow
def test_memory_that_would_do_is_one_number_in_fit_and_solve(ilp_plan: Command) -> None:
    """Both say whether some of it is to spare."""
    job = ("llama3.1-8b", "--gpus", "1xRTX4090", "--global-batch-size", "8")
    none = re.search(
        r"(\S+ GiB) on each RTX-4090 would do, .* more, with none to spare",
        " ".join(ilp_plan("solve", *job).out.split()),
    )
    assert none
    assert f"5 % of it to spare; {none[1]} with none" in ilp_plan("fit", *job, *FEW[2:]).out


@pytest.mark.slow
def test_where_nothing_fits_for_programs(ilp_plan: Command, script: Path) -> None:
    found = json.loads(ilp_plan("fit", script, *A100, *FEW, "--json").out)
    assert found["changes"] == []
    assert found["free"]["impossible"]
    assert found["free"]["bound"] is None
    memory = f"{found['enough']['memory'] / 2**30 + 0.01:.2f}GiB"
    found = json.loads(ilp_plan("fit", script, *A100, "--memory-limit", memory, "--json").out)
    assert found["changes"] or found["free"]["change"]


def test_the_verdict_alone(ilp_plan: Command, script: Path) -> None:
    done = ilp_plan("fit", script, *A100, "--verdict")
    assert done.code == 0
    heads = dict.fromkeys(line.split()[0] for line in done.out.splitlines())
    assert list(heads) == ["FITS", "holds", "note"]


@pytest.mark.slow
def test_options_of_a_job(ilp_plan: Command) -> None:
    job = ["gpt3-1.3b", "--sharding", "optimizer", "--global-batch-size", "64"]
    done = ilp_plan(
        "fit", *job, "--micro-batch-size", "16", *A100, "--precision", "bf16", "--top", "20"
    )
    assert done.code == 6, done.err
    words = re.findall(r"^(--micro-batch-size \d+) ", done.out, re.MULTILINE)
    assert words
    smaller = ilp_plan("fit", *job, *words[0].split(), *A100, "--precision", "bf16", "--verdict")
    assert smaller.out.startswith("FITS")
    assert "Megatron-LM: --" not in done.out  # all are options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        pytest.param("megatron", r"^--\S+ ", marks=pytest.mark.slow),
        ("torchtitan", r"^\S+ .* instead of "),
    ],
)
def test_a_saved_plan_by_the_rules_of_its_training_system(
    ilp_plan: Command, runtime: str, words: str
) -> None:
    job = ["llama3-8b", "--cluster", "a100-4x8", "--global-batch-size", "32", "--gap", "0.2"]
    done = ilp_plan("solve", *job, "--runtime", runtime, "--output", "plan.json")
    assert done.code == 0, done.err
    assert ilp_plan("fit", "plan.json", "--verdict").out.startswith(("FITS", "MAY NOT FIT"))
    done = ilp_plan("fit", "plan.json", "--memory-limit", "24GiB", "--top", "20")
    assert done.out.startswith("DOES NOT FIT"), done.err
    assert re.search(words, done.out, re.MULTILINE), done.out


@pytest.mark.parametrize("command", ["fit", "analyze", "solve"])
def test_a_limit_is_at_most_the_memory_of_the_gpus(ilp_plan: Command, command: str) -> None:
    job = ["gpt3-1.3b", "--gpus", "1xL40S", "--global-batch-size", "1"]
    only = {"fit": ["--verdict"], "solve": ["--time-limit", "1"]}
    done = ilp_plan(command, *job, "--memory-limit", "300GiB", *only.get(command, []))
    assert done.code in (0, 4, 6), done.err  # 4: no plan in a second
    assert "without effect on L40S, which has 44.39 GiB" in re.sub(r"\s+", " ", done.out)
    assert "of 300" not in done.out


def test_a_saved_plan_keeps_its_limit(ilp_plan: Command) -> None:
    job = ["gpt3-1.3b", "--gpus", "4xA100-80GB", "--global-batch-size", "32", "--gap", "0.5"]
    done = ilp_plan("solve", *job, "--memory-limit", "24GiB", "--output", "plan.json")
    assert done.code == 0, done.err
    for command in (["fit", "--verdict"], ["analyze"]):
        for more, limit in (
            ([], "24.00"),
            (["--memory-limit", "30GiB"], "30.00"),
            (["--memory-limit", "300GiB"], "79.10"),
        ):
            done = ilp_plan(command[0], "plan.json", *command[1:], *more)
            assert f" of {limit} GiB of " in done.out.splitlines()[0], done.out


def test_what_a_plan_is_exported_as(ilp_plan: Command) -> None:
    """The script and the JSON beside it say the same job, for `analyze` as well."""
    job = ["gpt3-1.3b", "--gpus", "4xA100-80GB", "--global-batch-size", "32"]
    done = ilp_plan("solve", *job, "--runtime", "megatron", "--gap", "0.5", "--output", "plan.json")
    assert done.code == 0, done.err
    assert ilp_plan("export", "plan.json", "--to", "megatron", "--output", "plan.sh").code == 0
    texts = []
    for name in ("plan.sh", "plan.args.json"):
        done = ilp_plan("fit", name, *A100, "--verdict")
        assert done.code == 0, done.err
        texts.append(done.out.splitlines()[:2])
    assert texts[0] == texts[1]
    assert ilp_plan("analyze", "--megatron-script", "plan.args.json", *A100).code == 0


def test_more_gpus_than_the_cluster_has(ilp_plan: Command, script: Path) -> None:
    script.write_text(SCRIPT.replace("--nnodes 1", "--nnodes 2"))
    done = ilp_plan("fit", script, *A100, "--verdict")
    assert done.code == 0, done.err
    assert "note    the job needs 8 GPUs, the cluster has 4: more nodes like its own" in done.out


def test_the_gpus_of_the_cluster_where_nothing_says_how_many(ilp_plan: Command) -> None:
    done = ilp_plan("fit", "--megatron-args", LINE, *A100)
    assert done.code == 0, done.err
    assert "note    --world-size is not given: the 4 GPUs" in done.out
    assert "on 4 GPUs" in done.out


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("#!/bin/bash\necho nothing\n", r"run\.sh.*launch"),
        (
            SCRIPT.replace("--micro-batch-size 8", "--micro-batch-size 8 --sequence-parallel")
            .replace("--global-batch-size 64", "--global-batch-size 63"),
            r"--global-batch-size: found 63, expected .*64 would do",
        ),
    ],
)  # fmt: skip
def test_what_megatron_refuses_is_said_first(
    ilp_plan: Command, script: Path, text: str, error: str
) -> None:
    script.write_text(text)
    done = ilp_plan("fit", script, *A100)
    assert done.code == 1
    assert done.out == ""
    assert re.search(error, done.err), done.err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((), 2, "expected one of PLAN, --model"),
        (("run.sh",), 2, "--cluster: found none, expected the GPUs whose memory and speed decide"),
        (("run.sh", *A100, "--model", "gpt3-1.3b"), 2, "--megatron-script: found --model too"),
        (("run.sh", *A100, "--tp", "2"), 2, "--tp: expected --model beside it"),
        (
            ("run.sh", "--cluster", "v100-32gb-1x4"),
            1,
            "v100-sxm2-32gb has no bf16, which the job trains in, expected one of fp16, fp32; "
            "--fp16 instead of --bf16 would do",
        ),
        (("tiny.toml", "--cluster", "pair.toml", "--tp", "5"), 2, "--tp: found 5, expected a div"),
        (("nothing.json",), 1, "nothing.json"),
    ],
)
def test_bad_input(
    ilp_plan: Command, script: Path, words: tuple[str, ...], code: int, error: str
) -> None:
    done = ilp_plan("fit", *words)
    assert (done.code, done.out) == (code, ""), done.err
    assert error in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("more", [(), ("--verdict",), ("--memory-limit", "20GiB")])
def test_programs_have_the_notes_of_people(ilp_plan: Command, more: tuple[str, ...]) -> None:
    """That of a change, the memory of graphs, among them."""
    job = ("fit", "llama3.2-1b", "--gpus", "8xH100", "--global-batch-size", "64", *more)
    told = re.findall(r"^note    (.*)", ilp_plan(*job).out, re.MULTILINE)
    assert json.loads(ilp_plan(*job, "--json").out)["notes"] == told
    assert ("--verdict" in more) != any("memory of graphs" in note for note in told)


@pytest.mark.slow
def test_what_else_could_be_trained_is_said_where_nothing_fits(ilp_plan: Command) -> None:
    words = ["llama3-8b", "--sequence-length", "2048", "--gpus", "1x4090"]
    done = ilp_plan("fit", *words, "--time-limit", "0.5", "--json")
    offers = json.loads(done.out)["otherwise"]
    by_titan = [one for one in offers if one["runtime"] == "torchtitan"]
    assert {one["by"] for one in by_titan} == {"PEFT and the Trainer"}
    ways = [one["add"] for one in by_titan]
    assert ways == [["--lora 16"], ["--lora 16", "--qlora on"]]
    for way in ways:  # as is said
        said = [word for option in way for word in option.split()]
        again = ilp_plan("fit", *words, *said, "--recompute", "full", "--verdict")
        assert again.out.startswith("FITS")
    lora = ["--lora", "16", "--memory-limit", "12GiB"]
    done = ilp_plan("fit", *words, "--time-limit", "0.5", *lora)
    assert "else    --qlora on --fused-loss liger fits" in done.out


@pytest.mark.slow
def test_another_system_that_trains_the_same_is_offered_as_such(ilp_plan: Command) -> None:
    """DeepSpeed gathers 4-bit weights one by one, torchtitan whole layers."""
    words = ["llama3-70b", "--qlora", "--sequence-length", "1024", "--gpus", "4xRTX4090"]
    words += ["--global-batch-size", "4", "--memory-limit", "20GiB"]
    job = ["--recompute", "full", "--sharding", "parameters", "--time-limit", "1"]
    done = ilp_plan("fit", *words, *job, "--json")
    offers = json.loads(done.out)["otherwise"]
    same = [one for one in offers if not one["add"]]
    assert [one["runtime"] for one in same] == ["deepspeed"]
    assert not [one for one in offers if one["runtime"] == "deepspeed" and one["add"]]
    again = ilp_plan("solve", *words, "--runtime", "deepspeed", "--gap", "0.5")
    assert again.code == 0, again.err


def test_nothing_else_is_offered_to_a_job_that_fits(ilp_plan: Command) -> None:
    done = ilp_plan("fit", "llama3.2-1b", "--gpus", "1xH100", "--json")
    assert json.loads(done.out)["otherwise"] == []


REFUSED = (
    ("llama2-7b", "--lora", "16", "--optimizer", "muon"),
    ("llama3-8b", "--tp", "8", "--cp", "8", "--dp", "1", "--gpus", "64xH100", "--cp-comm", "a2a"),
    ("gpt3-1.3b", "--precision", "fp8-current", "--fp8-attention"),
)


@pytest.mark.parametrize("verdict", [(), ("--verdict",)])
@pytest.mark.parametrize("job", REFUSED, ids=lambda job: job[-1])
def test_what_no_system_runs_is_refused_before_any_verdict(
    ilp_plan: Command, job: tuple[str, ...], verdict: tuple[str, ...]
) -> None:
    gpus = () if "--gpus" in job else ("--gpus", "1xH100")
    done = ilp_plan("fit", *job, *gpus, *verdict)
    assert done.code == 1
    assert not done.out
    assert "cannot run the job" in done.err
    assert len(done.err.splitlines()) == 1
