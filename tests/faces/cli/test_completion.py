"""A shell completes commands, models, clusters, profiles and paths."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ilp_planner.base.library import library_files
from ilp_planner.faces.cli.completion import clusters, gpu_names, gpus, models, plans, profiles
from ilp_planner.specs.gpus import table


def completed(*words: str) -> list[str]:
    """Return what bash is offered for the last word."""
    environment = os.environ | {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_ILP_PLAN_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-m", "ilp_planner"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_the_command_line_is_completed():
    assert completed("ilp-plan", "ex") == ["export"]
    assert completed("ilp-plan", "profile", "p") == ["predict"]
    assert completed("ilp-plan", "solve", "--model", "t5-7") == ["t5-770m"]
    assert completed("ilp-plan", "analyze", "--cluster", "b200") == ["b200-1x8"]
    assert completed("ilp-plan", "solve", "--profile", "ana") == ["analytic"]
    assert completed("ilp-plan", "profile", "measure", "--model", "qwen3-3") == [
        "qwen3-30b-a3b",
        "qwen3-32b",
    ]


def test_specs_are_those_of_the_library_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    for name in ("mine.toml", "mine.csv", ".mine.toml", "more/mine.toml"):
        (tmp_path / name).touch()
    assert models("") == [*(p.stem for p in library_files("models")), "mine.toml", "more/"]
    assert clusters("v100-32gb-1") == ["v100-32gb-1x4", "v100-32gb-1x8"]
    assert clusters("m") == [
        *(p.stem for p in library_files("clusters") if p.stem[0] == "m"),
        "mine.toml",
        "more/",
    ]
    assert models("more/") == ["more/mine.toml"]
    assert models("nowhere/") == []


def test_gpus_are_those_of_the_table():
    assert gpus("16xh1") == ["16xH100-80GB", "16xH100-NVL"]
    assert gpus("") == [f"8x{name}" for name in table()]
    assert gpu_names("a10g") == ["A10G"]


def test_profiles_are_formats_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "measured").mkdir()
    for name in ("table.csv", "measured/DeviceType.A100_tp1_bs1.json", "plan.json"):
        (tmp_path / name).touch()
    assert profiles("") == ["analytic", "aceso:", "amp:", "metis:", "measured/", "table.csv"]
    assert profiles("metis:m") == ["metis:measured/"]
    assert plans("p") == ["plan.json"]
