"""A training job as a launch of Megatron-LM: a torchrun script, and the same as JSON."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.files import to_json
from ilp_planner.base.units import counted, format_bytes, format_seconds
from ilp_planner.formats.exported import Expected, Exported, unlike_torch
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.earlier import is_early
from ilp_planner.formats.megatron.flags import flag_of, flags_by_key
from ilp_planner.formats.megatron.hybrid import program_of
from ilp_planner.formats.megatron.model_features import unsaid
from ilp_planner.formats.megatron.releases import lacking
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.settings import FLAGS
from ilp_planner.formats.megatron.values import MegatronArguments, split_words, write_value
from ilp_planner.formats.versions import CORES
from ilp_planner.spaces.runtimes.limits import check_uncompiled
from ilp_planner.specs.training import ORDERS, TrainingJob

FORMAT, VERSION = "megatron-lm launch", 1
# Arrays of the script, by the topics of their arguments.
ARRAYS = {
    "MODEL": ("model", "experts", "data"),
    "PARALLEL": ("parallel", "training"),
    "RANK": ("memory", "precision", "kernels", "checkpoints"),
    "LOGGING": ("logging", "inference", "retrieval"),
}
# What a run needs and a plan does not say, unless the line that it comes from does.
STAND_INS = (
    ("--train-iters", '"${TRAIN_ITERS:-100}"', ("train_iters", "train_samples")),
    ("--lr", '"${LR:-1e-4}"', ("lr",)),
    ("--lr-decay-style", "cosine", ("lr_decay_style",)),
    ("--log-interval", "1", ("log_interval",)),
    ("--eval-iters", "0", ("eval_iters",)),
)
DATA = ("data_path", "train_data_path", "data_args_path", "per_split_data_args_path", "mock_data")
# The plan's field that an argument says, for whoever has a plan and no arguments.
FIELDS = {
    "--tensor-model-parallel-size": "tp",
    "--pipeline-model-parallel-size": "pp",
    "--global-batch-size": "global_batch",
    "--micro-batch-size": "micro_batch",
    "--num-attention-heads": "tp",
    "--num-query-groups": "tp",
    "--ffn-hidden-size": "tp",
    "--moe-ffn-hidden-size": "settings.etp",
    "--num-layers": "stages",
    "--pipeline-model-parallel-layout": "stages",
    "--num-virtual-stages-per-pipeline-rank": "virtual",
    "--recompute-num-layers": "settings.recompute",
    "--recompute-modules": "settings.recompute",
    "--cpu-offloading-num-layers": "settings.offload.layers",
    "--fine-grained-activation-offloading": "settings.offload.modules",
    "--offload-modules": "settings.offload.modules",
    "--seq-length": "settings.cp",
    "--num-experts": "settings.ep",
    "--cross-entropy-fusion-impl": "settings.kernels.loss_kernel",
    "--fp8-param-gather": "settings.kernels.quantised_parameters",
    "--fp4-param-gather": "settings.kernels.quantised_parameters",
    "--first-last-layers-bf16": "settings.kernels.exact_first",
    "--cuda-graph-impl": "settings.kernels.graphs",
    "--cuda-graph-modules": "settings.kernels.graphed",
    "world size": "devices",
}


NEWER = "release: "  # what a note on arguments begins with that the usual release lacks


def export_megatron(job: TrainingJob, name: str, expected: Expected | None = None) -> Exported:
    """Return the script and the JSON that start a job.

    Parameters
    ----------
    name: of the run.

    Raises
    ------
    PlanError: Megatron would refuse it or fail later: the plan's field, the rule, and a repair.
    """
    args = runnable_arguments(job)
    known = expected or Expected()
    return Exported(
        {
            ".sh": script_text(job, args, name, known),
            ".args.json": to_json(as_json(job, args, known)),
        },
        _notes(job, args),
    )


def runnable_arguments(job: TrainingJob) -> MegatronArguments:
    """Return the arguments of a job after all of Megatron's rules.

    Raises
    ------
    PlanError: the plan's field, the rule that it breaks, and a repair.
    """
    check_uncompiled(job, "Megatron-LM")
    try:
        args = arguments_of_job(job)
    except SpecError as error:
        raise PlanError(f"Megatron has no arguments for {error}") from None
    findings = check_arguments(args)
    if findings:
        first = findings[0]
        own = {flag_of(key): f"settings.{field}" for field, key in FLAGS.items()}
        field = (own | FIELDS).get(first.flag)
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise PlanError(f"{f'{field}: ' if field else ''}Megatron cannot run it: {first}{more}")
    return args


def check_release(job: TrainingJob, core: str) -> None:
    """Refuse a job whose arguments a release of Megatron-Core lacks.

    Raises
    ------
    PlanError: the field, the first such argument, and the release that has it.
    """
    own = {flag_of(key): f"settings.{field}" for field, key in FLAGS.items()} | FIELDS
    if found := lacking(runnable_arguments(job).values, core):
        field = own.get(found.argument.partition(" ")[0], "model")
        raise PlanError(f"{field}: found {found}, but megatron@{core} lacks it")


def as_json(job: TrainingJob, args: MegatronArguments, expected: Expected) -> dict[str, Any]:
    """Return a launch as JSON-ready values: arguments by name and as words, and the rest."""
    starts = job.pipeline.starts
    stages = []
    for rank in range(job.pp):
        held = [
            list(range(starts[k] + 1, starts[k] + job.stages[k].layers + 1))
            for k in job.stages_of(rank)
        ]
        stage: dict[str, Any] = {"pp_rank": rank, "layers": held}
        if expected.memory:
            stage["peak_memory_bytes"] = round(expected.memory[rank])
        stages.append(stage)
    return {
        "format": FORMAT,
        "version": VERSION,
        "program": args.program,
        "arguments": {
            flags_by_key()[key][0].name: _json_value(key, value)
            for key, value in args.values.items()
            if write_value(key, value)
        },
        "argv": [*args.argv, *(() if is_early(args.unread) else args.unread)],
        "environment": dict(args.environment or {}),
        "world_size": args.world,
        "nodes": nodes_of(job),
        "devices_per_node": min(job.devices_per_node, job.world),
        "rank_order": job.settings.order,
        "hosts": list(expected.hosts),
        "expected_iteration_seconds": expected.iteration,
        "stages": stages,
    }


def script_text(job: TrainingJob, args: MegatronArguments, name: str, expected: Expected) -> str:
    """Return a bash script that starts a job with torchrun, one copy of it on every node."""
    lines = ["#!/bin/bash", *(f"# {line}" for line in _header(job, name, expected)), ""]
    lines += ["set -euo pipefail", ""]
    lines += [f"export {k}={shlex.quote(v)}" for k, v in (args.environment or {}).items()]
    if job.settings.optimizer.divides:
        lines.append("unset CUDA_DEVICE_MAX_CONNECTIONS  # FSDP needs several hardware queues")
    lines += [
        "MEGATRON=${MEGATRON:-.}  # folder of Megatron-LM",
        "NODE_RANK=${NODE_RANK:-0}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        "MASTER_PORT=${MASTER_PORT:-6000}",
        "",
        *_array(
            "DISTRIBUTED",
            [
                ("--nnodes", str(nodes_of(job))),
                ("--nproc-per-node", str(min(job.devices_per_node, job.world))),
                ("--node-rank", '"$NODE_RANK"'),
                ("--master-addr", '"$MASTER_ADDR"'),
                ("--master-port", '"$MASTER_PORT"'),
            ],
        ),
    ]
    arrays = []
    for array, topics in ARRAYS.items():
        rows = [
            tuple(map(_quoted, words))
            for key, value in args.values.items()
            if flags_by_key()[key][0].topic in topics
            and (key != "vocab_size" or "tokenizer_type" in args.values)  # beside the tokenizer
            and (words := write_value(key, value))
        ]
        if rows or array != "LOGGING":
            lines += _array(array, rows)
            arrays.append(array)
    for name_of_array, rows, about in _beside(job, args):
        lines += [*about, *_array(name_of_array, rows)]
        arrays.append(name_of_array)
    lines += [
        f'torchrun "${{DISTRIBUTED[@]}}" "$MEGATRON/{program_of(args)}" \\',
        *(f'    "${{{array}[@]}}" \\' for array in arrays),
        '    "$@"',
    ]
    if is_early(args.unread):
        lines += ["", "# Arguments of an earlier Megatron that this one has not:"]
        lines += [f"#     {' '.join(row)}" for row in _rows(args.unread)]
    return "\n".join(lines) + "\n"


def _beside(
    job: TrainingJob, args: MegatronArguments
) -> list[tuple[str, list[tuple[str, ...]], list[str]]]:
    """Return the arrays that a plan lacks: name, rows, and a remark on them."""
    said = {*args.values, *(word[2:].replace("-", "_") for word in args.unread)}
    training = [(flag, value) for flag, value, keys in STAND_INS if not said & set(keys)]
    found = []
    if training:
        about = ["# How long, how fast and on what: the plan does not depend on it."]
        found.append(("TRAINING", [tuple(row) for row in training], about))
    data: list[tuple[str, ...]] = [] if said & set(DATA) else [("--mock-data",)]
    if "tokenizer_type" not in args.values:
        data += [("--tokenizer-type", "NullTokenizer"), ("--vocab-size", str(job.model.vocab - 1))]
    about = ["# Stand-ins. This tokenizer adds the end of a document to the words that it is told."]
    if data:
        found.append(("DATA", data, about if len(data) > 1 else []))
    if args.unread and not is_early(args.unread):
        about = ["# As they were: arguments that Megatron-LM itself does not have, or left open."]
        found.append(("OTHERS", _rows(args.unread), about))
    return found


def _rows(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return words as a row for each argument."""
    rows: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--") or not rows:
            rows.append(())
        rows[-1] = (*rows[-1], _quoted(word))
    return rows


def _quoted(word: str) -> str:
    """Return a word as a script writes it; a variable of the script that it is from stays one."""
    if re.search(r"\$[A-Za-z_{(]|`", word):
        return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shlex.quote(word)


def nodes_of(job: TrainingJob) -> int:
    """Return the nodes that a job fills.

    Raises
    ------
    PlanError: it fills one only in part.
    """
    each = job.devices_per_node
    if job.world <= each:
        return 1
    if job.world % each:
        raise PlanError(
            f"devices: found {job.world} ranks on nodes of {each}, expected whole nodes, which "
            "torchrun starts"
        )
    return job.world // each


def _header(job: TrainingJob, name: str, expected: Expected) -> list[str]:
    degrees = f"tp {job.tp}, pp {job.pp}, dp {job.dp}, cp {job.settings.cp}, ep {job.settings.ep}"
    lines = [
        f"{_one_line(name)}: Megatron-LM on {counted(job.world, 'GPU')}, {degrees}",
        f"{counted(job.micro_batches, 'micro-batch')} of {job.micro_batch} per replica"
        + (f", {job.virtual} virtual stages per pipeline rank" if job.virtual > 1 else ""),
    ]
    if expected.iteration is not None:
        lines.append(f"expected iteration: {format_seconds(expected.iteration)}")
    if expected.memory:
        peaks = ", ".join(format_bytes(peak) for peak in expected.memory)
        lines.append(f"expected peak memory by pipeline rank: {peaks}")
    lines.append(f"ranks: {job.settings.order}, the first fastest")
    if nodes_of(job) > 1:
        lines.append("start it on every node, with NODE_RANK and MASTER_ADDR set")
        rows = [f"NODE_RANK {k}: {_one_line(host)}" for k, host in enumerate(expected.hosts)]
        lines += rows
    return lines


def _array(name: str, rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"{name}=(", *(f"    {' '.join(row)}" for row in rows), ")", ""]


def _json_value(key: str, value: object) -> object:
    flag = flags_by_key()[key][0]
    if flag.kind == "switch":
        return True
    if isinstance(value, tuple) and flag.kind in ("pattern", "sizes"):
        return write_value(key, value)[1]
    return list(value) if isinstance(value, tuple) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _notes(job: TrainingJob, args: MegatronArguments) -> tuple[str, ...]:
    notes = []
    if newer := lacking(args.values, CORES[-1]):
        asked = f"; `--to megatron@{newer.since}` asks for that one" if newer.since in CORES else ""
        notes.append(f"{NEWER}{newer}, but core {CORES[-1]} lacks it{asked}")
    if job.settings.optimizer.divides:
        notes.append("optimizer.sharding: by Megatron-FSDP, which saves fsdp_dtensor checkpoints")
    if job.settings.order == ORDERS[1]:
        notes.append("order: tp-cp-ep-pp-dp, by --use-tp-pp-dp-mapping")
    notes += [*unlike_torch(job, "Megatron-LM"), *unsaid(job.model)]
    if unread := split_words(job.settings.carried)[1]:
        names = ", ".join(word for word in unread if word.startswith("--"))
        early = "as comments, for they are of an earlier Megatron"
        notes.append(
            f"settings.carried: {names}: written "
            + (early if is_early(unread) else "as they were, in OTHERS: Megatron-LM has them not")
        )
    if job.settings.kernels.imbalance != 1:
        notes.append("kernels.imbalance: an assumption of the plan, no argument says it")
    return tuple(notes)
