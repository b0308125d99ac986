"""The row of a setting, and its part in the search of each training runtime."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.settings.domains import CLOSED
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.settings.domains import Domain
    from ilp_planner.settings.labels import JobLabel, Label
    from ilp_planner.settings.values import Choice
    from ilp_planner.specs.training import TrainingJob

SEARCHED, AS_ASKED, FOLLOWS = "searched", "as asked", "follows"
FIXED, LEFT_OUT = "fixed", "left out"
HOW = {
    SEARCHED: "the search tries these values",
    AS_ASKED: "the user says it; otherwise as in the model's file, or the first value",
    FOLLOWS: "from degrees, model and devices",
    FIXED: "plans have this one value",
    LEFT_OUT: "could be otherwise, and is not tried",
}


class Unasked(NamedTuple):
    """Values that a search leaves out where the user says nothing of the setting.

    text: for people. of: whether a job has one.
    """

    text: str
    of: Callable[[TrainingJob], bool]


class Search(NamedTuple):
    """The part of a setting in the search of a runtime.

    how: a key of `HOW`. values: of its plans. on_request: further values of plans, on request.
    remark: the reason or the condition; empty: as in the row. heard: the values that a user may
    demand, if these differ from both together. left_out: of `values` and `on_request`, in some
    jobs, unless the user says something of the setting.
    """

    how: str
    values: tuple[str, ...]
    on_request: tuple[str, ...] = ()
    remark: str = ""
    heard: tuple[str, ...] | None = None
    left_out: Unasked | None = None

    @property
    def demandable(self) -> tuple[str, ...]:
        """The values that a user may demand."""
        return (*self.values, *self.on_request) if self.heard is None else self.heard

    @property
    def is_open(self) -> bool:
        """Whether searches try several values, or other ones on request."""
        return self.how in (SEARCHED, AS_ASKED) or bool(self.on_request)


class Change(NamedTuple):
    """Values of a setting that are tried in a job, to make it fit or run.

    place: among the changed settings; the first ones are changed first.
    """

    place: int
    values: tuple[Any, ...]


class JobOption(NamedTuple):
    """The option of `analyze` and `fit` that says a setting of one job, with the name of its row.

    field: of `Settings`, whose value it has; empty: the choice's value. unsaid: its value where it
    is not given. others: further ones that are tried then, if Megatron-LM refuses the job.
    of_experts, of_encoders: it goes with these alone. degree: the option that has to be above 1.
    section, help: of the command line; empty: as searches say it, among further settings. values:
    words that it takes; empty: those of the domain, or any text.
    """

    field: str = ""
    unsaid: Any = None
    others: Change | None = None
    of_experts: bool = False
    of_encoders: bool = False
    degree: str = ""
    section: str = ""
    help: str = ""
    values: tuple[str, ...] = ()


class Key(NamedTuple):
    """The key of a training system that says a field of `Settings`.

    runtimes: names of systems, as in `Setting.search`. name: an argument of Megatron-LM, or a key
    of a configuration with its section, as `parallelism.expert_parallel_degree`; empty: several
    keys say it together, or none, where its checks refuse the values that it does not run. words:
    value -> its word there; empty: values are said as they are. heard: further words -> values,
    where they are read. does: the end of a refusal of values without a word: the system's own way.
    """

    runtimes: tuple[str, ...]
    field: str
    name: str = ""
    words: Mapping[Any, Any] = MappingProxyType({})
    heard: Mapping[str, str] = MappingProxyType({})
    does: str = ""


class Setting(NamedTuple):
    """One row.

    name: of the keyword; the option is the same with dashes. domain: of a user's demands. help: of
    the option; empty: an option of another kind says it. metavar: of the option. of_devices: it is
    about the devices, not about plans. only: value -> the one runtime whose plans may have it;
    plans of `megatron` may have all others.

    title: in the table of a runtime. fields: attributes of a `TrainingJob`, each in one row alone;
    empty: those of its keys and its option. search: by the name of a runtime; empty: of all others.
    remark: the reason or the condition. asked_by: parameters of a request that decide it, if others
    than the row's own. choice: its values in a job, if the job as a whole has one. change: by
    `fit`; None: it leaves the setting.
    keys: that say its fields; of Megatron-LM those with just the value of a field, as the others
    follow from several arguments; other systems are told no field without one. label, job_label:
    the words for it in plans, and in jobs that are analysed; None: it is not said. of_degrees: jobs
    of other degrees have their own value. job_option: that says it of one job; None: none does.
    not_of_jobs: why no option of one job says a demand of it.
    symptom: the cause of slow steps that the setting is, by the names of `analysis.doctor`.
    at_first: the value of plans in files up to version 3; empty: any. beside: another setting and
    its value, where nothing is said of it beside other values than the first one. learns: it
    changes what is trained or its arithmetic: searches have no other value than the user's.
    lighter: those that need less memory, for a training that fits nowhere. also: arguments of
    Megatron-LM that say it with others, and what people call it. alone: the value of the option
    without one; empty: it has one always.
    """

    name: str
    domain: Domain = CLOSED
    help: str = ""
    metavar: str = "N"
    of_devices: bool = False
    only: Mapping[str, str] = MappingProxyType({})
    title: str = ""
    fields: tuple[str, ...] = ()
    search: Mapping[str, Search] = MappingProxyType({})
    remark: str = ""
    asked_by: tuple[str, ...] = ()
    choice: Choice | None = None
    change: Change | None = None
    keys: tuple[Key, ...] = ()
    label: Label | None = None
    job_label: JobLabel | None = None
    of_degrees: bool = False
    job_option: JobOption | None = None
    not_of_jobs: str = ""
    symptom: str = ""
    at_first: str | tuple[str, ...] = ()
    beside: tuple[str, str] | None = None
    learns: bool = False
    lighter: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    alone: str = ""

    @property
    def of_jobs(self) -> JobOption | None:
        """The option that says it of one job: its own, or that of its choice; None: none does."""
        if self.job_option or self.choice is None or self.domain is CLOSED:
            return self.job_option
        return JobOption(unsaid=self.choice.read(Settings()))

    def search_of(self, runtime: str) -> Search:
        """Return its part in the search of a runtime. runtime: `torchtitan@0.2.2` and `torchtitan`
        are releases of one, and a row of the second counts for the first."""
        for name in (runtime, runtime.partition("@")[0], ""):
            if name in self.search:
                return self.search[name]
        raise KeyError(f"{self.name}: no search of {runtime}")


def whole(row: Setting) -> Setting:
    """Return the row with the fields that its keys and its option say."""
    option = (row.job_option.field,) if row.job_option and row.job_option.field else ()
    said = dict.fromkeys(f"settings.{field}" for field in (*(k.field for k in row.keys), *option))
    return row if row.fields else row._replace(fields=tuple(said))


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """The treatment of a setting by the search of a runtime.

    how: a key of `HOW`. values: of plans; on_request: further ones, on request. asked_by: the
    parameters of a request for them. remark: the reason or the condition, with parameters in
    backquotes.
    """

    setting: str
    fields: tuple[str, ...]
    how: str
    values: tuple[str, ...]
    on_request: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    remark: str = ""


def treatment(row: Setting, search: Search) -> Treatment:
    """Return the treatment of a setting."""
    own = (row.name,) if row.domain is not CLOSED else ()
    return Treatment(
        setting=row.title,
        fields=row.fields,
        how=search.how,
        values=search.values,
        on_request=search.on_request,
        asked_by=(row.asked_by or own) if search.is_open else (),
        remark=search.remark or row.remark,
    )
