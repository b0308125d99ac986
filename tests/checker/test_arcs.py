"""The arcs of proofs of operators, by a program in another language, from the pages alone."""

import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.checker import checker
from tests.checker.instances import Instance, Record
from tests.checker.test_checker import HUGE, read
from tests.examples import examples

HERE = Path(__file__).parent
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.skipif(shutil.which("awk") is None, reason="there is no awk here")
@given(SEEDS)
@examples(5, more=40)
def test_arcs_and_their_pipelines_are_those_of_a_program_written_from_the_pages(seed: int) -> None:
    instance = Instance("operators", seed)
    proof = instance.proof(min(instance.optimum * 1.5, HUGE))
    arcs, bounds = by_awk(proof)
    plans, costs, cases, _ = checker.opened(read(proof))
    compared = 0
    for size in plans["micro_batches"]:
        stages = checker.Stages(costs, plans, size, cases[size])
        for (micro_batch, g, behind, enters, leaves, start, stop), seconds in arcs.items():
            if micro_batch == size and g in stages.groups:
                flight = costs.in_flight(behind, stages.B)
                prices = stages.prices_of(g, flight)
                swept = stages.sweep(g, flight, leaves, stop, checker.NEVER // 2, prices)
                place = stop - start - 1
                own = swept[place][enters] if place < len(swept) else checker.NEVER
                if seconds > 1e29 or own >= checker.NEVER // checker.Q // 2:
                    assert seconds > 1e20
                    assert own > 10**20
                else:  # the checker rounds bytes down, each before it has its price
                    sizes = (9 + flight) * (stop - start + 1)
                    rounded = sizes * max(price for _, price in prices) / (checker.Q * checker.PS)
                    assert -1e-9 <= seconds - own / checker.PS <= rounded + 1e-9
                compared += 1
    assert compared or instance.optimum == math.inf
    assert min(bounds.values()) <= instance.optimum * (1 + 1e-9)


def by_awk(proof: Record) -> tuple[dict[tuple[int, ...], float], dict[int, float]]:
    """Return the seconds of every arc, and of the pipelines of every micro-batch."""
    done = subprocess.run(
        ["awk", "-f", HERE / "json.awk", "-f", HERE / "priced_operators.awk"],
        input=json.dumps({"certificate": {"independent": proof}}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    arcs = {tuple(map(int, line[1:-1])): float(line[-1]) for line in lines if line[0] == "arc"}
    return arcs, {int(line[1]): float(line[2]) for line in lines if line[0] == "bound"}
