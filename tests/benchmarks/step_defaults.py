"""Defaults of machines per generation of GPUs, and what they saw.

python -m tests.benchmarks.step_defaults

No row of NVIDIA's frameworks is seen, as these judge the defaults. `sustained` is the GPU's: of
every generation from runs of its own. Of A100 and H100 these are MosaicML's, of B200 SimuMax's, and
what is the framework's is fitted beside it and thrown away; of A100 it is the mean with that of the
next runs. Links and network are from Megatron's runs of 2021-22 on A100 (SC'21 and Korthikanti et
al.), with which `streaming` of 0.8 agrees. The shares of messages that overlap leaves exposed
nobody else publishes: they are assumed. One default did see NVIDIA's rows: the host's time for a
layer of experts, which no other rows tell; the table says what is left without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.specs.generations import AMPERE, BLACKWELL, HOPPER
from ilp_planner.specs.machine import Machine, usual_machine
from tests.benchmarks.published import MOSAIC, newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_fit import fitted
from tests.benchmarks.step_times import constants, kernels_of

if TYPE_CHECKING:
    from tests.benchmarks.published import Run

# Where nothing was fitted: what fits start from, also those that judge runs which the defaults saw.
ASSUMED = Machine(
    sustained=0.8, streaming=0.8, links=0.9, network=0.8, host_experts=0.008, step=0.005
)
MEGATRON = ("sustained", "links", "network")
SHARDED = ("sustained", "attention", "attention_backward")
SIMUMAX = (
    *("sustained", "streaming", "attention", "attention_backward", "grouped", "links"),
    *("host_forward", "host_backward"),
)
# What ships is what `propose` finds, rounded.
DEFAULTS = {
    "A100": usual_machine(AMPERE),
    "H100": usual_machine(HOPPER),
    "B200": usual_machine(BLACKWELL),
}
SEEN = (MOSAIC, "SimuMax", "SC21", "Korthikanti")


def base_of(run: Run) -> Machine:
    """Return the default of a run's GPU; what is assumed of any where it saw that run."""
    return ASSUMED if run.family.startswith(SEEN) else DEFAULTS[kernels_of(run.gpu)]


def propose() -> dict[str, Machine]:
    """Fit the defaults anew."""
    selene = fitted(ASSUMED, [*sc21_runs(), *korthikanti_runs()], MEGATRON)
    every = [run for run in newest(list(runs())) if run.family.startswith(MOSAIC)]
    found = {}
    for name in ("A100-80GB", "H100"):
        own = [run for run in every if run.gpu == name]
        found[kernels_of(name)] = fitted(ASSUMED, own, SHARDED).sustained
    found["A100"] = (found["A100"] + selene.sustained) / 2
    found["B200"] = fitted(ASSUMED, list(b200_runs()), SIMUMAX).sustained
    return {name: replace(selene, sustained=share) for name, share in found.items()}


if __name__ == "__main__":
    for name, machine in propose().items():
        print(name, constants(machine, MEGATRON))
