"""Arguments that a plan does not model: kept word for word, and written back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.flags import Value, flag_of, flags_by_key
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.values import MegatronArguments, write_value
from ilp_planner.specs.training import TrainingJob


@dataclass(frozen=True, slots=True)
class Carried:
    """The arguments of a launch line that go through a plan unread.

    words: as they stand on the line, arguments that Megatron-LM does not have among them.
    otherwise: flags that are not among them, for the plan says the same in other words.
    """

    words: tuple[str, ...]
    otherwise: tuple[str, ...] = ()


def carried_of(args: MegatronArguments) -> Carried:
    """Return the arguments that the plan of a line has to carry, so that its export has all of the
    line.

    All that a plan models is written from the plan. Other arguments are carried if they agree with
    the written ones, and leave the job as it is.
    """
    job = job_of_arguments(args, checked=False)
    made = arguments_of_job(job).values
    rest = {key: v for key, v in args.values.items() if key not in made or made[key] != v}
    kept: dict[str, Value] = {}
    for group in _groups(rest):
        wanted = {key: rest[key] for key in group if key not in kept}
        if wanted and _the_same(args, job, {**made, **kept, **wanted}):
            kept |= wanted
    ordered = {key: value for key, value in rest.items() if key in kept}
    words = tuple(word for key, value in ordered.items() for word in write_value(key, value))
    lost = [key for key in rest if key not in kept and write_value(key, rest[key])]
    return Carried((*words, *args.unread), tuple(flag_of(key) for key in lost))


def _groups(rest: Mapping[str, Value]) -> list[list[str]]:
    """Return groups that are tried together: everything, then topic by topic, then one by one,
    twice, for some need others."""
    topics: dict[str, list[str]] = {}
    for key in rest:
        topics.setdefault(flags_by_key()[key][0].topic, []).append(key)
    single = [[key] for key in rest]
    return [list(rest), *topics.values(), *single, *single]


def _the_same(args: MegatronArguments, job: TrainingJob, values: Mapping[str, Value]) -> bool:
    """Whether values train the same job, and Megatron takes them."""
    candidate = replace(args, values=dict(values))
    try:
        return job_of_arguments(candidate, checked=False) == job and not check_arguments(candidate)
    except SpecError:
        return False
