"""Seconds of elements on a rank whose devices differ."""

from dataclasses import replace

import pytest

from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.times import element_time
from tests.analysis.calibration.machines import DEFAULT, h100, job, lab


@pytest.mark.parametrize("order", [1, -1])
def test_the_slowest_device_decides_compute_and_messages_apart(order: int) -> None:
    """One computes slowly, the other hides less: whichever comes first."""
    slow = h100(machine=replace(DEFAULT, sustained=0.4, tensor_exposed=0.0))
    open_ = h100(machine=replace(DEFAULT, sustained=0.8, tensor_exposed=1.0))
    network, one = Network(lab(), (0, 1)), job(tp=8)
    settings = replace(one.settings, overlap_tensor=True)
    one = replace(one, settings=settings)
    each = [element_time(one, network, [device], 0, "dense") for device in (slow, open_)]
    both = element_time(one, network, [slow, open_][::order], 0, "dense")
    assert (both.compute, both.messages) == (each[0].compute, each[1].messages)
    assert 0 < both.forward < both.total
