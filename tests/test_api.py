"""The names of the package, in whatever order its modules are imported."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

import ilp_planner


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


BEFORE = (
    "import ilp_planner.evaluate",
    "",
    "from ilp_planner.evaluate import __doc__",
    "import importlib; importlib.import_module('ilp_planner.evaluate')",
    "import ilp_planner; ilp_planner.evaluate; import ilp_planner.evaluate",
    "from ilp_planner import evaluate; import ilp_planner.evaluate",
)


@pytest.mark.parametrize("before", BEFORE)
def test_a_verb_is_the_function_also_when_its_module_is_imported(before: str) -> None:
    code = f"{before}\nimport ilp_planner\nprint(type(ilp_planner.evaluate))"
    assert run(code) == "<class 'function'>"


def test_the_module_of_a_verb_can_still_be_reached() -> None:
    module = import_module("ilp_planner.evaluate")
    assert module.Violation.__module__ == "ilp_planner.evaluate"
    assert ilp_planner.evaluate.__module__ == "ilp_planner.faces.api.verbs"


def test_every_name_exists() -> None:
    names = [name for name in dir(ilp_planner) if not name.startswith("_")]
    assert {"problem", "solve", "evaluate", "check", "analyze", "load", "Limits"} <= set(names)
    for name in names:
        assert getattr(ilp_planner, name) is not None


def test_there_are_few_names() -> None:
    assert len(ilp_planner.__all__) <= 30
    assert set(ilp_planner.__all__) <= set(dir(ilp_planner))


def test_version_is_the_installed_one() -> None:
    assert ilp_planner.__version__ == version("ilp-planner")


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sovle'"):
        ilp_planner.sovle  # noqa: B018
