"""The saved plan: what was decided, for which inputs, with what proof, as JSON.

Times are seconds, sizes bytes; null stands for a number that does not exist (no plan, no bound).
Operators with equal strategies in a row are one run: {count, tp, dp, split, recompute}.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import PlanError
from ilp_planner.files import read_json, to_json, write_text
from ilp_planner.formats.json_fields import Fields, shown
from ilp_planner.formats.saved_plan import Claim, Inputs, Reference, SavedPlan, Verdict
from ilp_planner.plan import Plan, Stage, Strategy
from ilp_planner.profiles.table import Provenance
from ilp_planner.result import Status, Stop

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "ilp-planner plan"
VERSION = 1
KEYS = ("schema", "version", "plan", "inputs", "result", "evaluation", "certificate")
PLAN_KEYS = ("model", "global_batch", "micro_batch", "stages")
STAGE_KEYS = ("start", "stop", "first_device", "devices", "strategies")
RUN_KEYS = ("count", "tp", "dp", "split", "recompute")
REFERENCE_KEYS = ("name", "sha256")
INPUT_KEYS = (
    "model",
    "cluster",
    "profile",
    "cost_model",
    "global_batch",
    "memory_limit_bytes",
    "micro_batches",
    "max_stages",
)
RESULT_KEYS = (
    "status",
    "stopped_by",
    "objective_s",
    "bound_s",
    "gap",
    "bound_source",
    "wall_s",
    "solver",
    "seed",
    "versions",
    "notes",
)
# Since the first version: files without them are read as well.
SHARE_KEYS = ("provenance", "provenance_error")
EVALUATION_KEYS = ("legal", "iteration_time_s", "stages", "violations", *SHARE_KEYS)
VERDICT_STAGE_KEYS = ("time_s", "memory_bytes")


def write_plan(path: Path, saved: SavedPlan) -> None:
    """Write a plan file atomically.

    Raises
    ------
    OutputError: the system refuses.
    """
    write_text(path, to_json(encode(saved)))


def encode(saved: SavedPlan) -> dict[str, Any]:
    """Return what the file holds."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "plan": encode_plan(saved.plan),
        "inputs": _encode_inputs(saved.inputs),
        "result": None if saved.claim is None else encode_claim(saved.claim),
        "evaluation": None if saved.verdict is None else encode_verdict(saved.verdict),
        "certificate": saved.certificate or None,
    }


def encode_plan(plan: Plan) -> dict[str, Any]:
    """Return the decision as JSON-ready objects."""
    return {
        "model": plan.model,
        "global_batch": plan.global_batch,
        "micro_batch": plan.micro_batch,
        "stages": [
            {
                "start": stage.start,
                "stop": stage.stop,
                "first_device": stage.first_device,
                "devices": stage.devices,
                "strategies": [
                    {
                        "count": len(list(run)),
                        "tp": x.tp,
                        "dp": x.dp,
                        "split": x.split,
                        "recompute": x.recompute,
                    }
                    for x, run in groupby(stage.strategies)
                ],
            }
            for stage in plan.stages
        ],
    }


def encode_reference(reference: Reference) -> dict[str, Any]:
    """Return an input file's name and hash."""
    return {"name": reference.name, "sha256": reference.sha256 or None}


def _encode_inputs(inputs: Inputs) -> dict[str, Any]:
    limit = inputs.memory_limit
    return {
        "model": encode_reference(inputs.model),
        "cluster": encode_reference(inputs.cluster),
        "profile": encode_reference(inputs.profile),
        "cost_model": inputs.cost_model,
        "global_batch": inputs.global_batch,
        "memory_limit_bytes": limit if limit % 1 else int(limit),
        "micro_batches": list(inputs.micro_batches),
        "max_stages": inputs.max_stages,
    }


def encode_claim(claim: Claim) -> dict[str, Any]:
    """Return what the solver said."""
    return {
        "status": str(claim.status),
        "stopped_by": str(claim.stopped_by),
        "objective_s": claim.objective,
        "bound_s": claim.bound,
        "gap": claim.gap,
        "bound_source": claim.bound_source,
        "wall_s": claim.wall,
        "solver": claim.solver,
        "seed": claim.seed,
        "versions": dict(claim.versions),
        "notes": list(claim.notes),
    }


def encode_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return what the evaluator said."""
    return {
        "legal": verdict.legal,
        "iteration_time_s": verdict.iteration_time,
        "stages": [{"time_s": time, "memory_bytes": memory} for time, memory in verdict.stages],
        "violations": list(verdict.violations),
        **({"provenance": dict(verdict.provenance)} if verdict.provenance else {}),
        **({"provenance_error": dict(verdict.errors)} if verdict.errors else {}),
    }


def read_plan(path: Path) -> SavedPlan:
    """Read a plan file.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    return decode(open_plan(path))


def open_plan(path: Path) -> Fields:
    """Open a plan file of either kind.

    Raises
    ------
    PlanError: it is none, or of another version.
    """
    root = Fields(read_json(path, PlanError), file=str(path))
    root.choice("schema", (SCHEMA,))
    if root.values.get("version") != VERSION:
        raise root.error("version", str(VERSION))
    return root


def decode(root: Fields) -> SavedPlan:
    """Read an open plan file.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    if "kind" in root.values:
        raise root.error("kind", "nothing, as in a plan of operators")
    root.only(KEYS)
    claim = root.inside("result") if root.optional("result") else None
    verdict = root.inside("evaluation") if root.optional("evaluation") else None
    return SavedPlan(
        plan=_decode_plan(root.inside("plan")),
        inputs=_decode_inputs(root.inside("inputs")),
        claim=None if claim is None else decode_claim(claim),
        verdict=None if verdict is None else decode_verdict(verdict),
        certificate=root.record("certificate") if root.optional("certificate") else {},
    )


def _decode_plan(fields: Fields) -> Plan:
    fields.only(PLAN_KEYS)
    stages = tuple(map(_decode_stage, fields.each("stages")))
    if not stages:
        raise fields.error("stages", "at least one stage")
    return Plan(
        model=fields.text("model"),
        global_batch=fields.whole("global_batch", least=1),
        micro_batch=fields.whole("micro_batch", least=1),
        stages=stages,
    )


def _decode_stage(fields: Fields) -> Stage:
    fields.only(STAGE_KEYS)
    start = fields.whole("start")
    stop = fields.whole("stop", least=start + 1)
    size = stop - start
    strategies: list[Strategy] = []
    for run in fields.each("strategies"):
        run.only(RUN_KEYS)
        count = run.whole("count", least=1)
        # Checked before it is multiplied out: a count of 10^18 must not fill the memory.
        if len(strategies) + count > size:
            raise run.error("count", f"at most {size - len(strategies)} more operators")
        strategy = Strategy(
            tp=run.whole("tp", least=1),
            dp=run.whole("dp", least=1),
            split=run.whole("split"),
            recompute=run.boolean("recompute"),
        )
        strategies += [strategy] * count
    if len(strategies) != size:
        have = f"{len(strategies)} operators"
        raise fields.error("strategies", f"{size}, from start to stop", have)
    return Stage(
        start=start,
        stop=stop,
        first_device=fields.whole("first_device"),
        devices=fields.whole("devices", least=1),
        strategies=tuple(strategies),
    )


def decode_reference(fields: Fields) -> Reference:
    """Read an input file's name and hash."""
    fields.only(REFERENCE_KEYS)
    name = fields.text("name")
    if not name:
        raise fields.error("name", "a name or a path")
    return Reference(name=name, sha256=fields.text("sha256") if fields.optional("sha256") else "")


def _decode_inputs(fields: Fields) -> Inputs:
    fields.only(INPUT_KEYS)
    return Inputs(
        model=decode_reference(fields.inside("model")),
        cluster=decode_reference(fields.inside("cluster")),
        profile=decode_reference(fields.inside("profile")),
        cost_model=fields.text("cost_model"),
        global_batch=fields.whole("global_batch", least=1),
        memory_limit=fields.number("memory_limit_bytes", least=1.0),
        micro_batches=tuple(fields.wholes("micro_batches", least=1)),
        max_stages=fields.whole("max_stages", least=1),
    )


def decode_claim(fields: Fields) -> Claim:
    """Read what the solver said."""
    fields.only(RESULT_KEYS)
    versions = fields.record("versions")
    for package, version in versions.items():
        if not isinstance(version, str):
            raise fields.error(f"versions.{package}", "a text", shown(version))
    return Claim(
        status=Status(fields.choice("status", tuple(map(str, Status)))),
        stopped_by=Stop(fields.choice("stopped_by", tuple(map(str, Stop)))),
        objective=fields.number_or("objective_s", math.inf),
        bound=fields.number_or("bound_s", math.inf),
        gap=fields.number_or("gap", math.inf),
        bound_source=fields.text("bound_source"),
        wall=fields.number_or("wall_s", math.nan),
        solver=fields.text("solver"),
        seed=fields.whole("seed"),
        versions=versions,
        notes=fields.texts("notes"),
    )


def decode_verdict(fields: Fields) -> Verdict:
    """Read what the evaluator said."""
    fields.only(EVALUATION_KEYS)
    stages = []
    for stage in fields.each("stages"):
        stage.only(VERDICT_STAGE_KEYS)
        time = stage.number_or("time_s", math.nan)
        stages.append((time, stage.number_or("memory_bytes", math.nan)))
    return Verdict(
        legal=fields.boolean("legal"),
        iteration_time=fields.number_or("iteration_time_s", math.nan),
        stages=tuple(stages),
        violations=fields.texts("violations"),
        provenance=_decode_shares(fields, "provenance"),
        errors=_decode_shares(fields, "provenance_error"),
    )


def _decode_shares(fields: Fields, key: str) -> dict[str, float]:
    """Read numbers by where figures come from; none where the file does not say."""
    if key not in fields.values:
        return {}
    inner = fields.inside(key)
    inner.only([str(source) for source in Provenance])
    return {source: inner.number(source) for source in inner.values}
