"""Pictures are drawn of any plan, and only in formats that are known."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ilp_planner.analysis.simulated import simulated
from ilp_planner.base.errors import OutputError, UsageError
from ilp_planner.faces.page.picture import COLUMNS, IDLE, picture, sampled, windows, write_picture
from tests.faces.page.pages import hostile_view, long_view, room_view
from tests.mixed_cases import room_plan, room_problem, room_result


@pytest.mark.parametrize("name", ["plan.svg", "plan.PNG"])
def test_a_picture_is_written(tmp_path: Path, name: str) -> None:
    write_picture(tmp_path / name, [room_view(), hostile_view()])
    content = (tmp_path / name).read_bytes()
    if name.endswith("svg"):
        assert ElementTree.fromstring(content).tag.endswith("svg")
    else:
        assert content.startswith(b"\x89PNG")


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"png: found 'plan.jpg', expected .* plan.png"):
        write_picture(tmp_path / "plan.jpg", [room_view()])
    with pytest.raises(OutputError, match="no such folder"):
        write_picture(tmp_path / "none" / "plan.png", [room_view()])


def test_bubbles_are_as_wide_as_ranks_are_idle() -> None:
    problem = room_problem()
    plan = room_plan(problem)
    result = room_result(problem, plan)
    assert result.evaluation is not None
    timeline = simulated(plan, result.evaluation).timeline
    image = sampled(timeline, 0.0, timeline.seconds)
    idle = np.array([int(IDLE[i : i + 2], 16) for i in (1, 3, 5)])
    share = (image == idle).all(axis=2).mean(axis=1)
    operations = len(timeline.start)
    assert share == pytest.approx(1 - timeline.busy / timeline.seconds, abs=operations / COLUMNS)


def test_a_long_iteration_is_drawn_from_both_ends() -> None:
    """On one scale, with what is left out said."""
    view = long_view(8, 512)
    figure = picture([view])
    begin, end, memory, terms = figure.axes
    assert view.simulated is not None
    spans = windows(view.simulated.timeline, view.simulated.seconds)
    for axes, span in zip((begin, end), spans, strict=True):
        assert axes.get_xlim() == pytest.approx(span)
    figure.canvas.draw()
    scales = [axes.get_window_extent().width / (b - a)
              for axes, (a, b) in zip((begin, end), spans, strict=True)]  # fmt: skip
    assert scales[0] == pytest.approx(scales[1], rel=0.05)
    assert "of 512 micro-batches, the first and the last ones" in begin.get_xlabel()
    assert len(memory.get_yticks()) == len(view.memory)
    names = [label.get_text() for label in terms.get_yticklabels()]
    assert sorted(names) == sorted(view.terms)
    short = picture([room_view()])
    assert len(short.axes) == 3
