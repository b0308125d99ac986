"""A plan as JSON.

A stage of operators lists its strategies: operators with equal ones in a row are one run, {count,
tp, dp, split, recompute}. A stage of layers lists its devices, tensor-parallel rank fastest, and
the samples of every micro-batch that each replica of tp devices takes, and `recompute`, in the
words of settings, if its layers are recomputed. `tp` is a list, a number for each replica, if
replicas differ in it. A plan for a runtime with settings of its own has `settings`, and `virtual`
if several stages share their devices; `tp` is then the number of devices of a replica, tp x cp.

The settings of a training job as JSON: one object per dataclass, every field by its name.

Fields that are missing keep their defaults, so that plans stay readable when settings are added;
keys that are not known are refused.
"""

import dataclasses
from dataclasses import fields
from itertools import accumulate, groupby
from typing import Any

from ilp_planner.base.limits import DEVICES, WHOLE
from ilp_planner.formats.json_fields import Fields
from ilp_planner.plan import AnyPlan, GroupStage, OperatorStage, Plan, Replica, Stage, Strategy
from ilp_planner.settings.table import FORMAT_FIELD, OF_MUON
from ilp_planner.settings.values import BY_TRAINER, MOMENTS
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Recompute, Settings
from ilp_planner.specs.tuning import Tuning

# ---- settings json -------------------------------------------------------------------------------


INSIDE: dict[str, type[Recompute | Offload | OptimizerSettings | Kernels | Tuning]] = {
    "recompute": Recompute,
    "offload": Offload,
    "optimizer": OptimizerSettings,
    "kernels": Kernels,
    "tuning": Tuning,
}


def encode_settings(settings: Settings) -> dict[str, Any]:
    """Return all fields as JSON-ready values; of the tuning nothing if all of a model is trained,
    nor of moments but their bytes if they are plain numbers, nor of Muon if it steps nothing."""
    found = dataclasses.asdict(settings)
    found["recompute"]["modules"] = list(settings.recompute.modules)
    found["offload"]["modules"] = list(settings.offload.modules)
    found["kernels"]["graphed"] = list(settings.kernels.graphed)
    found["carried"] = list(settings.carried)
    if MOMENTS.read(settings) not in BY_TRAINER:
        del found["optimizer"][FORMAT_FIELD.rpartition(".")[2]]
    if not settings.optimizer.of_matrices:
        for field in OF_MUON:
            del found["optimizer"][field.rpartition(".")[2]]
    if settings.tuning == Tuning():
        del found["tuning"]
    else:
        found["tuning"] |= {
            "targets": list(settings.tuning.targets),
            "frozen": list(settings.tuning.frozen),
        }
    return found


def decode_settings(found: Fields) -> Settings:
    """Read settings.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    inside = {
        key: _decode(found.inside(key), kind) for key, kind in INSIDE.items() if key in found.values
    }
    settings: Settings = _decode(found, Settings, inside)
    return settings


def encode_recompute(recompute: Recompute) -> dict[str, Any]:
    """Return the values that differ from the defaults of `Recompute`, ready for JSON; {}: nothing
    is recomputed."""
    plain, found = Recompute(), dataclasses.asdict(recompute)
    changed = {name: value for name, value in found.items() if value != getattr(plain, name)}
    return {name: [*v] if isinstance(v, tuple) else v for name, v in changed.items()}


def decode_recompute(found: Fields) -> Recompute:
    """Read the recomputation.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    recompute: Recompute = _decode(found, Recompute)
    return recompute


def _decode(found: Fields, kind: Any, ready: dict[str, Any] | None = None) -> Any:
    """Read one object into a dataclass; the type of a field's default is its type."""
    values = dict(ready or {})
    names = [field.name for field in fields(kind)]
    found.only(names)
    defaults = kind()
    for name in names:
        if name in found.values and name not in values:
            values[name] = _value(found, name, getattr(defaults, name))
    try:
        return kind(**values)
    except ValueError as error:
        raise found.error(found.where.rpartition(".")[2], str(error), "an object") from None


def _value(found: Fields, name: str, default: object) -> object:
    if isinstance(default, bool):
        return found.boolean(name)
    if isinstance(default, int):
        return found.whole(name)
    if isinstance(default, float):
        return found.number(name)
    if isinstance(default, tuple):
        return found.texts(name)
    return found.text(name)


# ---- plan json -----------------------------------------------------------------------------------


PLAN_KEYS = ("model", "global_batch", "micro_batches", "stages", "settings", "virtual")
SIZE = "micro_batch"  # instead of `micro_batches`: samples, in files of operators up to version 2
AGAIN = "recompute"
OPERATOR_KEYS = ("start", "stop", "first_device", "devices", "strategies")
GROUP_KEYS = ("start", "stop", "tp", "devices", "samples", AGAIN)
# Devices are listed one by one, so that a count of 10^18 must not fill the memory.
RUN_KEYS = ("count", "tp", "dp", "split", "recompute")


def encode_plan(plan: AnyPlan) -> dict[str, Any]:
    """Return the decision as JSON-ready objects."""
    runtime: dict[str, Any] = {}
    if plan.settings is not None:
        runtime["settings"] = encode_settings(plan.settings)
    if plan.settings is not None or plan.virtual > 1:
        runtime["virtual"] = plan.virtual
    return {
        "model": plan.model,
        "global_batch": plan.global_batch,
        "micro_batches": plan.micro_batches,
        "stages": [_encode_stage(stage) for stage in plan.stages],
        **runtime,
    }


def _encode_stage(stage: Stage) -> dict[str, Any]:
    if isinstance(stage, OperatorStage):
        return {
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
    assert isinstance(stage, GroupStage)
    again = encode_recompute(stage.recompute)
    return {
        "start": stage.start,
        "stop": stage.stop,
        "tp": stage.tp if len(stage.degrees) == 1 else [r.tp for r in stage.replicas],
        "devices": list(stage.devices),
        "samples": [replica.samples for replica in stage.replicas],
        **({AGAIN: again} if again else {}),
    }


def decode_plan(fields: Fields) -> AnyPlan:
    """Read a decision.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    by_size = SIZE in fields.values
    fields.only(tuple(SIZE if by_size and k == "micro_batches" else k for k in PLAN_KEYS))
    rows = list(fields.each("stages"))
    if not rows:
        raise fields.error("stages", "at least one stage")
    if "strategies" in rows[0].values:
        stages = tuple(map(_decode_operators, rows))
    else:
        known: dict[tuple[Replica, ...], tuple[Replica, ...]] = {}
        stages = tuple(_decode_group(row, known) for row in rows)
    virtual = fields.whole("virtual", least=1) if "virtual" in fields.values else 1
    if len(stages) % virtual:
        raise fields.error("virtual", f"a divisor of the {len(stages)} stages")
    batch = fields.whole("global_batch", least=1)
    has_settings = "settings" in fields.values and fields.optional("settings")
    return Plan(
        model=fields.text("model"),
        global_batch=batch,
        micro_batches=(
            batch // fields.divisor(SIZE, batch)
            if by_size
            else fields.whole("micro_batches", least=1)
        ),
        stages=stages,
        settings=decode_settings(fields.inside("settings")) if has_settings else None,
        virtual=virtual,
    )


def _decode_operators(fields: Fields) -> Stage:
    fields.only(OPERATOR_KEYS)
    start = fields.whole("start")
    stop = fields.whole("stop", least=start + 1)
    size = stop - start
    strategies: list[Strategy] = []
    for run in fields.each("strategies"):
        run.only(RUN_KEYS)
        count = run.whole("count", least=1, most=WHOLE)  # of operators, not of experts
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
        device_count=fields.whole("devices", least=1, most=DEVICES),
        strategies=tuple(strategies),
    )


def _decode_group(fields: Fields, known: dict[tuple[Replica, ...], tuple[Replica, ...]]) -> Stage:
    """Read a stage of groups. known: replicas of stages before, which virtual stages have too."""
    fields.only(GROUP_KEYS)
    start = fields.whole("start")
    devices = fields.wholes("devices")
    degrees = _decode_degrees(fields, len(devices))
    if len(set(devices)) < len(devices):
        raise fields.error("devices", "each once", "one of them again")
    samples = fields.wholes("samples", count=len(degrees))
    ends = accumulate(degrees)
    replicas = tuple(
        Replica(devices=tuple(devices[end - tp : end]), samples=share)
        for tp, end, share in zip(degrees, ends, samples, strict=True)
    )
    return GroupStage(
        start=start,
        stop=fields.whole("stop", least=start + 1),
        replicas=known.setdefault(replicas, replicas),
        recompute=decode_recompute(fields.inside(AGAIN)) if AGAIN in fields.values else Recompute(),
    )


def _decode_degrees(fields: Fields, devices: int) -> list[int]:
    """Read the devices of each replica of a stage that has so many: one number for all of them, or
    a list."""
    if isinstance(fields.values.get("tp"), list):
        degrees = fields.wholes("tp", least=1)
        if not degrees or sum(degrees) != devices:
            raise fields.error("devices", f"as many as tp says, {sum(degrees)}", f"{devices}")
        return degrees
    tp = fields.whole("tp", least=1)
    if not devices or devices % tp:
        raise fields.error("devices", f"a multiple of tp {tp} devices", f"{devices}")
    return [tp] * (devices // tp)
