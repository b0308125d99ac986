"""What a page says of plans: of every space, of illegal ones, of ones from elsewhere."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.page.render import HEIGHT, WIDTH, curve_of
from ilp_planner.faces.page.view import View, device_map
from ilp_planner.faces.report.tables import exact_seconds
from ilp_planner.faces.report.verdict import result_verdict
from ilp_planner.optimize.result import Moment, Status
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.prices import with_prices
from tests.every_space import every_space, problem_in, result_in
from tests.faces.page.pages import judged, room_view, unpacked, viewed
from tests.mixed_cases import room_plan, room_problem, room_result


def figures(view: View) -> dict[str, str]:
    """Return the figures by name."""
    return {figure.name: figure.text for figure in view.figures}


@pytest.mark.few(5)
@every_space
def test_a_plan_of_every_space_has_all_that_a_page_shows(space: str) -> None:
    problem, result = problem_in(space), result_in(space)
    assert result.plan is not None
    view = viewed(judged(problem, result))
    assert view.headline.mood == "good"
    assert figures(view)["iteration time"] == exact_seconds(result.objective)
    assert figures(view)["bound"] == exact_seconds(result.bound)
    assert sum(view.terms.values()) == pytest.approx(result.objective, abs=1e-8)
    assert view.timeline is not None
    assert view.stages is not None
    assert len(view.stages.rows) <= result.plan.ranks
    cost = result.evaluation.cost
    told = problem.space.seconds(problem, result.plan, cost)  # as `why` tells them
    assert set(view.terms) <= set(told)
    assert view.headline.text == result_verdict(problem, result).sentence
    assert bool(view.memory) != ("memory" in view.missing)
    for bar in view.memory:
        assert sum(size for _, size in bar.parts) == pytest.approx(bar.used)
        assert bar.used <= bar.limit * (1 + 1e-9)
    assert bool(view.launch.text) != bool(view.launch.refusal)
    assert view.history[-1][1:] == (result.objective, result.bound)


@every_space
def test_every_device_is_where_the_plan_has_it(space: str) -> None:
    problem, plan = problem_in(space), result_in(space).plan
    assert plan is not None
    data = device_map(plan, problem.cluster)
    rank, replica, place = unpacked(data["packed"], 3)
    assert sum(data["nodes"]) == problem.cluster.device_count == len(rank)
    for r, stage in enumerate(plan.stages[: plan.ranks]):
        assert set(np.flatnonzero(rank == r).tolist()) == set(stage.devices)
        if is_of_groups(plan):
            for n, own in enumerate(plan.stages[r].replicas):
                here = np.flatnonzero((rank == r) & (replica == n))
                assert here[np.argsort(place[here])].tolist() == list(own.devices)
    assert (rank < 0).sum() == problem.cluster.device_count - plan.devices


def test_a_plan_that_is_not_proved_says_how_far_it_can_be_from_the_best() -> None:
    problem = room_problem()
    proved = room_result(problem, room_plan(problem))
    least = 0.9 * proved.objective
    near = room_result(problem, proved.plan, status=Status.FEASIBLE, bound=least)
    view = viewed(judged(problem, near))
    assert view.headline.mood == "fair"
    assert view.headline.text.startswith("Within 11.2 % of the fastest layer-level plan in the ")
    assert figures(view)["gap"] == "10.00 %"


def test_a_plan_from_elsewhere_has_no_proof() -> None:
    problem = room_problem()
    view = viewed(judged(problem, room_result(problem, room_plan(problem)), claimed=False))
    assert view.headline.text.startswith("Legal: nothing is proved")
    assert figures(view)["bound"] == figures(view)["gap"] == "-"
    assert view.history == ()


def test_a_plan_over_the_limit_is_drawn_and_marked() -> None:
    problem = room_problem()
    result = room_result(problem, room_plan(problem))
    least = max(cost.memory[0] for cost in result.evaluation.stages) / 2
    tight = replace(problem, memory_limits=dict.fromkeys(problem.memory_limits, least))
    view = viewed(judged(tight, result))
    assert view.headline.mood == "bad"
    assert view.headline.text.startswith("Breaks ")
    assert "memory" in view.headline.details[0]
    assert figures(view)["gap"] == "-"
    assert view.timeline is not None
    assert any(bar.used > bar.limit for bar in view.memory)


def test_a_plan_without_a_price_says_what_is_not_drawn() -> None:
    problem = room_problem()
    whole = room_result(problem, room_plan(problem))
    broken = room_plan(problem, ((0, 1, 1, (0, 1)), (2, 6, 2, (2, 3, 4, 5))))
    view = viewed(judged(problem, replace(whole, plan=broken)))
    assert view.headline.mood == "bad"
    assert (view.timeline, view.memory, view.stages, view.terms) == (None, (), None, {})
    assert set(view.missing) == {"timeline", "memory"}


def test_a_claim_that_does_not_hold_is_told_first() -> None:
    problem = room_problem()
    result = room_result(problem, room_plan(problem))
    view = viewed(judged(problem, replace(result, objective=result.objective / 2)))
    assert view.headline.mood == "bad"
    assert "result.objective_s" in view.headline.details[0]


def test_prices_count_per_device_and_type() -> None:
    problem = room_problem()
    names = list(problem.limits_of_types)
    result = room_result(problem, room_plan(problem))

    def hourly(text: str) -> str:
        priced = replace(problem, cluster=with_prices(problem.cluster, text))
        return figures(viewed(judged(priced, result)))["price per hour"]

    assert hourly("2.5") == "15.00"
    counts = {name: 2 if name == "T4" else 4 for name in names}
    asked = ",".join(f"{name}={n}" for n, name in enumerate(names, 1))
    expected = sum(n * counts[name] for n, name in enumerate(names, 1))
    assert hourly(asked) == f"{expected:.2f}"
    assert "price per hour" not in figures(room_view())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cheap", "price: found 'cheap', expected a number above 0"),
        ("0", "found '0'"),
        ("inf", "found 'inf'"),
        ("H100=3", "price: found 'H100', expected one of A100, T4"),
        ("A100=", "found 'A100='"),
    ],
)
def test_what_is_no_price_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_prices(room_problem().cluster, text)


def test_the_curve_of_a_search_goes_down_and_up_to_its_result() -> None:
    history = (Moment(1, math.inf, 0.0), Moment(2, 9.0, 1.0), Moment(3, 5.0, 3.0), Moment(4, 5, 5))
    curve = curve_of(history)
    assert curve is not None
    for text, downwards in ((curve.incumbent, True), (curve.bound, False)):
        points = [tuple(map(float, point.split(","))) for point in text.split()]
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert [y for _, y in points] == sorted((y for _, y in points), reverse=not downwards)
    assert curve.incumbent.split()[-1] == curve.bound.split()[-1]
    assert curve_of(()) is None
    assert curve_of((Moment(1, math.inf, 0.0),)) is None
