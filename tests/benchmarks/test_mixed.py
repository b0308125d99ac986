"""What the manual says of mixed clusters is what was measured, and measured as it says."""

import pytest

from tests.benchmarks import mixed, mixed_table
from tests.benchmarks.amp import EXPERIMENTS
from tests.benchmarks.generated import instance
from tests.benchmarks.mixed_cases import (
    AMP_PUBLISHED,
    METIS_CASES,
    MICRO_BATCHES,
    SCALE_CASES,
    SEEDS,
)
from tests.benchmarks.table import shown_table
from tests.examples import for_each
from tests.metis_cases import needs_data

RECORD = mixed.known()


@for_each("name", ["metis", "amp", "accuracy", "scale"])
def test_the_manual_shows_the_results(name: str) -> None:
    shown = shown_table(name)
    assert shown == mixed_table.tables(RECORD)[name]
    assert "not measured" not in shown


def test_every_case_of_metis_is_proved_in_its_own_space() -> None:
    found = {(row["case"], row["space"]): row for row in RECORD["metis"]}
    for case in METIS_CASES:
        row = found[case.name, "metis"]
        assert row["gap"] == 0
        digits = len(str(case.known).partition(".")[2])
        assert round(row["objective_s"] * 1e3, digits) == case.known
        assert row["wall_s"] < 10


def test_what_is_asked_of_amp_is_reached() -> None:
    found = {(row["experiment"], row.get("placement")): row for row in RECORD["amp"]}
    for name, (published, asked) in AMP_PUBLISHED.items():
        row = found[name, "default"]
        assert row["gap"] == 0
        assert round(row["objective_s"], 4) <= (asked or published)
        jointly = found[name, None]
        assert jointly["predictions_reproduced"] == jointly["configurations"]
    assert sum(found[name, None]["wall_s"] for name in EXPERIMENTS) < 20


@for_each("case", SCALE_CASES)
def test_sizes_of_scale_divide_into_the_micro_batches(case) -> None:
    for seed in SEEDS:
        *_, batch = instance(case.types, case.devices_per_type, case.layers, seed)
        assert batch % MICRO_BATCHES == 0


def test_a_bound_is_never_above_its_plan() -> None:
    for suite in ("metis", "amp", "scale"):
        for row in RECORD[suite]:
            if row.get("objective_s") is not None:
                assert row["bound_s"] <= row["objective_s"] * (1 + 1e-9)


def test_a_case_measured_again_replaces_its_row(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(mixed, "RESULTS", tmp_path / "results" / "mixed.json")
    for seconds in (1.0, 2.0):
        mixed.keep("metis", {"case": "a", "space": "metis", "wall_s": seconds})
    mixed.keep("metis", {"case": "a", "space": "groups", "wall_s": 3.0})
    assert [row["wall_s"] for row in mixed.known()["metis"]] == [2.0, 3.0]


def test_what_is_not_measured_is_said() -> None:
    shown = mixed_table.metis_table([])
    assert shown.count("not measured") == 2 * len(METIS_CASES)
    limited = {"objective_s": 0.5, "gap": 0.25, "wall_s": 60.0, "stopped_by": "time"}
    assert mixed_table.solved(limited, 1e3, 1) == ["**500.0**", "25.00 %", "60.0 (limit)"]
    assert mixed_table.solved({**limited, "objective_s": None}, 1e3, 1)[0] == "none"


@needs_data
def test_a_case_runs_from_the_files_of_a_user(tmp_path) -> None:
    case = next(case for case in METIS_CASES if case.name == "2 + 2")
    options = mixed.metis_files(case, tmp_path)
    row = mixed.plan([*options, "--space", "metis"], tmp_path)
    assert row["objective_s"] * 1e3 == pytest.approx(case.known, abs=0.1)
    assert row["gap"] == 0
