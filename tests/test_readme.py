"""What the README shows is what a user gets: its commands run, its transcript is real."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.cli.main import run
from tests.metis_cases import SAMPLES, published_cluster, scaled_samples, write_metis_cluster

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
DATABASE = ROOT.parent / "shared" / "data" / "aceso" / "eurosys"
AMP = ROOT.parent / "shared" / "data" / "amp" / "profiles.json"
ALPA = ROOT.parent / "shared" / "data" / "alpa" / "prof_database.json"

Printed = Callable[[str, Path], str]
Block = Callable[[int], list[str]]


def words_of(command: str) -> list[str]:
    """Return the words of a command after its name."""
    program, *words = shlex.split(command.removeprefix("$ "))
    assert program == "ilp-plan"
    return words


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Run a command, which may not fail, in a folder; return what it prints."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def call(command: str, folder: Path) -> str:
        monkeypatch.chdir(folder)
        code = run(words_of(command))
        captured = capsys.readouterr()
        assert code == 0, f"{command}\n{captured.err}"
        assert "Traceback" not in captured.err
        return captured.out

    return call


def settled(text: str) -> list[list[str]]:
    """Split into words, leaving out the line that says how long it took."""
    return [line.split() for line in text.splitlines() if line and "stopped by" not in line]


def lines_of(text: str) -> list[str]:
    """Return the lines without what only the width of a terminal decides."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("number", [1, 2])
def test_the_excerpts_are_of_what_the_commands_print(printed: Printed, number: int):
    command, _, shown = CONSOLE[number].partition("\n")
    found = lines_of(printed(command, ROOT))
    expected = [line for line in lines_of(shown) if line != "..."]
    assert len(expected) > 4
    assert [line for line in expected if line not in found] == []


def test_the_opening_transcript_is_what_a_process_prints():
    command, _, shown = CONSOLE[0].partition("\n")
    done = subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words_of(command)],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert settled(done.stdout) == settled(shown)


def test_the_transcript_of_mixed_clusters_is_what_the_command_prints(printed: Printed):
    command, _, shown = CONSOLE[6].partition("\n")
    assert settled(printed(command, ROOT)) == settled(shown)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with what the commands read, where they may write."""
    folder = tmp_path / "main"
    (folder / "solutions").mkdir(parents=True)
    for name in ("models", "clusters"):
        (folder / name).symlink_to(ROOT / name)
    (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    return folder


@pytest.fixture
def block(checkout: Path, printed: Printed) -> Block:
    """Run the commands of a block; return what they print."""
    return lambda number: [printed(line, checkout) for line in CONSOLE[number].splitlines()]


def test_the_commands_for_megatron_run_as_written(checkout: Path, block: Block):
    solved, _, analysed, again, judged, simulated, _ = block(3)
    assert "proved optimal" in solved
    assert "FITS" in analysed
    time = re.search(r"iteration time +(\S+ \S+)", solved)
    assert time is not None
    assert all(f"iteration time  {time[1]}" in text for text in (again, judged))
    assert f"judged          {time[1]}; the schedule takes as long" in simulated
    assert (checkout / "trace.json").exists()
    assert (checkout / "nemo.yaml").exists()


@pytest.mark.skipif(not DATABASE.exists(), reason="Aceso's profiles are not in ../shared")
def test_the_commands_run_as_written(block: Block):
    assert len(block(4)) == 6


@pytest.mark.skipif(
    not (SAMPLES.is_dir() and ALPA.exists()),
    reason="Alpa's and Metis's profiles are not in ../shared",
)
def test_the_commands_for_profiles_run_as_written(checkout: Path, block: Block):
    _, links, checked, _, layers, _ = block(5)
    assert len(re.findall(r"^all_reduce +16 on [24] hosts", links, re.MULTILINE)) == 4
    assert {"measured", "extrapolated"} <= set(links.split())
    assert "1 warning in 27 of 3693 rows" in checked
    assert len(re.findall("tp 8, micro-batch 16", layers)) >= 3
    assert "<svg" in (checkout / "error.html").read_text()
    assert len(list((checkout / "exported").glob("DeviceType.*.json"))) == 9


@pytest.mark.skipif(
    not (SAMPLES.is_dir() and AMP.exists()),
    reason="Metis's and AMP's profiles are not in ../shared",
)
def test_the_commands_for_mixed_clusters_run_as_written(checkout: Path, block: Block):
    """The files of a Metis user are 4 A100 and 4 T4 with the published profiles, 8 x slower."""
    scaled_samples(checkout / "profile", 8)
    write_metis_cluster(
        published_cluster([4], [4]), checkout / "hostfile", checkout / "clusterfile.json"
    )
    metis, top, checked, amp, free = block(7)
    assert "9.293 s for 128 samples" in metis  # the optimum of its space by an exact search
    assert len(re.findall(r"^ +(\d+) +\d\.\d{6} ", top, re.MULTILINE)) == 10
    assert "proved by the certificate, derived again" in checked
    assert "1.062 s for 32 samples" in amp
    assert "placement free" in free


def test_the_python_example_runs(tmp_path: Path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "proved optimal" in done.stdout
    assert "True" in done.stdout.splitlines()
    assert {"llama.json", "run.sh"} <= {file.name for file in tmp_path.iterdir()}
