"""The saved plan of operators as JSON: what was decided, for which inputs, with what proof.

Operators with equal strategies in a row are one run: {count, tp, dp, split, recompute}.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ilp_planner.files import to_json, write_text
from ilp_planner.formats.saved_json import (
    KEYS,
    decode_judgement,
    decode_reference,
    encode_bytes,
    encode_frame,
    encode_reference,
    open_plan,
)
from ilp_planner.formats.saved_plan import Inputs, SavedPlan
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan, Strategy

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.formats.json_fields import Fields

PLAN_KEYS = ("model", "global_batch", "micro_batch", "stages")
STAGE_KEYS = ("start", "stop", "first_device", "devices", "strategies")
RUN_KEYS = ("count", "tp", "dp", "split", "recompute")
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


def write_plan(path: Path, saved: SavedPlan) -> None:
    """Write a plan file atomically.

    Raises
    ------
    OutputError: the system refuses.
    """
    write_text(path, to_json(encode(saved)))


def encode(saved: SavedPlan) -> dict[str, Any]:
    """Return what the file holds."""
    return encode_frame(saved, encode_plan(saved.plan), _encode_inputs(saved.inputs))


def encode_plan(plan: OperatorPlan) -> dict[str, Any]:
    """Return the decision as JSON-ready objects."""
    return {
        "model": plan.model,
        "global_batch": plan.global_batch,
        "micro_batch": plan.micro_batch_size,
        "stages": [
            {
                "start": stage.start,
                "stop": stage.stop,
                "first_device": stage.first_device,
                "devices": stage.device_count,
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


def _encode_inputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "model": encode_reference(inputs.model),
        "cluster": encode_reference(inputs.cluster),
        "profile": encode_reference(inputs.profile),
        "cost_model": inputs.cost_model,
        "global_batch": inputs.global_batch,
        "memory_limit_bytes": encode_bytes(inputs.memory_limit),
        "micro_batches": list(inputs.micro_batches),
        "max_stages": inputs.max_stages,
    }


def read_plan(path: Path) -> SavedPlan:
    """Read a plan file.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    return decode(open_plan(path))


def decode(root: Fields) -> SavedPlan:
    """Read an open plan file.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    if "kind" in root.values:
        raise root.error("kind", "nothing, as in a plan of operators")
    root.only(KEYS)
    return SavedPlan(
        plan=_decode_plan(root.inside("plan")),
        inputs=_decode_inputs(root.inside("inputs")),
        **decode_judgement(root),
    )


def _decode_plan(fields: Fields) -> OperatorPlan:
    fields.only(PLAN_KEYS)
    stages = tuple(map(_decode_stage, fields.each("stages")))
    if not stages:
        raise fields.error("stages", "at least one stage")
    batch = fields.whole("global_batch", least=1)
    return Plan(
        model=fields.text("model"),
        global_batch=batch,
        micro_batches=batch // fields.divisor("micro_batch", batch),
        stages=stages,
    )


def _decode_stage(fields: Fields) -> OperatorStage:
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
    return OperatorStage(
        start=start,
        stop=stop,
        first_device=fields.whole("first_device"),
        device_count=fields.whole("devices", least=1),
        strategies=tuple(strategies),
    )


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
