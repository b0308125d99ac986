"""The options that say settings of one job, in both directions."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.settings.domains import CLOSED
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.settings.values import with_fields
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.settings.base import JobOption

# By their names.
JOB_OPTIONS: Mapping[str, JobOption] = {
    row.name: option for row in SETTINGS if (option := row.of_jobs)
}
CHOSEN = {
    name: choice
    for name, option in JOB_OPTIONS.items()
    if (choice := BY_NAME[name].choice) and not option.field
}
# Names of options for settings that `fit` changes, or that are said as searches say them.
CHANGED = tuple(
    name
    for name, option in JOB_OPTIONS.items()
    if BY_NAME[name].change or BY_NAME[name].of_degrees or not BY_NAME[name].job_option
)


def with_options(settings: Settings, asked: Mapping[str, Any]) -> Settings:
    """Return settings with the values of options. asked: at least all of `JOB_OPTIONS`.

    Raises
    ------
    UsageError: a value that does not go with the others, or several.
    """
    fields = {
        option.field: _one(name, asked[name])
        for name, option in JOB_OPTIONS.items()
        if option.field
    }
    settings = with_fields(settings, fields)
    for name, choice in CHOSEN.items():
        unsaid, value = JOB_OPTIONS[name].unsaid, asked[name]
        value = value if value == unsaid else _one(name, str(value))
        written = choice.write(settings, value)
        if written is None or (written.optimizer.of_matrices and written.precision != "bf16"):
            needs = choice.needs
            raise UsageError(
                f"{name}: found {value} without {needs}, expected {unsaid}, or {needs} beside it"
            )
        settings = written
    return settings


def uncounted_in(settings: Settings) -> Iterator[str]:
    """Yield a note on every value of a choice that is not counted whole."""
    for name, choice in CHOSEN.items():
        value = choice.read(settings)
        if what := choice.uncounted.get(value):
            yield f"{name.replace('_', ' ')} {value}: not counted: {what}"


def idle_in(settings: Settings, asked: Mapping[str, Any], *, replicated: bool) -> Iterator[str]:
    """Yield a note on every option that decides nothing in a job. replicated: several ranks have
    the same parameters."""
    for name, choice in CHOSEN.items():
        said = asked[name] is not None and (value := choice.read(settings)) != choice.read(
            Settings()
        )
        if said and choice.idle(settings, replicated):
            yield f"{name.replace('_', ' ')} {value}: without effect in this job"


def _one(name: str, value: Any) -> Any:
    """Return the value that an option says; a text is one of the setting's domain.

    Raises
    ------
    UsageError: it is not, or says several.
    """
    domain = BY_NAME[name].domain
    return value if domain is CLOSED or not isinstance(value, str) else domain.one(name, value)


def changed_options(settings: Settings) -> dict[str, Any]:
    """Return the values of the options for settings that `fit` changes."""
    return {name: value_of(name, settings) for name in CHANGED}


def value_of(name: str, settings: Settings) -> Any:
    """Return the value of one of `JOB_OPTIONS` in settings, in the words of searches."""
    if name in CHOSEN:
        return CHOSEN[name].read(settings)
    return attrgetter(JOB_OPTIONS[name].field)(settings)


def of_others(settings: Settings) -> str:
    """Return a setting with a value that Megatron-LM has not; empty: there is none."""
    own = ((name, value_of(name, settings)) for name in JOB_OPTIONS if BY_NAME[name].only)
    found = (
        f"{name.replace('_', ' ')} {value}" for name, value in own if value in BY_NAME[name].only
    )
    return next(found, "")
