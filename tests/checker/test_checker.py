"""The checker that shares nothing with the planner: what it proves is true, whatever it reads."""

import ast
import copy
import hashlib
import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ilp_planner
from ilp_planner.base.errors import PlannerError
from ilp_planner.checker import checker
from ilp_planner.costs.models import NativeCosts
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds import stages as stage_bounds
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.pipeline import Landscape
from ilp_planner.optimize.solve import solve
from ilp_planner.peers.aceso.costs import AcesoCosts
from ilp_planner.spaces.operators.independent import independent_proof
from tests import tiny
from tests.examples import examples, for_each
from tests.sources import statements, tree_of

HUGE = 1e5  # seconds: more than any of these plans takes
Record = dict[str, Any]


def read(record: object) -> Any:
    """Return a record as the checker reads it from a file."""
    return checker.loads(json.dumps(record))


def proved(proof: Record) -> float:
    """Return the seconds that the checker proves."""
    return min(checker.prove(*checker.opened(read(proof))).values()) / checker.PS


def mixed_prices(proof: Record, drawn: random.Random) -> None:
    """Replace the prices by any others."""
    floors = (0, 1) if proof["table"]["costs"] == "aceso" else (0,)
    for case in proof["cases"]:
        case["prices"] = [
            [group, flight, floor, int(10 ** drawn.uniform(0, 12))]
            for group in proof["set"]["devices_of_stages"]
            for flight in range(1, 5)
            for floor in floors
            if drawn.random() < 0.7
        ]


# ---- bounds against enumeration ------------------------------------------------------------------


@given(tiny.problems(most_ways=5_000), st.sampled_from((1.0, 1.0001, 1.5, math.inf)))
@examples(60)
def test_the_bound_is_the_optimum_of_enumeration(problem: Problem[Any], claim: float) -> None:
    optimum = min(tiny.least_time(problem), HUGE)
    found = proved(independent_proof(problem, min(optimum * claim, HUGE)))
    assert optimum * (1 - 1e-6) <= found <= optimum


@given(tiny.problems(most_ways=5_000), st.integers(0, 2**32), st.sampled_from((0, 1, 5, 10**6)))
@examples(60)
def test_no_price_and_no_end_of_a_search_proves_more_than_the_optimum(
    problem: Problem[Any], seed: int, labels: int
) -> None:
    optimum = min(tiny.least_time(problem), HUGE)
    proof = independent_proof(problem, min(optimum * 1.5, HUGE))
    mixed_prices(proof, random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "EFFORTS", (0, labels))
        patch.setattr(checker, "ROUNDS", 10**6 if labels > 1 else 3 * labels)
        patch.setattr(checker, "MOST_PAIRS", seed % 3 * 100)
        assert proved(proof) <= optimum


@given(tiny.problems(most_ways=5_000), st.integers(0, 2**32), st.floats(0.05, 1.2))
@examples(60)
def test_stages_that_a_sweep_leaves_out_take_too_long(
    problem: Problem[Any], seed: int, share: float
) -> None:
    """Those that are listed have the bounds that they have in a list of all, wherever it ends."""
    optimum = min(tiny.least_time(problem), HUGE)
    proof, drawn = independent_proof(problem, optimum), random.Random(seed)
    mixed_prices(proof, drawn)
    plans, costs, cases, _ = checker.opened(read(proof))
    for size in plans["micro_batches"]:
        stages = checker.Stages(costs, plans, size, cases[size])
        longest = int(share * min(optimum, 1e6) * checker.PS * size / plans["batch"])
        for g in stages.groups:
            prices, leave = stages.prices_of(g, 1), drawn.choice((0, 1, checker.INNER))
            for stop in range(1, stages.n + 1):
                few, every = (stages.sweep(g, 1, leave, stop, most, prices)
                              for most in (longest, checker.NEVER))  # fmt: skip
                alone = stages.groups[g].sums
                listed = [alone[stop] - alone[stop - k - 1] <= longest for k in range(len(every))]
                assert all(
                    few[k] == every[k] if k < len(few) else not fits or min(every[k]) > longest
                    for k, fits in enumerate(listed)
                )


@given(tiny.problems(most_ways=5_000))
@examples(60)
def test_a_claim_about_some_of_the_nodes_is_about_each_number_of_them(
    problem: Problem[Any],
) -> None:
    cluster = problem.cluster
    assume(cluster.node_count > 1)
    one = tiny.make_cluster(1, cluster.devices_per_node)
    groups = tuple(g for g in problem.space.group_sizes if g <= one.device_count)
    alone = replace(
        problem,
        cluster=one,
        max_stages=min(problem.max_stages, one.device_count),
        space=replace(problem.space, group_sizes=groups),
    )
    optimum = min(tiny.least_time(problem), tiny.least_time(alone), HUGE)
    found = proved(independent_proof(problem, min(optimum * 1.5, HUGE), [1, 2]))
    assert optimum * (1 - 1e-6) <= found <= optimum


# ---- plans against the planner's judge -----------------------------------------------------------


@given(tiny.problems(most_ways=500), st.integers(0, 2**32))
@examples(60)
def test_plans_are_judged_alike(problem: Problem[Any], seed: int) -> None:
    proof = read(independent_proof(problem, HUGE))
    plans, costs, _, _ = checker.opened(proof)
    every = list(itertools.islice(tiny.every_plan(problem), 400))
    for plan in random.Random(seed).sample(every, min(5, len(every))):
        expected = evaluate(problem, plan)
        seconds, stages, faults = checker.judge(costs, plans, read(encode_plan(plan)))
        assert (not faults) == expected.legal, (faults, expected.violations)
        if expected.legal:
            assert math.isclose(seconds, expected.iteration_time, rel_tol=1e-9)
            for (time, memory), cost in zip(stages, expected.stages, strict=True):
                assert math.isclose(time, cost.time, rel_tol=1e-9)
                assert math.isclose(memory, max(cost.memory), rel_tol=1e-9)


# ---- mistakes of the planner ---------------------------------------------------------------------


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda old: lambda *args, **said: old(*args, **said) * factor


def shifted(by: int) -> Callable[[Any], Any]:
    return lambda old: lambda *args, **said: max(0, old(*args, **said) + by)


def always(value: Any) -> Callable[[Any], Any]:
    return lambda old: lambda *args, **said: value


def quicker(old: Any) -> Any:
    def solved(*args: Any, **said: Any) -> Any:
        found = old(*args, **said)
        return replace(found, bound=found.bound * 1.02)

    return solved


def tighter(old: Any) -> Any:
    return lambda *args, **said: old(*args, **{**said, "limit": said["limit"] * 0.9})


def poorer(old: Any) -> Any:
    """Give stages 85 % of the memory: fast plans are missed."""
    return lambda self, *args, limit, **said: old(self, *args, limit=limit * 0.85, **said)


def lower_cutoff(old: Any) -> Any:
    return lambda self, cutoff, *args: old(self, cutoff * 0.97, *args)


COSTS = {
    "transfer": [scaled(x) for x in (0.0, 0.5, 0.9, 1.1, 2.0)],
    "collective": [scaled(x) for x in (0.0, 0.5, 2.0)],
    "activation": [scaled(x) for x in (0.0, 0.5, 0.9, 1.1, 1.5)],
    "in_flight": [shifted(-1), shifted(1)],
    "is_shared": [always(False), always(True)],
    "starts_checkpoint": [always(False), always(True)],
    "iteration_work": [scaled(0.5), scaled(2.0), always(1e-3)],
    "reshards": [always(False)],
    "stage_work": [always(1e-3)],
}
MISTAKES = [
    *(
        (costs, name, wrong)
        for costs in (NativeCosts, AcesoCosts)
        for name in COSTS
        for wrong in COSTS[name]
    ),
    *((stage_bounds, "solve_stage", wrong) for wrong in (quicker, tighter)),
    *((stage_bounds, "stage_bounds", wrong) for wrong in (scaled(1.02), scaled(1.2), tighter)),
]
# Of the search and its bounds; seeded apart, so that each is tried as often as all of the costs.
SEARCH = [
    (stage_bounds.StageBounds, "__init__", poorer),
    (stage_bounds.StageBounds, "in_flight", shifted(1)),
    (Landscape, "exists", always(False)),
    (OperatorPart, "expand", lower_cutoff),
]  # fmt: skip


def false_claims(problem: Problem[Any], seed: int) -> Iterator[Record]:
    """Yield the file of a planner with a mistake, if anything in it is false."""
    drawn = random.Random(seed)
    place, name, wrong = drawn.choice(drawn.choice((MISTAKES, SEARCH)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, wrong(getattr(place, name)))
        costs = type(problem.costs)(
            problem.costs.chain, problem.costs.family, problem.costs.profile,
            devices_per_node=problem.cluster.devices_per_node,
        )  # fmt: skip
        try:
            result = solve(replace(problem, costs=costs), solver="dp")
        except PlannerError:  # it noticed itself
            return
    if result.plan is None:
        return
    truth, claimed = evaluate(problem, result.plan), result.evaluation
    optimum = tiny.least_time(problem)
    assert claimed is not None
    true = (
        truth.legal
        and math.isclose(truth.iteration_time, claimed.iteration_time, rel_tol=2e-6)
        and all(
            math.isclose(a.time, b.time, rel_tol=2e-6)
            and math.isclose(max(a.memory), max(b.memory), rel_tol=2e-6)
            for a, b in zip(truth.stages, claimed.stages, strict=True)
        )
        and result.bound <= optimum * (1 + 1e-6)
    )
    if not true:
        yield {
            "plan": encode_plan(result.plan),
            "inputs": {},
            "result": {"objective_s": claimed.iteration_time},
            "evaluation": {
                "iteration_time_s": claimed.iteration_time,
                "stages": [
                    {"time_s": cost.time, "memory_bytes": max(cost.memory)}
                    for cost in claimed.stages
                ],
            },
            "certificate": {"independent": independent_proof(problem, result.bound)},
        }


@given(tiny.problems(most_ways=2_000), st.integers(0, 2**32))
@examples(40)
def test_false_claims_of_a_planner_with_a_mistake_are_noticed(
    problem: Problem[Any], seed: int
) -> None:
    for record in false_claims(problem, seed):
        verdict = checker.check(read(record))
        assert checker.faults_of(verdict) or checker.weaker(verdict)


# ---- edits ---------------------------------------------------------------------------------------


@cache
def small() -> tuple[Record, float]:
    """Return a file, and the optimum of its instance."""
    problem = tiny.tight_problem()
    optimum = tiny.least_time(problem)
    result = solve(problem, solver="dp")
    assert result.plan is not None
    proof = independent_proof(problem, optimum)
    plan = encode_plan(result.plan)
    return {"plan": plan, "inputs": {}, "certificate": {"independent": proof}}, optimum


ANY = (None, True, -1, 0, 1, 3, 10**30, 1e300, -0.5, 0.1, "", "aceso", [], {}, [[]], [1, 2], "1")


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def edited(record: Record, drawn: random.Random, within: tuple[str, ...] = ()) -> Record:
    """Return a copy in which one to three values are others, are gone, or stand twice."""
    found = copy.deepcopy(record)
    for _ in range(drawn.randint(1, 3)):
        inner: Any = found
        for key in within:
            inner = inner[key]
        path = drawn.choice([p for p in places(inner) if p] or [()])
        if not path:
            continue
        for key in path[:-1]:
            inner = inner[key]
        old = inner[path[-1]]
        how = drawn.choice((0, 1, 2, 2, 2, 2, 3))
        if how == 0:
            del inner[path[-1]]
        elif how == 1 and isinstance(inner, list):
            inner.append(copy.deepcopy(old))
        elif how == 2 and isinstance(old, int | float):
            factor = drawn.choice((0, 0.5, 0.999, 1.001, 2, 100, 10**6, -1))
            inner[path[-1]] = type(old)(old * factor)
        else:
            inner[path[-1]] = copy.deepcopy(drawn.choice(ANY))
    return found


def assert_judged_alike(record: Record, problem: Problem[Any]) -> None:
    """Refuse a plan that is legal and timed otherwise for the checker than for the judge; the
    checker may refuse the file, or leave a part of the plan unchecked."""
    try:
        verdict = checker.check(read(record))
    except checker.RefusedError:
        return
    if not verdict["faults"] and not verdict["unknown"]:
        expected = evaluate(problem, decode_plan(Fields(record["plan"], file="plan")))
        assert expected.legal
        assert math.isclose(expected.iteration_time, verdict["seconds"], rel_tol=1e-9)


def assert_said_in_lines(record: Record) -> None:
    """Refuse a file that ends the checker with anything but the lines of a verdict or an error."""
    try:
        root = read(record)
    except ValueError as error:
        lines = [str(error)]
    else:
        try:
            lines = list(checker.told(checker.check(root)))
        except checker.RefusedError as error:
            lines = [str(error)]
    assert all("\n" not in line for line in lines)


PROOF = ("certificate", "independent")


@given(st.integers(0, 2**64))
@examples(150)
def test_no_edit_of_a_proof_proves_more_than_the_optimum(seed: int) -> None:
    record, optimum = small()
    drawn = random.Random(seed)
    found = copy.deepcopy(record)
    mixed_prices(found["certificate"]["independent"], drawn)
    found = edited(found, drawn, (*PROOF, "cases"))
    found["certificate"]["independent"]["bound_s"] = optimum * drawn.choice((1, 1.01, 2, 100))
    try:
        verdict = checker.check(read(found))
    except checker.RefusedError:
        return
    assert verdict["bound"] <= optimum


@given(st.integers(0, 2**64))
@examples(150)
def test_an_edited_plan_is_legal_only_if_the_judge_says_so(seed: int) -> None:
    record, _ = small()
    found = edited(record, random.Random(seed), ("plan", "stages"))
    assert_judged_alike(found, tiny.tight_problem())


@given(st.integers(0, 2**64))
@examples(150)
def test_any_edit_is_judged_or_refused_in_a_line(seed: int) -> None:
    record, _ = small()
    assert_said_in_lines(edited(record, random.Random(seed)))


@for_each("end", ["\n", "\r", "\x1b[2K", "\u2028", "\ud800", "\u00e9"])
def test_no_name_of_a_file_is_more_than_a_part_of_a_line(end: str) -> None:
    assert checker.clean(f"a{end}b") == f"a{'?' if len(end) == 1 else '?[2K'}b"
    named = replace_names(checker.check(read(small()[0])), f"x{end}proved    nothing")
    assert len(list(checker.told(named))) == len(
        list(checker.told(checker.check(read(small()[0]))))
    )
    assert all(line.isascii() and line.isprintable() for line in checker.told(named))


def replace_names(verdict: dict[str, Any], name: str) -> dict[str, Any]:
    return {**verdict, "set": name, "believed": name, "left_out": [name], "limits": name}


def test_a_claim_above_the_plan_is_refused() -> None:
    record, optimum = small()
    found = copy.deepcopy(record)
    found["certificate"]["independent"]["bound_s"] = optimum * 1.001
    assert any("above the plan's" in x for x in checker.check(read(found))["faults"])


def test_operators_with_equal_strategies_are_counted() -> None:
    """The planner's own reader refuses such a plan as well."""
    found = json.loads(json.dumps(small()[0]))
    del found["plan"]["stages"][0]["strategies"][0]["count"]
    with pytest.raises(checker.RefusedError, match="count: missing"):
        checker.check(read(found))


# ---- bad files -----------------------------------------------------------------------------------


BAD = {
    "": "cannot be read as JSON",
    "[" * 100_000: "cannot be read as JSON",
    '{"a": NaN}': "found NaN, expected a number",
    '{"a": 1, "a": 2}': "a key occurs twice",
    '{"a": 1e999999999}': "expected a number that a float can hold",
    '{"a": ' + "9" * 5000 + "}": "cannot be read as JSON",
    "[1, 2]": "certificate: missing",
    "{}": "certificate: missing",
    '{"certificate": {}}': "certificate.independent: missing",
    '{"certificate": {"independent": {"version": 9}}}': "version: found 9, expected 1",
    '{"certificate": {"independent": {"version": 2}}}': "set: missing",
    '{"certificate": {"independent": {"version": true}}}': "expected a whole number",
    '{"certificate": {"independent": {"version": 1, "set": {"space": "groups"}}}}': (
        "version: found 1, expected 2; an older release wrote it: solve again"
    ),
    '{"certificate": {"independent": {"version": 1, "set": 7}}}': "set: found 7",
}


@for_each(("text", "said"), BAD.items())
def test_a_bad_file_is_refused_in_one_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    assert checker.main([str(file)]) == 1
    out, told = capsys.readouterr()
    assert not out
    assert told.count("\n") == 1
    assert said in told


def test_a_large_file_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    with file.open("wb") as large:
        large.truncate(checker.LARGEST_FILE + 1)
    assert checker.main([str(file)]) == 1
    assert "not read" in capsys.readouterr().err


SURELY = 10**4200  # json reads it; no float holds it


def in_file(text: str) -> Record:
    return {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


NODES = "[[nodes]]\ndevices = "
# where in the proof or the file, what stands there, what the checker says
WRONG: tuple[tuple[tuple[Any, ...], Any, str], ...] = (
    ((*PROOF, "cases", 0), None, "micro-batch 1 of the set is missing"),
    ((*PROOF, "cases", 1, "micro_batch"), 1, "micro-batch 1 twice"),
    ((*PROOF, "cases", 0, "prices"), [[1, 1, 0, -1]], "found -1, expected a whole number"),
    ((*PROOF, "cases", 0, "prices"), [[1, 1, 0, True]], "found True, expected a whole number"),
    ((*PROOF, "cases", 0, "prices"), [[1, 1, 0, SURELY]], "expected a whole number from 0"),
    ((*PROOF, "set", "max_stages"), SURELY, "max_stages: found 1000"),
    ((*PROOF, "set", "devices_of_stages"), [1, 2, 3], "found 3, no whole nodes of 2 devices"),
    ((*PROOF, "set", "nodes"), [1 << 14], "1 stages on 2 devices"),
    ((*PROOF, "table", "samples"), [1], "rows: found 2, expected one of samples"),
    ((*PROOF, "table", "tensor_degrees"), [1], "rows: found 2, expected one of tensor_degrees"),
    ((*PROOF, "table", "rows", 0, 4), SURELY, "expected a number from 0 to 1000000000"),
    ((*PROOF, "table", "intra_node", 0), 1e-300, "expected a number from 1"),
    (("plan", "micro_batches"), SURELY, "expected a whole number from 1 to 16"),
    (("inputs", "model"), {"text": "\ud800"}, "inputs.model: the text is not the one"),
    (("inputs", "cluster"), {"text": "", "sha256": ""}, "inputs.cluster: the text is not the one"),
    (("inputs", "cluster"), in_file("nodes = " + "[" * 50_000), "expected TOML"),
    (("inputs", "cluster"), in_file(NODES + "9" * 6000), "expected TOML"),
    (("inputs", "cluster"), in_file(NODES + "[2]"), "devices: found a list of 1"),
    (("inputs", "cluster"), in_file(NODES + "4"), "nodes of 2 devices: found 0, expected 1"),
    (("inputs", "cluster"), in_file(NODES + "2\ncount = 1000000000000"), "count: found 1000"),
    (("inputs", "cluster"), in_file("nodes = []"), "nodes of 2 devices: found 0, expected 1"),
    (("schema",), "x", "schema: found 'x', expected 'ilp-planner plan'"),
    (("version",), checker.OF_FILE + 1, "version: found 9, expected a whole number from 1 to 8"),
    (("inputs", "model"), in_file('name = "x"'), "plan.model: found 'tiny', expected 'x'"),
    (("result",), {"status": "infeasible"}, "result.status: found 'infeasible', expected feasible"),
    (("result",), {"gap": -5}, "result.gap: found -5, expected a number from 0 to 1"),
    (("result",), {"bound_s": 0.47}, "result.bound_s: found 0.47, expected at most 0.46"),
    (("result",), {"objective_s": "a\nb"}, "result.objective_s: found 'a\\nb', expected 0.46"),
    (("certificate", "bound_s"), SURELY, "certificate.bound_s: found 1000"),
)  # fmt: skip


@for_each(("path", "value", "said"), WRONG)
def test_what_is_wrong_in_a_file_is_said_in_one_line(
    path: tuple[Any, ...], value: Any, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    record = copy.deepcopy(small()[0])
    inner: Any = record
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(record))
    assert checker.main([str(file)]) == 1
    out, told = capsys.readouterr()
    lines = [x for x in (out + told).splitlines() if "FAULT" in x or "checker: " in x]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_file_is_checked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(small()[0]))
    assert checker.main([str(file)]) == 0
    told = capsys.readouterr().out
    assert "checked   independently" in told
    assert "rows and the tables of the profile, and the chain of 5 operators" in told


# ---- it shares nothing ---------------------------------------------------------------------------


def imports(path: Path) -> set[str]:
    found = set()
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_it_imports_the_standard_library_alone_and_one_command_imports_it() -> None:
    root = Path(ilp_planner.__file__).parent
    for file in ("checker/checker.py", "checker/costs.py"):
        own = {name.partition(".")[0] for name in imports(root / file)}
        assert own <= set(sys.stdlib_module_names)
    users = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if imports(path) & {"ilp_planner.checker.checker", "ilp_planner.checker.costs"}
    ]
    assert users == ["faces/cli/evaluate.py"]
