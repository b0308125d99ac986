"""Settings of another one bring it or are noted."""

from collections.abc import Callable

from ilp_planner.settings.beside import notes_beside, taken_beside, without
from ilp_planner.settings.table import SETTINGS

ROWS = [row for row in SETTINGS if row.beside]


def said_of(**said: str) -> Callable[[str], tuple[str, ...]]:
    return lambda name: (said[name],) if name in said else ()


def test_every_value_brings_the_other_setting_or_is_noted() -> None:
    assert {row.name for row in ROWS} >= {"muon_steps", "muon_packing", "lora_targets", "qlora"}
    for row in ROWS:
        assert row.beside
        other, brought = row.beside
        usual = row.search_of("").values[0]
        for value in {*row.domain.values, usual}:
            said = said_of(**{row.name: value})
            words = row.name.replace("_", " ")
            notes = list(notes_beside(said))
            if value != usual:
                assert list(taken_beside(said)) == [(row.name, other, brought)]
                assert notes[0].startswith(f"{words} {value}: {other} {brought} is assumed")
            else:
                assert list(taken_beside(said)) == []
                idle = row.choice is not None and bool(row.choice.rest)
                assert (
                    notes
                    == [f"{words} {value}: without effect but beside {other} {brought}"] * idle
                )
                assert without(row.name, said) == idle
            beside = said_of(**{row.name: value, other: brought})
            assert list(notes_beside(beside)) == []
            assert not without(row.name, beside)
