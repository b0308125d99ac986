"""A page is one file that fetches nothing, however names are spelt, and however long a pipeline."""

import hashlib
import json
from base64 import b64encode
from dataclasses import replace

import pytest

from ilp_planner.faces.page.render import plan_page, plan_summary
from ilp_planner.faces.page.view import parted
from tests.faces.page.pages import (
    HOSTILE,
    Elements,
    hostile_view,
    judged,
    long_view,
    references,
    room_view,
    viewed,
)
from tests.mixed_cases import room_plan, room_problem, room_result

LARGEST = 1_000_000  # bytes of a page of 64 stages and 512 micro-batches


def test_a_page_fetches_nothing() -> None:
    page = plan_page([room_view()])
    assert references(page) == ["data:,"]
    policy = "default-src 'none'"
    assert policy in page
    assert references('<img src="https://a/b"><style>@import "x"</style>') != []


def test_only_the_script_of_the_package_may_run() -> None:
    page = plan_page([room_view()])
    running = [text for found, text in Elements(page).scripts if found.get("type") is None]
    assert len(running) == 1
    digest = b64encode(hashlib.sha256(running[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_names_are_shown_as_text() -> None:
    plain, hostile = (Elements(plan_page([view])) for view in (room_view(), hostile_view()))
    kinds = [[tag for tag, _ in found.elements] for found in (plain, hostile)]
    assert kinds[1].count("script") == kinds[0].count("script")
    assert kinds[1].count("style") == kinds[0].count("style") == 1
    assert hostile.text.count(HOSTILE) >= 4
    assert HOSTILE in hostile.data("devices-0")["types"]
    summary = Elements(plan_summary(hostile_view(), HOSTILE))
    assert "script" not in {tag for tag, _ in summary.elements}
    assert HOSTILE in summary.text


def test_a_long_pipeline_fits_a_page() -> None:
    view = long_view()
    assert view.timeline is not None
    assert (view.timeline["stages"], view.timeline["microBatches"]) == (64, 512)
    assert len(plan_page([view]).encode()) < LARGEST


def test_plans_beside_each_other_say_what_differs() -> None:
    problem = room_problem()
    other = room_plan(problem, micro_batches=2)
    views = [
        room_view("one.json"),
        viewed(judged(problem, room_result(problem, other)), "two.json"),
    ]
    page = plan_page(views, remarks=("of different problems",))
    found = Elements(page)
    assert {"one.json", "two.json", "of different problems"} <= set(found.text.split("\n"))
    assert found.data("timeline-0") != found.data("timeline-1")
    differing = [a for tag, a in found.elements if tag == "div" and a.get("class") == "differs"]
    assert differing
    alike = Elements(plan_page([views[0], replace(views[0], name="two.json")]))
    assert not [a for _, a in alike.elements if a.get("class") == "differs"]


def test_what_is_missing_is_said() -> None:
    problem = room_problem()
    whole = room_result(problem, room_plan(problem))
    broken = room_plan(problem, ((0, 1, 1, (0, 1)), (2, 6, 2, (2, 3, 4, 5))))
    view = viewed(judged(problem, replace(whole, plan=broken)))
    text = Elements(plan_page([view])).text
    assert text.count("Not drawn: ") == 2
    assert "layers covered once" in text
    assert "Best plan and bound over time: not saved." in text


@pytest.mark.parametrize(
    ("text", "comments"),
    [("#!/bin/bash\n# a\n\nset -e\n# b\n", "#!/bin/bash\n# a\n\n"), ("{\n}\n", ""), ("# a\n", "")],
)
def test_a_launch_file_is_parted_after_its_first_comments(text: str, comments: str) -> None:
    assert parted(text) == (comments, text.removeprefix(comments))


@pytest.mark.parametrize("ranks", [1, 2])
def test_data_are_json(ranks: int) -> None:
    page = Elements(plan_page([long_view(ranks, 4)]))
    blocks = [text for found, text in page.scripts if found.get("type") == "application/json"]
    assert len(blocks) == 2
    for block in blocks:
        assert isinstance(json.loads(block), dict)
