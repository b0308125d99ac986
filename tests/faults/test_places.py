"""Commands where something is missing that machines mostly have: room on the disk, a home, a place
for kernels, a clock that goes forward. Each ends right, or in one line with the right exit code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ilp_planner.formats.saved_json import read_saved
from tests.small import write_specs

ROOT = Path(__file__).parents[2]
WORDS = "solve tiny.toml pair.toml --space operators --global-batch-size 64 --output"
LATE = 900  # seconds, on a machine that is busy with much else
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long begun;
int clock_gettime(clockid_t which, struct timespec *now) {
    struct timespec steady;
    int code = syscall(SYS_clock_gettime, which, now);
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
    if (!begun) begun = steady.tv_sec;
    if (which == CLOCK_REALTIME && steady.tv_sec > begun + 1) now->tv_sec -= 86400;
    return code;
}
"""


def namespaces() -> bool:
    """Tell whether file systems can be mounted for single processes."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.slow
mounts = pytest.mark.skipif(not namespaces(), reason="no file system can be mounted here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model and a cluster, and one to write to."""
    write_specs(tmp_path)
    (tmp_path / "out").mkdir()
    return tmp_path


def environment(**changes: str | None) -> dict[str, str]:
    """Return the variables of a process; None: without it."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    return {name: value for name, value in known.items() if value is not None}


def shell(folder: Path, script: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """Run a script of a shell that may mount file systems; `$PLAN` is the command."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "--kill-child", "sh", "-c", script],
        cwd=folder,
        env=environment(PLAN=f"{sys.executable} -m ilp_planner", **changes),
        capture_output=True,
        text=True,
        timeout=LATE,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line in which a command has ended."""
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("ilp-plan: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def seconds(file: Path) -> float:
    """Return the time of a saved plan."""
    claim = read_saved(file).claim
    assert claim is not None
    return claim.objective


def begin(folder: Path, output: str, **changes: str | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ilp_planner", *WORDS.split(), output],
        cwd=folder,
        env=environment(**changes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@mounts
def test_a_disk_without_room_is_said_and_leaves_what_is_there(folder: Path) -> None:
    script = (
        "mount -t tmpfs -o size=32k tmpfs out && echo before > out/plan.json && "
        "(cat /dev/zero > out/filling 2> /dev/null || true) && "
        f"$PLAN {WORDS} out/plan.json; code=$?; cat out/plan.json; ls -A out; exit $code"
    )
    done = shell(folder, script)
    assert "No space left on device" in refused(done)
    assert done.stdout.splitlines()[-3:] == ["before", "filling", "plan.json"]


@mounts
def test_a_folder_that_is_read_only_is_said_before_the_work(folder: Path) -> None:
    script = f"mount --bind out out && mount -o remount,ro,bind out && $PLAN {WORDS} out/plan.json"
    done = shell(folder, script)
    assert refused(done) == "ilp-plan: out/plan.json: not writable: Read-only file system\n"
    assert done.stdout == ""


@mounts
@pytest.mark.parametrize("temporary", ["/tmp", "out"])
def test_a_read_only_installation_on_a_machine_without_a_home(folder: Path, temporary: str) -> None:
    """Where kernels have to be compiled, they are kept in a temporary folder or nowhere."""
    script = (
        f"mount --bind {ROOT} {ROOT} && mount -o remount,ro,bind {ROOT} && "
        "mount --bind out out && mount -o remount,ro,bind out; "
        f"$PLAN {WORDS} plan.json"
    )
    done = shell(folder, script, HOME=None, NUMBA_CACHE_DIR=None, TMPDIR=temporary)
    assert done.returncode == 0, done.stderr
    assert seconds(folder / "plan.json") > 0


@mounts
def test_no_room_for_what_is_kept_and_for_temporary_files(folder: Path) -> None:
    script = (
        "mount -t tmpfs -o size=32k tmpfs out && (cat /dev/zero > out/filling 2> /dev/null || true)"
        f" && $PLAN {WORDS} plan.json"
    )
    kept = str(folder / "out")
    done = shell(folder, script, NUMBA_CACHE_DIR=kept, TMPDIR=kept, HOME=kept)
    assert done.returncode == 0, done.stderr
    assert seconds(folder / "plan.json") > 0


def test_three_cold_starts_at_once_find_the_same(folder: Path) -> None:
    kept = str(folder / "out")
    processes = [begin(folder, f"{n}.json", NUMBA_CACHE_DIR=kept) for n in range(3)]
    errors = [process.communicate(timeout=LATE)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert len({seconds(folder / f"{n}.json") for n in range(3)}) == 1
    process = begin(folder, "again.json", NUMBA_CACHE_DIR=kept)
    assert process.communicate(timeout=LATE)[1] == ""  # nothing was left to compile
    assert seconds(folder / "again.json") == seconds(folder / "0.json")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler of C")
@pytest.mark.parametrize("solver", ["auto", "cp-sat", "milp", "pulp"])
def test_a_clock_that_is_set_back_by_a_day(folder: Path, solver: str) -> None:
    (folder / "clock.c").write_text(CLOCK)
    library = folder / "clock.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, folder / "clock.c"], check=True, timeout=LATE
    )
    words = ["solve", "gpt-10l-4096", "mixed-a100-t4", "--global-batch-size", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words, "--time-limit", "8", "--solver", solver],
        cwd=folder,
        env=environment(LD_PRELOAD=str(library)),
        capture_output=True,
        text=True,
        timeout=LATE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "PROVED OPTIMAL" in done.stdout or "WITHIN" in done.stdout
