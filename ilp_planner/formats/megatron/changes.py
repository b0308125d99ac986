"""Changes of a launch line, of options or of a plan that describe another job.

Those of a launch line of Megatron-LM are found here.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    environment_of,
    job_of_arguments,
)
from ilp_planner.formats.megatron.flags import flag_of, flags_by_key
from ilp_planner.formats.megatron.repairs import Repair
from ilp_planner.formats.megatron.values import REPLICAS, STEPS, parse_values, write_value
from ilp_planner.settings.rules import with_followed
from ilp_planner.settings.table import CP_COMM
from ilp_planner.settings.values import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.formats.megatron.flags import Value
    from ilp_planner.formats.megatron.values import MegatronArguments, Spelling
    from ilp_planner.specs.training import TrainingJob

# Arguments that say one thing together, or in several ways: where one of them has to change, the
# others of the line go as well.
TOGETHER = (
    (
        "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
        "recompute_activations", "moe_layer_recompute", "distribute_saved_activations",
    ),
    (
        "num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage",
        "pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split", "pipeline_model_parallel_size",
        "microbatch_group_size_per_vp_stage",
    ),
    (
        "use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy",
        "use_torch_fsdp2", "torch_fsdp2_reshard_after_forward", "ckpt_format",
    ),
    (
        "cpu_offloading_num_layers", "fine_grained_activation_offloading", "offload_modules",
        "min_offloaded_tensor_size",
    ),
    (CP_COMM, "hierarchical_context_parallel_sizes"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """The changes.

    add: words to add; they precede present ones of the same name. drop: options to leave out.
    gpus: that it runs on then; 0: as many as before. environment: variables to set, or to unset
    with an empty text. language: of the words, if it differs from the changed line's.
    fields: of a plan, if no words say it: each with its new and old value.
    """

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    language: str = ""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        to_set = [f"{name}={value}" for name, value in self.environment.items() if value]
        to_unset = [name for name, value in self.environment.items() if not value]
        texts = (
            f"{self.gpus:,} GPUs" if self.gpus else "",
            f"{self.language and f'{self.language}: '}{shlex.join(self.add)}" if self.add else "",
            *self.fields,
            f"without {' '.join(self.drop)}" if self.drop else "",
            f"with {' '.join(to_set)} set" if to_set else "",
            f"with {' '.join(to_unset)} unset" if to_unset else "",
        )
        return ", ".join(text for text in texts if text)


def whole_arguments(job: TrainingJob) -> MegatronArguments:
    """Return the arguments of a job, and beside them the fields that no argument says, as encoders,
    lengths of documents and adapters.

    Raises
    ------
    SpecError: Megatron has no arguments for it.
    """
    args = arguments_of_job(job)
    said, wanted = as_said(job_of_arguments(args, checked=False)), as_said(job)
    return replace(
        args,
        features=dict(_unlike(said.model, wanted.model)),
        beyond=dict(_unlike(said.settings, wanted.settings)),
    )


def job_change(before: TrainingJob, after: TrainingJob) -> LineChange | None:
    """Return the changes of the arguments of a whole job; None if no change of arguments does it:
    of what none of them says, only what follows from the others may differ.

    Raises
    ------
    SpecError: Megatron has no arguments for one of them.
    """
    own, other = whole_arguments(before), whole_arguments(after)
    unsaid = {name: attrgetter(name)(before.settings) for name in (*own.beyond, *other.beyond)}
    followed = with_followed(with_fields(after.settings, unsaid), after.model)
    if own.features != other.features or followed != after.settings:
        return None
    return line_change(replace(own, beyond=other.beyond), before, after)


def _unlike(said: Any, wanted: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of settings that `said` has otherwise, as `kernels.graphs`, and their values
    in `wanted`."""
    for each in fields(wanted):
        other, value = getattr(said, each.name), getattr(wanted, each.name)
        if each.name in PARTS:
            yield from ((f"{each.name}.{name}", own) for name, own in _unlike(other, value))
        elif value != other:
            yield each.name, value


def line_change(
    args: MegatronArguments, before: TrainingJob, after: TrainingJob
) -> LineChange | None:
    """Return the changes of arguments from one job to another one.

    The changed arguments are read again: every rule of Megatron-LM holds for them, and they are
    that job. None if no change of arguments does it.

    Parameters
    ----------
    before: the job that `args` train, on its devices. after: the other one, of the same model.
    """
    try:
        said, wanted = arguments_of_job(before), arguments_of_job(after)
    except SpecError:
        return None
    touched = set(_touched(said, wanted))
    if after.dp * after.micro_batch != before.dp * before.micro_batch:
        touched.add("global_batch_size")  # follows from these where nothing says it
    kept = {key for key in args.values if key not in touched}
    added: dict[str, Value] = {
        key: value
        for key, value in wanted.values.items()
        if key in touched and args.values.get(key, _NOTHING) != value
    }
    dropped = [key for key in args.values if key not in kept and key not in wanted.values]
    repair = Repair(
        {words[0]: words[1:] for key, value in added.items() if (words := write_value(key, value))},
        tuple(map(flag_of, dropped)),
        after.world if after.world != args.world else 0,
    )
    try:
        parse_values(repair.words)
        again = job_of_arguments(repair.on(args))
    except SpecError:
        return None
    again = replace(
        again, devices_per_node=after.devices_per_node, gpu_architecture=after.gpu_architecture
    )
    if as_said(again) != as_said(after):
        return None
    old, new = environment_of(before), environment_of(after)
    variables = {name: new.get(name, "") for name in {*old, *new} if old.get(name) != new.get(name)}
    if args.spelling is not None:
        return _spelled(args.spelling, before, after, {**dict.fromkeys(dropped), **added})
    return LineChange(
        add=repair.words, drop=repair.dropped, gpus=repair.world, environment=variables
    )


def _spelled(
    spelling: Spelling, before: TrainingJob, after: TrainingJob, changed: Mapping[str, Value]
) -> LineChange | None:
    """Return changes in the keys of another system; None: it has none for one of them.

    changed: arguments with their values; None: they are left out.
    """
    said: list[tuple[str, ...]] = []
    dropped: list[str] = []
    for key, value in changed.items():
        meant = flags_by_key()[key][0].default if value is None else value
        plain, pair = spelling.plain.get(key), spelling.pairs.get((key, meant))
        goes = plain is not None and (spelling.leaves or {}).get(key, _NOTHING) == meant
        if pair is None and plain and (meant is not None or spelling.leaves is None):
            pair = plain, _texts(meant)
        words = spelling.form(*pair) if pair and not (goes and value is None) else ()
        if words:
            said.append(words)
        elif plain and goes:
            dropped += spelling.form(plain, ())
        elif key != "global_batch_size" or STEPS not in spelling.keys:  # follows from those
            return None
    for number, now, then in (
        (REPLICAS, before.dp, after.dp),
        (STEPS, before.micro_batches, after.micro_batches),
    ):
        if number in spelling.keys and now != then:
            said.append(spelling.form(spelling.keys[number], (str(then),)))
    gpus = after.world if after.world != before.world else 0
    once = tuple(word for words in dict.fromkeys(said) for word in words)
    if spelling.launched:
        return LineChange(add=once, drop=tuple(dict.fromkeys(dropped)), gpus=gpus)
    return LineChange(fields=once, gpus=gpus)


def _texts(value: Value) -> tuple[str, ...]:
    if isinstance(value, bool) or value is None:
        return ({None: "null", True: "true", False: "false"}[value],)
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


_NOTHING = object()
PARTS = ("kernels", "optimizer")  # of settings, each with fields of its own


def _touched(said: MegatronArguments, wanted: MegatronArguments) -> Iterator[str]:
    """Yield the arguments that have to change, with their companions."""
    for key in {*said.values, *wanted.values}:
        if said.values.get(key) != wanted.values.get(key):
            yield key
            for group in TOGETHER:
                if key in group:
                    yield from group


def as_said(job: TrainingJob) -> TrainingJob:
    """Return a job without settings that decide nothing or have no argument: sequence parallelism
    without tensor parallelism, an assumption about routing, and the notation of layers with
    experts.
    """
    kernels = replace(job.settings.kernels, imbalance=1.0)
    divided = job.settings.sequence_parallel and job.tp > 1
    settings = replace(job.settings, kernels=kernels, sequence_parallel=divided)
    model, experts = job.model, job.model.experts
    if experts is not None:
        plain = replace(experts, dense_first=0, every=1)
        listed = () if model.pattern else model.expert_layers
        model = replace(model, experts=plain, experts_in=listed)
    return replace(job, model=model, settings=settings)
