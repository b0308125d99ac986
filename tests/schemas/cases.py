"""Outputs of every command, and the files that commands write, of small problems."""

import json
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.faces.cli.main import run
from ilp_planner.faces.sweeps.work import solve_point
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.saved_json import write_saved
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from tests import amp_cases
from tests.analysis.calibration.machines import DEFAULT, JOBS, TOML, runs_on
from tests.analysis.calibration.test_runs import table
from tests.faces.sweeps.cases import AtOnce
from tests.megatron_cases import small_cluster, small_model
from tests.mixed_cases import SIZE_OPTIONS, write_room
from tests.small import make_plan, make_problem, write_specs

SMALL = "small.toml nodes.toml --global-batch-size 8 --sharding optimizer"
OPERATORS = "--model tiny.toml --cluster pair.toml --global-batch-size 16 --space operators"
SIZES = " ".join(SIZE_OPTIONS)
ROOM = f"--cluster room.toml --profile metis:profile {SIZES} --global-batch-size 16"
AMP = "--profile amp:amp.json --experiment pair --cost-model amp"
# What runs in one folder, in this order.
COMMANDS = f"""\
solve {SMALL} --all-devices --recompute none,full --tokens 1T --price 2.5 --top 2 --output plan.json
solve {SMALL} --all-devices --recompute full --keep plan.json:stage0 --output kept.json
solve {SMALL} --all-devices --tp 2 --recompute none --output two.json
solve {SMALL} --all-devices --recompute none --output mine.json
solve {SMALL} --pp 2 --recompute none,full --prefer-plain 0.9 --tokens 1T --price 2.5 --output plainer.json
evaluate plainer.json --check-certificate
solve {SMALL} --memory-limit 1MiB
solve {SMALL} --time-limit 0
solve llama3.2-1b --gpus 4xA100-80GB --global-batch-size 8 --tp 2 --recompute none --output llama.json
solve llama3-8b --gpus 16xA100-40GB --global-batch-size 16 --tp 1,2 --cp 1 --virtual-stages 1,2 --sharding optimizer --recompute none --prefer-plain 0 --shortlist 3
solve {OPERATORS} --output operators.json
solve {ROOM} --max-price-per-hour 8
solve {ROOM} --top 2 --output mixed.json
export two.json --to megatron --output run.sh
import megatron run.sh --cluster nodes.toml --output given.json
solve {ROOM} --objective time,price --output room.json
solve {SMALL} --recompute none --objective price --price 2.5 --max-devices 2 --output fewer.json
solve {ROOM} --space metis --cost-model metis --memory-rule metis --output metis.json
solve --hostfile hostfile --clusterfile clusterfile.json --profile metis:profile {SIZES} --global-batch-size 16 --cost-model metis --output files.json
solve {AMP} --placement free --output amp-plan.json
solve --model tiny.toml --cluster pair.toml --global-batch-size 16 --space groups --shares even
solve --model tiny.toml --cluster pair.toml --global-batch-size 16 --space groups --stage-tp mixed
solve --model tiny.toml --cluster pair.toml --global-batch-size 16 --space groups --seats spread
evaluate plan.json --check-certificate --tokens 1e9
evaluate kept.json --check-certificate
evaluate operators.json --check-certificate
evaluate room.json --check-certificate
evaluate metis.json --check-certificate
evaluate files.json
evaluate given.json
evaluate llama.json
evaluate single.json --accept-changed
evaluate broken.json --accept-changed
compare mixed.json
simulate mixed.json
why llama.json --workers 1 --time-limit 5
simulate plan.json --tokens 1B
simulate operators.json
compare plan.json two.json none.json --solvers anneal --time-limit 2 --tokens 1B
compare operators.json
why mine.json --workers 1 --time-limit 60
why mine.json --workers 1 --time-limit 0
why mine.json --not tp=2 --time-limit 20
why mine.json --not tp=8 --time-limit 20
why mine.json --not two.json --time-limit 20
replan mine.json --without 1
replan mine.json --global-batch-size 16 --slack 0.5
replan mine.json --without 1 --time-limit 0
fit plan.json --tokens 1B
fit plan.json --verdict
fit llama3-8b --micro-batch-size 2 --pp 2 --sharding optimizer --global-batch-size 256 --cluster a100-4x8
fit gpt3-1.3b --global-batch-size 8 --gpus 8xA100-40GB --memory-limit 5GiB --time-limit 5
fit llama3.2-1b --global-batch-size 8 --micro-batch-size 2 --gpus 2xA100-40GB --memory-limit 14GiB
fit llama3.2-1b --global-batch-size 8 --gpus 2xA100-40GB --memory-limit 2GiB --time-limit 2
sweep --model small.toml --cluster nodes.toml --vary global_batch=4,8 --vary tp=1,3 --objective time,price --price 2 --tokens 1T --output sweep.csv
analyze two.json --cluster nodes.toml
analyze llama3-8b --tp 2 --pp 2 --cp 2 --recompute selective --sequence-parallel
analyze mixtral-8x7b --tp 2 --pp 2 --ep 2 --dp 2 --cluster a100-4x8 --recompute full --all-groups
analyze deepseek-v2-lite --tp 2 --virtual-stages 1 --gpus 8xH100
analyze single.json --accept-changed
models
models small.toml
supports llama3-8b --gpus H100,B200
supports t5-3b
gpus
runtimes
runtimes megatron
runtimes aceso
calibrate runs.csv --cluster mine.toml
doctor steps.csv
doctor snapshot.json
doctor steps.csv --model llama3.2-1b --global-batch-size 8 --gpus 2xA100-40GB --time-limit 2
doctor trace.json --model llama3.2-1b --global-batch-size 8 --gpus 2xA100-40GB --time-limit 0
size llama3.2-1b --tokens 1e9 --days 1 --gpus A100-80GB --price 2 --global-batch-size 64 --max-gpus 16
size llama3.2-1b --tokens 1e12 --days 1 --gpus A100-80GB,V100-16GB --max-gpus 8 --mtbf none --time-limit 2
size llama3.2-1b --tokens 1e9 --days 1 --gpus A100-80GB --global-batch-size 64 --max-gpus 8 --lora-dropout 0.1
tune llama.json --ask --folder asked
tune llama.json --run cat<tune.log;true<{{script}} --folder tuned --time-limit 60
profile check bad.csv
profile predict table.csv --want tp=8
"""  # noqa: E501
SPECS = {"model": "tiny", "cluster": "pair"}
LAYER = "layer,A100,block,1-8,{tp},{n},{seconds},{state},{kept}"
HEAD = "record,device,name,layers,tp,micro_batch,time_s,state_bytes,activation_bytes"


def write_files(folder: Path) -> None:
    """Write all that the commands read."""
    write_specs(folder)
    write_room(folder)
    amp_cases.write(folder, amp_cases.content())
    (folder / "small.toml").write_text(model_text(small_model()))
    (folder / "nodes.toml").write_text(cluster_text(small_cluster()))
    (folder / "mine.toml").write_text(TOML)
    rows = [
        LAYER.format(tp=tp, n=n, seconds=(1e-3 + 4e-3 * n / tp), state=2**30 // tp, kept=n * 2**26)
        for tp in (1, 2, 4)
        for n in (1, 2, 4)
    ]
    (folder / "table.csv").write_text("\n".join(["# device: A100", HEAD, *rows]) + "\n")
    bad = [*rows[:-1], LAYER.format(tp=4, n=4, seconds=9.0, state=2**28, kept=2**28)]
    (folder / "bad.csv").write_text("\n".join([HEAD, *bad]) + "\n")
    _write_single(folder)
    _write_logs(folder)
    table(
        folder,
        *(
            {
                "run": " ".join(arguments_of_job(run.job).argv),
                "seconds": run.seconds,
                "gpus": 8,
                "name": run.name,
            }
            for run in runs_on(DEFAULT, JOBS[:4])
        ),
    )


def _write_logs(folder: Path) -> None:
    """Write a table of steps with a stall every tenth, a memory snapshot and a trace."""
    steps = "".join(f"{step},{2.0 if step % 10 else 3.0},16\n" for step in range(1, 61))
    lines = (
        f" iteration {step}/ 20 | elapsed time per iteration (ms): 900.0 | global batch size: 8 |\n"
        for step in range(10, 30)
    )
    (folder / "tune.log").write_text("".join(lines))
    (folder / "steps.csv").write_text(f"step,step_time,global_batch_size\n{steps}")
    block = {"size": 2**20, "state": "active_allocated"}
    segment = {"device": 0, "total_size": 2**22, "blocks": [block]}
    (folder / "snapshot.json").write_text(json.dumps({"segments": [segment]}))
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1e6}
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [kernel]}))


def _write_single(folder: Path) -> None:
    """Write a plan that recomputes single operators, which no training job says, with micro-batches
    that are not tried; and one of other devices than there are."""
    problem = make_problem(folder)
    files = {"profile": Reference(name="analytic")}
    files |= {kind: Reference(name=f"{name}.toml") for kind, name in SPECS.items()}
    batch, plan = problem.global_batch, make_plan(problem)
    inputs = Request(files=files, space="operators", global_batch=batch, micro_batch_sizes=(1, 2))
    write_saved(folder / "single.json", SavedPlan(plan=plan, inputs=inputs))
    stages = (replace(plan.stages[0], first_device=7), *plan.stages[1:])
    broken = SavedPlan(plan=replace(plan, stages=stages), inputs=inputs)
    write_saved(folder / "broken.json", broken)


def printed(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the commands in a folder; yield what each prints as JSON."""
    write_files(folder)
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        executor = AtOnce(solve=solve_point)
        patch.setattr("ilp_planner.faces.sweeps.sweep.open_executor", lambda name, **said: executor)
        for line in COMMANDS.splitlines():
            out, err = StringIO(), StringIO()
            silent = line.startswith(("export ", "import "))
            with redirect_stdout(out), redirect_stderr(err):
                run([*line.split(), *([] if silent else ["--json"])])
            if silent:
                continue
            assert out.getvalue(), f"{line}: {err.getvalue()}"
            yield json.loads(out.getvalue())


def examples(folder: Path) -> dict[str, list[Any]]:
    """Return all outputs by the names of their schemas, and all files that these commands write."""
    found: dict[str, list[Any]] = {}
    for value in printed(folder):
        found.setdefault(value["schema"].removeprefix("ilp-planner/"), []).append(value)
    plans = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    found["plan"] = [plan for plan in plans if plan.get("schema") == "ilp-planner plan"]
    found["plan"].append(_replica_by_replica(json.loads((folder / "mixed.json").read_text())))
    journal = (folder / "sweep.csv.jsonl").read_text().splitlines()
    found["sweep-journal"] = [json.loads(line) for line in journal]
    return found


def _replica_by_replica(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a plan of groups as files have it where replicas of a stage differ in their degree."""
    for stage in saved["plan"]["stages"]:
        stage["tp"] = [stage["tp"]] * len(stage["samples"])
    return saved
