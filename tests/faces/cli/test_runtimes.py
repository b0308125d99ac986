"""`ilp-plan runtimes`, and the page that has the same tables."""

import json
import re
from collections.abc import Callable

import pytest

from ilp_planner.faces.cli.wording import option_of
from ilp_planner.formats.exports import RELEASES, Runtime
from ilp_planner.inputs.constraints import OF_PLANS
from ilp_planner.spaces.registry import RUNTIMES
from tests.faces.cli.conftest import Done
from tests.faces.cli.test_bad_input import refused
from tests.runtime_tables import PAGE, printed, with_tables

Command = Callable[..., Done]
EVERY = [(system, release) for system in RELEASES for release in RELEASES[system]]


def test_systems_and_releases(ilp_plan: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    done = ilp_plan("runtimes")
    assert done.code == 0
    first, *lines = done.out.partition("\n\n")[0].splitlines()
    columns = ("export --to", "release", "what is written", "checked by", "solve --runtime")
    assert first.split() == " ".join(columns).split()
    for (system, release), line in zip(EVERY, lines, strict=True):
        export = RELEASES[system][release]
        searched = "yes" if system in RUNTIMES else "no"
        words = (Runtime(system, release), export.release or release, export.files, export.checked)
        assert line.split() == " ".join([*map(str, words), searched]).split()


@pytest.mark.parametrize("name", RELEASES)
def test_the_table_is_what_json_has(
    ilp_plan: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    out, found = ilp_plan("runtimes", name).out, printed(name)
    assert {name: found["name"], "searched": found["searched"]} == {
        name: name,
        "searched": name in RUNTIMES,
    }
    for release in found["releases"]:
        assert release["checked"] in out
    rows = [line.split() for line in out.partition("\n\n")[0].splitlines()[1:]]
    shown = [
        [
            row["setting"],
            ", ".join(row["values"]) or "-",
            ", ".join(row["on_request"]),
            row["how"],
            ", ".join(row["options"]),
            row["remark"],
        ]
        for row in found["settings"]
    ]
    assert bool(shown) == (name in RUNTIMES)
    assert not shown or rows == [" ".join(cells).split() for cells in shown]


@pytest.mark.parametrize("words", [(), *((name,) for name in RELEASES)], ids=str)
def test_lines_fit_a_terminal(
    ilp_plan: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    tables = ilp_plan("runtimes", *words).out.rpartition("\n\n")[0]
    assert max(map(len, tables.splitlines()), default=0) <= 80


@pytest.mark.parametrize("name", ["torchtitan", "torchtitan@0.2.2"])
def test_a_table_says_which_release_it_is_about(ilp_plan: Command, name: str) -> None:
    out, found = ilp_plan("runtimes", name).out, printed(name)
    newest = found["releases"][0]["release"]
    assert f"about the settings of torchtitan {newest}\n" in out


def test_a_row_of_megatron(ilp_plan: Command) -> None:
    done = json.loads(ilp_plan("runtimes", "megatron", "--json").out)
    (row,) = (row for row in done["settings"] if row["setting"] == "gradients")
    assert row["fields"] == ["settings.optimizer.gradient"]
    assert (row["how"], row["values"], row["on_request"]) == ("as asked", ["fp32"], ["bf16"])
    assert row["options"] == ["--gradients"]


def test_options_are_those_of_solve(ilp_plan: Command) -> None:
    every = {word for word in ilp_plan("solve", "--help").out.split() if word.startswith("--")}
    words = re.compile(r"--[\w-]+")
    rows = [row for name in RUNTIMES for row in printed(name)["settings"]]
    said = {found for row in rows for found in words.findall(f"{row['options']} {row['remark']}")}
    assert said <= every
    assert said >= {option_of(name) for name in OF_PLANS}
    assert "--max-cp" in said


@pytest.mark.parametrize("name", ["megatrn", "torchtitan@0.3.0", "nemo@0.3.1", ""])
def test_a_system_that_there_is_not(ilp_plan: Command, name: str) -> None:
    refused(ilp_plan("runtimes", name), 2, f"RUNTIME: found {name!r}", "torchtitan@0.2.2")


def test_the_page_has_these_tables() -> None:
    """`python -m tests.runtime_tables` writes them."""
    page = PAGE.read_text()
    assert with_tables(page) == page
