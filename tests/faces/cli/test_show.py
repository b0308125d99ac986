"""`ilp-plan show`: pages, traces and pictures of saved plans."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done
from tests.faces.page.pages import Elements, references

Command = Callable[..., Done]


def test_a_page_a_trace_and_a_picture(ilp_plan: Command, saved: Path) -> None:
    done = ilp_plan("show", saved, "--html", "a.html", "--trace", "a.json", "--png", "a.png")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "a.html, a.json, a.png written. plan.json: Within 1.1 % of the fastest operator-level plan "
        "in the search space on this node: none takes less than 9.539 ms\n"
    )
    page = Path("a.html").read_text()
    assert references(page) == ["data:,"]
    data = Elements(page).data("timeline-0")
    assert (data["ranks"], data["microBatches"]) == (2, 16)
    events = json.loads(Path("a.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 2 * 2 * 16
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_without_an_output_the_page_is_beside_the_plan(ilp_plan: Command, saved: Path) -> None:
    assert ilp_plan("show", saved).code == 0
    first = Path("plan.html").read_text()
    assert "price per hour" not in first
    assert ilp_plan("show", saved, "--price", "2").code == 0  # over a page of its own
    assert "price per hour" in Path("plan.html").read_text()
    Path("plan.html").write_text("<html>mine</html>")
    done = ilp_plan("show", saved)
    assert done.code == 2
    assert "plan.html is there and was not written by `ilp-plan show`" in done.err
    assert Path("plan.html").read_text() == "<html>mine</html>"


def test_two_plans_beside_each_other(ilp_plan: Command, saved: Path, operators: list[str]) -> None:
    words = ["64" if word == "32" else word for word in operators]
    index = words.index("--global-batch-size") + 1
    words[index] = "32"
    assert ilp_plan("solve", *words, "--output", "other.json").code == 0
    assert ilp_plan("show", saved, saved, "--html", "same.html").code == 0
    assert "different problems" not in Path("same.html").read_text()
    assert ilp_plan("show", saved, "other.json", "--html", "both.html").code == 0
    text = Elements(Path("both.html").read_text()).text
    assert "of different problems: of the second, global batch is 32, not 64" in text


def test_an_illegal_plan_is_drawn_and_marked(ilp_plan: Command, saved: Path) -> None:
    value = json.loads(saved.read_text())
    value["plan"]["stages"][1]["first_device"] = 5
    saved.write_text(json.dumps(value))
    done = ilp_plan("show", saved)
    assert done.code == 0
    assert "note: plan.json: plan: stage 1: devices used once" in done.err
    assert "Breaks 1 rule" in Path("plan.html").read_text()
    done = ilp_plan("show", saved, "--trace", "trace.json")
    assert done.code == 1
    assert "plan.json: no trace: plan: its stages have no times to simulate" in done.err


def test_a_name_that_a_terminal_would_obey_is_shown(ilp_plan: Command, saved: Path) -> None:
    name = "a\x1b[2J\n<b>'$(x)`y`.json"
    Path(name).write_bytes(saved.read_bytes())
    done = ilp_plan("show", name, "--html", "page.html")
    assert done.code == 0
    assert done.err.startswith("page.html written. a?[2J?<b>'$(x)`y`.json: Within 1.1 %")
    assert "<b>'$(x)`y`.json" in Elements(Path("page.html").read_text()).text


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("--png", "a.gif"), "--png: found 'a.gif', expected a name that ends in .png or .svg", 2),
        (("--html", "plan.json"), "would be written over the input", 1),
        (("--html", "none/a.html"), "no such folder", 1),
        (("--html", "a", "--trace", "a"), "found the same file twice, expected each its own", 2),
        (("--price", "gpu=free"), "--price: found 'gpu=free', expected a number above 0", 2),
        (("plan.json", "plan.json"), "found 3 plans, expected at most 2", 2),
        (("plan.json", "--trace", "a.json"), "--trace: found two plans, expected one", 2),
    ],
)
def test_what_cannot_be_is_refused(
    ilp_plan: Command, saved: Path, words: tuple[str, ...], says: str, code: int
) -> None:
    done = ilp_plan("show", saved, *words)
    assert done.code == code
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not Path("plan.html").exists()


def test_the_commands_of_the_manual_run(ilp_plan: Command, saved: Path) -> None:
    Path("other.json").write_bytes(saved.read_bytes())
    manual = (Path(__file__).parents[3] / "docs" / "howto" / "show.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", manual, re.DOTALL)
    for line in block.splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "ilp-plan"
        assert ilp_plan(*words).code == 0
    assert {file.name for file in Path().glob("*.html")} == {"plan.html", "p.html", "both.html"}
