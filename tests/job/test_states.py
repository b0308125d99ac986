"""Bytes per parameter, and how ranks share them."""

from dataclasses import replace

import pytest

from ilp_planner.job.memory import rank_memory
from ilp_planner.job.states import (
    Rhythm,
    divides_parameters,
    quantised_width,
    reduces_late,
    rhythm,
    state_widths,
    stay_gathered,
    stepped_width,
)
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings
from tests.examples import for_each
from tests.training_jobs import deepseek
from tests.training_jobs import job as a_job


def with_optimizer(job, **values):
    return replace(job, settings=replace(job.settings, optimizer=OptimizerSettings(**values)))


@for_each(
    ("sharding", "expected"),
    [("none", 18), ("optimizer", 6 + 12 / 4), ("gradients", 2 + 16 / 4), ("parameters", 18 / 4)],
)
def test_zero_stages(sharding, expected):
    """Rajbhandari et al. 2020 (arXiv 1910.02054), section 5, with gradients in four bytes."""
    job = a_job(dp=2, settings=Settings(cp=2))
    assert state_widths(with_optimizer(job, sharding=sharding), expert=False).total == expected


def test_routed_experts_have_replicas_of_their_own():
    job = a_job(deepseek(), tp=1, pp=1, dp=8, settings=Settings(ep=4))
    job = with_optimizer(job, sharding="optimizer")
    assert state_widths(job, expert=True).optimizer == 12 / 2
    assert state_widths(job, expert=False).optimizer == 12 / 8


def test_instances_share_among_fewer():
    job = a_job(dp=8)
    assert state_widths(
        with_optimizer(job, sharding="optimizer", instances=2), expert=False
    ).optimizer == pytest.approx(12 / 4)


def test_single_precision_needs_no_master_copy():
    job = a_job(settings=Settings(precision="fp32"))
    assert state_widths(job, expert=False).total == 4 + 4 + 8


def test_offloaded_states_are_elsewhere():
    job = with_optimizer(a_job(), offload=0.75)
    assert state_widths(job, expert=False).optimizer == 3


def test_a_copy_that_the_optimizer_does_not_offload_stays_whole():
    job = with_optimizer(a_job(), offload=0.75, keeps_master=True)
    assert state_widths(job, expert=False).optimizer == 4 + 8 / 4


def test_short_gradients_are_widened_for_the_step():
    job = with_optimizer(a_job(dp=2), sharding="optimizer", gradient=2)
    assert stepped_width(job, expert=False) == 2
    assert stepped_width(with_optimizer(job), expert=False) == 0
    # the optimizer that keeps remainders reads gradients where they are
    assert stepped_width(with_optimizer(job, gradient=2, master=2), expert=False) == 0


@for_each(
    ("pp", "sharding", "expected"),
    [
        (1, "parameters", (4 / 4, 4 / 4, 8 / 4)),
        (1, "gradients", (4 / 4 + 2, 4 / 4, 8 / 4)),
        (2, "parameters", (4 / 4, 4, 8 / 4)),  # gradients wait for the last micro-batch
    ],
)
def test_shards_of_the_master_copy_are_all_that_is_kept(pp, sharding, expected):
    """PyTorch's `fully_shard`: 16 bytes per parameter are divided, not 18."""
    job = a_job(dp=4, pp=pp, layout=None)
    widths = state_widths(with_optimizer(job, sharding=sharding, from_master=True), expert=False)
    assert (widths.parameter, widths.gradient, widths.optimizer) == expected


def test_shards_in_the_training_precision():
    """Without a master copy they have its width, and in single precision they are one."""
    job = with_optimizer(a_job(dp=4), sharding="parameters", from_master=True, master=0)
    assert state_widths(job, expert=False).parameter == 2 / 4
    single = replace(job, settings=replace(job.settings, precision="fp32"))
    assert state_widths(single, expert=False).parameter == 4 / 4


def test_sharded_states_alone_are_gathered_from_no_shards():
    with pytest.raises(ValueError, match="from_master must be false with sharding optimizer"):
        OptimizerSettings(sharding="optimizer", from_master=True)


def test_replicas_cast_parameters_from_a_whole_copy_that_is_stepped():
    """torchtitan's `fully_shard` over one rank: 4 bytes and what they are cast to, gradients and
    moments, and a reduction with every micro-batch, or after the last one of a pipeline."""
    job = with_optimizer(a_job(dp=4, pp=1, layout=None), sharding="none", from_master=True)
    widths = state_widths(job, expert=False)
    assert (widths.parameter, widths.gradient, widths.optimizer) == (4 + 2, 4, 8)
    assert rhythm(job) == Rhythm(reduces=True, sums=True)
    assert rhythm(replace(job, pp=2, layout=None)) == Rhythm()
    assert not divides_parameters(job)


@pytest.mark.parametrize("sharding", ["gradients", "parameters"])
def test_quantised_products_change_no_shards_of_the_master_copy(sharding):
    job = with_optimizer(a_job(dp=4), sharding=sharding, from_master=True)
    quantised = replace(job, settings=replace(job.settings, kernels=Kernels(quantised="mxfp8")))
    widths = state_widths(job, expert=False)
    assert quantised_width(quantised, expert=False) == widths.parameter
    held = [rank_memory(one, 0).terms["parameters"] for one in (job, quantised)]
    assert held[0] == held[1]


@for_each(
    ("sharding", "from_master", "pp", "expected"),
    [
        ("none", False, 1, Rhythm()),
        ("optimizer", False, 2, Rhythm(once=True)),
        ("gradients", False, 1, Rhythm(once=True, reduces=True)),
        ("parameters", False, 2, Rhythm(forward=True, backward=True, reduces=True)),
        ("gradients", True, 1, Rhythm(forward=True, reduces=True, sums=True)),
        ("parameters", True, 1, Rhythm(forward=True, backward=True, reduces=True, sums=True)),
        ("gradients", True, 2, Rhythm(once=True)),
        ("parameters", True, 2, Rhythm(backward=True, once=True)),
    ],
)
def test_when_replicas_send(sharding, from_master, pp, expected):
    """In a pipeline PyTorch's wait for the last micro-batch, and gather once ahead."""
    job = with_optimizer(a_job(pp=pp, layout=None), sharding=sharding, from_master=from_master)
    found = rhythm(job)
    assert found == expected
    assert found.in_passes == (found.forward or found.backward or found.reduces)
    assert reduces_late(job) == (from_master and pp == 2)
    assert stay_gathered(job) == (from_master and pp == 2 and sharding == "parameters")


def test_each_of_what_is_sent_with_a_micro_batch_is_beside_its_passes():
    assert not Rhythm(once=True, sums=True).in_passes
    for name in ("forward", "backward", "reduces"):
        assert Rhythm(**{name: True}).in_passes is True
