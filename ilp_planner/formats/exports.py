"""The training systems that plans are written for; one is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ilp_planner.formats.exported import Expected, Exported
    from ilp_planner.specs.training import TrainingJob

# Name -> module:function, which takes a job, the name of the run and what is known of it.
EXPORTS = {
    "megatron": "ilp_planner.formats.megatron.launch:export_megatron",
    "torchtitan": "ilp_planner.formats.torchtitan:export_torchtitan",
    "deepspeed": "ilp_planner.formats.deepspeed:export_deepspeed",
    "nemo": "ilp_planner.formats.nemo:export_nemo",
}


def export_job(to: str, job: TrainingJob, name: str, expected: Expected) -> Exported:
    """Return the files of a run in the words of a training system.

    Raises
    ------
    PlanError: what the system cannot run, with its limit and the nearest that it can.
    """
    module, _, function = EXPORTS[to].partition(":")
    export = getattr(importlib.import_module(module), function)
    return cast("Exported", export(job, name, expected))
