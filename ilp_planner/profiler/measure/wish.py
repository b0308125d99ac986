"""The wish of a measurement, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.measurements import Record, RowStatus
from ilp_planner.profiler.measure.decoder_job import decoder_of, job_of
from ilp_planner.profiler.measure.resnet_job import ResnetJob
from ilp_planner.profiler.measure.shard import check_degree
from ilp_planner.profiler.measure.t5_job import T5Job
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.chain_job import ChainJob
    from ilp_planner.profiler.measure.job import Job
    from ilp_planner.specs.architecture import Architecture
    from ilp_planner.specs.model import ModelSpec


class Spread(NamedTuple):
    """Degrees besides tensor parallelism, of decoders. context: context-parallel ones. experts:
    expert-parallel ones besides 1, if all parts are measured. tensor: tensor-parallel ones of
    experts, 1 or the other parts' degree; none: the same."""

    context: tuple[int, ...] = (1,)
    experts: tuple[int, ...] = ()
    tensor: tuple[int, ...] = ()


NOWHERE = Spread()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The wished measurements. sequences: tokens of a sample, none: the model's; copies: of each
    kind of layer in the stack; repeats: None: as many as fit in a few seconds; records: `layer`,
    `operator`."""

    model: ModelSpec
    degrees: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    sequences: tuple[int, ...]
    copies: int = 2
    repeats: int | None = None
    spread: Spread = NOWHERE
    records: tuple[Record, ...] = (Record.LAYER, Record.OPERATOR)

    @property
    def operators(self) -> bool:
        """Tell whether there are operators to measure."""
        return Record.OPERATOR in self.records and has_operators(self.model)

    def jobs(self, dtype: str) -> list[Job]:
        """Return every shard, with neighbours that differ in the micro-batch only.

        Raises
        ------
        UsageError: the model is not measured, a degree does not divide it, or it has no tokens to
            choose.
        """
        for etp in self.spread.tensor:
            if etp not in (1, *self.degrees):
                known = ", ".join(map(str, sorted({1, *self.degrees})))
                raise UsageError(f"etp: found {etp}, expected 1 or a tp that is measured: {known}")
        return [
            self._job(tokens, {"tp": tp, "micro_batch": size, "dtype": dtype}, spread)
            for tokens in self.sequences or (None,)
            for tp in self.degrees
            for spread in self._spreads(tp)
            for size in sorted(self.micro_batch_sizes)
        ]

    def _spreads(self, tp: int) -> list[dict[str, Any]]:
        """Return the different context- and expert-parallel degrees."""
        found = {
            (cp, ep, etp)
            for cp in self.spread.context
            for ep, etp in [
                (1, 0),
                *(
                    (ep, 0 if etp == tp else etp)
                    for ep in sorted({1, *self.spread.experts})
                    for etp in self.spread.tensor or (tp,)
                    if etp in (1, tp)
                ),
            ]
        }
        return [{"cp": cp, "ep": ep, "etp": etp} for cp, ep, etp in sorted(found)]

    def _job(self, tokens: int | None, shard: dict[str, Any], spread: dict[str, Any]) -> Job:
        chain = chain_job(self.model.architecture, **shard)
        if chain is None:
            return job_of(decoder_of(self.model, tokens), **shard, **spread)
        for name, degree in spread.items():
            if degree > 1:
                raise UsageError(
                    f"{name}: found {degree}, expected none: model {self.model.name!r} is no "
                    "decoder"
                )
        if tokens is not None:
            why = "has two sequences of its own" if chain.sizes else "has no tokens"
            raise UsageError(
                f"sequence: found {tokens}, expected none: model {self.model.name!r} {why}"
            )
        return chain


def chain_job(model: Architecture, *, tp: int, micro_batch: int, dtype: str) -> ChainJob | None:
    """Return the job; its first rank's share is measured; None of another family.

    Raises
    ------
    UsageError: tp does not divide the model.
    """
    kinds: dict[str, type[ChainJob]] = {"t5": T5Job, "resnet": ResnetJob}
    if model.family not in kinds:
        return None
    check_degree(tp, model.tensor_parts)
    return kinds[model.family](
        model=model, micro_batch=micro_batch, tp=tp, settings=Settings(precision=dtype)
    )


def has_operators(model: ModelSpec) -> bool:
    """Tell whether operators of a model are measured."""
    return isinstance(model.architecture, Gpt | T5 | WideResNet)


@dataclass(kw_only=True)
class Summary:
    """How the rows went. exhausted, failed: names of rows; of the latter with the reason."""

    measured: int = 0
    there: int = 0
    exhausted: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not measured."""

    status: RowStatus
    why: str

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that say so."""
        return {"status": self.status, "source": self.why[:200]}
