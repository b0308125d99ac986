"""What the README shows is what a user gets: its commands run, its transcript is real."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.metis_cases import SAMPLES, published_cluster, scaled_samples, write_metis_cluster

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
DATABASE = ROOT.parent / "shared" / "data" / "aceso" / "eurosys"
AMP = ROOT.parent / "shared" / "data" / "amp" / "profiles.json"
ALPA = ROOT.parent / "shared" / "data" / "alpa" / "prof_database.json"


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "ilp-plan"
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def settled(text: str) -> list[list[str]]:
    """Split into words, leaving out the line that says how long it took."""
    return [line.split() for line in text.splitlines() if line and "stopped by" not in line]


def lines_of(text: str) -> list[str]:
    """Return the lines without what only the width of a terminal decides."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_excerpt_is_of_what_the_command_prints():
    command, _, shown = CONSOLE[1].partition("\n")
    done = run(command.removeprefix("$ "), ROOT)
    assert done.returncode == 0, done.stderr
    printed = lines_of(done.stdout)
    expected = [line for line in lines_of(shown) if line != "..."]
    assert len(expected) > 10
    assert [line for line in expected if line not in printed] == []


@pytest.mark.parametrize("block", [0, 5], ids=["opening", "mixed clusters"])
def test_transcripts_are_what_the_commands_print(block: int):
    command, _, shown = CONSOLE[block].partition("\n")
    done = run(command.removeprefix("$ "), ROOT)
    assert done.returncode == 0, done.stderr
    assert settled(done.stdout) == settled(shown)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with what the commands read, where they may write."""
    folder = tmp_path / "main"
    (folder / "solutions").mkdir(parents=True)
    for name in ("models", "clusters"):
        (folder / name).symlink_to(ROOT / name)
    (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    return folder


def run_block(block: int, folder: Path) -> list[str]:
    """Run the commands of a block, none of which may fail; return what they print."""
    printed = []
    for command in CONSOLE[block].splitlines():
        done = run(command.removeprefix("$ "), folder)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        printed.append(done.stdout)
    return printed


def test_the_commands_for_megatron_run_as_written(checkout: Path):
    solved, _, analysed, again, judged, simulated, _ = run_block(2, checkout)
    assert "proved optimal" in solved
    assert "FITS" in analysed
    time = re.search(r"iteration time +(\S+ \S+)", solved)
    assert time is not None
    assert all(f"iteration time  {time[1]}" in text for text in (again, judged))
    assert f"judged          {time[1]}; the schedule takes as long" in simulated
    assert (checkout / "trace.json").exists()
    assert (checkout / "nemo.yaml").exists()


@pytest.mark.skipif(not DATABASE.exists(), reason="Aceso's profiles are not in ../shared")
def test_the_commands_run_as_written(checkout: Path):
    assert len(run_block(3, checkout)) == 6


@pytest.mark.skipif(
    not (SAMPLES.is_dir() and ALPA.exists()),
    reason="Alpa's and Metis's profiles are not in ../shared",
)
def test_the_commands_for_profiles_run_as_written(checkout: Path):
    _, links, checked, _, layers, _ = run_block(4, checkout)
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
def test_the_commands_for_mixed_clusters_run_as_written(checkout: Path):
    """The files of a Metis user are 4 A100 and 4 T4 with the published profiles, 8 x slower."""
    scaled_samples(checkout / "profile", 8)
    write_metis_cluster(
        published_cluster([4], [4]), checkout / "hostfile", checkout / "clusterfile.json"
    )
    metis, top, checked, amp, free = run_block(6, checkout)
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
