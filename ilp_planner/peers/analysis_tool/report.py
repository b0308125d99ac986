"""The report of Megatron-LM's analysis tool (PR 482): its sections, rows and precision."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from ilp_planner.job.groups import group_count, groups, rank_name, stage_ranks
from ilp_planner.peers.analysis_tool.numbers import GB, defects, in_gb, in_mb, tool_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.peers.analysis_tool.numbers import ToolFigures, ToolTable
    from ilp_planner.specs.training import TrainingJob

MOST_GROUPS = 64  # listed one by one
WIDE = 150

# The tree of the tables: depth, printed name, key of its weight, of its activations, and the
# direction in which it sends over the tensor-parallel ranks.
TREE = (
    (2, "word_embeddings", "word_embeddings", "", "forward"),
    (2, "position_embeddings", "position_embeddings", "", ""),
    (1, "ParallelTransformer", "", "ParallelTransformer", ""),
    (2, "input_layernorm", "input_layernorm", "input_layernorm", ""),
    (2, "self_attention", "", "self_attention", ""),
    (3, "query_key_value", "query_key_value", "", "backward"),
    (3, "rearrange", "", "rearrange", ""),
    (3, "core_attention_flash", "", "core_attention_flash", ""),
    (3, "rearrange", "", "rearrange_out", ""),
    (3, "dense", "dense", "dense", "forward"),
    (2, "post_attention_layernorm", "post_attention_layernorm", "post_attention_layernorm", ""),
    (2, "mlp", "", "mlp", ""),
    (3, "dense_h_to_4h", "dense_h_to_4h", "", "backward"),
    (3, "bias_glue", "", "bias_glue", ""),
    (3, "dense_4h_to_h", "dense_4h_to_h", "dense_4h_to_h", "forward"),
    (2, "drop_add_fusion", "", "drop_add_fusion", ""),
)


def tool_text(job: TrainingJob, *, all_groups: bool = False) -> str:
    """Return the report.

    Raises
    ------
    UsageError: the tool has no formula for the job.
    """
    figures = tool_figures(job)
    limit = None if all_groups else MOST_GROUPS
    parts = [
        _full_model(figures),
        _summary(figures),
        _rank_memory(figures),
        _pipeline(figures, limit),
        _data(figures, limit),
        _tensor(figures, limit),
    ]
    notes = [f"note: {text}" for text in defects(job)]
    head = "These are the analysis tool's own figures; where it errs, so do they:"
    return "\n\n".join([*parts, "\n".join([head, *notes])])


def tool_object(job: TrainingJob) -> dict[str, Any]:
    """Return the same figures for `--json`: bytes and messages.

    Raises
    ------
    UsageError: the tool has no formula for the job.
    """
    found = tool_figures(job)
    return {
        "layers": job.model.layers,
        "stage_layers": found.stage_layers,
        "gradient_accumulation_steps": job.micro_batches,
        "full_model": _table_object(found.full)
        | {"parameters": found.parameters, "memory_bytes": found.full_memory},
        "rank": _table_object(found.shard)
        | {"parameters": found.rank_parameters, "memory_bytes": found.rank_memory},
        "message_bytes": found.message,
        "message_shape": found.shape,
        "cluster_per_iteration": {
            name: {"messages": count, "bytes": volume}
            for name, (count, volume) in found.cluster.items()
        },
        "groups": {
            kind: [group_text(job, group.ranks) for group in groups(job, kind)]
            for kind in ("tp", "pp", "dp")
        },
        "stages": [group_text(job, stage_ranks(job, r).ranks) for r in range(job.pp)],
        "notes": list(defects(job)),
    }


def _table_object(table: ToolTable) -> dict[str, Any]:
    return {
        "weight_bytes": {name: size for name, (size, _) in table.weights.items()},
        "activation_bytes": table.activations,
        "weight_shapes": {name: shape for name, (_, shape) in table.weights.items()},
    }


def group_text(job: TrainingJob, ranks: Iterable[int]) -> str:
    """Return `[n0_g0 n0_g1]`."""
    return f"[{' '.join(rank_name(job, rank) for rank in ranks)}]"


def _listed(job: TrainingJob, kind: str, limit: int | None, lead: str) -> Iterator[str]:
    """Yield a line per group of a kind."""
    for group in islice(groups(job, kind), limit):
        yield f"{lead}└─{group_text(job, group.ranks)}"
    left = group_count(job, kind) - (limit or group_count(job, kind))
    if left > 0:
        yield f"{lead}└─... and {left} more (--all-groups lists them)"


def _section(title: str, *lines: str, width: int = WIDE) -> str:
    """Return a part of the report, between its title and its lower line."""
    return "\n".join([f"***{title}***", "=" * width, *lines, "=" * width])


def _tree(depth: int, name: str) -> str:
    """Return a name with the lines that lead to it."""
    lead = {0: "├─", 1: "│    └─", 2: "│    │    └─", 3: "│    │    |     └─"}[depth]
    return lead + name


def _full_model(figures: ToolFigures) -> str:
    return _section(
        "Full Model without Parallel",
        f"{'Layer':<43}{'Param.(shape)':<25}{'Param.(Mem. MB)':<17}{'Act.(Mem. MB)'}",
        "-" * WIDE,
        "GPTModel",
        _tree(0, "TransformerLanguageModel"),
        *_rows(figures, figures.full, figures.job.model.layers),
        "-" * WIDE,
        f"Amount of Parameters: {figures.parameters:,}",
        *(f"{name}: {in_gb(size)}GB" for name, size in figures.full_memory.items()),
    )


def _rows(
    figures: ToolFigures, table: ToolTable, layers: int, *, messages: bool = False
) -> Iterator[str]:
    """Yield the rows of a table."""
    yield f"{_tree(1, 'Embedding'):<43}{'':<42}{in_mb(table.activations['Embedding'])}"
    for depth, name, weight, activation, direction in TREE:
        shape, size, kept = "", "", ""
        label = _tree(depth, name)
        if weight:
            size, shape = in_mb(table.weights[weight][0]), table.weights[weight][1]
        if activation:
            kept = in_mb(table.activations[activation])
        if name == "ParallelTransformer":
            label, kept = f"{label}: X {layers}(layer_num)", f"{kept}/layer"
        line = f"{label:<43}{shape:<25}{size:<17}{kept:<23}"
        if messages and direction:
            sent = f"{figures.shape:<23}{in_mb(figures.message):<25}"
            sides = (sent, " " * 48) if direction == "forward" else (" " * 48, sent)
            line += "".join(sides) + "allreduce"
        yield line.rstrip()


def _summary(figures: ToolFigures) -> str:
    lines = []
    for name, (count, volume) in figures.cluster.items():
        lines += [
            name,
            f"│    └─frequency/iteration: {count}",
            f"│    └─volume/iteration: {in_gb(volume)} GB",
        ]
    return _section("Cluster Communication Summary", *lines, width=30)


def _rank_memory(figures: ToolFigures) -> str:
    return _section(
        "Memory demand on each GPU in the cluster",
        f"Amount of Parameters: {figures.rank_parameters:,}",
        *(f"{name}: {in_gb(size)}GB" for name, size in figures.rank_memory.items()),
        width=30,
    )


def _pipeline(figures: ToolFigures, limit: int | None) -> str:
    lines: list[str] = []
    job, each = figures.job, figures.stage_layers
    times = job.micro_batches * figures.pipeline_messages
    for stage in range(job.pp):
        members = islice(stage_ranks(job, stage).ranks, limit)
        first, last = stage * each, stage * each + each - 1
        lines += [
            f"│    └─Stage{stage}: ParallelTransformerLayer_Index{first}-{last}",
            "│    │    └─stage_device_mappings",
            f"│    │    │      └─{group_text(job, members)}",
        ]
        if limit is not None and job.world // job.pp > limit:
            lines[-1] += f" and {job.world // job.pp - limit} more (--all-groups lists them)"
        if stage == 0 and job.pp > 1:
            lines += [
                "│    │    └─each single communication on each gpu",
                f"│    │    │    └─shape: {figures.shape}",
                f"│    │    │    └─volume: {in_mb(figures.message)}MB",
                "│    │    │    └─func: isend, irecv",
                "│    │    │    └─location: between stage in forward and backward process",
                "│    │    └─each iteration communication on each gpu",
                f"│    │    │    └─frequency: {times} (num_gradient_accumulation_steps * 4)",
                f"│    │    │    └─volume: {in_mb(times * figures.message)}MB",
            ]
    count, volume = figures.cluster["Pipeline Parallelism"]
    return _section(
        "Pipeline Parallel Communications",
        "GPTModel",
        _tree(0, "TransformerLanguageModel"),
        _tree(1, "Embedding"),
        _tree(2, "word_embeddings"),
        _tree(2, "position_embeddings"),
        *lines,
        "-" * WIDE,
        f"{group_count(job, 'pp')} Pipeline Parallel Communication Groups:",
        *_listed(job, "pp", limit, "│    "),
        "All Communication of Cluster in Pipeline Parallelism",
        f"│    └─frequency/iteration: {count}",
        f"│    └─volume/iteration: {in_gb(volume)}GB",
    )


def _data(figures: ToolFigures, limit: int | None) -> str:
    job = figures.job
    count, volume = figures.cluster["Data Parallelism"]
    number = f"│    │    └─{group_count(job, 'dp')} Data Parallel Groups"
    members = list(_listed(job, "dp", limit, "│    │    │    "))
    each = f"│    │    │    └─volume: {in_gb(figures.data_volume)}GB"
    return _section(
        "Data Parallel Communications",
        "GPTModel",
        "├─each iteration",
        "│    └─synchronize_gradient",
        number,
        *members,
        "│    │    └─communication",
        each,
        "│    │    │    └─func: reduce_scatter (using DistributedOptimizer)",
        "│    │    └─frequency/iteration: 1",
        f"│    │    └─location: after forward_and_backward_compute * {job.micro_batches} "
        "times/iteration",
        "│    └─gather_model_param (using DistributedOptimizer)",
        number,
        *members,
        "│    │    └─communication on each gpu",
        each,
        "│    │    │    └─func: all_gather",
        "│    │    └─frequency/iteration: 1",
        "│    │    └─location: after optimizer.iteration",
        "-" * WIDE,
        "All Communication of Cluster in Data Parallelism",
        f"│    └─frequency/iteration: {count}",
        f"│    └─volume/iteration: {in_gb(volume)}GB",
    )


def _tensor(figures: ToolFigures, limit: int | None) -> str:
    wide, job = 215, figures.job
    per_layer = 4 if figures.tensor_messages else 0
    half = per_layer // 2
    steps, ranks = job.micro_batches, job.world
    each = figures.tensor_messages

    def lines(lead: str, count: int, digits: int = 1) -> list[str]:
        volume = count * figures.message / GB
        return [f"{lead}└─frequency: {count}", f"{lead}└─volume: {volume:.{digits}f}GB"]

    return _section(
        "Tensor Parallel Communications",
        f"{'Layer':<43}{'Param(shape)':<25}{'Param(Mem. MB)':<17}{'Activations(Mem. MB)':<23}"
        f"{'TP_Fw.(Comm. Shape)':<23}{'TP_Fw.(Comm. Mem. MB)':<25}"
        f"{'TP_Bw.(Comm. Shape)':<23}{'TP_Bw.(Comm. Mem. MB)':<25}TP(Comm. func)",
        "-" * wide,
        "GPTModel",
        _tree(0, "TransformerLanguageModel"),
        *_rows(figures, figures.shard, figures.stage_layers, messages=each > 0),
        "-" * wide,
        f"{group_count(job, 'tp')} Tensor Parallel Communication Groups:",
        *_listed(job, "tp", limit, "│    "),
        "Communication in Tensor Parallel",
        "│    └─each gpu:",
        "│    │    └─each micro_batch:",
        *lines("│    │    │    ", each),
        "│    │    │    └─each transformer:",
        f"│    │    │    │    └─frequency: {half}(forward)+{half}(backward)={per_layer}",
        lines("│    │    │    │    ", per_layer, 2)[1],
        "│    │    └─each iteration:",
        *lines("│    │    │    ", each * steps),
        "│    └─cluster:",
        "│    │    └─each micro_batch:",
        *lines("│    │    │    ", each * ranks),
        "│    │    └─each iteration:",
        *lines("│    │    │    ", each * steps * ranks),
        width=wide,
    )
