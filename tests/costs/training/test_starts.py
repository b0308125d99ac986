"""The host starts the kernels of layers one by one: what that takes, and what takes it away."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.iteration import host_share, iteration_terms, recomputed, stages_of
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.costs.training.starts import EAGER, HOOKED
from ilp_planner.costs.training.times import element_alone
from ilp_planner.settings.values import as_transformers
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.training import Kernels, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.analysis.calibration.machines import h100, job, lab
from tests.examples import examples

EACH = 1e-4  # seconds of a start
FULL = Recompute(granularity="full", method="uniform", layers=1)
FLASH = Kernels(attention="flash")


def of_tokens(tokens: int, settings: Settings, **degrees: int) -> TrainingJob:
    """Return a job of a dense model with samples of so many tokens."""
    one = job(**{"tp": 1, **degrees}, settings=settings)
    model = replace(one.model, sequence=tokens, max_position_embeddings=tokens)
    return replace(one, model=model)


def ranks(one: TrainingJob, each: float = EACH) -> RankCosts:
    """Return the times of a job's ranks, on hosts that take so long for a start."""
    cluster = lab(h100(machine=Machine(host_experts=each)))
    return RankCosts(one, Network(cluster, (0, 1)))


def layer(one: TrainingJob, each: float = EACH):
    """Return the seconds of a layer."""
    return next(iter(ranks(one, each).times.values())).dense


def starts(one: TrainingJob) -> tuple[int, int]:
    """Return the kernels and messages of a layer's passes."""
    ((found, _),) = element_alone(one, h100(), "dense")
    messages = [pair[way] for pair in found.element.messages.values() for way in (0, 1)]
    assert sum(found.element.started) == sum(map(len, messages)) + sum(
        len(way) for module in found.element.work for way in module.ways
    )
    return found.element.started


@examples(40)
@given(tokens=st.sampled_from((64, 512, 4096, 32768)), tp=st.sampled_from((1, 8)))
def test_a_pass_takes_its_kernels_or_their_starts(tokens: int, tp: int) -> None:
    one = of_tokens(tokens, Settings(kernels=FLASH, sequence_parallel=tp > 1), tp=tp)
    alone, found = layer(one, 0.0), layer(one)
    there, back = (EACH * count for count in starts(one))
    assert found.forward == pytest.approx(max(alone.forward, there))
    behind = max(alone.total - alone.forward, back)
    assert found.total - found.forward == pytest.approx(behind)
    assert found.again == found.forward


def test_graphs_and_compiled_layers_have_no_starts() -> None:
    whole = replace(FLASH, graphs="transformer_engine")
    attention = replace(whole, graphed=("attn",))
    plain, none, half, compiled = (
        layer(of_tokens(64, Settings(kernels=kernels)))
        for kernels in (FLASH, whole, attention, replace(FLASH, compiled=True))
    )
    assert none.total < half.total < plain.total
    assert half.total == pytest.approx(plain.total / 2)
    assert compiled.total < half.total


@examples(30)
@given(tokens=st.sampled_from((64, 1024, 8192, 65536)), base=st.sampled_from(("", "nf4")))
def test_checkpoints_of_pytorch_take_the_host_longer_than_the_pass(tokens: int, base: str) -> None:
    """Unless the backward pass after it gives the host that time."""
    tuning = Tuning(rank=8, targets=("q_proj", "v_proj"), adapters="fp32", base=base)
    one = of_tokens(tokens, as_transformers(Settings(kernels=FLASH, tuning=tuning)))
    alone, found = layer(one, 0.0), layer(one)
    there, back = (EAGER * EACH * count for count in starts(one))
    after = max(alone.total - alone.forward, back)
    assert found.forward == pytest.approx(max(alone.forward, there))
    assert found.again == pytest.approx(max(found.forward, HOOKED * there - (after - back)))
    assert recomputed(FULL, [found] * 4, embedding=False, output=False) == 4 * found.again
    assert found.again + found.total >= there + back


@examples(30)
@given(tokens=st.sampled_from((64, 1024, 16384)), pp=st.sampled_from((1, 2)))
def test_the_share_of_the_host_is_what_it_adds(tokens: int, pp: int) -> None:
    settings = Settings(kernels=FLASH)
    one = of_tokens(tokens, settings, pp=pp)
    slow, quick = ranks(one), ranks(one, 0.0)
    seconds, least = (sum(iteration_terms(each, one).values()) for each in (slow, quick))
    assert host_share(slow, seconds) == pytest.approx(1 - least / seconds, abs=1e-12)
    assert host_share(quick, least) == 0
    assert len(stages_of(slow, one)) == pp


def test_many_tokens_hide_the_host() -> None:
    shares = []
    for tokens in (64, 1024, 16384):
        one = of_tokens(tokens, Settings(kernels=FLASH))
        costs = ranks(one)
        shares.append(host_share(costs, sum(iteration_terms(costs, one).values())))
    assert shares[0] > shares[1] > shares[2] == 0
