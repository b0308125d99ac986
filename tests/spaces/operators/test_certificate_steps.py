"""What is done to derive the proof of a part of operators again, step by step, without a search."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import CLAIM_ROUNDING, NEVER, ROUNDING
from ilp_planner.optimize.search.confirm import PLACEMENT, ROOM
from ilp_planner.spaces.operators import certificate
from ilp_planner.spaces.operators.certificate import last_of_part, plan_graph, prove_part

STAGE = {
    "start": 1,
    "stop": 3,
    "devices": 2,
    "in_flight": 4,
    "enters_node": True,
    "leaves_node": False,
    "bound_s": 0.75,
}


class Part:
    """A part of three operators on stages of two devices, whose bounds are said beforehand.

    work, stages: seconds that its work and its stages prove. did: what was asked of it.
    """

    def __init__(self, work: float = 0.0, stages: float = 0.0, ceiling: float = 9.0) -> None:
        self.did: list[Any] = []
        self.bound, self.work, self.by_stages, self.ceiling = 0.0, work, stages, ceiling
        self.micro_batch = 2
        self.problem = SimpleNamespace(costs=SimpleNamespace(chain=("a", "b", "c")))
        self.stages = SimpleNamespace(chains={2: None}, entry=self.entry, refine=self.solve)
        self.entries = 5

    def bound_by_work(self) -> None:
        self.bound = self.work

    def repeat(self, record: Any) -> None:
        self.did.append("repeat")

    def confirm_by_stages(self, claimed: float) -> None:
        self.did.append(("stages", claimed))
        self.bound = max(self.bound, self.by_stages)

    def count_stages(self) -> None:
        self.did.append("count")

    def bound_by_stages(self, cutoff: float) -> None:
        self.did.append(("bound", cutoff))

    def confirm_slowest(self, seconds: float) -> None:
        self.did.append(("slowest", seconds))

    def expand(self, cutoff: float) -> Any:
        self.did.append(("expand", cutoff))
        return SimpleNamespace(graph="graph")

    def entry(self, devices: int, start: int, stop: int) -> int:
        return self.entries

    def solve(self, key: Any, start: int, stop: int, *, cutoff: float, effort: int) -> None:
        self.did.append(("solve", tuple(key), start, stop, cutoff))

    def refine(self, path: Any, left: Any) -> bool:
        self.did.append(("refine", path))
        return True

    def record(self) -> Any:
        return {"micro_batch": 2, "exact_stages": []}

    def raise_bound(self, bound: float, source: str) -> None:
        self.did.append(("raise", source))
        self.bound = max(self.bound, bound)


SOLVED = ("solve", (2, 4, True, False, 5), 1, 3)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Part]:
    """Return what lets a part stand for the real ones, with a best path and a lack of memory."""

    def put(
        part: Part, *, path: tuple[int, ...] = (), value: float = 1e30, lacks: bool = False
    ) -> Part:
        monkeypatch.setattr(certificate, "OperatorPart", lambda problem, size: part)
        monkeypatch.setattr(certificate, "best_path", lambda graph: (path, value))
        monkeypatch.setattr(certificate, "explain_infeasible", lambda problem, parts: lacks)
        judged = SimpleNamespace(iteration_time=2.0)
        monkeypatch.setattr(certificate, "evaluate", lambda problem, plan: judged)
        return part

    return put


def proved(part: Part, by: str = "dp", claimed: float | None = 1.0, **said: Any) -> float:
    record = {"bound_s": claimed, "micro_batch": 2, "by": by, "exact_stages": [], **said}
    return prove_part(None, record)  # type: ignore[arg-type]


def test_what_work_proves_is_not_proved_again(use: Any) -> None:
    part = use(Part(work=1.0), lacks=True)
    assert proved(part) == 1.0
    assert part.did == ["repeat"]


@pytest.mark.parametrize(("by", "reached"), [("work", 0.5), ("stage bounds", 0.5), ("dp", 1.0)])
def test_stages_are_solved_again_where_the_proof_rests_on_them(
    by: str, reached: float, use: Any
) -> None:
    part = use(Part(work=0.25, stages=reached))
    assert proved(part, by) == reached
    assert part.did == ["repeat", ("stages", 1.0)]


@pytest.mark.parametrize(
    ("path", "value", "bound", "more"),
    [((), NEVER, 1.0, 0), ((0, 1), 0.5, 0.5, certificate.MORE_STAGES), ((0, 1), 1.5, 1.0, 0)],
)
def test_no_pipeline_of_solved_stages_is_below_the_bound(
    path: tuple[int, ...], value: float, bound: float, more: int, use: Any
) -> None:
    """Stages of one that is below are solved as well, as often as may be."""
    part = use(Part(), path=path, value=value)
    assert proved(part, exact_stages=[STAGE], slowest_s=0.125) == bound
    assert part.did == [
        "repeat",
        ("stages", 1.0),
        (*SOLVED, 0.75),
        ("slowest", 0.125),
        ("expand", 1.0 * (1 - ROUNDING)),
        *[("refine", path)] * more,
        ("raise", "certificate"),
    ]


def test_nothing_is_claimed_above_what_every_plan_takes(use: Any) -> None:
    """Nor of a stage; and no slowest one is where none is said to be."""
    part = use(Part(ceiling=0.5))
    assert proved(part, exact_stages=[STAGE]) == 0.5
    assert part.did[2:5] == [(*SOLVED, 0.5), ("slowest", 0.0), ("expand", 0.5 * (1 - ROUNDING))]


@pytest.mark.parametrize(
    ("claimed", "lacks", "bound"), [(None, True, NEVER), (None, False, 0.5), (1.0, True, 0.5)]
)
def test_that_there_is_no_plan_is_proved_by_memory(
    claimed: float | None, lacks: bool, bound: float, use: Any
) -> None:
    part = use(Part(work=0.5), lacks=lacks)
    assert proved(part, "work", claimed) == bound
    assert (("raise", "memory") in part.did) == (bound == NEVER)


def test_memory_is_not_asked_where_it_is_proved_that_there_is_no_plan(use: Any) -> None:
    part = use(Part(work=NEVER), lacks=True)
    assert proved(part, "work", None) == NEVER
    assert part.did == ["repeat"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"in_flight": 0}, "0 micro-batches in flight"),
        ({"in_flight": 1_000_000_001}, "1000000001 micro-batches in flight"),
        ({"start": 3}, "no stage of operators 3 to 3 on 2 devices"),
        ({"stop": 4}, "no stage of operators 1 to 4 on 2 devices"),
        ({"start": -1}, "no stage of operators -1 to 3 on 2 devices"),
        ({"devices": 3}, "no stage of operators 1 to 3 on 3 devices"),
    ],
)
def test_stages_that_cannot_be_are_refused(wrong: dict[str, int], words: str, use: Any) -> None:
    with pytest.raises(PlanError, match=f"^certificate: {words}$"):
        proved(use(Part()), exact_stages=[{**STAGE, **wrong}])


def test_stages_at_the_ends_and_with_many_in_flight_are_solved(use: Any) -> None:
    part = use(Part())
    proved(part, exact_stages=[{**STAGE, "start": 0, "in_flight": 1_000_000_000}])
    assert part.did[2] == ("solve", (2, 1_000_000_000, True, False, 5), 0, 3, 0.75)


@pytest.mark.parametrize(("entry", "solved"), [(-1, 0), (0, 1)])
def test_stages_too_long_for_any_plan_below_the_claim_are_left_out(
    entry: int, solved: int, use: Any
) -> None:
    part = use(Part())
    part.entries = entry
    proved(part, exact_stages=[STAGE])
    assert sum(did[0] == "solve" for did in part.did) == solved


PLAN: Any = SimpleNamespace(micro_batch_size=2)


def test_the_graph_of_a_plan_reaches_a_little_above_it(use: Any) -> None:
    part = use(Part())
    wide = {"micro_batch": 2, "exact_stages": [{**STAGE, "bound_s": 7.0}]}
    problem: Any = None
    assert plan_graph(problem, {"parts": [{"micro_batch": 1}, wide]}, PLAN) == "graph"
    most = 2.0 * (1 + ROOM)
    assert part.did == ["count", ("bound", most), (*SOLVED, most), ("expand", most)]


def search_of(part: Part) -> Any:
    deadline = SimpleNamespace(left=None)
    return SimpleNamespace(parts=[part], objective=2.0, problem=None, deadline=deadline)


def test_what_is_open_of_a_part_can_be_learned_where_it_has_the_plan(use: Any) -> None:
    part = use(Part(), path=(0, 1), value=2.0 * (1 + CLAIM_ROUNDING))
    last: Any = last_of_part(search_of(part), PLAN)
    assert (last.graph, last.lacks) == ("graph", "")
    assert last.learn((0, 1))
    assert part.did == [("expand", 2.0 * (1 + ROOM)), ("refine", (0, 1))]


@pytest.mark.parametrize(
    ("path", "value"), [((), NEVER), ((0, 1), 2.0 * (1 + 1.5 * CLAIM_ROUNDING))]
)
def test_where_it_has_not_the_plan_the_certificate_is_solved_anew(
    path: tuple[int, ...], value: float, use: Any
) -> None:
    part = use(Part(), path=path, value=value)
    last: Any = last_of_part(search_of(part), PLAN)
    assert (last.graph, last.lacks) == ("graph", PLACEMENT)
    assert [did[0] for did in part.did if did != "count"] == ["expand", "bound", "expand"]
