"""The support of a model, for people and as JSON."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.report.tables import Table
from ilp_planner.faces.schemas import headed
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.time_errors import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.analysis.supports import Support

MEGATRON = "megatron"  # of a decoder whose runtime is not said
USUAL_GPU = "H100-80GB"
NODE = 8
HELD = 18  # bytes of a parameter, its gradient and the states of Adam, on all GPUs together
YES, PART = "yes", "where a part of the model is trained"
BILLION = 1e9


def supports_lines(found: Support, named: str = "") -> Iterator[tuple[str, str]]:
    """Yield the verdict first: which systems plan the model, and which exports write it.

    named: the model, as a command takes it; empty: its name.
    """
    planned = [row.title for row in found.planned if not row.refused]
    written = [row.to for row in found.exports if not row.refused]
    model = found.model
    yield "planned", f"for {', '.join(planned)}" if planned else "for no training system"
    yield "exported", f"--to {', '.join(written)}" if written else "nowhere"
    if found.layers:
        layers = ", ".join(f"{count} x {name}" for name, count in found.layers)
        yield "model", f"{model.name}, {parameter_count(model) / BILLION:.2f} B: {layers}"
    else:
        yield "model", f"{model.name}, {model.family}: by operators, `--space operators`"
    for row in found.planned:
        if row.refused:
            yield f"not {row.runtime}", row.refused
    said = {row.refused: row.runtime for row in reversed(found.planned)}
    systems = {row.runtime.partition("@")[0] for row in found.planned}
    for one in found.exports:
        same = said.get(one.refused)
        if one.refused and (same is None or one.to.partition("@")[0] not in systems):
            yield f"not --to {one.to}", f"as {same}" if same else one.refused
    for name, why in found.unable:
        yield f"not on {name}", why
    if found.priced:
        system = next(row.runtime for row in found.planned if not row.refused)
        runtime = f" --runtime {system}" * (system != MEGATRON)
        yield (
            "next",
            f"ilp-plan solve {shlex.quote(named or model.name)} --gpus {_gpus(found)}{runtime}; "
            "`ilp-plan runtimes RUNTIME` has each setting",
        )


def _gpus(found: Support) -> str:
    """Return GPUs that hold the states of a model: nodes, as many as a power of two."""
    names = [row.gpu for row in found.priced]
    name = USUAL_GPU if USUAL_GPU in names else names[0]
    least = HELD * parameter_count(found.model) / gpu(name).memory
    return f"{NODE << max(0, math.ceil(math.log2(least / NODE)))}x{name}"


def supports_tables(found: Support) -> Iterator[Table]:
    """Yield a row per training system, one per export, and one per GPU and precision."""
    systems = Table("solve --runtime", "plans", "searched", "one value", "left out",
                    left=("solve --runtime", "plans"))  # fmt: skip
    for row in found.planned:
        counts = (row.searched, row.fixed, row.left_out)
        systems.add(row.runtime, "no" if row.refused else YES, *map(str, counts))
    yield systems
    exports = Table("export --to", "writes", left=("export --to", "writes"))
    for one in found.exports:
        exports.add(one.to, "no" if one.refused else PART if one.part else YES)
    yield exports
    if found.priced:
        left = ("GPU", "products", "rests on")
        priced = Table("GPU", "products", "error", "4 of 5 runs", "rests on", left=left)
        for each in found.priced:
            error = each.error
            mean = f"{error.mean:.0%}"
            priced.add(each.gpu, STATES[each.bits], mean, error.short, error.basis)
        yield priced


def supports_legend() -> list[tuple[str, str]]:
    """Return remarks that the tables lack."""
    return [
        ("searched", "settings whose values are tried; one value: plans have it, or as you ask"),
        ("left out", "settings that could be otherwise, and are not tried"),
        ("error", "mean, of times by constants that nobody calibrated; `calibrate` makes it less"),
    ]


def supports_object(found: Support) -> dict[str, Any]:
    """Return all of it as JSON."""
    return headed("supports") | {
        "model": found.model.name,
        "family": found.model.family,
        "parameters": parameter_count(found.model),
        "layers": [{"kind": name, "count": count} for name, count in found.layers],
        "runtimes": [
            {
                "name": row.runtime,
                "title": row.title,
                "planned": not row.refused,
                "reason": row.refused,
                "searched": row.searched,
                "fixed": row.fixed,
                "left_out": row.left_out,
            }
            for row in found.planned
        ],
        "exports": [
            {
                "to": row.to,
                "written": not row.refused,
                "reason": row.refused,
                "part_alone": row.part,
            }
            for row in found.exports
        ],
        "errors": [
            {
                "gpu": row.gpu,
                "bits": row.bits,
                "mean": row.error.mean,
                "low": row.error.low,
                "high": row.error.high,
                "published_groups": row.error.runs,
                "basis": row.error.basis,
            }
            for row in found.priced
        ],
    }
