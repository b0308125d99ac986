"""Gains of relaxations: what is said to be proved contains what is true."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.why.relaxations import relaxations
from ilp_planner.analysis.why.why import Found, Gain, Known, Near, resolve
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.files import Document
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.search.start import Start
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from tests.examples import examples
from tests.megatron_cases import GIB, small_cluster, small_model

EXACT = Limits()
CLOSE = 1e-9  # relative


def held(name: str, text: str) -> Reference:
    """Return an input that a request holds itself."""
    return Reference(name=name, sha256=Document(name, text).sha256, text=text)


def asked(cluster: ClusterSpec, batch: int, space: str, **said: object) -> Request:
    """Return a request for a small model."""
    return Request(
        files={
            "model": held("small", model_text(small_model())),
            "cluster": held("small", cluster_text(cluster)),
            "profile": Reference(name="analytic"),
        },
        space=space,
        global_batch=batch,
        constraints=constraints_of(said),
    )


def with_memory(cluster: ClusterSpec, memory: float) -> ClusterSpec:
    """Return a cluster whose devices have so many bytes."""
    types = {n: replace(d, memory=int(memory)) for n, d in cluster.device_types.items()}
    return replace(cluster, device_types=types)


REQUESTS = st.builds(
    asked,
    st.builds(
        with_memory,
        st.builds(
            small_cluster,
            nodes=st.integers(1, 2),
            between=st.sampled_from((1e9, 20e9)),
            slow=st.integers(0, 1),
        ),
        st.floats(1.2 * GIB, 2.6 * GIB),
    ),
    batch=st.sampled_from((4, 6)),
    space=st.sampled_from(("megatron", "megatron", "groups")),
)
CONSTRAINED = st.builds(
    asked,
    st.just(with_memory(small_cluster(), 3 * GIB)),
    batch=st.just(4),
    space=st.just("megatron"),
    tp=st.sampled_from(("1", "2")),
    recompute=st.sampled_from(("full", "none")),
)


def check_all(request: Request, calls: int, gap: float) -> None:
    """Solve a request and its relaxations, to the end and only so far: what the latter prove holds
    of the former.

    Parameters
    ----------
    calls: how often the clock may be asked before the time is up. gap: with which searches end.
    """

    def known(one: Request, start: Start | None, limits: Limits, *, short: bool) -> Found:
        left = [calls if short else math.inf]

        def wanted() -> bool:
            left[0] -= 1
            return left[0] > 0

        found = resolve(one, Near(start, (), limits), Deadline(1000.0, wanted))
        assert not found.failure, found.failure
        return found

    first = known(request, None, EXACT, short=False)
    if first.plan is None:
        return
    problem = build_problem(InputFiles(request))
    assert first.best == pytest.approx(first.bound, rel=CLOSE)
    start = Start(
        name="plan", plan=first.plan, space=problem.space.name, seconds=first.best, request=request
    )
    loose = known(request, start, Limits(gap=gap), short=True)
    before = Known(loose.bound, min(first.best, loose.best))
    whole = InputFiles(request).whole_cluster
    every = relaxations(problem, whole, first.plan)
    assert {one.kind for one in every} >= {"memory", "node", "links", "batch"}
    for one in every:
        exact = known(one.request, start, EXACT, short=False)
        then = one.scale * exact.best
        if one.wider:
            # Not only may plans of before be kept: where devices may not idle, more can be worse.
            if one.kind != "node":
                assert then <= first.best * (1 + CLOSE), one
            then = min(then, first.best)
        real = first.best - then
        part = known(one.request, start, Limits(gap=gap), short=True)
        gain = Gain(relaxation=one, found=part, before=before)
        assert gain.least - CLOSE * first.best <= real <= gain.most + CLOSE * first.best, one
        assert not gain.none or real <= CLOSE * first.best


@pytest.mark.slow
@examples(6)
@given(REQUESTS, st.integers(1, 2000), st.sampled_from((0.0, 0.02, 0.3)))
def test_a_proved_range_contains_the_real_gain(request: Request, calls: int, gap: float) -> None:
    check_all(request, calls, gap)


@examples(1, more=4)
@given(CONSTRAINED, st.integers(1, 2000), st.sampled_from((0.0, 0.1)))
def test_so_it_does_of_constraints(request: Request, calls: int, gap: float) -> None:
    check_all(request, calls, gap)
