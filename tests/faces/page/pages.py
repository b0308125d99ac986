"""Plans judged for a page, and pages read back: what a browser would be given."""

import json
import re
import tempfile
import zlib
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from ilp_planner.faces.page.view import View, view_of
from ilp_planner.formats.saved_check import Judgement, judge_saved
from ilp_planner.formats.saved_plan import SavedPlan, claim_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.result import Result
from tests import small
from tests.mixed_cases import room_plan, room_problem, room_result

HOSTILE = "<script>alert(1)</script> & \"q\" 'a' </style> $x$ \u202e"


def judged(problem: Problem[Any], result: Result, *, claimed: bool = True) -> Judgement:
    """Return the plan of a result judged again, as one that came from elsewhere if not claimed."""
    assert result.plan is not None
    saved = SavedPlan(
        plan=result.plan,
        inputs=problem.request or Request(files={}),
        claim=claim_of(result, {"python": "3.11"}) if claimed else None,
        certificate=result.certificate if claimed else {},
    )
    return judge_saved(problem, saved, certificate=False)


def viewed(judgement: Judgement, name: str = "plan.json") -> View:
    """Return what a page shows of it."""
    return view_of(judgement, name=name, stem="plan")


def room_view(name: str = "plan.json", **options: Any) -> View:
    """Return what a page shows of the plan of two stages on three nodes, proved optimal."""
    problem = room_problem(**options)
    return viewed(judged(problem, room_result(problem, room_plan(problem))), name)


def hostile_view() -> View:
    """Return the same where names hold markup and quotes."""
    problem = room_problem(model=HOSTILE)
    types = problem.cluster.device_types
    named = {key: replace(device, type=HOSTILE) for key, device in types.items()}
    cluster = replace(problem.cluster, name=HOSTILE, device_types=named)
    problem = replace(problem, cluster=cluster, notes=(HOSTILE,), profile_source=HOSTILE)
    result = replace(room_result(problem, room_plan(problem)), solver=HOSTILE, notes=(HOSTILE,))
    return viewed(judged(problem, result), HOSTILE)


def long_view(ranks: int = 64, micro_batches: int = 512) -> View:
    """Return what a page shows of a long pipeline of operators, a device for each stage."""
    with tempfile.TemporaryDirectory() as folder:
        problem = long_problem(Path(folder), ranks, micro_batches)
    chain = len(problem.costs.chain)
    cuts = [chain * rank // ranks for rank in range(1, ranks)]
    plan = small.make_plan(problem, cuts, micro_batch=4)
    return viewed(judged(problem, small.make_result(problem, plan, gap=0.01)))


def long_problem(folder: Path, ranks: int, micro_batches: int) -> Problem[Any]:
    """Return a problem of so many devices and layers."""
    model, cluster = small.write_specs(folder)
    model.write_text(small.MODEL.replace("layers = 2", f"layers = {ranks}"))
    cluster.write_text(small.CLUSTER.replace("devices = 2", f"devices = {ranks}"))
    read = small.read_model(model), small.read_cluster(cluster)
    profile = small.analytic_profile(*read)
    return small.build_problem(*read, profile, cost_model="native", global_batch=4 * micro_batches)


def unpacked(text: str, columns: int) -> np.ndarray:
    """Return the numbers that `packed` wrote, int64 [columns, n], as the page's script does."""
    values = np.frombuffer(zlib.decompress(b64decode(text)), dtype="<i4").astype(np.int64)
    return values.reshape(columns, -1)


class Elements(HTMLParser):
    """All elements of a page, and what its scripts and its text hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "script":
            self.scripts.append((found, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data
        elif self.cdata_elem == "script":
            found, before = self.scripts[-1]
            self.scripts[-1] = (found, before + data)

    def data(self, identity: str) -> Any:
        """Return what one of the page's blocks of data holds."""
        (text,) = (text for found, text in self.scripts if found.get("id") == identity)
        return json.loads(text)


def references(page: str) -> list[str]:
    """Return everything of a page that a browser would fetch, or follow."""
    found = [
        value
        for _, attributes in Elements(page).elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "poster", "data")
    ]
    return [*found, *re.findall(r"url\(|@import|https?://\S*", page)]
