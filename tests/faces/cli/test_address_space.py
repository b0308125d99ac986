"""Commands under `ulimit -v`, in processes of their own."""

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ilp_planner.faces.cli.address_space import LEAST
from tests.small import write_specs

WORDS = ("solve", "tiny.toml", "pair.toml", "--global-batch-size", "64")


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
