"""Three kinds of verdicts: near a limit, on either side, none is certain."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.memory import RankMemory
from ilp_planner.job.verdict import MARGIN, Verdict, reason, verdict_of

sizes = st.floats(1.0, 1e13)


@given(sizes, sizes)
def test_the_kind_follows_from_the_share(needed: float, limit: float) -> None:
    verdict = verdict_of(needed, limit)
    assert (verdict is Verdict.FITS) == (needed <= limit * (1 - MARGIN))
    assert (verdict is Verdict.DOES_NOT_FIT) == (needed > limit * (1 + MARGIN))
    assert verdict.fits is {"FITS": True, "DOES NOT FIT": False}.get(verdict)


@given(sizes, st.floats(0.0, 0.2), st.floats(1e-9, 0.2))
def test_what_fits_but_for_the_reserve_may_not_fit(
    peak: float, other: float, beyond: float
) -> None:
    """Whatever is over by the reserve for fragmentation alone is never said not to fit."""
    rank = rank_of(peak, other)
    limit = (peak + other * peak) * (1 + beyond)
    assert verdict_of(rank.needed, limit) is not Verdict.DOES_NOT_FIT
    if rank.needed > limit:
        assert "inside the reserve" in reason(rank, limit)


def rank_of(peak: float, other: float) -> RankMemory:
    return RankMemory(
        parameters=1,
        expert_parameters=0,
        in_flight=1,
        moment="a layer",
        terms={"parameters": peak},
        outside={"NCCL": other * peak, "fragmentation": MARGIN * peak},
    )


def test_a_reason_says_how_large_the_reserve_is() -> None:
    gib = 2.0**30
    over = reason(rank_of(78 * gib, 0.0), 79 * gib)
    assert re.fullmatch(r"inside the reserve of 3.90 GiB \(5 %\) for fragmentation, .*", over)
    assert reason(rank_of(75 * gib, 0.0), 79 * gib).startswith("within 5 % of the limit")
    assert reason(rank_of(79.5 * gib, 0.0), 79.4 * gib).startswith("within 5 % of the limit")
