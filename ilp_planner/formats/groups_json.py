"""The saved layer-level plan as JSON: the frame of `saved_json`, of kind `groups`.

A stage lists its devices, tensor-parallel rank fastest, and the samples of every micro-batch that
each replica of tp devices takes. Inputs that were not given are null. A plan for a runtime with
settings of its own has `settings`, and `virtual` where several stages share their devices; `tp` is
then the number of devices of a replica, tp x cp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.files import to_json, write_text
from ilp_planner.formats.plan_json import decode
from ilp_planner.formats.saved_groups import FILES, GroupInputs, SavedGroups
from ilp_planner.formats.saved_json import (
    KEYS,
    LAYERS,
    decode_judgement,
    decode_reference,
    encode_bytes,
    encode_frame,
    encode_reference,
    open_plan,
)
from ilp_planner.formats.settings_json import decode_settings, encode_settings
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.formats.json_fields import Fields
    from ilp_planner.formats.saved_plan import SavedPlan

PLAN_KEYS = ("model", "global_batch", "micro_batches", "stages", "settings", "virtual")
STAGE_KEYS = ("start", "stop", "tp", "devices", "samples")
TEXTS = ("cost_model", "space", "memory_rule", "placement", "experiment")
LIMITS = ("max_stages", "max_tp")
ADDED = ("max_cp",)  # since the first version: files without them are read as well
SIZES = ("hidden", "sequence", "vocabulary")
INPUT_KEYS = (
    *FILES,
    *TEXTS,
    "global_batch",
    "micro_batch_sizes",
    "memory_limit_bytes",
    *LIMITS,
    *SIZES,
    *ADDED,
)


def write_groups(path: Path, saved: SavedGroups) -> None:
    """Write a plan file atomically.

    Raises
    ------
    OutputError: the system refuses.
    """
    write_text(path, to_json(encode_groups(saved)))


def encode_groups(saved: SavedGroups) -> dict[str, Any]:
    """Return what the file holds."""
    return encode_frame(saved, encode_group_plan(saved.plan), _encode_inputs(saved.inputs), LAYERS)


def encode_group_plan(plan: GroupPlan) -> dict[str, Any]:
    """Return the decision as JSON-ready objects."""
    runtime: dict[str, Any] = {}
    if plan.settings is not None:
        runtime = {"settings": encode_settings(plan.settings), "virtual": plan.virtual}
    return {
        "model": plan.model,
        "global_batch": plan.global_batch,
        "micro_batches": plan.micro_batches,
        "stages": [
            {
                "start": stage.start,
                "stop": stage.stop,
                "tp": stage.tp,
                "devices": list(stage.devices),
                "samples": [replica.samples for replica in stage.replicas],
            }
            for stage in plan.stages
        ],
        **runtime,
    }


def _encode_inputs(inputs: GroupInputs) -> dict[str, Any]:
    limit = inputs.memory_limit
    return {
        **{
            kind: encode_reference(inputs.files[kind]) if kind in inputs.files else None
            for kind in FILES
        },
        **{key: getattr(inputs, key) for key in TEXTS},
        "global_batch": inputs.global_batch,
        "micro_batch_sizes": list(inputs.micro_batch_sizes),
        "memory_limit_bytes": None if limit is None else encode_bytes(limit),
        **{key: getattr(inputs, key) for key in (*LIMITS, *SIZES)},
        **{key: getattr(inputs, key) for key in ADDED if getattr(inputs, key) is not None},
    }


def read_saved(path: Path) -> SavedPlan | SavedGroups:
    """Read a plan file of either kind.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    root = open_plan(path)
    return decode_groups(root) if root.values.get("kind") == LAYERS else decode(root)


def decode_groups(root: Fields) -> SavedGroups:
    """Read an open file of a layer-level plan.

    Raises
    ------
    PlanError: one line with the file, the key, what was found and what was expected.
    """
    root.choice("kind", (LAYERS,))
    root.only((*KEYS, "kind"))
    return SavedGroups(
        plan=_decode_plan(root.inside("plan")),
        inputs=_decode_inputs(root.inside("inputs")),
        **decode_judgement(root),
    )


def _decode_plan(fields: Fields) -> GroupPlan:
    fields.only(PLAN_KEYS)
    stages = tuple(map(_decode_stage, fields.each("stages")))
    if not stages:
        raise fields.error("stages", "at least one stage")
    virtual = fields.whole("virtual", least=1) if "virtual" in fields.values else 1
    if len(stages) % virtual:
        raise fields.error("virtual", f"a divisor of the {len(stages)} stages")
    has_settings = "settings" in fields.values and fields.optional("settings")
    return Plan(
        model=fields.text("model"),
        global_batch=fields.whole("global_batch", least=1),
        micro_batches=fields.whole("micro_batches", least=1),
        stages=stages,
        settings=decode_settings(fields.inside("settings")) if has_settings else None,
        virtual=virtual,
    )


def _decode_stage(fields: Fields) -> GroupStage:
    fields.only(STAGE_KEYS)
    start = fields.whole("start")
    tp = fields.whole("tp", least=1)
    devices = fields.wholes("devices")
    if not devices or len(devices) % tp:
        raise fields.error("devices", f"a multiple of tp {tp} devices", f"{len(devices)}")
    if len(set(devices)) < len(devices):
        raise fields.error("devices", "each once", "one of them again")
    samples = fields.wholes("samples", count=len(devices) // tp)
    return GroupStage(
        start=start,
        stop=fields.whole("stop", least=start + 1),
        replicas=tuple(
            Replica(devices=tuple(devices[i * tp : (i + 1) * tp]), samples=share)
            for i, share in enumerate(samples)
        ),
    )


def _decode_inputs(fields: Fields) -> GroupInputs:
    fields.only(INPUT_KEYS)
    files = {k: decode_reference(fields.inside(k)) for k in FILES if fields.optional(k)}
    if "profile" not in files:
        raise fields.error("profile", "a profile")
    limit = fields.optional("memory_limit_bytes")
    return GroupInputs(
        files=files,
        cost_model=fields.text("cost_model"),
        space=fields.text("space"),
        memory_rule=fields.text("memory_rule"),
        placement=fields.text("placement"),
        experiment=fields.text("experiment"),
        global_batch=fields.whole("global_batch", least=1),
        micro_batch_sizes=tuple(fields.wholes("micro_batch_sizes", least=1)),
        memory_limit=fields.number("memory_limit_bytes", least=1.0) if limit else None,
        max_stages=_whole_or_none(fields, "max_stages", 1),
        max_tp=_whole_or_none(fields, "max_tp", 1),
        hidden=_whole_or_none(fields, "hidden", 1),
        sequence=_whole_or_none(fields, "sequence", 1),
        vocabulary=_whole_or_none(fields, "vocabulary", 0),
        **{key: _whole_or_none(fields, key, 1) if key in fields.values else None for key in ADDED},
    )


def _whole_or_none(fields: Fields, key: str, least: int) -> int | None:
    return fields.whole(key, least=least) if fields.optional(key) else None
