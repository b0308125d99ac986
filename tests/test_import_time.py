"""Importing the package and the command line loads nothing heavy. Not timed: timing flickers."""

import subprocess
import sys

from ilp_planner.faces.cli.main import COMMANDS
from ilp_planner.profiler.commands import profile

HEAVY = {
    "jinja2", "ortools", "numba", "numpy", "pandas", "matplotlib", "pulp", "torch", "tree_sitter",
    "tree_sitter_bash",
}  # fmt: skip


MODULES = dict.fromkeys(module for module, _ in (COMMANDS | profile.COMMANDS).values())


def test_import_loads_nothing_heavy() -> None:
    """Modules are imported one after the other: the first line names the one that brings it."""
    code = f"""
import importlib, sys
for module in {["ilp_planner", *MODULES]}:
    importlib.import_module(module)
    heavy = {HEAVY} & {{name.partition(".")[0] for name in sys.modules}}
    if heavy:
        print(module, *heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == []


def test_the_package_itself_loads_no_submodule() -> None:
    mine = "(name for name in sys.modules if name.startswith('ilp_planner'))"
    code = f"import sys, ilp_planner; print(*{mine})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ilp_planner"]
