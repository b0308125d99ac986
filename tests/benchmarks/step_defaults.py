"""Defaults of machines per generation of GPUs, and what they saw.

python -m tests.benchmarks.step_defaults

No row of NVIDIA's frameworks is seen, as these judge the defaults. `sustained` is the GPU's: of
every generation from its own runs, with all that is the framework's fitted beside it and thrown
away. What is Megatron's (fusion, links, network) is from Megatron's runs on A100. The shares of
messages that overlap leaves exposed nobody else publishes: they are assumed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.specs.machine import Machine
from tests.benchmarks.published import newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_fit import fitted
from tests.benchmarks.step_times import constants, gpu

if TYPE_CHECKING:
    from tests.benchmarks.published import Run

# A step's own seconds, and what eager FSDP's host takes per layer (profiles of 7B models).
STEP, EAGER = 0.005, {"step": 0.02, "host_forward": 0.0003, "host_backward": 0.0006}
ASSUMED = Machine(sustained=0.8, step=STEP)
MEGATRON = ("sustained", "streaming", "links", "network")
NUISANCE = {
    "H100": ("sustained", "streaming", "attention", "attention_backward"),
    "B200": (
        *("sustained", "streaming", "attention", "attention_backward", "grouped", "links"),
        *("host_forward", "host_backward", "host_experts"),
    ),
}
# What `propose` found, rounded: the defaults that judge.
DEFAULTS = {
    "A100": Machine(sustained=0.88, step=STEP),
    "H100": Machine(sustained=0.77, step=STEP),
    "B200": Machine(sustained=0.72, step=STEP),
}
FRAMEWORKS = {"Composer": EAGER, "PyTorch FSDP1": EAGER}


def base_of(run: Run) -> Machine:
    """Return the default of a run's GPU, with what its framework is known for."""
    known = next((of for name, of in FRAMEWORKS.items() if run.family.startswith(name)), {})
    return replace(DEFAULTS[gpu(run.gpu).kernels], **known)


def propose() -> dict[str, Machine]:
    """Fit the defaults anew."""
    every = newest(list(runs()))
    old = [run for run in every if run.family == "Megatron-DeepSpeed"]
    ampere = fitted(ASSUMED, [*sc21_runs(), *korthikanti_runs(), *old], MEGATRON)
    eager = [run for run in every if run.family.startswith("Composer") and run.gpu == "H100"]
    seen = {"H100": (eager, EAGER), "B200": (list(b200_runs()), {})}
    found = {"A100": ampere}
    for name, (rows, known) in seen.items():
        of = fitted(replace(ampere, **known), rows, NUISANCE[name])
        found[name] = replace(ampere, sustained=of.sustained)
        print(name, constants(of, NUISANCE[name]))
    return found


if __name__ == "__main__":
    for name, machine in propose().items():
        print(name, constants(machine, MEGATRON))
