"""How many micro-batches a pipeline rank holds at once: 1F1B and interleaved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob


def in_flight(job: TrainingJob, pp_rank: int) -> int:
    """Return the most micro-batches of virtual stages that a rank holds before their backward pass.

    1F1B: stages after it and itself. Interleaved (`pipeline_parallel/schedules.py`): twice the
    ranks after it, all virtual stages but the last of one group of micro-batches, and one.
    """
    total = job.micro_batches * job.virtual
    if job.virtual == 1:
        return min(job.pp - pp_rank, total)
    warm_up = 2 * (job.pp - pp_rank - 1) + (job.virtual - 1) * group_size(job)
    return min(warm_up + 1, total)


def group_size(job: TrainingJob) -> int:
    """Return how many micro-batches pass one virtual stage before the next one's turn.

    Megatron's default of `--microbatch-group-size-per-virtual-pipeline-stage`: pp.
    """
    return job.pp


def held(job: TrainingJob, pp_rank: int) -> tuple[tuple[int, ...], ...]:
    """Return every distinct (micro-batches held per virtual stage) just before a backward pass.

    Which virtual stages the held micro-batches belong to changes during an iteration; a rank's peak
    is over all of it. The pattern repeats with the groups, so two of them in the steady state and
    the warm-up are enough.
    """
    most = in_flight(job, pp_rank)
    if job.virtual == 1:
        return ((most,),)
    group, virtual = group_size(job), job.virtual
    total = job.micro_batches * virtual
    cycle = group * virtual
    steps = min(total, most + 2 * cycle)
    found: dict[tuple[int, ...], None] = {}
    counts = [0] * virtual
    for step in range(steps):
        counts[_chunk(step, job, forward=True)] += 1
        done = step - (most - 1)
        if done >= 0:
            found[tuple(counts)] = None
            counts[_chunk(done, job, forward=False)] -= 1
    return tuple(found) or (tuple(counts),)


def _chunk(step: int, job: TrainingJob, *, forward: bool) -> int:
    """Return the virtual stage of a rank's so-manieth forward or backward pass.

    The last group has what is left of the micro-batches.
    """
    group, virtual = group_size(job), job.virtual
    first = step // (group * virtual) * group
    size = min(group, job.micro_batches - first)
    chunk = (step - first * virtual) // size
    return chunk if forward else virtual - 1 - chunk
