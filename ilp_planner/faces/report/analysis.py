"""An analysis for people: trees of modules, memory, messages, groups and recomputation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ilp_planner.analysis.rows import (
    MEANT,
    module_rows,
    shape_text,
    stage_name,
    traffic_object,
    weight_texts,
)
from ilp_planner.analysis.stages import StageView, messages_of
from ilp_planner.base.printable import printable_lines
from ilp_planner.base.units import counted, format_bytes
from ilp_planner.faces.report.analysis_memory import gibibytes, memory_tables, recompute_table
from ilp_planner.faces.report.grid import grid_lines, styled_text, wrapped
from ilp_planner.faces.report.tables import Table
from ilp_planner.job.groups import embedding_groups, groups, rank_name, stage_ranks
from ilp_planner.job.traffic import EMBEDDING, FAMILIES, Traffic
from ilp_planner.job.verdict import Verdict, reason
from ilp_planner.settings.table import SETTINGS
from ilp_planner.specs.pipeline_layout import write_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ilp_planner.analysis.analyze import Analysis, GroupKind
    from ilp_planner.job.modules import Message, Module
    from ilp_planner.specs.training import TrainingJob

MIB, GIB = 2**20, 2**30
VOLUMES = (
    "each: the whole tensor that a message gathers or reduces, or what one GPU hands on; "
    "GPU sends: what leaves one GPU, by ring algorithms; all GPUs: summed over those that take part"
)
MEMORY = (
    "peak: torch.cuda.max_memory_allocated; outside: context, NCCL and fragmentation, assumed; "
    "needed: both"
)
MOST_GROUPS = 8  # of a kind that are listed
MOST_MEMBERS = 16  # of a group that are named


# ---- modules ------------------------------------------------------------------------------------


def whole_table(analysis: Analysis) -> Table:
    """Return the full model on one GPU as a tree."""
    heads = ("full model without parallelism", "parameter shape")
    return _tree(heads, analysis.job, analysis.whole, messages=False)


def stage_table(analysis: Analysis, stage: StageView) -> Table:
    """Return one GPU of a stage as a tree, with the messages of its modules."""
    heads = (describe_stage(analysis, stage), "shape")
    return _tree(heads, analysis.jobs[stage.pp_ranks[0]], stage.modules, messages=True)


def describe_stage(analysis: Analysis, stage: StageView) -> str:
    """Return `one GPU of stages 1-6 of 8, each 4 layers`."""
    job = analysis.jobs[stage.pp_ranks[0]]
    if job.pp == 1:
        return "one GPU"
    many = len(stage.pp_ranks) > 1
    name = f"one GPU of stage{'s' * many} {stage_name(stage.pp_ranks)} (of {job.pp})"
    return f"{name}, {describe_layers(stage.layers, exact=not many)}"


def describe_layers(layers: Sequence[tuple[int, int] | None], *, exact: bool) -> str:
    """Return `layers 0-3 and 8-11`, or how many if they are not the same in all stages."""
    spans = [span for span in layers if span is not None]
    count = sum(last - first + 1 for first, last in spans)
    if not exact or not spans:
        return counted(count, "layer") + " each" * (not exact)
    texts = [f"{first}-{last}" if last > first else str(first) for first, last in spans]
    return f"layer{'s' * (count > 1)} {' and '.join(texts)}"


def _tree(
    heads: tuple[str, str], job: TrainingJob, modules: Iterable[Module], *, messages: bool
) -> Table:
    """Return a row per module, its messages below it."""
    width, count = job.settings.width, job.micro_batch
    samples = f"of {count} sample" + "s" * (count > 1)
    titles = (*heads, "parameters\n(MiB)", f"activations (MiB)\n{samples}")
    table = Table(*titles, *(("message\n(MiB)",) * messages), left=heads)
    for depth, _, module in module_rows(modules):
        indent = "  " * depth
        cells = [
            indent + module.name + (f" x {module.repeat}" if module.repeat > 1 else ""),
            "\n".join(weight_texts(module.weights)),
            _mebibytes(module.parameters * width),
            _mebibytes(module.activations),
        ]
        table.add(*cells, *([""] * messages))
        if module.repeat > 1 and module.children:
            each = module.times(1)
            cells = [
                f"{indent}  each of the {module.repeat}:",
                "",
                _mebibytes(each.parameters * width),
                _mebibytes(each.activations),
            ]
            table.add(*cells, *([""] * messages), style="italic")
        if messages:
            for direction, message in messages_of(module):
                table.add(*_message_cells(indent, direction, message), style="dim")
    return table


def _message_cells(indent: str, direction: str, message: Message) -> tuple[str, ...]:
    times = f"{message.times} x " if message.times > 1 else ""
    what = f"{indent}  {direction}: {times}{MEANT[message.collective]} ({message.group})"
    return what, shape_text(message.shape), "", "", _mebibytes(message.size)


def _mebibytes(size: float) -> str:
    if not size:
        return ""
    value = size / MIB
    return f"{value:,.2f}" if value >= 0.01 else "< 0.01"


# ---- communication ------------------------------------------------------------------------------


def traffic_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield a table per kind of parallelism that communicates."""
    for family in FAMILIES:
        rows = [row for row in analysis.traffic if row.family == family]
        if rows:
            yield _traffic_table(analysis, family, rows)


def _traffic_table(analysis: Analysis, family: str, rows: list[Traffic]) -> Table:
    staged = analysis.job.pp > 1
    name = f"{family} parallelism"
    table = Table(
        name,
        *(("stages",) * staged),
        "MiB\neach",
        "times /\nmicro-\nbatch",
        "GiB /\nmicro-\nbatch",
        "times /\niter.",
        "GiB /\niter.",
        "GPU\nsends\nGiB",
        "all GPUs\nGiB /\niter.",
        left=(name,),
    )
    for row in rows:
        each = row.per_micro_batch > 0
        table.add(
            describe_traffic(row),
            *((stage_name(row.stages),) * staged),
            _mebibytes(row.size),
            f"{row.per_micro_batch:,}" if each else "-",
            gibibytes(row.volume_per_micro_batch) if each else "-",
            f"{row.per_iteration:,}",
            gibibytes(row.volume_per_iteration),
            "-" if row.received else gibibytes(row.sent_per_iteration),
            "-" if row.received else gibibytes(row.cluster_volume),
        )
    return table


def describe_traffic(row: Traffic) -> str:
    """Return `layers, forward: all-gather over 8 GPUs inside a node`."""
    if row.group == "pp":
        return f"{'receive' if row.received else 'send'} {row.what}, {row.link}"
    return f"{row.what}: {MEANT[row.collective]}, {row.members:,} GPUs {row.link}"


def total_table(analysis: Analysis) -> Table:
    """Return messages and bytes of the whole cluster per iteration."""
    name = "cluster, per iteration"
    table = Table(name, "messages", "volume\n(GiB)", "GPUs send\n(GiB)", left=(name,))
    total = [0.0, 0.0, 0.0]
    for family in FAMILIES:
        rows = [traffic_object(row) for row in analysis.traffic if row.family == family]
        if not rows:
            continue
        sums = [
            sum(row[f"cluster_{name}_per_iteration"] for row in rows)
            for name in ("messages", "bytes", "sent_bytes")
        ]
        total = [a + b for a, b in zip(total, sums, strict=True)]
        table.add(*_total_cells(f"{family} parallelism", sums))
    table.add(*_total_cells("all", total), style="bold")
    return table


def _total_cells(name: str, sums: Sequence[float]) -> tuple[str, ...]:
    return (name, f"{sums[0]:,.0f}", f"{sums[1] / GIB:,.2f}", f"{sums[2] / GIB:,.2f}")


def group_lines(analysis: Analysis, *, all_groups: bool) -> list[tuple[str, str]]:
    """Return the groups by name, a few of each kind unless all are wanted."""
    lines = _stage_lines(analysis, all_groups=all_groups)
    for kind in analysis.groups:
        limit = None if all_groups else MOST_GROUPS
        what = f"{kind.count:,} of {kind.size} GPUs, {kind.link}: {kind.purpose}"
        lines.append((f"{kind.kind} groups", what))
        lines += [
            ("", group_text(names, kind.size, all_groups=all_groups))
            for names in islice(group_names(analysis, kind), limit)
        ]
        if limit is not None and kind.count > limit:
            lines.append(("", f"... and {kind.count - limit:,} more (--all-groups lists them)"))
    return lines


def _stage_lines(analysis: Analysis, *, all_groups: bool) -> list[tuple[str, str]]:
    """Return the GPUs of every stage, if they follow from the ranks."""
    job = analysis.job
    if job.pp == 1 or not analysis.uniform or any(kind.members for kind in analysis.groups):
        return []
    size = job.world // job.pp
    lines = [("stages", f"{job.pp} of {size:,} GPU{'s' * (size > 1)}")]
    for r in range(job.pp if all_groups else min(job.pp, MOST_GROUPS)):
        names = (rank_name(job, rank) for rank in stage_ranks(job, r).ranks)
        lines.append(("", group_text(names, size, all_groups=all_groups)))
    if len(lines) <= job.pp:
        lines.append(("", f"... and {job.pp + 1 - len(lines)} more (--all-groups lists them)"))
    return lines


def group_names(analysis: Analysis, kind: GroupKind) -> Iterator[Iterable[str]]:
    """Yield the names of the members of every group of a kind."""
    if kind.members:
        yield from kind.members
        return
    job = analysis.job
    found = embedding_groups(job) if kind.kind == EMBEDDING else groups(job, kind.kind)
    for group in found:
        yield (rank_name(analysis.job, rank) for rank in group.ranks)


def group_text(names: Iterable[str], size: int, *, all_groups: bool) -> str:
    """Return `[n0_g0 n0_g1]`."""
    most = size if all_groups else MOST_MEMBERS
    found = list(islice(names, most))
    if size > most:
        found.append(f"... {size - most:,} more")
    return f"[{' '.join(found)}]"


# ---- recomputation and the summary --------------------------------------------------------------


def summary_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Say the analysed job, whether it fits, and the assumptions."""
    job = analysis.job
    s = job.settings
    model = job.model
    lines = [("model", f"{analysis.name or 'unnamed'}, {_model_text(analysis)}")]
    if analysis.uniform:
        degrees = {"tp": job.tp, "pp": job.pp, "cp": s.cp, "dp": job.dp}
        text = " x ".join(f"{name} {size}" for name, size in degrees.items())
        lines.append(("GPUs", f"{job.world:,} = {text}, {job.devices_per_node} per node"))
    else:
        texts = [f"stage {r}: tp {j.tp} x dp {j.dp}" for r, j in enumerate(analysis.jobs)]
        lines.append(("GPUs", "; ".join(texts)))
    lines.append(
        (
            "batch",
            f"{counted(job.global_batch, 'sample')} of {model.sequence} tokens = "
            f"{counted(job.micro_batches, 'micro-batch')} of {job.micro_batch} per replica",
        )
    )
    if job.pp > 1:
        lines.append(("pipeline", write_layout(job.pipeline)))
    lines.append(("settings", settings_text(analysis)))
    if analysis.traffic:
        lines.append(("volumes", VOLUMES))
    lines.append(("memory", MEMORY))
    lines += _fit_lines(analysis)
    notes = analysis.notes
    if job.virtual > 1:
        notes += ("micro-batches held are counted once per virtual stage",)
    return [*lines, *(("note", note) for note in notes)]


def _model_text(analysis: Analysis) -> str:
    count = analysis.whole_memory.parameters
    short = f"{count / 1e9:.2f} billion" if count >= 1e8 else f"{count / 1e6:.2f} million"
    return f"{count:,} parameters ({short}), {analysis.job.model.layers} layers"


def settings_text(analysis: Analysis) -> str:
    """Return how the ranks train, in a line."""
    labels = sorted(row.job_label for row in SETTINGS if row.job_label)
    return ", ".join(text for label in labels if (text := label.text(analysis.job)))


def _fit_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Say whether the tightest GPU fits."""
    needs = [rank.needed for rank in analysis.ranks]
    many, fullest, verdict = len(needs) > 1, analysis.fullest, analysis.verdict
    if verdict is None:
        where = f"stage {fullest}" if many else "every GPU"
        text = f"{format_bytes(needs[fullest])} ({where}); --memory-limit or --cluster tells"
        return [("needs", f"{text} whether it fits")]
    limits = [analysis.limit_of(r) or 0.0 for r in range(len(needs))]
    left = [limit - need for limit, need in zip(limits, needs, strict=True)]
    device = f" of {analysis.device}" * bool(analysis.device and not analysis.limits)
    where = f" (stage {fullest})" if many else ""
    most, room = limits[fullest], left[fullest]
    text = f"{format_bytes(needs[fullest])} of {format_bytes(most)}{device} on the fullest GPU"
    why = f": {reason(analysis.ranks[fullest], most)}" if verdict.fits is None else ""
    if room >= 0:
        return [(verdict, f"{text}{where}, {format_bytes(room)} left{why}")]
    over = f"{sum(each < 0 for each in left)} of {len(left)} stages are over; " if many else ""
    much = f"{over}{format_bytes(-room)} too much{why}"
    # Whoever is told so must know what else the line has that may make the difference.
    names = (note.partition(": not counted: ") for note in analysis.notes)
    uncounted = dict.fromkeys(name for name, found, _ in names if found)
    beside = f"; not counted: {', '.join(uncounted)}" if uncounted else ""
    return [(verdict, f"{text}{where}: {much}{beside}")]


def analysis_text(
    analysis: Analysis,
    *,
    all_groups: bool = False,
    stage: int | None = None,
    width: int,
    styled: bool = False,
) -> str:
    """Return the whole report: the verdict first, and once more at the end, for a terminal that
    stops there, after the analysed job.

    Parameters
    ----------
    stage: show the modules of only this pipeline stage. width: columns. styled: for a terminal.
    """
    tables = [] if stage is not None else [whole_table(analysis)]
    tables += [
        stage_table(analysis, view)
        for view in analysis.stages
        if stage is None or stage in view.pp_ranks
    ]
    tables += [*traffic_tables(analysis), total_table(analysis)]
    tables += [recompute_table(analysis), *memory_tables(analysis)]
    lines: list[str] = []
    for table in tables:
        lines += [*grid_lines(table, width, styled=styled), ""]
    if analysis.groups:
        lines += [*named_lines(group_lines(analysis, all_groups=all_groups)), ""]
    first, last = named_lines(_fit_lines(analysis)), named_lines(summary_lines(analysis))
    if styled:
        first, last = ([_shown(line, width) for line in said] for said in (first, last))
    return printable_lines([*first, "", *lines, *last])


def _shown(line: str, width: int) -> str:
    """Return a line as a terminal shows it: wrapped between words, a verdict in its colour."""
    said = next((one for one in Verdict if line.startswith(f"{one} ")), None)
    colour = None if said is None else said.colour
    return wrapped(line, width) if colour is None else styled_text(wrapped(line, width), colour)


def named_lines(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines of a name and a text."""
    width = max(len(name) for name, _ in lines) + 2
    return [f"{name:<{width}}{text}".rstrip() for name, text in lines]
