"""Groups of ranks as a rank sees them."""

from ilp_planner.job.groups import RankGroup, grid, groups
from ilp_planner.specs.training import TrainingJob


def group_of(job: TrainingJob, kind: str, rank: int, part: str = "") -> RankGroup:
    """Return the group of this kind, or this part of one, that a rank is in."""
    return next(group for group in groups(job, kind, part) if rank in group.ranks)


def pp_rank_of(job: TrainingJob, rank: int) -> int:
    """Return the pipeline rank of a rank."""
    axis = grid(job)["pp"]
    return rank // axis.stride % axis.size
