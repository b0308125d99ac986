"""The saved plan as JSON: the decision, its inputs, and its proof.

Times are seconds, sizes bytes; null stands for a number that does not exist (no plan, no bound).
"""

import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ilp_planner.base.errors import OutputError, PlanError, shown
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import read_json, to_json, write_text
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.formats.inputs_json import decode_inputs, decode_operator_inputs, encode_inputs
from ilp_planner.formats.json_fields import Fields, is_whole
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.formats.saved_plan import (
    AIM_KEYS,
    SET_KEYS,
    Claim,
    Faster,
    Run,
    SavedPlan,
    Verdict,
)
from ilp_planner.inputs.constraints import Constraints, constraints_of
from ilp_planner.inputs.references import named_for, named_in
from ilp_planner.optimize.result import Moment, Status, Stop
from ilp_planner.plan import is_of_groups, is_of_operators
from ilp_planner.settings.table import SETTINGS
from ilp_planner.specs.pipeline_layout import FIRST

SCHEMA = "ilp-planner plan"
VERSION = 8
# Files of version 1 hold what is in `run` in their result; up to version 2, a plan of layers is of
# kind `groups` and one of operators has other inputs; neither holds its model and cluster; up to
# version 3, training jobs are the best of those with `Setting.at_first`, and up to version 4 of
# those whose first virtual stages take what is left over of a rank's layers; up to version 5, plans
# of operators are the best of those with the micro-batches of their certificate, where none were
# asked for, and with stages inside nodes; up to version 6, plans of groups have even shares, and up
# to version 7 none of their layers is computed again.
READABLE = (1, 2, 3, 4, 5, 6, 7, VERSION)
LAST_OF_TWO_KINDS, LAST_OF_FEW_SETTINGS, LAST_OF_ONE_REMAINDER, LAST_OF_ONE_NODE = 2, 3, 4, 5
LAST_OF_EVEN_SHARES, LAST_OF_KEPT_LAYERS = 6, 7
AIM = "objective"
KEYS = ("schema", "version", "plan", "inputs", "result", "evaluation", "certificate", AIM, "run")
LAYERS = "groups"
RESULT_KEYS = (
    "status", "stopped_by", "objective_s", "bound_s", "gap", "bound_source", "solver", "seed",
    "notes", "among", "confirmed_by", "prefer_plain", "fastest",
)  # fmt: skip
FASTEST_KEYS = ("status", "objective_s", "plan")
RUN_KEYS = ("wall_s", "versions", "history")
MOMENT_KEYS = ("after_s", "objective_s", "bound_s")
# Since the first version, as are those from `among` on: files without them are read as well.
SHARE_KEYS = ("provenance", "provenance_error")
EVALUATION_KEYS = ("legal", "iteration_time_s", "stages", "violations", *SHARE_KEYS)
VERDICT_STAGE_KEYS = ("time_s", "memory_bytes")


# ---- the frame ----------------------------------------------------------------------------------


def write_saved(path: Path, saved: SavedPlan) -> None:
    """Write a plan file atomically. Names in it are relative to its folder.

    Raises
    ------
    OutputError: the system refuses.
    """
    inputs = named_for(saved.inputs, path)
    write_text(path, to_json(encode_saved(replace(saved, inputs=inputs))))


def keep_saved(path: Path, saved: SavedPlan) -> None:
    """Write a plan file; if that cannot be, in the current folder or among temporary files.

    Raises
    ------
    OutputError: the system refuses; it says the other place of the plan, which may have cost hours.
    """
    try:
        write_saved(path, saved)
    except OutputError as error:
        for folder in (Path(), Path(tempfile.gettempdir())):
            with suppress(OSError):
                kept = _kept_in(folder, saved)
                break
        else:
            raise
        raise OutputError(f"{error}; the plan is in {kept}") from None


def _kept_in(folder: Path, saved: SavedPlan) -> Path:
    handle, name = tempfile.mkstemp(prefix="plan-", suffix=".json", dir=folder)
    os.close(handle)
    try:
        write_saved(Path(name), saved)
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


def encode_saved(saved: SavedPlan) -> dict[str, Any]:
    """Return the content of the file."""
    run = None if saved.claim is None else saved.claim.run
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "plan": encode_plan(saved.plan),
        "inputs": encode_inputs(saved.inputs),
        "result": None if saved.claim is None else _encode_claim(saved.claim),
        "evaluation": None if saved.verdict is None else _encode_verdict(saved.verdict),
        "certificate": saved.certificate or None,
        **({AIM: saved.aim} if saved.aim else {}),
        **({} if run is None else {"run": _encode_run(run)}),
    }


def read_saved(path: Path) -> SavedPlan:
    """Read a plan file. Names in it are relative to the current folder.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    saved = decode_saved(open_plan(path))
    return replace(saved, inputs=named_in(saved.inputs, path))


def decode_saved(root: Fields) -> SavedPlan:
    """Read an open plan file.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    old = root.values["version"] <= LAST_OF_TWO_KINDS
    root.only((*KEYS, "kind") if old else KEYS)
    operators = old and "kind" not in root.values
    fields, plan = root.inside("inputs"), decode_plan(root.inside("plan"))
    inputs = decode_operator_inputs(fields) if operators else decode_inputs(fields, old=old)
    if root.values["version"] <= LAST_OF_ONE_REMAINDER and plan.settings is not None:
        few = root.values["version"] <= LAST_OF_FEW_SETTINGS
        inputs = replace(inputs, constraints=_before(inputs.constraints, few_settings=few))
    certificate = root.record("certificate") if root.optional("certificate") else {}
    if root.values["version"] <= LAST_OF_ONE_NODE and is_of_operators(plan):
        tried = inputs.micro_batch_sizes or _micro_batches(certificate)
        inputs = replace(inputs, micro_batch_sizes=tried, max_stage_nodes=1)
    groups = is_of_groups(plan) and plan.settings is None and inputs.cost_model == "native"
    if root.values["version"] <= LAST_OF_EVEN_SHARES and groups:
        inputs = replace(inputs, shares="even")
    if root.values["version"] <= LAST_OF_KEPT_LAYERS and groups:
        inputs = replace(inputs, constraints=inputs.constraints.with_(recompute=("none",)))
    return SavedPlan(
        plan=plan,
        inputs=inputs,
        claim=_decode_claim(root) if root.optional("result") else None,
        verdict=(
            _decode_verdict(root.inside("evaluation")) if root.optional("evaluation") else None
        ),
        certificate=certificate,
        aim=_decode_aim(root) if AIM in root.values else {},
        newest=root.values["version"] == VERSION,
    )


def _decode_aim(root: Fields) -> dict[str, Any]:
    """Read the objective over sets of nodes."""
    aim = root.inside(AIM)
    aim.only(AIM_KEYS)
    aim.text("name")
    aim.number_or("max_price_per_hour", math.inf)
    aim.record("devices")
    aim.number("bound")
    aim.number("gap")
    for one in aim.each("sets"):
        one.only(SET_KEYS)
        one.wholes("counts")
        one.number_or("price_per_hour", math.nan)
        one.number_or("bound_s", math.inf)
        if "covered" in one.values:
            one.boolean("covered")
        one.listed("parts")
    return root.record(AIM)


def _micro_batches(certificate: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the micro-batches of the parts of a certificate of plans of operators."""
    parts = certificate.get("parts")
    listed = parts if isinstance(parts, list) else []
    found: list[Any] = [part.get("micro_batch") for part in listed if isinstance(part, dict)]
    return tuple(size for size in found if is_whole(size, 1))


def _before(constraints: Constraints, *, few_settings: bool) -> Constraints:
    """Return the older text on the set of training jobs. few_settings: when few of them were tried,
    and `selective` was attention's core."""
    texts = constraints.texts
    if few_settings and "recompute" in texts:
        texts["recompute"] = texts["recompute"].replace("selective", "core_attn")
    before = {row.name: row.at_first for row in SETTINGS if few_settings and row.at_first}
    return constraints_of({"remainder": FIRST, **before, **texts})


def open_plan(path: Path) -> Fields:
    """Open a plan file.

    Raises
    ------
    PlanError: it is none, or of another version or kind.
    """
    refuse_other_kind(path, FileKind.PLAN, PlanError)
    root = Fields(read_json(path, PlanError), file=str(path))
    root.choice("schema", (SCHEMA,))
    version = root.values.get("version")
    if version not in READABLE or isinstance(version, bool | float):
        expected = " or ".join(map(str, READABLE))
        newer = is_whole(version, VERSION + 1)
        raise root.error("version", expected + (f"; {_reader(root)} reads it" if newer else ""))
    if root.values.get("kind", LAYERS) != LAYERS:
        raise root.error("kind", f"{LAYERS}, or no kind")
    return root


def _reader(root: Fields) -> str:
    """Return the ilp-planner that can read a file of a newer version: at least the one that wrote
    it."""
    run = root.values.get("run")
    versions = run.get("versions") if isinstance(run, dict) else None
    writer = versions.get("ilp-planner") if isinstance(versions, dict) else None
    return f"ilp-planner {writer}" if isinstance(writer, str) else "a newer ilp-planner"


# ---- claim and verdict --------------------------------------------------------------------------


def _encode_claim(claim: Claim) -> dict[str, Any]:
    """Return the solver's claim."""
    return {
        "status": str(claim.status),
        "stopped_by": str(claim.stopped_by),
        "objective_s": claim.objective,
        "bound_s": claim.bound,
        "gap": claim.gap,
        "bound_source": claim.bound_source,
        "solver": claim.solver,
        "seed": claim.seed,
        "notes": list(claim.notes),
        **({"among": claim.among} if claim.among else {}),
        **({"confirmed_by": claim.confirmed_by} if claim.confirmed_by else {}),
        **({} if math.isnan(claim.prefer_plain) else {"prefer_plain": claim.prefer_plain}),
        **({} if claim.fastest is None else {"fastest": _encode_fastest(claim.fastest)}),
    }


def _decode_claim(root: Fields) -> Claim:
    """Read the solver's claim."""
    fields = root.inside("result")
    old = root.values["version"] == 1
    fields.only((*RESULT_KEYS, *RUN_KEYS) if old else RESULT_KEYS)
    run = _decode_run(fields) if old else None
    if "run" in root.values and not old:
        inner = root.inside("run")
        inner.only(RUN_KEYS)
        run = _decode_run(inner)
    return Claim(
        status=Status(fields.choice("status", tuple(map(str, Status)))),
        stopped_by=Stop(fields.choice("stopped_by", tuple(map(str, Stop)))),
        objective=fields.number_or("objective_s", math.inf),
        bound=fields.number_or("bound_s", math.inf),
        gap=fields.number_or("gap", math.inf),
        bound_source=fields.text("bound_source"),
        solver=fields.text("solver"),
        seed=fields.whole("seed"),
        notes=fields.texts("notes"),
        among=fields.text("among") if "among" in fields.values else "",
        confirmed_by=fields.text("confirmed_by") if "confirmed_by" in fields.values else "",
        prefer_plain=(
            fields.number("prefer_plain") if "prefer_plain" in fields.values else math.nan
        ),
        fastest=_decode_fastest(fields.inside("fastest")) if "fastest" in fields.values else None,
        run=run,
    )


def _encode_fastest(fastest: Faster) -> dict[str, Any]:
    """Return the fastest plan beside a plainer one."""
    values = (str(fastest.status), fastest.objective, encode_plan(fastest.plan))
    return dict(zip(FASTEST_KEYS, values, strict=True))


def _decode_fastest(fields: Fields) -> Faster:
    """Read the fastest plan beside a plainer one."""
    fields.only(FASTEST_KEYS)
    return Faster(
        plan=decode_plan(fields.inside("plan")),
        objective=fields.number("objective_s"),
        status=Status(fields.choice("status", (Status.OPTIMAL, Status.FEASIBLE))),
    )


def _encode_run(run: Run) -> dict[str, Any]:
    """Return the values that differ from run to run."""
    history = [dict(zip(MOMENT_KEYS, moment, strict=True)) for moment in run.history]
    kept = {"history": history} if history else {}
    return {"wall_s": run.wall, "versions": dict(run.versions), **kept}


def _decode_run(fields: Fields) -> Run:
    """Read the values that differ from run to run."""
    versions = fields.record("versions")
    for package, version in versions.items():
        if not isinstance(version, str):
            raise fields.error(f"versions.{package}", "a text", shown(version))
    moments = fields.each("history") if "history" in fields.values else ()
    return Run(
        wall=fields.number_or("wall_s", math.nan),
        versions=versions,
        history=tuple(map(_decode_moment, moments)),
    )


def _decode_moment(fields: Fields) -> Moment:
    """Read the bounds at one moment; null stands for no plan, or none that there is."""
    fields.only(MOMENT_KEYS)
    return Moment(
        fields.number("after_s"),
        fields.number_or("objective_s", math.inf),
        fields.number_or("bound_s", math.inf),
    )


def _encode_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return the evaluator's verdict."""
    return {
        "legal": verdict.legal,
        "iteration_time_s": verdict.iteration_time,
        "stages": [{"time_s": time, "memory_bytes": memory} for time, memory in verdict.stages],
        "violations": list(verdict.violations),
        **({"provenance": dict(verdict.provenance)} if verdict.provenance else {}),
        **({"provenance_error": dict(verdict.errors)} if verdict.errors else {}),
    }


def _decode_verdict(fields: Fields) -> Verdict:
    """Read the evaluator's verdict."""
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
    """Read numbers by source of figures; none if the file does not say."""
    if key not in fields.values:
        return {}
    inner = fields.inside(key)
    inner.only([str(source) for source in Provenance])
    return {source: inner.number(source) for source in inner.values}
