"""A page in headless Chromium: it draws, its controls work, nothing is fetched, no error is told.

Skipped where Playwright (the extra `browser`) or Chromium is not there; `make test-page` installs
both.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.faces.page.render import plan_page
from ilp_planner.faces.page.view import View
from tests.faces.page.pages import HOSTILE, hostile_view, long_view, room_view

Opened = Callable[..., "Shown"]

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: `make test-page` does"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    pytest.skip("Chromium is not installed: `make test-page` does", allow_module_level=True)
WIDTHS = (360, 1280)


class Shown:
    """An open page. faults: what its console, its script and its requests said."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.faults = page, list[str]()
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self.requested)
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.own = file.as_uri()
        page.goto(self.own)
        page.wait_for_selector("html[data-ready=yes]")

    def requested(self, request: Any) -> None:
        if request.url != self.own and not request.url.startswith("data:"):
            self.faults.append(request.url)

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).first.inner_text()
        return found

    def colours(self, selector: str = ".timeline canvas") -> int:
        """Return how many colours a canvas has that are not rare."""
        from matplotlib.image import imread

        image = imread(io.BytesIO(self.page.locator(selector).first.screenshot()))
        pixels = (image[..., :3].reshape(-1, 3) * 255).astype(np.int64) @ [65536, 256, 1]
        _, counts = np.unique(pixels, return_counts=True)
        return int((counts > len(pixels) / 200).sum())

    def box(self, selector: str) -> dict[str, float]:
        """Return where an element is on the screen, which it is scrolled to."""
        element = self.page.locator(selector).first
        element.scroll_into_view_if_needed()
        found: dict[str, float] = element.bounding_box()
        return found

    def overflows(self) -> bool:
        """Tell whether the page is wider than the screen."""
        found: bool = self.page.evaluate(
            "() => document.documentElement.scrollWidth > window.innerWidth"
        )
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open a page of views; it may not have complained by the end of the test."""
    contexts, every = [], []

    def call(*views: View, width: int = 1280, **more: Any) -> Shown:
        file = tmp_path / "page.html"
        file.write_text(plan_page(views), encoding="utf-8")
        more.setdefault("color_scheme", "light")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **more))
        every.append(Shown(contexts[-1].new_page(), file))
        return every[-1]

    yield call
    for context in contexts:
        context.close()
    assert [fault for shown in every for fault in shown.faults] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_drawn_at_every_width(opened: Opened, width: int, scheme: str) -> None:
    shown = opened(room_view(), width=width, color_scheme=scheme)
    assert not shown.overflows()
    assert "Proved optimal" in shown.text("#verdict")
    assert shown.colours(".timeline canvas") >= 3
    assert shown.colours(".devices canvas") >= 2


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_that_are_compared_have_one_scale(opened: Opened, width: int) -> None:
    shown = opened(room_view(), width=width)
    for kind in ("term", "rank"):
        tracks = shown.page.locator(f".{kind} .track").all()
        assert len(tracks) > 1
        assert len({track.bounding_box()["width"] for track in tracks}) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_two_plans_move_together(opened: Opened, width: int) -> None:
    shown = opened(room_view("one.json"), room_view("two.json"), width=width)
    assert not shown.overflows()
    before = shown.text(".range")
    shown.page.locator('[data-do="in"]').nth(1).click()
    ranges = shown.page.locator(".range").all_inner_texts()
    assert len(set(ranges)) == 1
    assert ranges[0] != before


def test_buttons_zoom_and_pan(opened: Opened) -> None:
    shown = opened(room_view())
    whole = shown.text(".range")
    for button in ("in", "right", "left", "out"):
        before = shown.text(".range")
        shown.page.click(f'[data-do="{button}"]')
        assert shown.text(".range") != before
    shown.page.click('[data-do="in"]')
    shown.page.click('[data-do="all"]')
    assert shown.text(".range") == whole


def test_the_pointer_tells_and_a_click_follows(opened: Opened) -> None:
    shown = opened(room_view())
    canvas = shown.page.locator(".timeline canvas")
    canvas.hover(position={"x": 4, "y": 30})
    assert shown.text(".timeline .readout").startswith("Rank 0: forward of micro-batch 0, stage 0")
    before = canvas.screenshot()
    canvas.click(position={"x": 4, "y": 30})
    assert canvas.screenshot() != before
    canvas.hover(position={"x": 4, "y": 60})
    assert shown.text(".timeline .readout").startswith("Rank 1: idle for ")


def test_keys_go_from_operation_to_operation(opened: Opened) -> None:
    shown = opened(room_view())
    shown.page.locator(".timeline canvas").focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "+", "0", "Enter", "Escape"):
        shown.page.keyboard.press(key)
        told.append((shown.text(".timeline .readout"), shown.text(".range")))
    assert told[0][0].startswith("Rank 0: forward of micro-batch 0")
    assert told[1][0].startswith("Rank 0: ")
    assert told[1] != told[0]
    assert told[2][0].startswith("Rank 1: ")
    assert told[3][1] != told[2][1] == told[4][1]


def test_what_ranks_hold_is_drawn_over_time(opened: Opened) -> None:
    """1F1B of two stages: the first holds two micro-batches at most, the second one."""
    shown = opened(room_view())
    canvas = shown.page.locator(".timeline canvas")
    before = canvas.screenshot()
    shown.page.click('[data-do="held"]')
    assert shown.page.get_attribute('[data-do="held"]', "aria-pressed") == "true"
    assert canvas.screenshot() != before
    canvas.focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
        shown.page.keyboard.press(key)
        told.append(shown.text(".timeline .readout").rpartition("; ")[2])
    assert told == [f"holds activations of {n} of at most 2" for n in (1, 2, 2, 1)]


def test_dragging_pans(opened: Opened) -> None:
    shown = opened(room_view())
    shown.page.click('[data-do="in"]')
    before = shown.text(".range")
    box = shown.box(".timeline canvas")
    shown.page.mouse.move(box["x"] + 200, box["y"] + 40)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 100, box["y"] + 40, steps=4)
    shown.page.mouse.up()
    assert shown.text(".range") != before


def test_two_fingers_zoom_and_one_still_scrolls(opened: Opened) -> None:
    shown = opened(room_view(), width=360, has_touch=True)
    before = shown.text(".range")
    box = shown.box(".timeline canvas")
    touch = shown.page.context.new_cdp_session(shown.page)
    for kind, apart in (("touchStart", 40), ("touchMove", 60), ("touchMove", 120)):
        points = [
            {"x": box["x"] + 150 + side * apart / 2, "y": box["y"] + 40, "id": n}
            for n, side in enumerate((-1, 1))
        ]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert shown.text(".range") != before
    action = "() => getComputedStyle(document.querySelector('.timeline canvas')).touchAction"
    assert shown.page.evaluate(action) == "pan-y"


def test_a_device_tells_its_groups(opened: Opened) -> None:
    shown = opened(room_view())
    shown.page.locator(".devices canvas").focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowRight")
    told = shown.text(".devices .readout")
    assert told.startswith("Device 2: node 1, A100, pipeline rank 1, replica 0, place 0")
    assert "tensor group of 2: 2-3" in told
    assert "data group of 2: 2, 4" in told
    shown.page.locator(".devices canvas").click(position={"x": 8, "y": 24})
    assert shown.text(".devices .readout").startswith("Device 0: ")


def test_the_theme_changes(opened: Opened) -> None:
    shown = opened(room_view())
    paper = "() => getComputedStyle(document.body).backgroundColor"
    seen = [shown.page.evaluate(paper)]
    for theme in ("dark", "light", "auto"):
        shown.page.click("#theme")
        assert shown.text("#theme") == f"Theme: {theme}"
        seen.append(shown.page.evaluate(paper))
    assert seen[0] == seen[2] == seen[3] != seen[1]


def test_the_launch_file_is_copied(opened: Opened) -> None:
    view = room_view()
    comments, script = "# a note\n\n", f"torchrun --model {HOSTILE}\n"
    launch = view.launch._replace(comments=comments, text=script, name="plan.sh", refusal="")
    shown = opened(replace(view, launch=launch), permissions=["clipboard-read", "clipboard-write"])
    shown.page.click(".copy")
    shown.page.wait_for_selector("text=Copied")
    assert shown.page.evaluate("() => navigator.clipboard.readText()") == comments + script


def test_names_with_markup_do_nothing(opened: Opened) -> None:
    shown = opened(hostile_view())
    assert HOSTILE in shown.page.title() or "<script>" in shown.page.title()
    assert "<script>alert(1)</script>" in shown.text("h1")


def test_a_long_pipeline_is_drawn(opened: Opened) -> None:
    shown = opened(long_view(), width=360)
    assert not shown.overflows()
    assert shown.colours() >= 3
    for _ in range(12):
        shown.page.click('[data-do="in"]')
    assert shown.colours() >= 2
