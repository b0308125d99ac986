"""`ilp-plan doctor`: the user's number first, then causes; what is no log of the job is refused."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
JOB = ["--model", "llama3-8b", "--tp", "2", "--pp", "2", "--global-batch-size", "64",
       "--sharding", "optimizer", "--cluster", "a100-4x8"]  # fmt: skip
QUICK = ["--time-limit", "0"]
LINE = (
    " [2026-03-01 12:00:00] iteration {step:8d}/     500 | consumed samples: {samples} | elapsed "
    "time per iteration (ms): {ms:.1f} | global batch size: {batch:5d} | lm loss: 4.2E+00 |"
)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the seconds that are predicted of the job."""
    from contextlib import redirect_stdout
    from io import StringIO

    from ilp_planner.faces.cli.main import run

    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_text(log([1.0] * 20))
    with redirect_stdout(StringIO()) as out:
        run(["doctor", str(path), *JOB, *QUICK, "--json"])
    seconds: float = json.loads(out.getvalue())["predicted"]["seconds"]
    return seconds


def log(seconds: list[float], batch: int = 64) -> str:
    return "\n".join(
        LINE.format(step=step, samples=step * batch, ms=1e3 * each, batch=batch)
        for step, each in enumerate(seconds, 1)
    )


def even(seconds: float, count: int = 100) -> list[float]:
    noise = np.random.default_rng(3).normal(0, 0.01, count)
    return list(seconds * np.exp(noise))


@pytest.mark.slow
def test_a_run_as_predicted(ilp_plan: Command, folder: Path, predicted: float) -> None:
    (folder / "a.log").write_text(log(even(predicted)))
    done = ilp_plan("doctor", "a.log", *JOB, "--time-limit", "20")
    assert done.code == 0, done.err
    first = done.out.partition("\n")[0]
    assert first.startswith("your step takes ")
    assert " over 100 steps); this plan should take " in first
    plain = done.out.replace("\n", " ")
    assert "; the best plan of Megatron-LM on these 32 GPUs should take " in plain
    assert "none below" in done.out
    assert "none found: the step takes what is predicted" in done.out
    assert "recomputation that was not meant" in done.out  # is not told
    assert "needs timers" in done.out
    assert "best plan" in done.out


def test_without_a_job_steps_alone_are_judged(ilp_plan: Command, folder: Path) -> None:
    seconds = even(2.0)
    seconds[9::10] = [each + 1 for each in seconds[9::10]]
    (folder / "a.log").write_text(log(seconds))
    done = ilp_plan("doctor", "a.log")
    assert done.code == 0, done.err
    assert "cause 1         stalls of data loading: " in done.out
    assert "every 10 steps one takes " in done.out
    assert "needs the job (--job)" in done.out
    said = json.loads(ilp_plan("doctor", "a.log", "--json").out)
    assert said["causes"][0]["cost_s"] == pytest.approx(0.1, rel=0.05)
    assert said["predicted"] is None


def test_a_script_and_its_log(ilp_plan: Command, folder: Path, predicted: float) -> None:
    from tests.faces.cli.test_fit import SCRIPT

    (folder / "run.sh").write_text(SCRIPT)
    (folder / "a.log").write_text(log(even(1.0)))
    done = ilp_plan("doctor", "a.log", "--job", "run.sh", "--gpus", "4xA100-80GB", *QUICK)
    assert done.code == 0, done.err
    assert "this plan should take" in done.out


def test_another_batch_is_the_first_cause(
    ilp_plan: Command, folder: Path, predicted: float
) -> None:
    (folder / "a.log").write_text(log(even(1.45 * predicted), batch=96))
    said = json.loads(ilp_plan("doctor", "a.log", *JOB, *QUICK, "--json").out)
    cause = said["causes"][0]
    assert cause["name"] == "batch"
    assert "trains 96 samples" in cause["evidence"]
    assert cause["cost_s"] == pytest.approx(0.45 * predicted, rel=0.15)


def test_the_log_says_the_job(ilp_plan: Command, folder: Path) -> None:
    from tests.benchmarks.doctor_logs import Fault, megatron, run_of

    run = run_of("dense", Fault(), 30, 1)
    (folder / "a.log").write_bytes(megatron(run, arguments=True))
    done = ilp_plan("doctor", "a.log", "--cluster", "h100-8x8", *QUICK)
    assert done.code == 0, done.err
    assert "this plan should take" in done.out
    assert "not told        another setting" not in done.out


BAD = {
    "no steps": ("hello\nworld\n", "found no step of a run, expected iteration lines of"),
    "one step": (log([1.0]), "found one step alone (line 1), expected at least 2"),
    "two runs": (log([1.0] * 30) + "\n" + log([2.0] * 20),
     "found 2 runs in one file (steps 1 to 30 from line 1; steps 1 to 20 from line 31), "
     "expected one: --run 2 takes the last one"),
    "no seconds": ("\n".join(f"iteration {n}/ 9 | lm loss: 1.0 |" for n in range(1, 5)),
     "found steps without seconds"),
    "another unit": (log([4000.0] * 20), "if these are ms: --unit ms"),
    "no GPU": (
        json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}),
        "found a trace without CUDA activities",
    ),
    "pickle": (pickle.dumps(range(3)), "found a pickle that is not read: it names builtins.range"),
    "empty": ("", "found an empty file"),
    "binary": (b"\0\1\2", "found bytes that are no text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line(ilp_plan: Command, folder: Path, kind: str) -> None:
    content, says = BAD[kind]
    path = folder / "a.log"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = ilp_plan("doctor", "a.log", *JOB, *QUICK)
    assert done.code == 1
    assert says in done.err
    assert done.err.count("\n") == 1


def test_repairs_of_the_messages_work(ilp_plan: Command, folder: Path, predicted: float) -> None:
    (folder / "two.log").write_text(log(even(predicted)) + "\n" + log(even(predicted, 50)))
    assert ilp_plan("doctor", "two.log", "--run", "2", *JOB, *QUICK).code == 0
    (folder / "ms.csv").write_text(
        "step,step_time\n" + "".join(f"{n},{1e3 * predicted}\n" for n in range(1, 30))
    )
    refused = ilp_plan("doctor", "ms.csv", *JOB, *QUICK)
    assert "--unit ms" in refused.err
    done = ilp_plan("doctor", "ms.csv", "--unit", "ms", *JOB, *QUICK)
    assert done.code == 0, done.err
    assert "none found" in done.out


def test_logs_of_other_jobs(ilp_plan: Command, folder: Path) -> None:
    from tests.benchmarks.doctor_logs import Fault, megatron, run_of

    run = run_of("dense", Fault(), 30, 1)
    (folder / "a.log").write_bytes(megatron(run, arguments=True))
    for words, says in (
        (["--model", "llama3-70b", "--tp", "8", "--cluster", "h100-8x8"], "its layers 32 instead"),
        (["--model", "llama3-70b", "--tp", "8", "--gpus", "32xH100"], "another job: its"),
    ):
        done = ilp_plan("doctor", "a.log", *words, "--global-batch-size", "128", *QUICK)
        assert done.code == 1
        assert says in done.err, done.err
    (folder / "b.log").write_bytes(megatron(run))  # prints no arguments: FLOP tell
    done = ilp_plan(
        "doctor", "b.log", "--model", "llama3-70b", "--tp", "8", "--cluster", "h100-8x8",
        "--global-batch-size", "128", *QUICK,
    )  # fmt: skip
    assert "found the log of another job: " in done.err
    assert "PFLOP of the job" in done.err


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("ran", "said", "cause"),
    [
        ("--tensor-model-parallel-size 4", "with tp 4, dp 4", "a flag that costs: tp, dp"),
        ("--tensor-model-parallel-size 1", "with tp 1, dp 16", "none found"),
        ("--pipeline-model-parallel-size 1", "with pp 1, dp 32", "none found"),
        (
            "--num-layers-per-virtual-pipeline-stage 4",
            "with virtual stages 2",
            "causes          none",
        ),
        ("--global-batch-size 64", "with 64 samples in a step", "another batch than asked for: -"),
    ],
)
def test_what_ran_is_another_job(
    ilp_plan: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    ran: str,
    said: str,
    cause: str,
) -> None:
    """Degrees differ together; a run is judged by what its log prints, not by the job."""
    from tests.benchmarks.doctor_logs import LINES, Fault, megatron, run_of

    line = f"torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py {LINES['dense']}"
    (folder / "run.sh").write_text(line)
    monkeypatch.setitem(LINES, ran, f"{LINES['dense']} {ran}")
    log = megatron(run_of(ran, Fault(), 40, 1), timers="minmax", arguments=True)
    (folder / "a.log").write_bytes(log)
    done = ilp_plan("doctor", "a.log", "--job", "run.sh", "--cluster", "h100-8x8", *QUICK)
    assert done.code == 0, done.err
    assert f" as it ran by the log, {said}" in done.out.replace("\n", " ")
    assert cause in done.out
    assert "not explained" not in done.out
    assert "clocks below" not in done.out.partition("not told")[0]


def test_two_files_of_a_kind(ilp_plan: Command, folder: Path) -> None:
    for name in ("a.log", "b.log"):
        (folder / name).write_text(log([1.0] * 5))
    done = ilp_plan("doctor", "a.log", "b.log")
    assert "b.log: found a second log beside a.log, expected one of each run" in done.err


def test_a_trace_of_another_run(ilp_plan: Command, folder: Path) -> None:
    (folder / "a.log").write_text(log([1.0] * 5))
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0}
    for seconds, code in ((0.1, 1), (1.2, 0)):
        events = {"traceEvents": [{**kernel, "dur": 1e6 * seconds}]}
        (folder / "t.json").write_text(json.dumps(events))
        done = ilp_plan("doctor", "a.log", "t.json")
        assert done.code == code, done.err
        assert ("t.json: found the trace of another run" in done.err) == bool(code)


def test_a_trace_of_one_rank_tells_no_straggler(
    ilp_plan: Command, folder: Path, predicted: float
) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1e6 * predicted}
    (folder / "t.json").write_text(json.dumps({"traceEvents": [kernel]}))
    done = ilp_plan("doctor", "t.json", *JOB, *QUICK, "--json")
    untold = {one["needs"]: one["titles"] for one in json.loads(done.out)["untold"]}
    (needs,) = [needs for needs, titles in untold.items() if "a straggler" in titles]
    assert "timers" in needs
    assert "trace" not in needs


def test_gpus_without_a_job(ilp_plan: Command, folder: Path) -> None:
    (folder / "a.log").write_text(log([1.0] * 5))
    done = ilp_plan("doctor", "a.log", "--cluster", "h100-8x8")
    assert done.code == 2
    assert "--cluster: found no job, expected --job JOB or --model" in done.err
