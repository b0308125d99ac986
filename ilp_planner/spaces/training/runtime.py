"""The answers of a runtime to a search: choices for a whole job, and jobs that it cannot run.

A space has one runtime. Others share the engine of this folder and answer otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.costs.training.job import base_settings
from ilp_planner.inputs.constraints import NAMES, constraints_of
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.settings.base import FIXED, FOLLOWS, Treatment, treatment
from ilp_planner.settings.rules import (
    check_adapters,
    check_compressed,
    check_encoders,
    check_fp8_attention,
    check_muon,
    check_offload,
    check_shapes,
    check_sparse,
    check_states,
    check_tuning,
    context_rules,
    of_degrees,
    of_recomputation,
    of_virtual_stages,
    otherwise,
    that_follow,
)
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.settings.values import as_demanded, with_fields, with_inner
from ilp_planner.spaces.training.enumerate.choices import CHOICES, choices, settled
from ilp_planner.spaces.training.enumerate.degrees import MOST_CP
from ilp_planner.spaces.training.enumerate.demands import check_demands
from ilp_planner.spaces.training.enumerate.recomputations import whole_recomputations
from ilp_planner.spaces.training.enumerate.rules import check_megatron, check_plan, violations
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.specs.lengths import PACKED
from ilp_planner.specs.training import ORDERS
from ilp_planner.specs.tuning import BRIDGE_TARGETS, tuned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.evaluate import Violation
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.settings.base import Search, Unasked
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Kernels, Recompute, Settings, TrainingJob


class Runtime:
    """Megatron-LM.

    name: of the space. title: for people. orders: of ranks that are tried, some of `ORDERS`.
    blocks: the first layers of each stage can be recomputed alone. interleaves: ranks may have
    several virtual stages. schedules: those of `PIPELINES` that it has. most_cp: context-parallel
    degree that is tried without being asked for more. usual_sharding: of `SHARDINGS`, those that
    its usual jobs have. untold: fields of `Settings` that plans have as it has them always, as no
    setting says them. targets: products with adapters, where none are named. adapters: their
    precision, as `Tuning` has it. packs_together: a micro-batch may have several packs. tuner: the
    programs that run its jobs with adapters, frozen parts or moments of the Trainer.
    """

    name = "megatron"
    title = "Megatron-LM"
    blocks = True
    interleaves = True
    schedules: tuple[str, ...] = (USUAL,)
    most_cp = MOST_CP
    orders: tuple[str, ...] = ORDERS
    usual_sharding: ClassVar[tuple[str, ...]] = ("none", "optimizer")
    untold: ClassVar[tuple[str, ...]] = (
        "keeps_gathered",
        "kernels.compiled",
        "optimizer.from_master",
        "tuning.base",
        "tuning.adapters",
    )
    targets: ClassVar[tuple[str, ...]] = BRIDGE_TARGETS
    adapters = ""
    packs_together = False
    tuner = "Megatron-Bridge"

    def search_of(self, name: str) -> Search:
        """Return the part of a setting in its search. name: of a row of the table of settings."""
        return BY_NAME[name].search_of(self.name)

    @cached_property
    def tried(self) -> Mapping[str, tuple[str, ...]]:
        """The values of whole jobs that are tried unasked, the plainest first, by the names of
        `CHOICES` that a user may demand."""
        rows = {name: self.search_of(name) for name in CHOICES}
        return {name: search.values for name, search in rows.items() if search.is_open}

    @property
    def listens(self) -> tuple[str, ...]:
        """Names of `CHOICES` whose values a user may demand."""
        return tuple(self.tried)

    @property
    def other_turns(self) -> bool:
        """Microbatch groups of virtual stages may be larger than the number of ranks."""
        return bool(self.search_of("micro_batch_group_size").on_request)

    def treatments(self) -> tuple[Treatment, ...]:
        """Return the treatment of each setting of a training job by the search."""
        return tuple(treatment(row, self.search_of(row.name)) for row in SETTINGS if row.fields)

    def notes(self) -> tuple[str, ...]:
        """Return remarks for every result."""
        return ()

    def unmodelled(self, settings: Settings, virtual: int) -> Iterator[str]:
        """Yield the settings of a job without fully modelled costs. virtual: stages per rank."""
        for name, choice in CHOICES.items():
            if choice.uncounted and (value := choice.read(settings)) in choice.uncounted:
                yield f"{name.replace('_', ' ')} {value}"

    def implied(self, asked: Constraints) -> Constraints:
        """Return the request with its requirements: nothing more."""
        return asked

    def check_model(self, model: Decoder, settings: Settings) -> None:
        """Refuse a model that the runtime cannot train so.

        Raises
        ------
        SpecError: the first key that it cannot say, the found and the possible value.
        """
        try:
            check_model(model)
        except SpecError as error:
            raise SpecError(f"{error}; `space=planner` plans it") from None

    def batched(self, model: Decoder, asked: Constraints) -> Constraints:
        """Return the request with what samples of documents demand: packs come one at a time, as
        attention reads all of a micro-batch as one row (`training/config.py` of Megatron-Bridge).

        Raises
        ------
        UsageError: the runtime does not make samples so, or not in such micro-batches.
        """
        if model.lengths is None:
            return asked
        found, values = model.lengths.batching, self.search_of("batching").demandable
        if found not in values:
            raise UsageError(
                f"batching: found {found} with `space={self.name}`, expected "
                f"{' or '.join(values)}; `batching={values[0]}` would do"
            )
        if found != PACKED or self.packs_together:
            return asked
        if not asked.allows("micro_batch_size", 1):
            raise UsageError(
                f"micro_batch_size: found {asked.texts['micro_batch_size']} with "
                f"`batching={PACKED}`, expected 1: {self.title} has one pack in a micro-batch; a "
                "larger `sequence_length` has as many tokens"
            )
        one = constraints_of({"micro_batch_size": 1})
        return asked.with_(micro_batch_size=one.micro_batch_size)

    def with_following(self, model: Decoder, asked: Constraints) -> Constraints:
        """Return the request with every value of settings that follow from others in a model."""
        more = {
            name: values
            for name, values in that_follow(model).items()
            if not getattr(asked, name) and self.search_of(name).how != FIXED
        }
        return asked.with_(**more) if more else asked

    def check_asked(self, asked: Constraints) -> None:
        """Refuse values that are in no plan, for any model and devices: those without a setting.

        Raises
        ------
        UsageError: the name, the found value and the plans' ones.
        """
        of_others = {row.name for row in SETTINGS if row.only}
        check_demands(self, asked.but({*NAMES} - of_others))

    def settings(
        self, model: Decoder, precision: str, cluster: ClusterSpec, recipe: str
    ) -> Settings:
        """Return the settings shared by plans, but for the choices."""
        return base_settings(model, precision, cluster, recipe)

    def plainest(self, base: Settings) -> Settings:
        """Return settings with the first value of every choice that does not follow from others."""
        for name, choice in CHOICES.items():
            search = self.search_of(name)
            values = {*BY_NAME[name].domain.values}.intersection(search.values[:1])
            for value in values if search.how != FOLLOWS else ():
                base = choice.write(base, value) or base
        return base

    def always(self, base: Settings) -> Settings:
        """Return settings with what all of its jobs do, as the table says it of this runtime."""
        told = (row for row in SETTINGS if row.fields)
        rows = (row for row in told if self.search_of(row.name)[:2] == (FIXED, ("yes",)))
        on = {field.removeprefix("settings."): True for row in rows for field in row.fields}
        return with_fields(base, on)

    def choices(
        self, base: Settings, asked: Constraints, ranks: int, model: Decoder
    ) -> tuple[Settings, ...]:
        """Return the settings of whole jobs of so many ranks that are tried, the plainest first."""
        every = choices(base, as_demanded(base, self.tried), self.with_following(model, asked))
        return tuple(own for one in every for own in with_inner(one, ranks))

    def with_degrees(self, choice: Settings, plainest: Settings, d: MegatronDegrees) -> Settings:
        """Return a choice with its degrees; idle settings are as in the plainest choice."""
        settings = replace(
            choice,
            cp=d.cp,
            ep=d.ep,
            etp=d.etp,
            sequence_parallel=d.tp > 1,
            order=ORDERS[d.order],
            tuning=tuned(choice.tuning, self.targets, self.adapters),
        )
        return settled(settings, plainest, replicated=d.replicated)

    def recomputations(
        self, model: Decoder, kernels: Kernels, asked: Constraints
    ) -> tuple[Recompute, ...]:
        """Return the tried recomputations besides blocks of layers."""
        return whole_recomputations(model, kernels, asked)

    def alike(self, degrees: MegatronDegrees) -> MegatronDegrees:
        """Return degrees without values that make no difference to `refusals` and `tries`:
        micro-batches are the schedule's own affair, and nodes decide neither."""
        return degrees._replace(micro_batch=0, nodes=())

    def refusals(self, job: TrainingJob) -> Iterator[str]:
        """Yield why the settings of a job do not go with its degrees; its layout is any."""
        yield from context_rules(job)
        broken = (
            *of_degrees(job),
            *check_states(job),
            *check_muon(job),
            *check_offload(job),
            *check_shapes(job),
            *check_tuning(job),
            *check_adapters(job),
            *check_encoders(job),
            *check_sparse(job),
            *check_compressed(job),
            *check_fp8_attention(job),
        )
        yield from map(str, violations(broken))

    def otherwise(self, job: TrainingJob) -> Iterator[str]:
        """Yield why settings of a job, which are not refused, would not be run as they say."""
        yield from map(str, violations(otherwise(job)))

    def recomputes(self, settings: Settings, model: Decoder, again: Recompute) -> bool:
        """Tell whether settings of a job go with a recomputation: with whole layers on the host
        there is none (`check_offload`)."""
        whole = settings.offload.layers > 0 and again.granularity != "none"
        return not whole and not any(self.refusals_of(settings, model, again))

    def refusals_of(self, settings: Settings, model: Decoder, again: Recompute) -> Iterator[str]:
        """Yield why settings of a job do not go with a recomputation."""
        yield from map(str, violations(of_recomputation(settings, model, again)))

    def has_stages(self, settings: Settings, pp: int, virtual: int) -> bool:
        """Tell whether settings of a job go with so many virtual stages per pipeline rank."""
        return not any(of_virtual_stages(settings, pp, virtual))

    def untried(self, asked: Constraints) -> str:
        """Return the omissions of `tries`, as `among` says them."""
        return "".join(
            f", {values.text}" for name, values in _left_out(self.name) if not getattr(asked, name)
        )

    def tries(self, job: TrainingJob, asked: Constraints) -> bool:
        """Tell whether settings are tried with the degrees of a job: not what is left out unless
        something is said of it, and only what Megatron runs as stated."""
        left_out = (
            values.of(job) and not getattr(asked, name) for name, values in _left_out(self.name)
        )
        return not (any(left_out) or any(otherwise(job)))

    def told_fields(self, settings: Settings, degrees: MegatronDegrees) -> frozenset[str]:
        """Return the fields of settings that the runtime has, by names such as `kernels.graphs`."""
        from ilp_planner.spaces.training.enumerate.untold import FIELDS

        return frozenset(field.name for field in FIELDS if field.name not in self.untold)

    def violations(self, job: TrainingJob, base: Settings) -> Iterator[Violation]:
        """Yield the rules of this runtime alone that a job breaks. base: the settings shared by all
        plans."""
        from ilp_planner.spaces.training.enumerate.untold import untold

        yield from check_megatron(job)
        yield from untold(self, job, base)

    def check(self, problem: Problem[MegatronCosts], plan: GroupPlan) -> Iterator[Violation]:
        """Yield the settings of a plan that the runtime cannot run."""
        return check_plan(problem, plan, self.violations)


@cache  # asked of every part of a search
def _left_out(runtime: str) -> tuple[tuple[str, Unasked], ...]:
    """Return the values that are tried only where the user says something of the setting, by the
    setting's name."""
    rows = ((name, BY_NAME[name].search_of(runtime).left_out) for name in CHOICES)
    return tuple((name, values) for name, values in rows if values)


MEGATRON = Runtime()
