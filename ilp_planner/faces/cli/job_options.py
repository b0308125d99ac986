"""The options that say a training job, for the commands that take one."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.options import number, option
from ilp_planner.inputs.table import BY_NAME
from ilp_planner.settings.base import JobOption, Setting
from ilp_planner.settings.domains import OneOf
from ilp_planner.settings.table import SETTINGS

ABOUT = "The job"
about = partial(option, ABOUT)
parallel, degree = partial(option, "Parallelism"), partial(number, "Parallelism")
memory, kernel = partial(option, "Memory"), partial(option, "Kernels")
TUNING = "Fine-tuning"
tuning = partial(option, TUNING)
FURTHER = "Further settings"

SetValues = Annotated[
    list[str] | None,
    about("--set", "What only running the script would tell; repeatable.", "NAME=VALUE"),
]


def _option_of(row: Setting, one: JobOption) -> Any:
    """Return the annotation of a setting's option: with its own help, or else in the words of
    searches, with one value."""
    name = f"--{row.name.replace('_', '-')}"
    shown = False if one.unsaid is None else str(one.unsaid)
    if one.help:
        kind: Any = Literal.__getitem__(one.values or row.domain.values)
        return Annotated[kind | None, option(one.section, name, one.help, default=shown)]
    values = row.domain.values or ("4",)
    some = ", ".join(values) if isinstance(row.domain, OneOf) else f"as {values[-1]}"
    text = f"{re.split('[:;]', row.help)[0]}: {some}."
    return Annotated[str | None, option(FURTHER, name, text, row.metavar, default=shown)]


def with_settings(job: type) -> type:
    """Add the options of settings that the class has no option of."""
    for row in SETTINGS:
        one = row.of_jobs
        if one and (one.help or row.help) and row.name not in job.__annotations__:
            job.__annotations__[row.name] = _option_of(row, one)
            setattr(job, row.name, None)
    return job


@dataclass(frozen=True, kw_only=True)
@with_settings
class Job:
    """A training job: a model and its settings, or a launch line; and its GPUs."""

    model: Annotated[str | None, o.model_option("", default=False, section=ABOUT)] = None
    megatron_args: Annotated[
        str | None,
        about(
            "--megatron-args",
            "Arguments of Megatron-LM's pretrain_gpt.py, or another system's launch, as one text.",
            "ARGS",
        ),
    ] = None
    megatron_script: Annotated[
        Path | None,
        about(
            "--megatron-script",
            "A launch script of Megatron-LM or another system, or a configuration; it is read, not "
            "run.",
            "FILE",
        ),
    ] = None
    set_values: SetValues = None
    strict: Annotated[bool, about("--strict", "Refuse arguments and keys that are not known.")] = (
        False
    )
    cluster: Annotated[str | None, o.cluster_option(default=False, section=ABOUT)] = None
    gpus: Annotated[str | None, o.gpus_option(ABOUT)] = None
    memory_limit: Annotated[
        str | None,
        about(
            "--memory-limit",
            "Memory of a device, as 80GiB; a card sold as 80 GB has that.",
            "SIZE",
        ),
    ] = None
    tp: Annotated[int, degree("--tp", "Tensor-parallel degree.", True)] = 1
    pp: Annotated[
        int | None,
        degree(
            "--pp", "Pipeline ranks; with a --layout of several stages they must be given.", "1"
        ),
    ] = None
    dp: Annotated[
        int | None, degree("--dp", "Replicas; what --world-size or --cluster leaves, or 1.")
    ] = None
    cp: Annotated[int, degree("--cp", "Context-parallel degree.", True)] = 1
    ep: Annotated[int, degree("--ep", "Expert-parallel degree.", True)] = 1
    etp: Annotated[
        int | None,
        degree("--etp", "Tensor-parallel degree of experts; 0: that of --tp.", "0", least=0),
    ] = None
    virtual: Annotated[int, degree("--virtual-stages", "Virtual stages per GPU.", True)] = 1
    layout: Annotated[
        str | None,
        parallel("--layout", "Uneven stages, in Megatron's letters: 'Et*3|t*5L'.", "TEXT"),
    ] = None
    micro_batch: Annotated[
        int, degree("--micro-batch-size", "Samples per replica at a time.", True)
    ] = 1
    global_batch: Annotated[int | None, degree("--global-batch-size", "Samples per iteration.")] = (
        None
    )
    world_size: Annotated[int | None, degree("--world-size", "GPUs in all.")] = None
    sequence_length: Annotated[
        int | None,
        number(ABOUT, "--sequence-length", "Tokens of a sample; the model's."),
    ] = None
    images_per_sample: Annotated[
        int | None, number(ABOUT, "--images-per-sample", BY_NAME["images"].help)
    ] = None
    image_size: Annotated[int | None, number(ABOUT, "--image-size", BY_NAME["image_size"].help)] = (
        None
    )
    audio_seconds: Annotated[
        int | None, number(ABOUT, "--audio-seconds", BY_NAME["audio_seconds"].help)
    ] = None
    lengths: o.LengthsFile = None
    batching: Annotated[
        Literal["packed", "joined", "longest", "grouped", "full"] | None,
        about("--batching", BY_NAME["batching"].help),
    ] = None
    text_only: Annotated[bool, about("--text-only", o.TEXT_ONLY)] = False
    sequence_parallel: Annotated[
        bool, memory("--sequence-parallel", "Divide activations between products too.")
    ] = False
    recompute: Annotated[
        Literal["none", "selective", "full"] | None,
        memory(
            "--recompute",
            "Activations computed again; none, or what --recompute-modules, -method or -layers "
            "is of.",
        ),
    ] = None
    encoder_recompute: Annotated[
        Literal["none", "core", "full"] | None,
        memory("--encoder-recompute", "Of encoders; the decoder's where it is the same, or none."),
    ] = None
    recompute_modules: Annotated[
        str | None,
        memory("--recompute-modules", "Of selective: Megatron's names, by commas.", "NAMES"),
    ] = None
    recompute_method: Annotated[
        Literal["uniform", "block"] | None, memory("--recompute-method", "Of full.")
    ] = None
    recompute_layers: Annotated[
        int | None,
        number("Memory", "--recompute-layers", "Of full: layers of a chunk, or of each stage."),
    ] = None
    distributed_optimizer: Annotated[
        bool, memory("--distributed-optimizer", "The same as --sharding optimizer.")
    ] = False
    sharding: Annotated[
        Literal["none", "optimizer", "gradients", "parameters"],
        memory("--sharding", "What replicas divide: ZeRO 0, 1, 2, 3.", default=True),
    ] = "none"
    muon_steps: Annotated[
        int | None, number("Memory", "--muon-steps", "Of Muon: turns of its iteration; 5.")
    ] = None
    precision: Annotated[
        o.PrecisionName | None,
        kernel("--precision", "Of training, or a recipe of products in 8 or 4 bits; the model's."),
    ] = None
    fused_loss: Annotated[
        str | None,
        kernel(
            "--fused-loss",
            "Cross-entropy as one kernel: native, liger or none; native without a value.",
            "KERNEL",
            default="none",
        ),
    ] = None
    grouped_experts: Annotated[
        bool | None,
        kernel(
            "--grouped-experts/--no-grouped-experts",
            "All experts of a GPU in one kernel; with experts.",
        ),
    ] = None
    lora: Annotated[
        int | None,
        number(TUNING, "--lora", "Rank of adapters, which alone are trained (LoRA)."),
    ] = None
    lora_targets: Annotated[
        str | None,
        tuning(
            "--lora-targets",
            "Products with adapters, as q_proj,v_proj or linear_qkv,linear_proj.",
            "NAMES",
        ),
    ] = None
    lora_dropout: Annotated[
        float | None,
        tuning("--lora-dropout", "Of the adapters' inputs.", "N", default="0", min=0.0, max=0.9),
    ] = None
    qlora: Annotated[
        str | None,
        tuning(
            "--qlora",
            "Parameters beside adapters are kept in 4 bits (NF4): on or off; on without a value.",
            "SWITCH",
            default="off",
        ),
    ] = None
    freeze: Annotated[
        str | None,
        tuning("--freeze", "Parts that are not trained, as embedding,layers:0-27.", "PARTS"),
    ] = None
    imbalance: Annotated[
        float,
        kernel(
            "--imbalance",
            "Assumed: the fullest rank's tokens over the average.",
            "N",
            default=True,
            min=1.0,
        ),
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class AnyJob(Job):
    """One whose GPUs need not be known."""

    devices_per_node: Annotated[
        int | None, degree("--devices-per-node", "GPUs of a node; the cluster's, or 8.")
    ] = None
