"""The changes of one and of two settings with which a job fits and is fastest.

Every job with one setting changed is tried, and every one with two. Of each setting, and of each
pair, the fastest values are kept; a pair that is no faster than one of its settings alone is not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, takewhile
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.draft import draft_of
from ilp_planner.analysis.fit.settings import settings_of
from ilp_planner.optimize.search.preference import plainer_first
from ilp_planner.spaces.training.enumerate.plainness import grades, traits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.analysis.fit.draft import Draft
    from ilp_planner.analysis.fit.judge import Judge, Judged
    from ilp_planner.analysis.fit.settings import Setting
    from ilp_planner.formats.line_change import LineChange
    from ilp_planner.specs.training import TrainingJob

# Says what to change in what the user has, so that it says a job; None: nothing says it, or the
# training system would refuse it.
Writer = Callable[["TrainingJob"], "LineChange | None"]
GPUS = "GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job with some settings changed. settings: their names. words: of the change."""

    settings: tuple[str, ...]
    judged: Judged
    words: LineChange

    @property
    def size(self) -> int:
        """How many settings are changed."""
        return len(self.settings)


class Changes:
    """Tries changes of one job, and keeps the fastest ones that fit."""

    def __init__(self, judge: Judge, writer: Writer, within: float) -> None:
        """Take the judge and the writer of changes. within: seconds that they must undercut."""
        self.judge, self.writer, self.within = judge, writer, within
        self.best: dict[tuple[str, ...], Change] = {}
        self.tried: Counter[int] = Counter()  # jobs by the number of their changed settings
        self._settings = settings_of(judge.space.runtime)
        self._seen = {judge.job}

    def ranked(self) -> tuple[Change, ...]:
        """Return the kept changes, the fastest first but plainer jobs before hardly faster ones
        (`plainer_first`), and of equally fast ones the fewest settings first. A change that is no
        faster than a part of it is left out."""
        kept = [
            change
            for names, change in self.best.items()
            if change.judged.seconds < self._least(names, len(names) - 1)
        ]
        kept.sort(key=lambda change: change.size)
        runtime = self.judge.space.runtime

        def graded(change: Change) -> tuple[float, tuple[int, ...]]:
            return change.judged.seconds, grades(traits_of(runtime, change.judged.job))

        return tuple(plainer_first(kept, graded))

    def singles(self, start: Draft, already: tuple[str, ...] = ()) -> None:
        """Try every job with one setting changed. already: names of earlier changes."""
        for setting in self._settings:
            for draft in _with(start, setting):
                self.try_job((*already, setting.name), draft.job())

    def pairs(self, start: Draft) -> None:
        """Try every job with two settings changed."""
        for one, other in combinations(self._settings, 2):
            for draft in _with(start, one):
                for both in _with(draft, other):
                    self.try_job((one.name, other.name), both.job())

    def try_job(self, names: tuple[str, ...], job: TrainingJob | None) -> None:
        """Keep a job if it is the fastest so far with these settings changed."""
        if job is None or job in self._seen:
            return
        self._seen.add(job)
        self.tried[len(names)] += 1
        judged = self.judge.faster(job, self._least(names, len(names)))
        if judged is None:
            return
        words = self.writer(job)
        if words is not None:
            self.best[names] = Change(settings=names, judged=judged, words=words)

    def _least(self, names: tuple[str, ...], most: int) -> float:
        """Return the seconds of the kept change of these settings, or `most` of them."""
        parts = (part for n in range(1, most + 1) for part in combinations(names, n))
        kept = (self.best[part].judged.seconds for part in parts if part in self.best)
        return min(kept, default=self.within)


def _with(draft: Draft, setting: Setting) -> Iterator[Draft]:
    for value in setting.values(draft):
        changed = setting.write(draft, value)
        if changed is not None:
            yield changed


def with_more_gpus(judge: Judge, writer: Writer, *, besides: bool) -> Changes:
    """Return the changes on the fewest more GPUs on which the job fits; none if no number of them
    is enough, up to one sample for every replica.

    Parameters
    ----------
    besides: one more setting may be changed on them; otherwise nothing else is.
    """
    job = judge.job
    most = job.global_batch * job.tp * job.pp * job.settings.cp
    found, start = Changes(judge, writer, math.inf), draft_of(job)
    for world in takewhile(lambda world: world <= most, judge.site.more(job.world)):
        more = replace(start, world=world)
        found.try_job((GPUS,), more.job())
        if besides:
            found.singles(more, (GPUS,))
        if found.best:
            break
    return found
