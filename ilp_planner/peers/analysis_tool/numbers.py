"""The figures of Megatron-LM's analysis tool, by its published formulas, with its defects.

The tool is `tools/get_training_info` of NVIDIA/Megatron-LM pull request 482 (September 2023). It
knows a GPT with learned positions, biases, a tied embedding and SwiGLU, under tensor, pipeline and
data parallelism with the distributed optimizer. Its GB are 2^30 bytes and its MB 2^20.

Its errors are kept here, so that a user finds the familiar figures; `defects` names it. In the
table of measured peaks that the tool was published with, the row of dp 8, tp 1 and pp 1 says 68.8
GB while the tool's own code gives 69.0: 68.8 takes 4.5 bytes per logit and sample from the "full
model" line instead of the 5 of the line per GPU, so that table is of another revision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.job.groups import group_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.training import TrainingJob

MB, GB = 2**20, 2**30
WIDTH, GRADIENT, STATES = 2, 4, 12  # bytes of a parameter, its gradient, its Adam states


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTable:
    """A column of the tool's tables by row: (bytes, shape) of weights, bytes of activations."""

    weights: dict[str, tuple[float, str]]
    activations: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """The figures of the tool, bytes and messages. message: bytes of one."""

    job: TrainingJob
    stage_layers: int
    full: ToolTable
    shard: ToolTable
    parameters: int
    full_memory: dict[str, float]
    rank_parameters: int
    rank_memory: dict[str, float]
    message: int
    shape: str
    pipeline_messages: int
    data_messages: int
    data_volume: float
    tensor_messages: int

    @property
    def cluster(self) -> dict[str, tuple[int, float]]:
        """Messages and bytes per iteration, by kind."""
        passes = self.job.world * self.job.micro_batches
        pipeline, tensor = passes * self.pipeline_messages, passes * self.tensor_messages
        rows = {
            "Pipeline Parallelism": (pipeline, float(pipeline * self.message)),
            "Data Parallelism": (self.data_messages, self.data_messages * self.data_volume),
            "Tensor Parallelism": (tensor, float(tensor * self.message)),
        }
        total = tuple(map(sum, zip(*rows.values(), strict=True)))
        return rows | {"All Communication": (int(total[0]), float(total[1]))}


def limits(job: TrainingJob) -> Iterator[tuple[str, str, str]]:
    """Yield settings for which the tool knows one case: the name, the job's value, and the
    tool's."""
    settings = job.settings

    def flag(value: object) -> str:
        return "on" if value else "off"

    yield "mixture of experts", flag(job.model.experts), "off"
    yield "latent attention", flag(job.model.latent), "off"
    yield "SwiGLU", flag(job.model.gated), "on"
    yield "context parallelism", str(settings.cp), "1"
    yield "sequence parallelism", flag(settings.sequence_parallel and job.tp > 1), "off"
    yield "virtual stages", str(job.virtual), "1"
    yield "recomputation", settings.recompute.granularity, "none"
    yield "optimizer sharding", settings.optimizer.sharding, "optimizer"
    layers = {stage.layers for stage in job.stages}
    yield "layers per stage", flag(len(layers) > 1).replace("on", "uneven"), "off"
    yield "bytes per parameter", str(settings.width), str(WIDTH)


def defects(job: TrainingJob) -> tuple[str, ...]:
    """Return the errors in the tool's figures of this job."""
    model = job.model
    found = [
        "the bias of the attention's first product is counted with h numbers, it has 3 h; biases "
        "and norms are not divided by tp, and the final norm is left out",
        "data parallelism counts 2 messages per iteration for the whole cluster, the others one "
        "per GPU; parameters are gathered in 4 bytes, Megatron gathers 2",
        "the parts of a layer's activations sum to 0.5 s b h more than the layer's figure, which "
        "the totals use",
    ]
    if job.pp > 1:
        found += [
            "the last stage's logits and loss are left out of its memory, and its copy of the word "
            "embedding out of its parameters",
            "every GPU is charged 4 pipeline messages per micro-batch; the first and last stage "
            "have 2",
        ]
    if job.tp > 1:
        found += [
            "the tensor-parallel table shows undivided weights of word_embeddings and "
            "dense_4h_to_h, and undivided activations of bias_glue, mlp, attention and the layer",
            "the messages of the embedding, the logits and the loss are not in the totals",
        ]
    wrong = {
        "learned positions": model.positions != "learned",
        "a tied embedding": not model.tied,
        "biases": not model.bias,
        "LayerNorm": model.norm != "layernorm",
        "as many keys and values as queries": model.kv_heads != model.heads,
        "dropout": model.dropout == 0,
    }
    assumed = [name for name, differs in wrong.items() if differs]
    if assumed:
        found.append(f"the tool assumes {', '.join(assumed)}, which this model does not have")
    return tuple(found)


def tool_figures(job: TrainingJob) -> ToolFigures:
    """Return the tool's figures.

    Raises
    ------
    UsageError: the tool has no formula for the job: the first setting, and the expected value.
    """
    for what, found, expected in limits(job):
        if found != expected:
            raise UsageError(
                f"--compat analysis-tool: {what}: found {found}, expected {expected}: the tool "
                "has no formula for it (without --compat, it is analysed)"
            )
    h, f, s, b = job.model.hidden, job.model.ffn, job.model.sequence, job.micro_batch
    n, t, p, v = job.model.layers, job.tp, job.pp, job.padded_vocab
    d = group_size(job, "dp")
    each = n // p
    vectors, matrices = 7 * h + 2 * f, 4 * h * h + 3 * f * h
    parameters = v * h + s * h + n * (vectors + matrices)
    shard = v * h // t + s * h + each * (vectors + matrices // t)
    full_activations = n * (10 * s * b * h + 4 * s * b * f) + 1.5 * s * b * h + 4.5 * s * b * v
    layer = (5 * s * b * h + 4 * s * b * f) / t + 5 * s * b * h
    activations = WIDTH * p * (each * layer + 1.5 * s * b * h)
    logits = WIDTH * 5 * s * b * v / t if p == 1 else 0.0
    states = STATES / d
    # The step gathers parameters into a buffer while gradients are still there.
    stepping = shard * (WIDTH + GRADIENT + GRADIENT / d + GRADIENT)
    training = shard * (WIDTH + GRADIENT + states) + activations + logits
    full = {
        "Parameters": WIDTH * parameters,
        "Gradients": GRADIENT * parameters,
        "Optimizers(Adam) States": STATES * parameters,
        "Activations": WIDTH * full_activations,
    }
    return ToolFigures(
        job=job,
        stage_layers=each,
        full=_table(job, 1),
        shard=_table(job, t),
        parameters=parameters,
        full_memory=full | {"Total memory demand": sum(full.values())},
        rank_parameters=shard,
        rank_memory={
            "Parameters": WIDTH * shard,
            "Gradients": GRADIENT * shard,
            "Optimizers(Adam) States": states * shard,
            "Activations": activations,
            "Memory Requirement": max(stepping, training),
        },
        message=WIDTH * s * b * h,
        shape=f"[{b},{s},{h}]",
        pipeline_messages=4 if p > 1 else 0,
        data_messages=2 if d > 1 else 0,
        data_volume=float(GRADIENT * shard),
        tensor_messages=4 * each if t > 1 else 0,
    )


def _table(job: TrainingJob, t: int) -> ToolTable:
    """Return the rows of the table of the full model (t = 1) or of a tensor-parallel rank."""
    h, f, s = job.model.hidden, job.model.ffn, job.model.sequence
    v = job.padded_vocab
    tokens = WIDTH * s * job.micro_batch * h
    glue = WIDTH * 4 * s * job.micro_batch * f  # printed undivided
    words = f"w=[{v},{h}]" if t == 1 else f"w=[{v // t}],b=[{h}]"
    places = f"w=[{s},{h}]" if t == 1 else f"w=[{s}],b=[{h}]"
    norm = (2 * WIDTH * h, f"w=[{h}],b=[{h}]")
    weights: dict[str, tuple[float, str]] = {
        "word_embeddings": (WIDTH * v * h, words),
        "position_embeddings": (WIDTH * s * h, places),
        "input_layernorm": norm,
        "query_key_value": (WIDTH * 3 * h * h / t, f"w=[{3 * h // t},{h}],b=[{h}]"),
        "dense": (WIDTH * h * h / t, f"w=[{h // t},{h}],b=[{h}]"),
        "post_attention_layernorm": norm,
        "dense_h_to_4h": (WIDTH * 2 * f * h / t, f"w=[{2 * f // t},{h}],b=[{2 * f // t}]"),
        "dense_4h_to_h": (WIDTH * f * h, f"w=[{h},{f // t}],b=[{h}]"),
    }
    return ToolTable(
        weights=weights,
        activations={
            "Embedding": 1.5 * tokens,
            "ParallelTransformer": 10 * tokens + glue,
            "input_layernorm": tokens,
            "self_attention": 6 * tokens,
            "rearrange": 3 * tokens / t,
            "core_attention_flash": tokens / t,
            "rearrange_out": tokens / t,
            "dense": tokens,
            "post_attention_layernorm": tokens,
            "mlp": glue + tokens,
            "bias_glue": glue,
            "dense_4h_to_h": tokens,
            "drop_add_fusion": 1.5 * tokens,
        },
    )


def in_gb(size: float) -> str:
    """Return `12.4`."""
    return f"{size / GB:.1f}"


def in_mb(size: float) -> str:
    """Return `64.0`; values that round to nothing are `0.0`."""
    value = size / MB
    return f"{math.floor(value * 10 + 0.5) / 10:.1f}"
