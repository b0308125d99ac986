"""The output of `ilp-plan analyze --json`: one object, bytes and messages, groups by name."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.rows import (
    memory_table,
    message_object,
    recompute_table,
    traffic_object,
    weight_texts,
)
from ilp_planner.faces.report.analysis import MOST_GROUPS, MOST_MEMBERS, group_names
from ilp_planner.faces.schemas import headed
from ilp_planner.job.groups import rank_name, stage_ranks
from ilp_planner.specs.pipeline_layout import write_layout

if TYPE_CHECKING:
    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.job.modules import Module
    from ilp_planner.specs.training import TrainingJob


def analysis_object(
    analysis: Analysis, *, all_groups: bool = False, stage: int | None = None
) -> dict[str, Any]:
    """Return the analysis.

    Parameters
    ----------
    all_groups: name every group. stage: only this pipeline stage.
    """
    width = analysis.job.settings.width
    return {
        **headed("analyze"),
        "model": analysis.name,
        "jobs": [job_object(job) for job in dict.fromkeys(analysis.jobs)],
        "device": analysis.device,
        "device_memory_bytes": analysis.limit,
        "fits": analysis.fits,
        "verdict": None if analysis.verdict is None else str(analysis.verdict),
        "full_model": {
            "parameters": analysis.whole_memory.parameters,
            "memory_bytes": dict(analysis.whole_memory.terms),
            "peak_bytes": analysis.whole_memory.peak,
            "modules": [module_object(module, width) for module in analysis.whole],
        },
        "stages": [
            {
                "pp_ranks": list(view.pp_ranks),
                "layers": [None if span is None else list(span) for span in view.layers],
                "modules": [module_object(module, width) for module in view.modules],
            }
            for view in analysis.stages
            if stage is None or stage in view.pp_ranks
        ],
        "memory": [row for row in memory_table(analysis) if stage in (None, row["stage"])],
        "communication": [
            traffic_object(row) | {"pp_ranks": list(row.stages)}
            for row in analysis.traffic
            if stage is None or stage in row.stages
        ],
        "groups": group_objects(analysis, all_groups=all_groups),
        "recompute": [row for row in recompute_table(analysis) if stage in (None, row["stage"])],
        "notes": list(analysis.notes),
    }


def job_object(job: TrainingJob) -> dict[str, Any]:
    """Return the degrees and settings of a job."""
    return {
        "world": job.world,
        "tp": job.tp,
        "pp": job.pp,
        "dp": job.dp,
        "cp": job.settings.cp,
        "ep": job.settings.ep,
        "etp": job.expert_tp,
        "micro_batch": job.micro_batch,
        "global_batch": job.global_batch,
        "micro_batches": job.micro_batches,
        "virtual_stages": job.virtual,
        "layout": write_layout(job.pipeline),
        "devices_per_node": job.devices_per_node,
        "padded_vocab": job.padded_vocab,
        "settings": asdict(job.settings),
        "architecture": asdict(job.model),
    }


def module_object(module: Module, width: int) -> dict[str, Any]:
    """Return a module with everything inside; counts are of all its repeats."""
    return {
        "name": module.name,
        "repeat": module.repeat,
        "parameters": module.parameters,
        "parameter_bytes": module.parameters * width,
        "activation_bytes": module.activations,
        "weights": list(weight_texts(module.weights)),
        "activations": [
            {"name": kept.name, "shape": list(kept.shape), "bytes": kept.size, "why": kept.why}
            for kept in module.kept
        ],
        "forward": [message_object(message) for message in module.forward],
        "backward": [message_object(message) for message in module.backward],
        "modules": [module_object(child, width) for child in module.children],
    }


def group_objects(analysis: Analysis, *, all_groups: bool) -> dict[str, Any]:
    """Return every kind of group with its members by name, a few of each unless all are wanted."""
    job = analysis.job
    most, members = (None, None) if all_groups else (MOST_GROUPS, MOST_MEMBERS)
    found: dict[str, Any] = {}
    if analysis.uniform and not any(kind.members for kind in analysis.groups):
        found["stages"] = [
            {
                "size": job.world // job.pp,
                "members": [rank_name(job, r) for r in islice(stage_ranks(job, s).ranks, members)],
            }
            for s in range(job.pp)
        ]
    for kind in analysis.groups:
        found[kind.kind] = {
            "purpose": kind.purpose,
            "size": kind.size,
            "count": kind.count,
            "link": kind.link,
            "groups": [
                list(islice(names, members)) for names in islice(group_names(analysis, kind), most)
            ],
        }
    return found
