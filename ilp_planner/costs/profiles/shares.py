"""Shares of a plan's time by source: measurements, and predictions by quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.costs.profiles.table import Origin, Provenance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LINKS = Origin(Provenance.ANALYTIC)  # what a cluster file says of its links


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a plan's time. error: expected relative error of it; None: not known."""

    share: float
    error: float | None = None


class Tally:
    """Seconds by source."""

    def __init__(self) -> None:
        self._seconds: dict[Provenance, float] = {}
        self._judged: dict[Provenance, float] = {}
        self._off: dict[Provenance, float] = {}

    def add(self, origin: Origin, seconds: float) -> None:
        """Count seconds."""
        source, error = origin
        if not seconds > 0:
            return
        self._seconds[source] = self._seconds.get(source, 0.0) + seconds
        if error is not None and source is not Provenance.MEASURED:
            self._judged[source] = self._judged.get(source, 0.0) + seconds
            self._off[source] = self._off.get(source, 0.0) + seconds * error

    @property
    def total(self) -> float:
        """All seconds."""
        return sum(self._seconds.values())

    def shares(self) -> dict[Provenance, Share]:
        """Return the share of each source, the most trustworthy first.

        The error of a source is the mean over its seconds with known errors.
        """
        total = self.total
        return {
            source: Share(
                share=self._seconds[source] / total,
                error=self._off[source] / self._judged[source] if source in self._judged else None,
            )
            for source in Provenance
            if source in self._seconds
        }


def term_shares(
    terms: Mapping[str, float], links: Collection[str], profiled: Origin
) -> dict[Provenance, Share]:
    """Return the shares of a time with one source for each term. terms: seconds by name.
    links: terms from the cluster's links; all others are `profiled`."""
    tally = Tally()
    for name, seconds in terms.items():
        tally.add(LINKS if name in links else profiled, seconds)
    return tally.shares()


def predicted_error(shares: Mapping[Provenance, Share]) -> float | None:
    """Return the expected relative error of all that was predicted from measurements; None if there
    are none, or it is unknown."""
    judged = [
        share
        for source, share in shares.items()
        if source is not Provenance.MEASURED and share.error is not None
    ]
    total = sum(share.share for share in judged)
    return sum(s.share * (s.error or 0.0) for s in judged) / total if total > 0 else None
