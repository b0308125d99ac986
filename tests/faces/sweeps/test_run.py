"""Every point is solved once, whatever happens on the way; nothing that was found is lost."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.faces.sweeps.journal import LOST, REFUSED, Journal
from ilp_planner.faces.sweeps.points import Sweep
from ilp_planner.faces.sweeps.sweep import (
    JOURNAL,
    Files,
    Place,
    Run,
    heading,
    journal_file,
    run_sweep,
)
from ilp_planner.faces.sweeps.table import Wish
from ilp_planner.faces.sweeps.work import Outcome
from tests.faces.sweeps.cases import AtOnce, found, rows_by_values, sweep_of

VARY = {"gpus": "8,16xH100", "global_batch": [64, 128, 256]}


def run(sweep: Sweep, executor: AtOnce, path: Path | None = None) -> Journal:
    journal = Journal(path, heading(sweep), JOURNAL)
    try:
        Run(sweep, executor, journal, lambda done, what: None).finish()
    finally:
        journal.close()
    return journal


def test_all_points_are_solved_once() -> None:
    sweep, executor = sweep_of(**VARY), AtOnce()
    rows = rows_by_values([*run(sweep, executor).rows.values()])
    assert {*rows} == {tuple(point.values.values()) for point in sweep.points()}
    assert sorted(task.number for task in executor.given) == list(range(sweep.size))
    assert executor.cancelled
    for point in sweep.points():
        assert rows[tuple(point.values.values())]["step_s"] == 1.0 + point.number


def test_progress_counts_up_to_all_points() -> None:
    sweep, told = sweep_of(**VARY), []
    journal = Journal(None, heading(sweep), JOURNAL)
    Run(sweep, AtOnce(), journal, lambda *row: told.append(row)).finish()
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6]


class EndedError(Exception):
    """The process is killed here."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ends=st.lists(st.integers(0, 6), max_size=4), cut=st.integers(0, 10**6))
def test_a_sweep_that_is_killed_anywhere_goes_on_where_it_was(
    tmp_path: Path, ends: list[int], cut: int
) -> None:
    """Each run ends after some answers; the last one's file is cut within its last line."""
    path = tmp_path / "t.csv.jsonl"
    path.unlink(missing_ok=True)
    sweep, answered = sweep_of(**VARY), []

    for end in ends:
        left = [end]

        def solve(task, left=left) -> Outcome:
            if left[0] == 0:
                raise EndedError
            left[0] -= 1
            answered.append(task.number)
            return found(task)

        with suppress(EndedError):
            run(sweep, AtOnce(solve), path)
    if path.exists():
        text = path.read_bytes()
        last = len(text) - text.rstrip(b"\n").rfind(b"\n") - 1
        if cut % (last + 1):
            path.write_bytes(text[: len(text) - cut % (last + 1)])
    before = [*lines(path)[1:]] if path.exists() else []
    executor = AtOnce()
    journal = run(sweep, executor, path)
    assert len(journal.rows) == sweep.size
    assert len(executor.given) == sweep.size - len(before)
    kept = lines(path)[1:]
    assert len({row["key"] for row in kept}) == len(kept) == sweep.size
    assert kept[: len(before)] == before


def lines(path: Path) -> list[dict[str, object]]:
    """Return the whole lines of a journal."""
    whole = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in whole]


def test_a_finished_sweep_solves_nothing_again_and_more_values_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.jsonl"
    run(sweep_of(**VARY), AtOnce(), path)
    again, more = AtOnce(), AtOnce()
    run(sweep_of(**VARY), again, path)
    assert again.given == []
    run(sweep_of(gpus="8,16,32xH100", global_batch=[64, 128, 256]), more, path)
    assert len(more.given) == 3
    assert {task.request.files["cluster"].name for task in more.given} == {"32xH100-80GB"}


def test_a_table_of_another_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.jsonl"
    run(sweep_of(**VARY), AtOnce(), path)
    before = path.read_bytes()
    with pytest.raises(UsageError) as raised:
        run(sweep_of("llama3-70b", **VARY), AtOnce(), path)
    assert "a table of another sweep: model llama3-8b there, llama3-70b here; " in str(raised.value)
    with pytest.raises(UsageError, match="varied fields global_batch, gpus there, tp here"):
        run(sweep_of(tp=[1]), AtOnce(), path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.jsonl"
    path.write_text('{"mine": 1}\n')
    with pytest.raises(UsageError, match="found no journal of a sweep"):
        run(sweep_of(**VARY), AtOnce(), path)
    assert path.read_text() == '{"mine": 1}\n'


def test_two_processes_do_not_write_one_journal(tmp_path: Path) -> None:
    sweep = sweep_of(**VARY)
    first = Journal(tmp_path / "t.csv.jsonl", heading(sweep), JOURNAL)
    with pytest.raises(UsageError, match="another process is at work on this sweep"):
        Journal(tmp_path / "t.csv.jsonl", heading(sweep), JOURNAL)
    first.close()
    Journal(tmp_path / "t.csv.jsonl", heading(sweep), JOURNAL).close()


def test_a_point_whose_worker_is_lost_is_begun_again_once() -> None:
    sweep, left = sweep_of(**VARY), {2: 1, 4: 2}

    def lose(number: int) -> bool:
        left[number] = left.get(number, 0) - 1
        return left[number] >= 0

    executor = AtOnce(lose=lose)
    rows = [*run(sweep, executor).rows.values()]
    assert sorted(task.number for task in executor.given) == [0, 1, 2, 2, 3, 4, 4, 5]
    lost = [row for row in rows if row["status"] == LOST]
    assert len(lost) == 1
    assert lost[0]["reason"] == ("its worker was lost 2 times: its process was killed by signal 9")
    assert lost[0]["gpus"] == 16


def test_what_was_lost_is_tried_again_by_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.jsonl"
    run(sweep_of(**VARY), AtOnce(lose=lambda number: number == 3), path)
    executor = AtOnce()
    journal = run(sweep_of(**VARY), executor, path)
    assert [task.number for task in executor.given] == [3]
    assert {row["status"] for row in journal.rows.values()} == {"optimal"}


def test_points_that_cannot_be_asked_for_are_rows(tmp_path: Path) -> None:
    sweep = sweep_of(cluster=["a100-4x8", "nowhere"], global_batch=[64, 128])
    executor = AtOnce()
    rows = rows_by_values([*run(sweep, executor, tmp_path / "j").rows.values()])
    assert len(executor.given) == 2
    for batch in ("64", "128"):
        row = rows["nowhere", batch]
        assert row["status"] == REFUSED
        assert row["reason"].startswith("nowhere: no such file; ")
    before = (tmp_path / "j").read_bytes()
    run(sweep, AtOnce(), tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == before


def test_points_start_from_neighbours_that_are_done() -> None:
    sweep = sweep_of(**VARY)
    executor = AtOnce(lambda task: found(task)._replace(start=task.number), slots=1)  # type: ignore[arg-type]
    run(sweep, executor)
    starts = {task.number: task.start for task in executor.given}
    # Along the batch within a cluster, and from the same batch of the smaller one.
    assert starts == {0: None, 1: 0, 2: 1, 3: 0, 4: 3, 5: 4}


def test_chunks_grow_while_points_are_quick_and_shrink_when_they_are_not() -> None:
    sweep = sweep_of(gpus="8xH100", global_batch=[*range(1, 200)])
    quick, slow = AtOnce(slots=1, seconds=1e-3), AtOnce(slots=1, seconds=1.0)
    run(sweep, quick)
    assert quick.sizes[:6] == [1, 2, 4, 8, 16, 32]
    assert sum(quick.sizes) == sweep.size
    run(sweep, slow)
    assert slow.sizes == [1] * sweep.size


def test_points_that_a_worker_did_not_come_to_are_begun_again() -> None:
    """Workers tell what they have after a moment, and points that are left have lost no try."""
    sweep = sweep_of(gpus="8xH100", global_batch=[*range(1, 30)])
    executor = AtOnce(seconds=1e-3, most=3)
    rows = [*run(sweep, executor).rows.values()]
    assert max(executor.sizes) > 3
    assert sorted(row["step_s"] for row in rows) == [1.0 + n for n in range(sweep.size)]


def test_points_that_are_lost_together_are_begun_again_one_by_one() -> None:
    """One of them takes its worker with it every time; it is the only one that is given up."""
    sweep = sweep_of(gpus="8xH100", global_batch=[*range(1, 30)])
    executor = AtOnce(slots=2, seconds=1e-3, lose=lambda number: number == 20)
    rows = [*run(sweep, executor).rows.values()]
    assert len(rows) == sweep.size
    lost = [row["values"]["global_batch"] for row in rows if row["status"] == LOST]
    assert lost == ["21"]
    tries = [task.number for task in executor.given]
    assert tries.count(20) == 2
    assert max(tries.count(number) for number in range(sweep.size)) == 2
    assert sum(size for size in executor.sizes if size > 1) < len(tries)


def test_rows_of_inputs_that_have_changed_stand_beside_none_of_now(tmp_path: Path) -> None:
    """As where a GPU's constants are others today: the points have other keys."""
    sweep, path = sweep_of(**VARY), tmp_path / "t.csv.jsonl"
    run(sweep, AtOnce(), path)
    now = path.read_text()
    path.write_text(now.replace('"key": "', '"key": "before '))
    again = run(sweep, AtOnce(), path)
    assert len(again.rows) == 2 * sweep.size
    assert {row["key"] for row in again.latest()} == {*run(sweep, AtOnce()).rows}
    head, *rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, *rows[sweep.size :], *rows[: sweep.size]]))
    executor = AtOnce()
    last = run(sweep, executor, path)
    assert not executor.given
    assert not any(row["key"].startswith("before") for row in last.latest())


CHANGED: tuple[tuple[dict[str, object], str], ...] = (
    ({"step_s": -1.0}, "step_s: found -1.0, expected a number of at least 0"),
    ({"step_s": 0}, "step_s: found 0, expected seconds above 0"),
    ({"mfu": "half"}, "mfu: found 'half', expected a number"),
    ({"tp": 1.5}, "tp: found 1.5, expected a whole number"),
    ({"billed": [["H100", "8", None, None]]}, "billed[0]: found a list of 4, expected a type"),
    ({"status": 1}, "status: found 1, expected a text"),
    ({"values": {"global_batch": 64}}, "values.global_batch: found 64, expected a text"),
)


@pytest.mark.parametrize(("change", "message"), CHANGED)
def test_a_row_that_was_changed_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    table = tmp_path / "t.csv"
    sweep, path = sweep_of(**VARY), journal_file(table)
    run(sweep, AtOnce(), path)
    text = path.read_text().splitlines()
    text[3] = json.dumps(json.loads(text[3]) | change)
    path.write_text("\n".join(text) + "\n")
    changed = path.read_bytes()
    for _ in range(2):  # the journal is let go of
        with pytest.raises(PlanError) as raised:
            run_sweep(sweep, Wish(), Place(), Files(output=table), lambda *_: None, lambda _: None)
        assert str(raised.value).startswith(f"{path}: line 4: {message}")
    assert path.read_bytes() == changed
    assert not table.exists()


def test_a_line_that_is_damaged_hides_none_after_it(tmp_path: Path) -> None:
    sweep, path = sweep_of(**VARY), tmp_path / "t.csv.jsonl"
    run(sweep, AtOnce(), path)
    text = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*text[:3], b"\0\0\xff", *text[4:]]))
    with pytest.raises(PlanError, match=r"line 4: found .*, expected a row as it was written"):
        run(sweep, AtOnce(), path)
    path.write_bytes(b"\n".join([*text[:3], *text[4:]]))
    executor = AtOnce()
    run(sweep, executor, path)
    assert len(executor.given) == 1
