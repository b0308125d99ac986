"""Aceso's plan (EuroSys 2024): the JSON that its search writes and its runtime reads.

The runtime is given this file as `--flexpipe-config`. `micro_batch_size` counts samples over all
replicas of a stage, as here; Megatron's own option of that name counts samples of one replica.
Read as well: Hetaceso's dialect (`tensor_parallel_size_of_each_op`, boolean `recompute_ops`).
"""

from pathlib import Path
from typing import Any

from ilp_planner.base.errors import PlanError, shown
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import read_json, to_json, write_text
from ilp_planner.base.limits import WHOLE
from ilp_planner.formats.json_fields import Fields
from ilp_planner.plan import AnyPlan, OperatorPlan, OperatorStage, Plan, Strategy, is_of_operators
from ilp_planner.specs.model import ModelSpec

# JSON key -> attribute of the architecture, in Aceso's order
ARCHITECTURE_KEYS = {
    "gpt": {
        "num_layers": "layers",
        "seq_length": "sequence",
        "max_position_embeddings": "max_position_embeddings",
        "num_attention_heads": "heads",
        "hidden_size": "hidden",
    },
    "t5": {
        "num_layers": "layers",
        "encoder_seq_length": "encoder_sequence",
        "decoder_seq_length": "decoder_sequence",
        "max_position_embeddings": "max_position_embeddings",
        "num_attention_heads": "heads",
        "kv_channels": "kv_channels",
        "hidden_size": "hidden",
        "ffn_hidden_size": "ffn",
    },
    "resnet": {
        "num_layers": "blocks",
        "in_channels": "in_channels",
        "width_factor": "width_factor",
    },
}
TENSOR_KEYS = ("model_parallel_size_of_each_op", "tensor_parallel_size_of_each_op")


def write_aceso(plan: OperatorPlan, model: ModelSpec) -> dict[str, Any]:
    """Return a plan as Aceso's runtime reads it.

    Raises
    ------
    PlanError: the plan is not for this model, or its stages are not in order.
    """
    _check_written(plan, model)
    each = [stage.strategies for stage in plan.stages]
    return {
        **_identity(model),
        "global_batch_size": plan.global_batch,
        "micro_batch_size": plan.micro_batch_size,
        "num_stages": len(plan.stages),
        "num_gpus": [stage.device_count for stage in plan.stages],
        "checkpoint_activations": [any(x.recompute for x in xs) for xs in each],
        "resharding_stages": [len({(x.tp, x.dp, x.split) for x in xs}) > 1 for xs in each],
        "num_ops_in_each_stage": [len(xs) for xs in each],
        "model_parallel_size_of_each_op": [[x.tp for x in xs] for xs in each],
        "data_parallel_size_of_each_op": [[x.dp for x in xs] for xs in each],
        "recompute_ops": [[int(x.recompute) for x in xs] for xs in each],
        "algo_of_each_op": [[x.split for x in xs] for xs in each],
    }


def save_aceso(path: Path, plan: AnyPlan, model: ModelSpec) -> None:
    """Write a plan for Aceso's runtime, atomically.

    Raises
    ------
    PlanError: the plan is not for this model, of whole layers, or its stages are not in order.
    OutputError: the system refuses.
    """
    if not is_of_operators(plan):
        raise PlanError(
            "plan: found whole layers on groups of devices, expected operators on equal devices, "
            "which aceso can say (`ilp-plan solve --space operators`)"
        )
    write_text(path, to_json(write_aceso(plan, model), indent=4))


def read_aceso(path: Path, model: ModelSpec, *, global_batch: int | None = None) -> OperatorPlan:
    """Read a plan of Aceso's search or for its runtime.

    Its form is checked here; whether it is legal is for `evaluate` to say.

    Parameters
    ----------
    global_batch: the expected value, if the file has one.

    Raises
    ------
    PlanError: malformed, or a plan for another model; with file, key, found and expected.
    """
    refuse_other_kind(path, FileKind.ACESO, PlanError)
    fields = Fields(read_json(path, PlanError), file=str(path))
    _check_model(fields, model)
    if "recompute_ops" in fields.values:
        fields.values["recompute_ops"] = _flags_as_numbers(fields.values["recompute_ops"])
    count = fields.whole("num_stages", least=1)
    devices = fields.wholes("num_gpus", least=1, count=count)
    sizes = fields.wholes("num_ops_in_each_stage", least=1, count=count)
    if sum(sizes) != len(model.operators):
        found = f"{sum(sizes)} operators"
        expected = f"the {len(model.operators)} of {model.name}"
        raise fields.error("num_ops_in_each_stage", expected, found)
    batch = _global_batch(fields, global_batch)
    return Plan(
        model=model.name,
        global_batch=batch,
        micro_batches=batch // fields.divisor("micro_batch_size", batch),
        stages=_read_stages(fields, devices, sizes),
    )


def _read_stages(fields: Fields, devices: list[int], sizes: list[int]) -> tuple[OperatorStage, ...]:
    """Return the stages, on devices and operators in order."""
    tensor_key = next((key for key in TENSOR_KEYS if key in fields.values), TENSOR_KEYS[0])
    tensor = _per_operator(fields, tensor_key, sizes, least=1)
    data = _per_operator(fields, "data_parallel_size_of_each_op", sizes, least=1)
    recompute = _per_operator(fields, "recompute_ops", sizes, most=1)
    split = _per_operator(fields, "algo_of_each_op", sizes)
    stages: list[OperatorStage] = []
    start = first = 0
    for s, size in enumerate(sizes):
        for i, (tp, dp) in enumerate(zip(tensor[s], data[s], strict=True)):
            if tp * dp != devices[s]:
                found = f"{tp} with data_parallel_size {dp}"
                expected = f"a product of num_gpus, {devices[s]}"
                raise fields.error(f"{tensor_key}[{s}][{i}]", expected, found)
        each = zip(tensor[s], data[s], split[s], recompute[s], strict=True)
        stages.append(
            OperatorStage(
                start=start,
                stop=start + size,
                first_device=first,
                device_count=devices[s],
                strategies=tuple(
                    Strategy(tp=tp, dp=dp, split=algo, recompute=bool(flag))
                    for tp, dp, algo, flag in each
                ),
            )
        )
        start += size
        first += devices[s]
    return tuple(stages)


def _check_written(plan: OperatorPlan, model: ModelSpec) -> None:
    """Refuse plans beyond this format: of another model, or with stages out of order."""
    operators = devices = 0
    for s, stage in enumerate(plan.stages):
        if (stage.start, stage.first_device) != (operators, devices):
            raise PlanError(
                f"plan.stages[{s}]: found operator {stage.start} on device {stage.first_device} "
                f"first, expected operator {operators} on device {devices}"
            )
        operators, devices = stage.stop, devices + stage.device_count
    if plan.model != model.name or operators != len(model.operators):
        raise PlanError(
            f"plan.model: found {plan.model!r} with {operators} operators, "
            f"expected {model.name!r} with {len(model.operators)}"
        )


def _global_batch(fields: Fields, wanted: int | None) -> int:
    if "global_batch_size" not in fields.values and wanted is not None:
        return wanted  # Hetaceso gives it on the command line
    found = fields.whole("global_batch_size", least=1)
    if wanted is not None and found != wanted:
        raise fields.error("global_batch_size", f"{wanted}, as asked for")
    return found


def _identity(model: ModelSpec) -> dict[str, Any]:
    """Return the model's identity in Aceso's files; `[export.aceso]` of the model file wins."""
    values: dict[str, Any] = {"model_name": model.family, "model_size": model.name}
    if "aceso" in model.profile:
        values["model_size"] = model.profile["aceso"].partition("_")[2]
    for key, attribute in ARCHITECTURE_KEYS[model.family].items():
        value = getattr(model.architecture, attribute)
        values[key] = list(value) if isinstance(value, tuple) else value
    return {**values, **model.export.get("aceso", {})}


def _check_model(fields: Fields, model: ModelSpec) -> None:
    """Refuse a plan for another model: every field that is there must be this model's."""
    identity = _identity(model)
    said = fields.values
    theirs = " ".join(str(said[key]) for key in ("model_name", "model_size") if key in said)
    ours = f"{model.name} ({identity['model_name']} {identity['model_size']})"
    for key, expected in identity.items():
        if key not in said or (key == "num_layers" and said[key] == 0):
            continue  # some writers leave them out, or 0 where it should be a list
        if said[key] != expected or isinstance(said[key], bool):
            found = shown(said[key]) if not isinstance(said[key], list) else str(said[key])[:60]
            other = f", in a plan for {theirs}" if theirs else ""
            raise fields.error(key, f"{expected!r} of {ours}", found + other)


def _per_operator(
    fields: Fields, key: str, sizes: list[int], *, least: int = 0, most: int = WHOLE
) -> list[list[int]]:
    """Return one list per stage with one whole number per operator."""
    stages = fields.listed(key)
    if len(stages) != len(sizes):
        raise fields.error(key, f"a list of {len(sizes)} stages")
    names = [f"{key}[{s}]" for s in range(len(sizes))]
    lists = Fields(dict(zip(names, stages, strict=True)), file=fields.file)
    return [
        lists.wholes(name, least=least, most=most, count=size)
        for name, size in zip(names, sizes, strict=True)
    ]


def _flags_as_numbers(stages: object) -> object:
    """Return `recompute_ops` with 0 and 1 if Hetaceso writes false and true."""
    if not isinstance(stages, list):
        return stages
    return [
        [int(x) if isinstance(x, bool) else x for x in flags] if isinstance(flags, list) else flags
        for flags in stages
    ]
