"""How much slower or faster a change is, as people read it, and what is not counted of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.analysis.fit.system import space_of_runtime
from ilp_planner.faces.report.fit import _closing, signed_percent, uncounted_notes
from ilp_planner.settings.job_options import CHOSEN, uncounted_in
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.specs.training import Settings
from tests.examples import for_each

UNCOUNTED = [(name, value) for name, choice in CHOSEN.items() for value in choice.uncounted]
IN_8_BITS = Settings(kernels=replace(Settings().kernels, quantised="fp8-delayed"))


def judged(settings: Settings) -> Any:
    """Return a judged job, or a change to one."""
    job = SimpleNamespace(job=SimpleNamespace(settings=settings))
    return SimpleNamespace(judged=job, **vars(job))


@pytest.mark.parametrize(("name", "value"), UNCOUNTED)
@pytest.mark.parametrize("place", ["changes", "more_gpus", "free"])
def test_what_is_not_counted_is_noted_of_every_change(place: str, name: str, value: str) -> None:
    """Once, and not if the job has it as it is."""
    plain, changed = judged(IN_8_BITS), judged(CHOSEN[name].write(IN_8_BITS, value))
    (note,) = uncounted_in(changed.job.settings)
    found: Any = SimpleNamespace(changes=(plain,), more_gpus=None, free=None, as_is=plain)
    assert uncounted_notes(found) == ()
    has = {"changes": (changed, changed), "free": SimpleNamespace(change=changed)}
    setattr(found, place, has.get(place, changed))
    assert uncounted_notes(found) == (note,)
    found.as_is = changed
    assert uncounted_notes(found) == ()


@pytest.mark.parametrize("noun", [space_of_runtime(name).noun for name in RUNTIMES])
@pytest.mark.parametrize(
    ("change", "bound", "impossible"),
    [(None, 0.0, False), (None, 0.0, True), ("some", 0.0, False), ("some", 1.0, False)],
)
def test_every_line_on_all_plans_says_of_which_system(
    noun: str, change: Any, bound: float, impossible: bool
) -> None:
    free = SimpleNamespace(change=change, bound=bound, impossible=impossible, among="plans")
    found: Any = SimpleNamespace(
        as_is=SimpleNamespace(fits=False), changes=(), more_gpus=None, free=free, otherwise=(),
        singles=1, pairs=1, enough=None, noun=noun,
    )  # fmt: skip
    (line,) = (line for line in _closing(found, "options") if line.startswith("free"))
    assert f" {noun} with all settings free" in line
    assert line.count("proved") == (impossible or bound > 0)


@for_each(
    ("share", "text"),
    [
        (0.0, "0.00 %"),
        (0.0213, "+2.13 %"),
        (-0.3, "-30.00 %"),
        (1e-7, "<0.01 %"),
        (-1e-7, "<0.01 %"),
        (12.5, "+1250.00 %"),
    ],
)
def test_a_share_has_a_sign_where_it_is_shown(share: float, text: str) -> None:
    assert signed_percent(share) == text


@pytest.mark.parametrize("gpus", [None, 16])
@pytest.mark.parametrize(("batch", "said"), [(1, "1 sample;"), (64, "64 samples;")])
def test_gpus_that_are_not_found_are_of_the_batch(batch: int, said: str, gpus: int | None) -> None:
    """A replica has one sample at least, and the batch may be an assumed one."""
    job = SimpleNamespace(global_batch=batch, settings=IN_8_BITS)
    found: Any = SimpleNamespace(
        as_is=SimpleNamespace(fits=False, job=job), changes=(),
        more_gpus=None, free=None, otherwise=(), singles=1, pairs=1, noun="torchtitan plan",
        enough=SimpleNamespace(memory=None, gpus=gpus),
    )  # fmt: skip
    *_, line = (line for line in _closing(found, "options") if line.startswith("enough"))
    assert (f"not found with its batch of {said}" in line) == (gpus is None)
