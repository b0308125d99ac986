"""`ilp-plan sweep`: its table, its files, its mistakes, and its end by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ilp_planner as ilp
from ilp_planner.faces.sweeps.executors.local import Local
from ilp_planner.faces.sweeps.executors.registry import Done
from tests.faces.cli.conftest import heard
from tests.faces.sweeps.cases import AtOnce

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faces.cli.conftest import Done

    Command = Callable[..., Done]

LLAMA = ("sweep", "llama3-8b", "--gpus", "8,16xH100")
VARIED = (*LLAMA, "--vary", "global_batch=64,128")
POINTS = 4


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> AtOnce:
    """Let points be solved at once, by nobody."""
    executor = AtOnce()
    monkeypatch.setattr(
        "ilp_planner.faces.sweeps.sweep.open_executor", lambda name, **said: executor
    )
    return executor


def test_the_table_has_a_row_for_each_point(ilp_plan: Command, at_once: AtOnce) -> None:
    done = ilp_plan(*VARIED)
    assert done.code == 0, done.err
    head, *rows = done.out.partition("\n\n")[0].splitlines()
    assert head.split()[:5] == ["GPUs", "global_batch", "step", "gap", "tokens/s"]
    assert len(rows) == POINTS
    assert sum(row.rstrip().endswith("*") for row in rows) == 1
    assert "4: 4 with a plan" in done.out
    assert done.err == ""


def test_prices_are_of_the_table_alone(ilp_plan: Command, at_once: AtOnce) -> None:
    """Another price, or a number of tokens, solves nothing again."""
    first = ilp_plan(*VARIED, "--output", "s.csv")
    assert first.code == 0, first.err
    assert "saved to  s.csv" in first.out
    both = ("--objective", "time,price", "--price", "2.5", "--tokens", "1T", "--plot", "p.png")
    again = ilp_plan(*VARIED, "--output", "s.csv", *both, "--json")
    assert len(at_once.given) == POINTS
    older = ilp_plan(*VARIED, "--output", "s.csv", "--objective", "both", *both[2:], "--json")
    assert older.out == again.out
    rows = json.loads(again.out)["rows"]
    assert {row["price_per_hour"] for row in rows} == {20.0}
    assert any(row["pareto"] for row in rows)
    assert rows[0]["days"] == pytest.approx(1e12 / rows[0]["tokens_per_s"] / 86400)
    assert Path("p.png").exists()
    assert len(Path("s.csv").read_text().splitlines()) == POINTS + 1


def test_points_without_a_plan_are_counted_with_their_reasons(
    ilp_plan: Command, at_once: AtOnce
) -> None:
    done = ilp_plan("sweep", "llama3-8b", "--vary", "cluster=a100-4x8,nowhere", "--vary", "tp=1,2")
    assert done.code == 0
    assert "4: 2 with a plan" in done.out
    assert "no plan  nowhere: no such file; " in done.out
    assert "(2 points)" in done.out


def test_ten_million_points_have_to_be_confirmed(ilp_plan: Command, at_once: AtOnce) -> None:
    done = ilp_plan(*LLAMA, "--vary", "tp=1..5000000")
    assert done.code == 2
    assert done.err == (
        "ilp-plan: --vary: found 10,000,000 points (2 of gpus x 5,000,000 of tp), "
        "expected at most 100,000 unless --yes says that so many are meant\n"
    )
    assert at_once.given == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--vary", "glob_batch=1"),
         "--vary: found 'glob_batch', which is no field; did you mean 'global_batch'?"),
        (("--vary", "tp"), "--vary: found 'tp', expected a field and its values, as in "),
        (("--vary", "global_batch=0,8"),
         "--global-batch-size: found '0', expected a whole number of at least 1"),
        (("--vary", "tp=a,b"), "--tp: found 'a', expected a whole number of at least 1, a list "),
        (("--output", "s.txt"), "--output: found 's.txt', expected a name that ends in .csv or "),
        (("--plot", "s.gif"), "--plot: found 's.gif', expected a name that ends in .png or .svg"),
        (("--objective", "speed"), "--objective: found 'speed', expected time, price, or both"),
        (("--tokens", "many"), "--tokens: found 'many', expected a number of tokens, as 15e12 or "),
        (("--price", "A100=2"), "--price: found 'A100', expected one of H100-80GB"),
        (("--cluster", "a100-4x8"), "--gpus: found 8,16xH100 and --cluster a100-4x8, expected one"),
        (("--vary", "cluster=a100-4x8"), "--vary: found cluster beside gpus, expected one of"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    ilp_plan: Command, at_once: AtOnce, words: tuple[str, ...], line: str
) -> None:
    done = ilp_plan(*LLAMA, *words)
    assert done.code == 2
    assert done.err.startswith(f"ilp-plan: {line}")
    assert done.err.count("\n") == 1
    assert at_once.given == []


def test_nothing_that_is_varied_is_told_with_what_would_do(
    ilp_plan: Command, at_once: AtOnce
) -> None:
    done = ilp_plan("sweep", "llama3-8b")
    assert done.code == 2
    assert done.err == (
        "ilp-plan: --vary: found nothing that is varied, expected --gpus 8..64xH100, or a field "
        "with its values, as in --vary global_batch=256,512\n"
    )
    for repair in (("--gpus", "8..64xH100"), ("--vary", "global_batch=256,512")):
        assert ilp_plan("sweep", "llama3-8b", *repair).code == 0


def test_a_table_of_another_sweep_is_refused(ilp_plan: Command, at_once: AtOnce) -> None:
    assert ilp_plan(*VARIED, "--output", "s.csv").code == 0
    before = Path("s.csv").read_text()
    done = ilp_plan("sweep", "llama3-70b", *VARIED[2:], "--output", "s.csv")
    assert done.code == 2
    assert done.err.startswith(
        "ilp-plan: s.csv: a table of another sweep: model llama3-8b there, llama3-70b here; "
    )
    assert done.err.endswith("; another --output begins a table of its own\n")
    assert Path("s.csv").read_text() == before
    Path("mine.csv").write_text("mine")
    done = ilp_plan(*VARIED, "--output", "mine.csv")
    assert done.code == 2
    assert "found a file without the journal of a sweep beside it" in done.err
    assert Path("mine.csv").read_text() == "mine"


def test_an_interrupted_sweep_is_written_and_goes_on(ilp_plan: Command, at_once: AtOnce) -> None:
    solve = at_once.solve

    def interrupt(task):
        if len(at_once.given) > at_once.slots:
            raise KeyboardInterrupt
        return solve(task)

    at_once.solve = interrupt
    done = ilp_plan(*VARIED, "--output", "s.csv")
    assert done.code == 130
    assert done.err == "ilp-plan: interrupted\n"
    assert "3 not begun" in done.out or "not begun" in done.out
    written = len(Path("s.csv").read_text().splitlines()) - 1
    assert 0 < written < POINTS
    at_once.solve = solve
    at_once.open.clear()
    assert ilp_plan(*VARIED, "--output", "s.csv").code == 0
    assert len(Path("s.csv").read_text().splitlines()) - 1 == POINTS


def test_the_verb_of_python_returns_the_same_table(
    ilp_plan: Command, at_once: AtOnce, folder: Path
) -> None:
    assert ilp_plan(*VARIED, "--output", "s.csv", "--price", "2.5").code == 0
    said = {"gpus": "8,16xH100", "vary": {"global_batch": [64, 128]}, "price": 2.5}
    told: list[int] = []
    frame = ilp.sweep(
        "llama3-8b", **said, output="s.csv", progress=lambda done, what: told.append(done)
    )
    assert len(at_once.given) == POINTS  # the journal is the same sweep's
    assert told == [1, 2, 3, 4]
    assert frame["global_batch"].tolist() == [64, 128] * 2
    assert frame["gpus"].tolist() == [8, 8, 16, 16]
    common = ilp.sweep("llama3-8b", **said, recompute="none", memory_limit="40GiB", layers=16)
    assert len(common) == POINTS
    task = at_once.given[-1]
    assert task.request.constraints.texts == {"recompute": "none"}
    assert task.request.memory_limit == 40 * 2**30
    assert '"layers" = 16' in (task.request.files["model"].text or "")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({}, 'vary: found nothing that is varied, expected `gpus="8..64xH100"`, or a field '),
        ({"vary": {"tp": 3.5}}, "tp: found '3.5', expected a whole number"),
        ({"vary": "pp=2..8", "executor": "cloud"}, "executor: found 'cloud', expected one of "),
        ({"vary": "pp=2..8", "wings": 2}, "vary: found 'wings', which is no field; "),
        ({"vary": "pp=2..8", "output": 3}, "output: found 3, expected a path"),
    ],
)
def test_mistakes_of_python_are_in_its_words(
    at_once: AtOnce, said: dict[str, object], line: str
) -> None:
    with pytest.raises(ilp.UsageError) as raised:
        ilp.sweep("llama3-8b", **said)  # type: ignore[arg-type]
    assert str(raised.value).startswith(line)


# ---- real processes ------------------------------------------------------------------------------

WORDS = [
    "sweep", "tiny.toml", "pair.toml", "--vary", "global_batch=8..31", "--output", "s.csv",
    "--workers", "2",
]  # fmt: skip
NUMBER = 24


def begin(folder: Path) -> subprocess.Popen[str]:
    """Begin a sweep of two dozen points; return it when some of them are done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ilp_planner", *WORDS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    journal = folder / "s.csv.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and len(lines(journal)) < 4:
        time.sleep(0.02)
    return process


def lines(journal: Path) -> list[str]:
    """Return the whole lines of a journal, without the first one."""
    return journal.read_text().split("\n")[1:-1] if journal.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_goes_on_after_its_process_was_ended(
    ilp_plan: Command, folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = begin(folder)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    before = lines(folder / "s.csv.jsonl")
    assert 4 <= len(before) < NUMBER
    if number == signal.SIGINT:
        assert (process.returncode, err) == (130, "ilp-plan: interrupted\n")
        assert len((folder / "s.csv").read_text().splitlines()) == len(before) + 1
    solved: list[int] = []  # how many points came of each chunk
    collect = Local.collect

    def counted(self: Local, seconds: float) -> list[Done]:
        done = collect(self, seconds)
        solved.extend(len(one.solved.outcomes) for one in done if one.solved is not None)
        return done

    monkeypatch.setattr(Local, "collect", counted)
    assert ilp_plan(*WORDS).code == 0
    after = lines(folder / "s.csv.jsonl")
    assert after[: len(before)] == before
    assert len(after) == NUMBER
    assert sum(solved) == NUMBER - len(before)
