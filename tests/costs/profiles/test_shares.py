"""Shares of a time by where it comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.profiles.shares import Tally, predicted_error, term_shares
from ilp_planner.costs.profiles.table import Origin, Provenance

PARTS = st.lists(
    st.tuples(
        st.builds(Origin, st.sampled_from(Provenance), st.one_of(st.none(), st.floats(0, 1))),
        st.one_of(st.just(0.0), st.floats(1e-12, 1e3)),  # as tables have them
    ),
    max_size=8,
)


@given(PARTS)
def test_shares_add_up(parts: list[tuple[Origin, float]]) -> None:
    tally = Tally()
    for origin, seconds in parts:
        tally.add(origin, seconds)
    shares = tally.shares()
    if shares:
        assert sum(part.share for part in shares.values()) == pytest.approx(1)
    assert list(shares) == [source for source in Provenance if source in shares]
    for source, part in shares.items():
        known = [
            o.error for o, s in parts if o.provenance is source and s > 0 and o.error is not None
        ]
        if part.error is not None:
            assert min(known) - 1e-9 <= part.error <= max(known) + 1e-9


def test_errors_are_means_over_the_seconds() -> None:
    tally = Tally()
    tally.add(Origin(Provenance.MEASURED, 0.0), 6.0)
    tally.add(Origin(Provenance.INTERPOLATED, 0.1), 1.0)
    tally.add(Origin(Provenance.INTERPOLATED, 0.2), 3.0)
    tally.add(Origin(Provenance.EXTRAPOLATED), 2.0)
    shares = tally.shares()
    assert shares[Provenance.MEASURED].share == 0.5
    assert shares[Provenance.MEASURED].error is None
    assert shares[Provenance.INTERPOLATED].error == pytest.approx(0.175)
    assert shares[Provenance.EXTRAPOLATED].error is None
    assert predicted_error(shares) == pytest.approx(0.175)
    assert predicted_error({}) is None


def test_terms_of_one_source_each() -> None:
    shares = term_shares({"a": 3.0, "sent": 1.0}, ("sent",), Origin())
    assert {source: part.share for source, part in shares.items()} == {
        Provenance.MEASURED: 0.75,
        Provenance.ANALYTIC: 0.25,
    }
