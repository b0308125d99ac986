"""`ilp-plan tune`: plans are run, logs read, and it ends with a reason; killed, it goes on."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done
from tests.faces.cli.test_doctor import log
from tests.faces.tuned import FILES, SIX

Command = Callable[..., Done]
RUN = f"{sys.executable} hidden.py {{script}}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the plan of a solve among six."""
    from contextlib import chdir, redirect_stderr, redirect_stdout
    from io import StringIO

    from ilp_planner.faces.cli.main import run

    path = tmp_path_factory.mktemp("tune")
    for name, text in FILES.items():
        (path / name).write_text(text)
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
    assert measured[best] == pytest.approx(20e-3 * (1 + 0.1 + 0.2), rel=0.01)  # tp 1, micro-batch 4
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


@pytest.mark.slow
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


GONE = object()  # a key that is left out
DAMAGED: tuple[tuple[dict[str, object], str], ...] = (
    ({"seconds": GONE}, "seconds: found nothing, expected a number"),
    ({"seconds": math.nan}, "expected a row as it was written"),
    ({"seconds": -1.0}, "seconds: found -1.0, expected a number of at least 0"),
    ({"seconds": 0}, "seconds: found 0, expected seconds above 0"),
    ({"seconds": "fast"}, "seconds: found 'fast', expected a number"),
    ({"noise": None}, "noise: found null, expected a number"),
    ({"noise": -0.5}, "noise: found -0.5, expected a number of at least 0"),
    ({"steps": 0.5}, "steps: found 0.5, expected a whole number"),
    ({"wall_s": -1}, "wall_s: found -1, expected a number of at least 0"),
    ({"expected_s": [1.0]}, "expected_s: found a list of 1, expected a number"),
    ({"status": "done"}, "status: found 'done', expected one of asked, begun, measured"),
    ({"status": GONE}, "status: found nothing, expected a text"),
    ({"values": 3}, "values: found 3, expected an object"),
    ({"key": 1}, "key: found 1, expected a text"),
    ({"key": "one"}, "key: found 'one', expected the number of a run"),
    ({"key": "\u0661"}, "expected the number of a run"),  # a digit that is not ours
    ({"log": "/etc/hostname"}, "log: found '/etc/hostname', expected '01.log'"),
    ({"script": "../run01.sh"}, "script: found '../run01.sh', expected the name of a file"),
    ({"process": -1, "process_begun": ""}, "process: found -1, expected a whole number"),
    ({"plan": None}, "plan: found null, expected an object"),
    ({"plan": {"global_batch": 8}}, "global batch: found 8 samples, expected 16"),
    ({"plan": {"model": "other"}}, "model: found other, expected small"),
)


@pytest.mark.slow
def test_a_row_that_was_changed_is_refused(ilp_plan: Command, here: Path) -> None:
    """Nothing of it is run or removed; without the row the tuning goes on."""
    said = ["tune", "plan.json", "--ask", "--time-limit", "300"]
    (here / "a.log").write_text(log([0.01] * 20, batch=16))
    assert ilp_plan(*said).code == 0
    assert ilp_plan(*said, "--log", "a.log").code == 0
    path = here / "tune" / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    row = json.loads(lines[2])
    assert row["status"] == "measured"
    for change, message in DAMAGED:
        within = isinstance(row["plan"], dict) and isinstance(change.get("plan"), dict)
        other = row | ({"plan": row["plan"] | change["plan"]} if within else change)  # type: ignore[operator]
        other = {key: value for key, value in other.items() if value is not GONE}
        path.write_text("".join([*lines[:2], json.dumps(other) + "\n"]))
        changed = path.read_bytes()
        for _ in range(2):  # the journal is let go of
            done = ilp_plan(*said)
            assert done.code == 1, done.err
            assert done.err.startswith("ilp-plan: tune/journal.jsonl: line 3: ")
            assert message in done.err, change
            assert done.err.count("\n") == 1
        assert path.read_bytes() == changed
    path.write_text("".join(lines[:2]))
    assert ilp_plan(*said, "--log", "a.log").code == 0


def test_a_row_that_is_missing_is_named(ilp_plan: Command, here: Path) -> None:
    assert ilp_plan("tune", "plan.json", "--run", RUN, "--time-limit", "300").code == 0
    path = here / "tune" / "journal.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"key": "1"' not in line]
    path.write_text("\n".join(kept) + "\n")
    done = ilp_plan("tune", "plan.json", "--run", RUN)
    assert done.code == 1
    assert "journal.jsonl: line " in done.err
    assert "expected run 1, of which there is no row" in done.err


@pytest.mark.slow
def test_two_tunings_do_not_share_a_folder(ilp_plan: Command, here: Path) -> None:
    """The second one, begun by a run of the first, is refused and changes nothing."""
    (here / "second.py").write_text(
        "from ilp_planner.faces.cli.main import main\n"
        "main(['tune', 'plan.json', '--run', 'true {script}'])\n"
    )
    words = f"[ -e second.txt ] || {sys.executable} second.py 2> second.txt; {RUN}"
    done = ilp_plan("tune", "plan.json", "--run", words, "--time-limit", "300", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["proved"]
    second = (here / "second.txt").read_text()
    assert "another process is at work on this tuning" in second


def test_ctrl_c_between_steps_keeps_what_was_run(
    ilp_plan: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt while a run is put down, or while the next is chosen."""
    for name in ("_end", "_answer", "_write", "_run"):
        with monkeypatch.context() as patched:

            def interrupted(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(f"ilp_planner.faces.tuning.session.Session.{name}", interrupted)
            done = ilp_plan("tune", "plan.json", "--run", RUN, "--time-limit", "300")
            assert done.err.endswith("ilp-plan: interrupted\n")
    done = ilp_plan("tune", "plan.json", "--run", RUN, "--time-limit", "300", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["proved"]
