"""Commands in surroundings that are not as usual: variables, paths, and files that cannot be
written. A plan that was found is never lost, and nothing is called a bug."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from ilp_planner.base.errors import OutputError, PlanError
from ilp_planner.base.files import read_json, write_bytes, write_text
from ilp_planner.faces.cli.main import LEAST, VARIABLES, mend_environment
from ilp_planner.formats.saved_json import read_saved
from tests.faces.cli.conftest import Done
from tests.small import write_specs

ROOT = Path(__file__).parents[3]
# Of the terminal, libraries and folders; not Python's own, which end it before a line of ours runs.
HOSTILE = {
    "COLUMNS": ("0", "-1", "x", "1", "999999"),
    "LINES": ("0", "x"),
    "NUMBA_NUM_THREADS": ("0", "-1", "x", "9999"),
    "NUMBA_CACHE_DIR": ("/proc/none",),
    "NUMBA_CACHE_LOCATOR_CLASSES": ("none",),
    "MPLBACKEND": ("module://matplotlib_inline.backend_inline", "nonsense", "TkAgg", ""),
    "MPLCONFIGDIR": ("/proc/none",),
    "OMP_NUM_THREADS": ("0", "x"),
    "OPENBLAS_NUM_THREADS": ("0", "x"),
    "TERM": ("", "dumb"),
    "LC_ALL": ("C", "none"),
    "PYTHONIOENCODING": ("ascii",),
    "HOME": ("", "/none"),
    "TMPDIR": ("/none",),
    "XDG_CACHE_HOME": ("/proc/none",),
    "NO_COLOR": ("1",),
    "FORCE_COLOR": ("1",),
}
CASES = [(name, value) for name, values in HOSTILE.items() for value in values]
MENDED = [case for case in CASES if case[0] in VARIABLES]
WORDS = ("solve", "tiny.toml", "pair.toml", "--global-batch-size", "64")


def command(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **changes},
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(*c, marks=() if c in MENDED[::8] else pytest.mark.slow) for c in CASES],
)
def test_a_plan_is_found_and_drawn_whatever_is_set(
    folder: Path, operators: list[str], name: str, value: str
) -> None:
    done = command("solve", *operators, "--output", "plan.json", **{name: value})
    assert done.returncode == 0, done.stderr
    done = command("show", "plan.json", "--png", "plan.png", **{name: value})
    assert done.returncode == 0, done.stderr
    assert Path("plan.png").stat().st_size > 1000


@pytest.mark.parametrize(("name", "value"), MENDED)
def test_what_is_mended_is_fine_afterwards(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    mend_environment()
    found = os.environ.get(name)
    assert found is None or VARIABLES[name].fine.fullmatch(found)
    monkeypatch.setenv(name, "agg" if name == "MPLBACKEND" else "7")
    mend_environment()
    assert os.environ[name] == ("agg" if name == "MPLBACKEND" else "7")


@pytest.mark.parametrize("which", ["--model", "--cluster", "--output"])
def test_a_path_that_is_not_utf_8_loses_no_plan(
    folder: Path,
    ilp_plan: Callable[..., Done],
    operators: list[str],
    fake: SimpleNamespace,
    which: str,
) -> None:
    strange = os.fsdecode(b"p\xff.toml")
    words = [*operators, "--output", "plan.json"]
    place = words.index(which) + 1
    if which != "--output":
        Path(strange).write_bytes(Path(words[place]).read_bytes())
    words[place] = strange
    done = ilp_plan("solve", *words)
    assert (done.code, done.err) == (0, "")
    output = words[words.index("--output") + 1]
    assert read_saved(Path(output)).claim is not None
    assert ilp_plan("evaluate", output).code == 0
    assert ilp_plan("show", output, "--html", os.fsdecode(b"\xff.html")).code == 0


@pytest.mark.parametrize("output", ["loop", "loop/plan.json", ".", "", "x" * 300, "none/plan.json"])
def test_what_cannot_be_written_is_said_before_the_work(
    folder: Path,
    ilp_plan: Callable[..., Done],
    operators: list[str],
    fake: SimpleNamespace,
    output: str,
) -> None:
    Path("loop").symlink_to("loop")
    done = ilp_plan("solve", *operators, "--output", output)
    assert done.code == 1
    assert done.err.startswith("ilp-plan: ")
    assert done.err.count("\n") == 1
    assert "bug" not in done.err
    assert fake.calls == []


def test_links_in_a_circle_are_no_place_to_write(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match="a: found links that lead in a circle"):
        write_bytes(tmp_path / "a", b"")


def test_a_plan_that_cannot_be_written_is_saved_beside(
    folder: Path, ilp_plan: Callable[..., Done], operators: list[str], fake: SimpleNamespace
) -> None:
    done = ilp_plan("solve", *operators, "--output", "/dev/full")
    assert done.code == 1
    assert "/dev/full: cannot be written: No space left on device; the plan is in " in done.err
    assert done.out  # the result is printed all the same
    assert read_saved(Path(done.err.split()[-1])).claim is not None


@pytest.mark.parametrize(
    ("text", "key"),
    [('{"a": 1, "a": 1}', "a"), ('[{"b": {"c": 1, "d": 2, "c": 3}}]', "c"), ('{"": 0, "": 1}', "")],
)
def test_a_key_that_is_there_twice_is_named(tmp_path: Path, text: str, key: str) -> None:
    write_text(tmp_path / "x.json", text)
    with pytest.raises(PlanError, match=f"x.json: not valid JSON: found the key '{key}' twice"):
        read_json(tmp_path / "x.json", PlanError)


def limited(size: int, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an address space of so many bytes."""
    free = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    return subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words],
        cwd=folder,
        env={**free, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, (size, size)),
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("words", [WORDS, ("--version",)])
def test_too_little_is_refused_with_what_is_needed(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = limited(256 * 2**20, tmp_path, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ilp-plan: address space: found a limit of 256.00 MiB, expected at least 512.00 MiB "
        "(`ulimit -v 524288`); what a search may hold is bounded by `solve --max-memory`\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("space", ["operators", "groups", "megatron"])
def test_the_least_is_enough(tmp_path: Path, space: str) -> None:
    """Also where OpenBLAS would take a thread for each of many cores."""
    write_specs(tmp_path)
    done = limited(LEAST, tmp_path, *WORDS, "--space", space)
    assert done.returncode == 0, done.stderr
    assert "PROVED OPTIMAL" in done.stdout
