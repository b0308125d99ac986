"""`ilp-plan tune`: plans are run, logs read, and it ends with a reason; killed, it goes on."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done
from tests.faces.cli.test_doctor import log

Command = Callable[..., Done]
SIX = """\
solve small.toml pair.toml --global-batch-size 16 --tp 1,2 --pp 1 --cp 1 --micro-batch-size 2,4,8
--recompute none --sharding none --output plan.json"""
MODEL = """\
name = "small"
family = "decoder"
precision = "bf16"

[architecture]
layers = 2
hidden = 128
heads = 4
kv_heads = 2
ffn = 256
sequence = 48
vocab = 256
gated = true
bias = false
norm = "rmsnorm"
positions = "rope"
dropout = 0.0
"""
PAIR = """\
name = "pair"

[[nodes]]
device = "A100"
count = 1
devices = 2

[devices.A100]
gpu = "A100-80GB"
"""
# A script's own cost, which the planner does not know: of tp and micro-batch, in milliseconds.
HIDDEN = """\
import os, re, sys
text = open(sys.argv[1]).read()
tp, micro = (int(re.search(rf"--{name}-size (\\d+)", text)[1])
             for name in ("tensor-model-parallel", "micro-batch"))
if (tp, micro) == (1, 8):
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
if (tp, micro) == (2, 8):
    sys.exit("pretrain_gpt.py: error: unrecognized arguments")
steps = int(os.environ["TRAIN_ITERS"])
for step in range(1, steps + 1):
    ms = 5.0 * (1 + 0.1 * tp + 0.8 / micro) * (1 + 0.002 * (step % 3))
    print(f" iteration {step:8}/{steps:8} | elapsed time per iteration (ms): {ms:.3f} "
          f"| global batch size: {16:5} |")
"""
RUN = f"{sys.executable} hidden.py {{script}}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the plan of a solve among six."""
    from contextlib import chdir, redirect_stderr, redirect_stdout
    from io import StringIO

    from ilp_planner.faces.cli.main import run

    path = tmp_path_factory.mktemp("tune")
    (path / "small.toml").write_text(MODEL)
    (path / "pair.toml").write_text(PAIR)
    (path / "hidden.py").write_text(HIDDEN)
    with chdir(path), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert run(SIX.split()) == 0
    return path


@pytest.fixture
def here(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the same files."""
    shutil.copytree(job, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(folder: Path) -> list[dict[str, object]]:
    """Return the last row of each run of a journal."""
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]
    return list({line["key"]: line for line in lines}.values())


def test_it_runs_reads_and_proves(ilp_plan: Command, here: Path) -> None:
    done = ilp_plan("tune", "plan.json", "--run", RUN, "--budget", "2h", "--time-limit", "300")
    assert done.code == 0, done.err
    ended = rows(here / "tune")
    plans = [json.dumps(row["plan"]) for row in ended]
    assert len({*plans}) == len(plans) <= 6
    measured = {row["script"]: row["seconds"] for row in ended if row["status"] == "measured"}
    best = min(measured, key=measured.__getitem__)
    assert measured[best] == pytest.approx(5e-3 * (1 + 0.1 + 0.2), rel=0.01)  # tp 1, micro-batch 4
    assert f"tune/{best}" in done.out
    assert "PROVED" in done.out
    assert {row["status"] for row in ended} >= {"measured", "out of memory"}
    # what it has, it does not run again
    again = ilp_plan(
        "tune", "plan.json", "--run", "false {script}", "--json", "--time-limit", "300"
    )
    assert again.code == 0, again.err
    found = json.loads(again.out)
    assert found["proved"]
    assert found["best_s"] == measured[best]
    assert rows(here / "tune") == ended
    table = ilp_plan("calibrate", "tune/runs.csv", "--cluster", "pair.toml", "--json")
    assert table.code == 0, table.err
    assert len(json.loads(table.out)["runs"]) == len(measured)


def test_a_person_runs_the_scripts(ilp_plan: Command, here: Path) -> None:
    said = ["tune", "plan.json", "--ask", "--time-limit", "300"]
    first = ilp_plan(*said)
    assert first.code == 0, first.err
    assert "tune/run01.sh" in first.out
    assert ilp_plan(*said).out == first.out  # asked again
    (here / "none.log").write_text("usage: pretrain_gpt.py\n")
    bad = ilp_plan(*said, "--log", "none.log")
    assert bad.code == 1
    assert "none.log: found no step of a run" in bad.err
    assert bad.err.rstrip().endswith("; a run that can never succeed is said by --failed")
    (here / "other.log").write_text(log([0.01] * 20, batch=64))
    other = ilp_plan(*said, "--log", "other.log")
    assert "other.log: found the log of another job: 64 samples a step instead of 16" in other.err
    assert "tune/run02.sh" in ilp_plan(*said, "--failed").out
    (here / "a.log").write_text(log([0.01] * 20, batch=16))
    assert "10 ms per step" in ilp_plan(*said, "--log", "a.log").out
    assert [row["status"] for row in rows(here / "tune")][:2] == ["failed", "measured"]


@pytest.mark.parametrize("then", ["exit 1", "sleep 600", ""])
def test_killed_anywhere_it_goes_on(here: Path, then: str) -> None:
    """Killed by its own second run, whether that ends, hangs or succeeds without it."""
    kill = "if [ -e tune/02.log -a ! -e killed ]; then touch killed; kill -9 $PPID; "
    code = "import sys; from ilp_planner.faces.cli.main import main; main(sys.argv[1:])"
    words = ["tune", "plan.json", "--run", f"{kill}{then or ':'}; fi; {RUN}", "--time-limit", "300"]
    command = [sys.executable, "-c", code, *words, "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == -9, ended.stderr
    assert [row["status"] for row in rows(here / "tune")] == ["out of memory", "begun"]
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert found["proved"]
    assert len({one["plan"] for one in found["runs"]}) == len(found["runs"])
    assert "begun" not in {one["outcome"] for one in found["runs"]}


BAD = (
    ([], "--ask: found neither, expected --run COMMAND"),
    (["--run", "bash"], "--run: found 'bash', expected {script} in it"),
    (["--run", RUN, "--ask"], "--ask: found --run too, expected --run COMMAND"),
    (["--run", RUN, "--log", "a.log"], "--log: found --run, expected --ask"),
    (
        ["--ask", "--log", "a.log"],
        "--log: found no script that waits for a log, expected --ask before it",
    ),
    (["--run", RUN, "--budget", "soon"], "--budget: found 'soon'"),
    (["--run", RUN, "--budget", "1 ms"], "--budget: found 1 ms, expected at least"),
    (["--run", RUN, "--to", "megatrom"], "megatron"),
    (["--run", RUN, "--executor", "slurm"], "slurm"),
)


@pytest.mark.parametrize(("said", "message"), BAD)
def test_bad_input_is_one_line(
    ilp_plan: Command, here: Path, said: list[str], message: str
) -> None:
    done = ilp_plan("tune", "plan.json", *said)
    assert done.code in (1, 2)
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(here.glob("tune/run*"))


def test_a_command_that_runs_nothing_ends_soon(ilp_plan: Command, here: Path) -> None:
    done = ilp_plan("tune", "plan.json", "--run", "echo {script}", "--time-limit", "300", "--json")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "03.log: found 3 runs that failed and none that succeeded" in done.err
    assert "found no step of a run" in done.err


def test_the_journal_of_another_job(ilp_plan: Command, here: Path) -> None:
    assert ilp_plan("tune", "plan.json", "--ask").code == 0
    again = [word.replace("16", "32") for word in SIX.split()]
    assert ilp_plan(*again).code == 0
    done = ilp_plan("tune", "plan.json", "--ask")
    assert done.code == 2
    assert "journal.jsonl: the journal of another job: samples 16 there, 32 here" in done.err
    assert done.err.rstrip().endswith("another --folder begins one of its own")
