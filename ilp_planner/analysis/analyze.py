"""Memory and messages of a training job before its launch: one verb, `analyze`.

All figures come from `ilp_planner.job`, like the planner's. Nothing here is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.recomputation import Saving, rank_memories, savings
from ilp_planner.analysis.stages import StageView, stage_views
from ilp_planner.base.errors import PlanError
from ilp_planner.job.communication import shares_embedding, stage_traffic, traffic
from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.groups import group_count, group_size, kind_link, stage_link
from ilp_planner.job.memory import RankMemory, memory_parts, stage_of_rank
from ilp_planner.job.traffic import EMBEDDING
from ilp_planner.job.verdict import Verdict, verdict_of
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.specs.degrees import expert_grid_misfits
from ilp_planner.specs.pipeline_layout import even_layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from ilp_planner.job.modules import Module
    from ilp_planner.job.traffic import Traffic
    from ilp_planner.specs.training import TrainingJob

# What each kind of group is for, in the order in which they are reported.
PURPOSES = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "dp": "data parallelism",
    "dp-cp": "gradients and parameters, over data- and context-parallel ranks",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "etp": "tensor parallelism of experts",
    "etp-ep": "tokens of routed experts",
    "edp": "gradients and parameters of routed experts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind:
    """All groups of one kind. link: of their messages. members: of every group by name, where they
    follow from no arithmetic on ranks."""

    kind: str
    purpose: str
    size: int
    count: int
    link: str
    members: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The answer. jobs: for every pipeline stage the job whose rank it is; one and the same if all
    stages have equal degrees. whole, whole_memory: the model on one GPU, a single micro-batch at a
    time. limit: bytes of a device that may be used, None when not known; device: its name.
    limits: of the devices of every stage, if they differ.
    """

    name: str
    jobs: tuple[TrainingJob, ...]
    whole: tuple[Module, ...]
    whole_memory: RankMemory
    stages: tuple[StageView, ...]
    ranks: tuple[RankMemory, ...]
    traffic: tuple[Traffic, ...]
    groups: tuple[GroupKind, ...]
    savings: tuple[Saving, ...]
    limit: float | None = None
    limits: tuple[float, ...] = ()
    device: str = ""
    notes: tuple[str, ...] = ()

    def limit_of(self, pp_rank: int) -> float | None:
        """Return the bytes of a device of this stage that may be used; None when not known."""
        return self.limits[pp_rank] if self.limits else self.limit

    @property
    def fullest(self) -> int:
        """The deciding pipeline stage: it needs the largest share of its memory, or the most if
        limits are not known."""
        return max(
            range(len(self.ranks)), key=lambda r: self.ranks[r].needed / (self.limit_of(r) or 1.0)
        )

    @property
    def verdict(self) -> Verdict | None:
        """Whether every GPU has enough memory; None if no limit is known."""
        limit = self.limit_of(self.fullest)
        return None if limit is None else verdict_of(self.ranks[self.fullest].needed, limit)

    @property
    def fits(self) -> bool | None:
        """Whether every GPU has enough memory; None if no limit is known, or the answer is
        uncertain."""
        return None if self.verdict is None else self.verdict.fits

    @property
    def job(self) -> TrainingJob:
        """The job of the first stage."""
        return self.jobs[0]

    @property
    def uniform(self) -> bool:
        """Whether all stages belong to one job."""
        return all(job is self.job for job in self.jobs)

    def frame(self, table: str = "modules") -> pd.DataFrame:
        """Return one of the tables: `modules`, `memory`, `traffic`, `groups` or `recompute`.

        Bytes and messages; one row per module, pipeline stage, kind of message, of group, or kind
        of recomputation.

        Raises
        ------
        ValueError: unknown table.
        """
        # Imported here: pandas takes longer than everything else in an analysis.
        import pandas as pd

        from ilp_planner.analysis.rows import TABLES

        if table not in TABLES:
            raise ValueError(f"table must be one of {', '.join(TABLES)}, got {table!r}")
        return pd.DataFrame(list(TABLES[table](self)))


def analyze(
    job: TrainingJob,
    *,
    name: str = "",
    limit: float | None = None,
    device: str = "",
    notes: Sequence[str] = (),
) -> Analysis:
    """Return memory and messages of every rank of a job.

    Parameters
    ----------
    name: of the model, for people. limit: bytes of a device that may be used. device: its name.

    Raises
    ------
    PlanError: its ranks cannot hold its experts.
    """
    return analyze_stages((job,) * job.pp, name=name, limit=limit, device=device, notes=notes)


def analyze_stages(
    jobs: Sequence[TrainingJob],
    *,
    name: str = "",
    limit: float | None = None,
    device: str = "",
    notes: Sequence[str] = (),
    limits: Sequence[float] = (),
    placed: Sequence[GroupKind] = (),
    links: Mapping[tuple[str, int], str] | None = None,
) -> Analysis:
    """Return memory and messages of every stage, if stages may differ in tp and dp.

    Parameters
    ----------
    jobs: of every stage, a job that would have its degrees everywhere.
    placed, links: groups, and the links of messages by (kind of group, stage), if devices are not
        numbered as the job's ranks.

    Raises
    ------
    PlanError: the ranks of one cannot hold its experts.
    """
    first = jobs[0]
    for job in dict.fromkeys(jobs):
        if any(expert_grid_misfits(job)):
            raise PlanError(
                f"settings.ep x etp: found {job.settings.ep} x {job.expert_tp}, expected a divisor "
                f"of the {job.world // job.pp} ranks of a pipeline stage (tp x cp x dp)"
            )
    uniform = all(job is first for job in jobs)
    alone = single_gpu(first)
    return Analysis(
        name=name,
        jobs=tuple(jobs),
        whole=tuple(rank_modules(alone, 0)),
        whole_memory=stage_of_rank(memory_parts(alone), 0),
        stages=tuple(stage_views(jobs)),
        ranks=tuple(rank_memories(jobs)),
        traffic=traffic(first) if uniform and links is None else tuple(_placed(jobs, links or {})),
        groups=tuple(placed or group_kinds(first)) if uniform or placed else (),
        savings=tuple(savings(jobs)),
        limit=limit,
        limits=tuple(limits),
        device=device,
        notes=tuple(notes),
    )


def _placed(jobs: Sequence[TrainingJob], links: Mapping[tuple[str, int], str]) -> Iterator[Traffic]:
    """Yield the messages of stages of different jobs, over the links of their own devices."""
    for r, job in enumerate(jobs):
        for row in stage_traffic(job, r):
            before = row.group == "pp" and "previous" in row.what
            stage = (r - 1) % len(jobs) if before else r
            yield replace(row, link=links.get((row.group, stage), row.link))


def single_gpu(job: TrainingJob) -> TrainingJob:
    """Return the model on one GPU with the job's micro-batch, one of them at a time."""
    settings = replace(
        job.settings, cp=1, cp_inner=0, ep=1, etp=0, sequence_parallel=False, schedule=USUAL
    )
    return replace(
        job,
        tp=1,
        pp=1,
        dp=1,
        global_batch=job.micro_batch,
        layout=even_layout(job.model.layers, 1, prediction_layers=job.model.prediction_layers),
        settings=settings,
    )


def group_kinds(job: TrainingJob) -> Iterator[GroupKind]:
    """Yield the kinds of groups that have more than one member."""
    for kind, purpose in PURPOSES.items():
        if kind == "dp-cp" and job.settings.cp == 1:
            continue
        if kind in ("ep", "etp", "etp-ep", "edp") and job.model.experts is None:
            continue
        if kind == "etp-ep" and (job.settings.ep == 1 or job.expert_tp == 1):
            continue
        size = group_size(job, kind)
        if size > 1:
            yield GroupKind(
                kind=kind,
                purpose=purpose,
                size=size,
                count=group_count(job, kind),
                link=kind_link(job, kind),
            )
    if job.pp > 1 and shares_embedding(job):
        yield GroupKind(
            kind=EMBEDDING,
            purpose="gradients of the word embedding, of first and last stage",
            size=2,
            count=job.world // job.pp,
            link=stage_link(job, 0, job.pp - 1),
        )
