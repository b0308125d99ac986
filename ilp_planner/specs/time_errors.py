"""The expected error of iteration times, from published runs that are like a job.

`time_errors.json` has the interval of measured over predicted seconds that holds 4 of 5 runs, as a
base and factors of kinds of runs; `tests/benchmarks/errors.py` fits and judges it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import counted
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.gpus import table as gpus
from ilp_planner.specs.machine import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ilp_planner.specs.architecture import Architecture
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import Settings

FILE = "time_errors.json"
LONG = 8192  # tokens of a sample
MANY = 128  # GPUs
TYPICAL = 1.61  # 80 % quantile over mean, of the sizes of normal and of Laplace's errors alike
STATES = {16: "16 bits", 8: "8 bits", 4: "4 bits", 32: "32 bits"}
MEASURED = ("decoder", "gpt")  # families of models that published runs train
# Levels of a GPU's constants: fitted to runs on it, on one of the same architecture, or of another.
OWN, SAME, OTHER = "own", "same architecture", "other architecture"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind:
    """What tells how far the time of a training job may be off.

    experts: it has layers of experts. bits: of the operands of its layers' products. gpu: row of
    the table of GPUs. sharded: gradients or parameters are sharded, as by PyTorch's FSDP. sequence:
    tokens of a sample. gpus: number of GPUs. unmeasured: what no published run had, in words.
    """

    experts: bool
    bits: int
    gpu: str
    sharded: bool = False
    sequence: int = 0
    gpus: int = 1
    unmeasured: tuple[str, ...] = ()

    @property
    def long(self) -> bool:
        """Its samples are longer than usual."""
        return self.sequence > LONG

    @property
    def many(self) -> bool:
        """It runs on many GPUs."""
        return self.gpus > MANY

    @property
    def family(self) -> str:
        """The family of the model and the precision, in words."""
        return f"{'experts' if self.experts else 'dense'}, {STATES[self.bits]}"

    @property
    def job_features(self) -> tuple[str, ...]:
        """The names of its factors, but for the GPU's."""
        named = {
            "experts": self.experts,
            "below 16 bits": self.bits < 16,
            "4 bits": self.bits == 4,
            "sharded": self.sharded,
            "long": self.long,
            "many": self.many,
        }
        return tuple(name for name, has in named.items() if has)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its factors."""
        level = level_of(self.gpu)
        return (*self.job_features, gpu_model(self.gpu) if level == OWN else level)


class ExpectedError(NamedTuple):
    """The interval of measured over predicted seconds that holds 4 of 5 runs.

    low, high: its ends; 1 is inside. mean: mean relative error. runs: published groups that are
    like the job, or runs of the machine; 0: nothing like it was measured. like: the kind of these
    in words. unmeasured: what of the job none of them had.
    """

    low: float
    high: float
    mean: float
    runs: int
    like: str
    unmeasured: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The interval and what it rests on, as `4 of 5 runs took 9 % less to 11 % more (...)`."""
        return f"4 of 5 runs {self.words} ({self.basis})"

    @property
    def words(self) -> str:
        """The interval as said of runs, as `took 9 % less to 11 % more`."""
        less, more = (percent(end - 1)[1:] for end in (self.low, self.high))
        return f"took {less} less to {more} more"

    @property
    def short(self) -> str:
        """The interval alone, of measured over predicted seconds, as `-9 % to +11 %`."""
        return f"{percent(self.low - 1)} to {percent(self.high - 1)}"

    @property
    def basis(self) -> str:
        """What the interval rests on."""
        if not self.runs:
            return f"{self.like}: nothing like it was measured; widened"
        if self.unmeasured:
            return f"{self.like}; none with {', '.join(self.unmeasured)}: widened"
        return self.like


def percent(share: float) -> str:
    """Return `+11 %`, and of less than a tenth `+3.2 %`."""
    return f"{100 * share:+.1f} %" if abs(share) < 0.0995 else f"{100 * share:+.0f} %"


class _Table(NamedTuple):
    """base, factors, unmeasured: in logarithms of measured over predicted, (faster, slower)."""

    base: tuple[float, float]
    factors: Mapping[str, tuple[float, float]]
    unmeasured: tuple[float, float]
    mean: float
    longest: int
    most: int
    groups: tuple[Mapping[str, Any], ...]
    gpus: frozenset[str]


@cache
def _table() -> _Table:
    text = (files("ilp_planner.specs") / FILE).read_text(encoding="utf-8")
    found = json.loads(text)
    groups = tuple(found["groups"])
    return _Table(
        base=tuple(found["base"]),
        factors={name: tuple(pair) for name, pair in found["factors"].items()},
        unmeasured=tuple(found["unmeasured"]),
        mean=found["mean"],
        longest=found["longest"],
        most=found["most"],
        groups=groups,
        gpus=frozenset(row["gpu"] for row in groups),
    )


def gpu_model(name: str) -> str:
    """Return the name of a GPU without the size of its memory."""
    return re.sub(r"-\d+GB$", "", name)


@cache
def level_of(name: str) -> str:
    """Return how the constants of a GPU are known: from runs on it, from runs on one of the same
    compute capability that has its kernels, or from another architecture."""
    row, measured = gpu(name), _table().gpus
    if gpu_model(name) in measured:
        return OWN
    alike = (
        other.capability == row.capability and gpu_model(other.name) == row.kernels
        for other in gpus().values()
    )
    return SAME if row.kernels in measured and any(alike) else OTHER


def half_widths(
    features: Iterable[str],
    base: tuple[float, float],
    factors: Mapping[str, tuple[float, float]],
) -> tuple[float, float]:
    """Return by how much, in logarithms, runs with some features are faster and slower than
    predicted, at most 1 in 10 each."""
    faster, slower = base
    for name in features:
        less, more = factors.get(name, (1.0, 1.0))
        faster, slower = faster * less, slower * more
    return faster, slower


def plain_error(name: str) -> float:
    """Return the mean relative error of dense models in 16 bits on a GPU, without calibration."""
    return published_error(RunKind(experts=False, bits=16, gpu=name)).mean


def published_error(kind: RunKind) -> ExpectedError:
    """Return the expected error of times by constants that nobody calibrated."""
    table = _table()
    faster, slower = half_widths(kind.features, table.base, table.factors)
    never = [
        *kind.unmeasured,
        *[f"{kind.sequence:,} tokens in a sample"] * (kind.sequence > table.longest),
        *[f"{kind.gpus:,} GPUs"] * (kind.gpus > table.most),
    ]
    like, runs, without = _like(kind)
    for _ in range(len(never) + (not runs)):
        faster, slower = faster * table.unmeasured[0], slower * table.unmeasured[1]
    return ExpectedError(
        low=exp(-faster),
        high=exp(slower),
        mean=table.mean * (faster + slower) / 2,
        runs=runs,
        like=like,
        unmeasured=(*without, *never),
    )


def _like(kind: RunKind) -> tuple[str, int, tuple[str, ...]]:
    """Return the published groups that are like a job, in words and number, and what of the job
    none of them had. Those of its family and precision count, if there are some on its GPU these
    alone, and so on for all that is unusual of it."""
    model = gpu_model(kind.gpu)
    asked = {
        "gpu": (model, model),
        "sharded": (kind.sharded, "sharded gradients or parameters"),
        "long": (kind.long, f"more than {LONG:,} tokens in a sample"),
        "many": (kind.many, f"more than {MANY} GPUs"),
    }
    family = (kind.experts, kind.bits)
    found = [row for row in _table().groups if (row["experts"], row["bits"]) == family]
    without = []
    for name, (value, words) in asked.items():
        some = [row for row in found if row[name] == value]
        if value and some:
            found = some
        elif value:
            without.append(words)
    count = sum(row["groups"] for row in found)
    own = f", on {model}" if model not in without else ""
    if not count:
        return f"{kind.family}, on {model}", 0, ()
    groups = f"{count} published group{'s' * (count != 1)}"
    return f"{kind.family}{own}: {groups}", count, tuple(without)


def calibrated_error(machine: Machine) -> ExpectedError | None:
    """Return the expected error of times on a machine that knows its mean error, of each of its
    runs by constants that were fitted to the others: the interval of normal errors of this mean,
    and wider where few runs tell it. None where the machine does not."""
    if machine.error is None:
        return None
    free = max(1, machine.runs - 1)  # Student's t over the normal quantile, to its second order
    wider = 1 + 0.66 / free + 0.45 / free**2 if machine.runs else 1.0
    half = machine.error * TYPICAL * wider
    like = "as the cluster file says of its machine"
    if machine.runs:
        count = counted(machine.runs, "run")
        like = f"{count} of this machine, leave-one-out"
    return ExpectedError(exp(-half), exp(half), machine.error, max(1, machine.runs), like)


class Known(NamedTuple):
    """What is known of the error of a job's time. error: None where it is not known, for a reason
    in words. runs: of its machine that constants were fitted to."""

    error: ExpectedError | None = None
    runs: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """The expected error, or why it is not known; empty where no time is by a model of GPUs."""
        if self.error is not None:
            return self.error.text
        return f"not known ({self.why})" if self.why else ""


def known_on(devices: Iterable[Device], kind: RunKind) -> Known:
    """Return what is known of the error of a job's time on some devices: on the worst-known one.

    Parameters
    ----------
    kind: of the job, on any GPU. devices: none: the time is not by the constants of machines.
    """
    found = [_known(device, kind) for device in devices]
    unknown = [known for known in found if known.error is None]
    return max(unknown or found, key=_width, default=Known())


def _width(known: Known) -> float:
    return known.error.high / known.error.low if known.error else -known.runs


def _known(device: Device, kind: RunKind) -> Known:
    machine, row = device.machine, known_gpu(device)
    if device.kernels is None:
        return Known(why="kernels are taken as a roofline: nothing like it was measured")
    if machine.error is not None or machine.runs:
        return machine_known(machine)
    if row is None or machine != USUAL[row.machine]:
        return Known(why="constants of the machine are the file's: nothing like it was measured")
    return Known(published_error(replace(kind, gpu=row.name)))


def machine_known(machine: Machine) -> Known:
    """Return what a machine's own runs tell of the error of times."""
    count = counted(machine.runs, "run")
    why = f"{count}; needs two different ones"
    if machine.runs > 1:
        why = f"the cluster file says {count} of its machine, and no error"
    return Known(calibrated_error(machine), machine.runs, why * bool(machine.runs))


def kind_of_job(
    architecture: Architecture, settings: Settings, gpus: int, runtime: str = ""
) -> RunKind:
    """Return what tells how far the time of a training job may be off, on any GPU.

    Parameters
    ----------
    gpus: number of GPUs. runtime: name of the training system's space.
    """
    title, _, _ = runtime.partition("@")
    never = {"deepspeed": "DeepSpeed"}.get(title, "")
    model = "" if architecture.family in MEASURED else f"a model of {architecture.family}"
    pooled = "attention to pooled keys" * bool(getattr(architecture, "compressed", None))
    hybrid = "layers of scans" * (bool(getattr(architecture, "pattern", "")) and not pooled)
    sparse = "sparse attention" * bool(getattr(architecture, "sparse", None))
    images = "an encoder of images or sounds" * bool(getattr(architecture, "encoders", ()))
    part = "a part of the model trained" * bool(settings.tuning)
    muon = "a step of Muon" * settings.optimizer.of_matrices
    documents = "samples of documents of different lengths"
    lengths = documents * bool(getattr(architecture, "lengths", None))
    return RunKind(
        experts=getattr(architecture, "experts", None) is not None,
        bits=settings.bits,
        gpu="",
        sharded=title == "torchtitan" or settings.optimizer.divides,
        sequence=getattr(architecture, "sequence", 0),
        gpus=gpus,
        unmeasured=tuple(
            filter(None, (never, model, hybrid, pooled, sparse, images, part, muon, lengths))
        ),
    )
