"""The options that say settings of one job, in both directions."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.settings.values import MOMENTS, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.settings.base import JobOption
    from ilp_planner.specs.training import Settings

# By their names.
JOB_OPTIONS: Mapping[str, JobOption] = {
    row.name: row.job_option for row in SETTINGS if row.job_option
}
CHOSEN = {
    row.name: (row.choice, row.job_option.words)
    for row in SETTINGS
    if row.choice and row.job_option and not row.job_option.field
}
# Names of options for settings that `fit` changes.
CHANGED = tuple(row.name for row in SETTINGS if row.job_option and (row.change or row.of_degrees))


def with_options(settings: Settings, asked: Mapping[str, Any]) -> Settings:
    """Return settings with the values of options. asked: at least all of `JOB_OPTIONS`.

    Raises
    ------
    UsageError: a value that does not go with the precision.
    """
    fields = {option.field: asked[name] for name, option in JOB_OPTIONS.items() if option.field}
    settings = with_fields(settings, fields)
    for name, (choice, words) in CHOSEN.items():
        value = words.get(asked[name], asked[name])
        if value != JOB_OPTIONS[name].unsaid and not words:
            (value,) = BY_NAME[name].domain.read(name, str(value))
        written = choice.write(settings, value)
        if written is None or (written.optimizer.of_matrices and written.precision != "bf16"):
            usual, beside = JOB_OPTIONS[name].unsaid, f"precision {settings.precision}"
            repair = ", or precision bf16"
            if settings.precision == "bf16":
                beside, repair = f"moments {MOMENTS.read(settings)}", ", or moments fp32"
            raise UsageError(
                f"`{name}`: found {value} with {beside}, expected {usual}{repair}; {usual} would do"
            )
        settings = written
    return settings


def changed_options(settings: Settings) -> dict[str, Any]:
    """Return the values of the options for settings that `fit` changes."""
    found = {}
    for name in CHANGED:
        if name in CHOSEN:
            choice, words = CHOSEN[name]
            value = choice.read(settings)
            found[name] = next((said for said, word in words.items() if word == value), value)
        else:
            found[name] = attrgetter(JOB_OPTIONS[name].field)(settings)
    return found
