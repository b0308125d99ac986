"""About how much memory measuring needs, for machines that do not say no in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.anatomy.overheads import handles, workspace
from ilp_planner.measure.chain_job import SAFETY, SINGLE, ChainJob
from ilp_planner.measure.shard import EMBEDDING, HEAD, runs_of
from ilp_planner.profiles.analytic_decoder import decoder_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.measure.chain_stack import Job


def layers_need(kinds: Sequence[str], job: Job, copies: int, *, stepped: bool = False) -> float:
    """Return bytes of parts that run in one stack.

    Parameters
    ----------
    copies: of each kind of layer. stepped: of the optimiser's step instead of the passes.
    """
    if isinstance(job, ChainJob):
        return job.need(kinds, copies, stepped=stepped)
    rows = decoder_rows(job.model, job.micro_batch, job.tp, job.settings.precision, flash=True)
    width = job.settings.width
    held, kept, moment = 0.0, 0.0, 0.0
    for run in runs_of(job.model):
        if run.kind not in kinds:
            continue
        count = 1 if run.kind in (EMBEDDING, HEAD) else copies
        parameters = rows.gradients[run.first] / SINGLE
        if stepped:
            held += 2 * rows.state[run.first]
            continue
        held += count * parameters * (width + SINGLE)
        kept += count * rows.activation[run.first]
        # Libraries of a GPU have room of their own, which a CPU's do without.
        libraries = workspace(rows.job) + handles(rows.job) * (run.kind == HEAD)
        moment = max(moment, rows.workspace[run.first] - libraries + parameters * width)
        kinds = [kind for kind in kinds if kind != run.kind]
    return held + SAFETY * (kept + moment)
