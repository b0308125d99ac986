"""`ilp-plan analyze`: from options, a launch line, a script or a plan; good and bad."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.files import sha256_of
from ilp_planner.formats.saved_json import read_saved, write_saved
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.model_reader import read_model
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]

HOSTS = ["--hostfile", "hostfile", "--clusterfile", "clusterfile.json"]
JOB = ["--model", "gpt3-1.3b", "--tp", "2", "--pp", "2", "--dp", "4", "--micro-batch-size", "4"]
LINE = (
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 32 "
    "--hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 4 --global-batch-size 512 --vocab-size 50257 --train-iters 10 --lr 1e-4 "
    "--use-distributed-optimizer --swiglu --bf16"
)
SCRIPT = f"""\
#!/bin/bash
GPUS_PER_NODE=8
NNODES=2
ARGS="{LINE}"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $ARGS
"""


def value_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


# ---- what a user gets ---------------------------------------------------------------------------


@pytest.mark.slow
def test_options_of_a_job(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", *JOB, "--global-batch-size", "64", "--memory-limit", "32GiB")
    assert done.code == 0
    assert done.err == ""
    assert "16 = tp 2 x pp 2 x cp 1 x dp 4, 8 per node" in done.out
    assert re.search(r"^FITS .* of 32\.00 GiB", done.out, re.M)


def test_what_is_assumed_is_said(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", *JOB)
    assert "--global-batch-size is not given: 128 is assumed" in done.out


def test_a_cluster_says_memory_and_replicas(ilp_plan: Command) -> None:
    value = value_of(
        ilp_plan(
            "analyze", "--model", "gpt3-1.3b", "--tp", "2", "--cluster", "v100-32gb-2x8", "--json"
        )
    )
    assert (value["jobs"][0]["dp"], value["jobs"][0]["world"]) == (8, 16)
    assert value["device_memory_bytes"] > 30e9
    assert value["fits"] in (True, False)


def test_settings_reach_the_job(ilp_plan: Command) -> None:
    options = "--sequence-parallel --recompute full --recompute-method block --recompute-layers 3"
    more = "--sharding parameters --virtual-stages 2 --global-batch-size 64 --sequence-length 1024"
    value = value_of(ilp_plan("analyze", *JOB, *options.split(), *more.split(), "--json"))
    (job,) = value["jobs"]
    assert job["virtual_stages"] == 2
    assert job["settings"]["sequence_parallel"] is True
    assert job["settings"]["recompute"]["method"] == "block"
    assert job["settings"]["recompute"]["layers"] == 3
    assert job["settings"]["optimizer"]["sharding"] == "parameters"
    assert job["architecture"]["sequence"] == 1024


def test_an_uneven_layout(ilp_plan: Command) -> None:
    value = value_of(ilp_plan("analyze", *JOB, "--layout", "Et*10|t*14L", "--json"))
    assert [stage["layers"] for stage in value["stages"]] == [[[0, 9]], [[10, 23]]]


def test_a_launch_line(ilp_plan: Command) -> None:
    value = value_of(ilp_plan("analyze", "--megatron-args", LINE, "--world-size", "16", "--json"))
    assert [row["parameters"] for row in value["memory"]] == [1718757376, 1710376960]
    assert value["full_model"]["parameters"] == 6641991680


def test_a_script_is_read_like_its_launch_line(ilp_plan: Command) -> None:
    Path("run.sh").write_text(SCRIPT)
    script = value_of(ilp_plan("analyze", "--megatron-script", "run.sh", "--json"))
    line = value_of(ilp_plan("analyze", "--megatron-args", LINE, "--world-size", "16", "--json"))
    assert script["jobs"] == line["jobs"]
    assert script["memory"] == line["memory"]


def test_the_analysis_tool(ilp_plan: Command) -> None:
    """The user's own launch line gives the report that he knows."""
    Path("run.sh").write_text(SCRIPT)
    done = ilp_plan("analyze", "--megatron-script", "run.sh", "--compat", "analysis-tool")
    assert done.code == 0
    for text in ("Memory Requirement: 40.2GB", "volume/iteration: 2188.8 GB", "[n0_g7 n1_g7]"):
        assert text in done.out
    value = value_of(
        ilp_plan("analyze", "--megatron-script", "run.sh", "--compat", "analysis-tool", "--json")
    )
    assert value["rank"]["parameters"] == 1718898688


def test_a_note_where_the_tool_would_say_something_else(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", "--megatron-args", LINE, "--world-size", "16")
    assert "analysis tool would say 1,718,898,688 parameters and 40.2 GB" in done.out
    assert "analysis tool" not in ilp_plan("analyze", *JOB).out


def test_one_stage(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", *JOB, "--stage", "1")
    assert "stage 1 (of 2)" in done.out
    assert "stage 0 (of 2)" not in done.out


def test_one_stage_of_several_that_are_shown_as_one(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", "--model", "gpt3-1.3b", "--pp", "8", "--stage", "5")
    assert done.code == 0, done.err
    assert "stages 1-6 (of 8)" in done.out
    refused = ilp_plan("analyze", "--model", "gpt3-1.3b", "--pp", "8", "--stage", "8")
    assert refused.code == 2
    assert "--stage: found 8, expected one of 0 to 7" in refused.err


def test_a_file_is_written_and_not_half(ilp_plan: Command) -> None:
    done = ilp_plan("analyze", *JOB, "--output", "report.json")
    assert (done.code, done.out) == (0, "")
    assert "report.json: analysis of gpt3-1.3b" in done.err
    assert json.loads(Path("report.json").read_text())["model"] == "gpt3-1.3b"
    ilp_plan("analyze", *JOB, "--output", "report.txt")
    assert "full model without parallelism" in Path("report.txt").read_text()
    assert ilp_plan("analyze", *JOB, "--output", "no/report.txt").code == 1


# ---- plans --------------------------------------------------------------------------------------


def test_a_plan_of_operators_that_a_launch_line_can_say(ilp_plan: Command, saved: Path) -> None:
    """Cut between whole layers, no recomputation: a job like any other."""
    before = read_saved(saved)
    model = read_model(Path("tiny.toml"))
    (_, _, second, *_), count = segments(model.operators), len(model.operators)
    stages = tuple(
        OperatorStage(
            start=a, stop=b, first_device=s, device_count=1, strategies=(Strategy(),) * (b - a)
        )
        for s, (a, b) in enumerate(((0, second.start), (second.start, count)))
    )
    plan = replace(before.plan, stages=stages)
    write_saved(saved, replace(before, plan=plan, claim=None, verdict=None, certificate={}))
    done = ilp_plan("analyze", saved)
    assert done.code == 0, done.err
    assert "one GPU of stage 1 (of 2), layer 1" in done.out
    assert re.search(r"^(FITS|DOES NOT FIT) .* of 8\.00 GiB of gpu", done.out, re.M)


def test_a_plan_that_none_can_say_is_told_by_its_cost_model(ilp_plan: Command, saved: Path) -> None:
    """Recomputation of single operators: no launch line has it, and nothing is guessed."""
    done = ilp_plan("analyze", saved)
    assert done.code == 0
    assert "those of the cost model 'native'" in done.out
    assert "no training job says this plan" in done.out
    value = value_of(ilp_plan("analyze", saved, "--json"))
    assert value["source"] == "cost model native"
    evaluated = value_of(ilp_plan("evaluate", saved, "--json"))
    assert [stage["memory"] for stage in value["stages"]] == [
        stage["memory_bytes"] for stage in evaluated["stages"]
    ]


def test_a_plan_with_a_stage_of_its_own_kind(ilp_plan: Command) -> None:
    """Different tp and dp per stage: each is analysed on its own devices."""
    write_room(Path())
    plan = Plan(
        model="tiny",
        global_batch=16,
        micro_batches=4,
        stages=(
            GroupStage(
                start=0,
                stop=2,
                replicas=(Replica(devices=(0,), samples=2), Replica(devices=(1,), samples=2)),
            ),
            GroupStage(start=2, stop=4, replicas=(Replica(devices=(2, 3), samples=4),)),
        ),
    )
    files = {
        kind: Reference(name=name, sha256=sha256_of(Path(name)))
        for kind, name in (("model", "tiny.toml"), ("cluster", "room.toml"))
    }
    files["profile"] = Reference(name="analytic", sha256="")
    inputs = Request(files=files, space="groups", global_batch=16)
    write_saved(Path("own.json"), SavedPlan(plan=plan, inputs=inputs))
    done = ilp_plan("analyze", "own.json")
    assert done.code == 0, done.err
    assert "stage 0: tp 1 x dp 2; stage 1: tp 2 x dp 1" in done.out
    assert re.search(r"stage 1 tp groups +1 of 2 GPUs, inside a node", done.out)
    assert "[n1_g0 n1_g1]" in done.out
    assert "note      no launch line says all of this plan" in done.out
    assert "the plan does not say how its ranks train" in done.out
    value = value_of(ilp_plan("analyze", "own.json", "--json"))
    assert [job["tp"] for job in value["jobs"]] == [1, 2]
    assert [row["limit_bytes"] for row in value["memory"]] == [15 * 2**30, 80 * 2**30]
    done = ilp_plan("analyze", "own.json", "--compat", "analysis-tool")
    assert done.code == 2
    assert "found a plan whose stages differ in tp or dp" in done.err


def test_a_plan_from_a_profile_alone_is_told_by_its_cost_model(ilp_plan: Command) -> None:
    write_room(Path())
    options = [*HOSTS, "--profile", "metis:profile", *SIZE_OPTIONS, "--global-batch-size", "16"]
    assert ilp_plan("solve", *options, "--output", "room.json").code == 0
    done = ilp_plan("analyze", "room.json")
    assert done.code == 0, done.err
    assert "the plan names no model" in done.out
    assert "state" in done.out


def test_settings_of_a_plan_whose_experts_have_no_place(ilp_plan: Command) -> None:
    model = ["hidden = 256", "layers = 2", "heads = 4", "sequence = 128", "vocab = 1024"]
    model += ["experts.count = 8", "experts.top_k = 2", "experts.ffn = 512"]
    head = 'name = "moe"\nfamily = "decoder"\nprecision = "fp16"\n[architecture]\n'
    Path("moe.toml").write_text(head + "\n".join(model))
    options = ["--model", "moe.toml", "--cluster", "pair.toml", "--global-batch-size", "4"]
    options += ["--runtime", "megatron", "--output", "moe.json"]
    assert ilp_plan("solve", *options).code == 0
    value = json.loads(Path("moe.json").read_text())
    value["plan"]["settings"]["ep"] = 8
    Path("moe.json").write_text(json.dumps(value))
    done = ilp_plan("analyze", "moe.json")
    assert done.code == 1
    assert done.err.startswith("ilp-plan: moe.json: settings.ep x etp: found 8 x 1, expected")
    assert ilp_plan("evaluate", "moe.json").code == 1


def test_a_plan_is_analysed_by_what_it_holds(ilp_plan: Command, saved: Path) -> None:
    before = ilp_plan("analyze", saved, "--json").out
    assert value_of(ilp_plan("analyze", saved, "--json"))["notes"] == []
    text = Path("tiny.toml").read_text()
    Path("tiny.toml").write_text(text.replace("hidden = 256", "hidden = 512"))
    now = value_of(ilp_plan("analyze", saved, "--json"))
    note = "model tiny.toml: differs today from what the plan was saved with, which it is judged by"
    assert now.pop("notes") == [note]
    assert {**now, "notes": []} == json.loads(before)
    changed = ilp_plan("analyze", saved, "--json", "--accept-changed")
    assert changed.code == 0
    assert changed.out != before
    Path("tiny.toml").unlink()
    assert ilp_plan("analyze", saved, "--json").out == before


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--tp 3", "--tp: found 3, expected a divisor of the model's heads (32); 2 would do"),
        ("--pp 25", "--pp: found 25, expected a divisor of 24 layers, or a layout; 24 would do"),
        ("--dp 4 --global-batch-size 30",
         "--global-batch-size: found 30, expected a multiple of micro-batch size x dp = 1 x 4 "
         "= 4; 32 would do"),
        ("--tp 2 --dp 2 --world-size 15",
         "--world-size: found 15, expected tp x pp x cp x dp = 2 x 1 x 1 x 2; 4 would do"),
        ("--tp 2 --world-size 15",
         "--world-size: found 15, expected a multiple of tp 2 x pp 1 x cp 1 = 2; 16 would do"),
        ("--layout Et*25L",
         "--layout: a layout must have the model's 24 layers, found 25; 'Et*24L' has them"),
        ("--pp 4 --layout Et*12|t*12L",
         "--layout: 2 virtual stages cannot be dealt to 4 ranks (pp); layouts of 4, 8 ... "
         "stages can, such as 'Et*6|t*6|t*6|t*6L'"),
        ("--layout nonsense", "--layout: pipeline layout 'nonsense': expected E, t, m, L"),
        ("--layout Et*24mL", "--layout: found 1 layers of multi-token prediction (m)"),
        ("--ep 2", "--ep: found 2, expected a model with experts; 1 would do"),
        ("--recompute none --recompute-layers 2",
         "--recompute-layers: found --recompute none, expected full"),
        ("--memory-limit 80", "--memory-limit must have a unit"),
        ("--stage 1", "--stage: found 1, expected one of 0 to 0"),
        ("--distributed-optimizer --sharding gradients",
         "--distributed-optimizer: found --sharding gradients too"),
        ("--compat analysis-tool", "--compat analysis-tool: SwiGLU: found off, expected on"),
        ("--cp 2 --pp 2 --dp 2 --rank-order tp-cp-ep-pp-dp",
         "--rank-order: found tp-cp-ep-pp-dp, expected tp-cp-ep-dp-pp where tp x cp = 2 is not "
         "etp x ep = 1; tp-cp-ep-dp-pp would do"),
        ("--pp 2 --recompute full --recompute-layers 13",
         "--recompute-layers: found 13, expected at most the 12 layers of a stage; 12 would do"),
        ("--recompute selective --recompute-modules core_atn",
         "--recompute-modules: found core_atn, expected one of core_attn, moe_act,"),
        ("--imbalance inf", "--imbalance: found inf, expected a number of at most 65536"),
        ("--gpus 8xH100 --precision nvfp4",
         "--precision: found nvfp4 on H100-80GB, expected one that it has: bf16, fp16, fp32, "
         "fp8-delayed, fp8-current, fp8-blockwise"),
        (f"--dp {10**20}", f"--dp: found {10**20}, expected a whole number of at most 2147483647"),
        ("--recompute full --recompute-layers 7",
         "--recompute-layers: found 7, expected a divisor of the 24 layers of a stage, for "
         "uniform chunks; 6 would do"),
        ("--cp 3", "--cp: found 3, expected a degree whose product with 2 divides 2048 tokens"),
    ],
)  # fmt: skip
def test_one_line_says_what_would_do(ilp_plan: Command, options: str, line: str) -> None:
    done = ilp_plan("analyze", "--model", "gpt3-1.3b", *options.split())
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"ilp-plan: {line}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "expected one of PLAN, --model, --megatron-args, --megatron-script, found none"),
        (["--model", "gpt3-1.3b", "--megatron-args", LINE], "--megatron-args: found --model too"),
        (["--megatron-args", LINE, "--tp", "2"], "--tp: expected --model beside it"),
        (["--megatron-args", LINE + " --tenser-size 2", "--strict"], "--megatron-args: "),
        (["--megatron-script", "none.sh"], "none.sh: no such file"),
        (["--model", "t5-3b"], "t5-3b: family: found 't5', expected a decoder-only transformer"),
        (["--model", "wide-resnet-1b"], "wide-resnet-1b: family: found 'resnet'"),
        (["--model", "gpt3-1.3c"], "gpt3-1.3c: no such file; did you mean 'gpt3-1.3b'?"),
        (["none.json"], "none.json: "),
    ],
)
def test_bad_sources(ilp_plan: Command, arguments: list[str], line: str) -> None:
    done = ilp_plan("analyze", *arguments)
    assert done.code in (1, 2)
    assert done.err.startswith(f"ilp-plan: {line}")
    assert done.err.count("\n") == 1


def test_a_variable_that_is_not_set_is_named(ilp_plan: Command) -> None:
    Path("run.sh").write_text(SCRIPT.replace("NNODES=2\n", ""))
    done = ilp_plan("analyze", "--megatron-script", "run.sh")
    assert done.code == 1
    assert "NNODES" in done.err
    assert done.err.count("\n") == 1


def test_a_large_job_in_a_process_of_its_own_loads_nothing_heavy() -> None:
    """Half a second is too little for pandas, OR-Tools or Numba; what is not loaded cannot take
    any."""
    words = [
        "analyze --model llama3-405b --tp 8 --pp 16 --dp 128 --layout Et*7|(t*8|)*14t*7L",
        "--global-batch-size 2048 --sequence-parallel --distributed-optimizer --memory-limit 80GB",
    ]
    code = (
        "import sys; from ilp_planner.faces.cli.main import run; "
        f"code = run({' '.join(words).split()!r}); "
        "print(code, *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": "."},
    )
    code_, *loaded = done.stderr.split()
    assert code_ == "0"
    assert "16,384 = tp 8 x pp 16 x cp 1 x dp 128" in done.stdout
    assert not {"pandas", "ortools", "numba", "torch", "pulp"} & set(loaded)


def test_a_card_is_sold_with_the_name_of_decimal_units(ilp_plan: Command) -> None:
    job = ("analyze", "--model", "gpt3-1.3b", "--memory-limit")
    done = ilp_plan(*job, "80GB")
    assert "--memory-limit 80GB is 74.51 GiB; a card sold as 80 GB has 80 GiB" in done.out
    assert "--memory-limit 80GiB" in done.out
    assert "a card sold" not in ilp_plan(*job, "80GiB").out


def test_a_precision_is_said_and_counts(ilp_plan: Command) -> None:
    """Of a plan on GPUs that have it."""
    options = ("analyze", "--model", "gpt3-1.3b", "--gpus", "8xH100", "--json")
    plain, low = (
        json.loads(ilp_plan(*options, *more).out)["memory"][0]
        for more in ((), ("--precision", "fp8-current"))
    )
    assert low["activations_bytes"] < plain["activations_bytes"]
    for sharded, kept in ((), ""), (("--sharding", "optimizer"), " parameters too,"):
        text = ilp_plan(*options[:-1], "--precision", "fp8-current", *sharded).out
        assert f"with products in fp8-current,{kept} optimizer" in text.replace("distributed ", "")
