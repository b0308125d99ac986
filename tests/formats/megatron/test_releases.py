"""Releases of Megatron-Core: what they lack is named, in exports and in launches that are read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError, SpecError, UsageError
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.exports import EXPORTS, export_job, refusal_of, releases_of, runtime_of
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.flags import flags
from ilp_planner.formats.megatron.launch import NEWER
from ilp_planner.formats.megatron.releases import (
    DEFAULTS,
    MAIN,
    ORDER,
    SINCE,
    VALUES,
    after,
    core_named,
    defaults_of,
    lacking,
    read_for,
)
from ilp_planner.formats.versions import CORES
from ilp_planner.specs.training import TrainingJob
from tests.training_jobs import decoder_named


def job_of(name: str, **changes: int) -> TrainingJob:
    return TrainingJob(model=decoder_named(name), micro_batch=1, global_batch=16, **changes)


def test_rows_name_arguments_of_the_table() -> None:
    names = [name for text in SINCE.values() for name in text.split()]
    assert len(names) == len({*names}) > 200
    assert {*names, *VALUES} <= {*flags()}
    assert {*DEFAULTS} <= {flag.key for flag in flags().values()}
    for name, values in VALUES.items():
        assert {*values} <= {*flags()[name].choices}
        assert {*values.values()} <= {*ORDER}
    assert tuple(SINCE) == ORDER[1:]


@given(st.sampled_from(ORDER), st.sampled_from(ORDER), st.sampled_from(ORDER))
def test_releases_are_in_order(a: str, b: str, c: str) -> None:
    assert after(a, b) + after(b, a) + (a == b) == 1
    assert not (after(a, b) and after(b, c)) or after(a, c)


@given(st.data())
def test_an_argument_is_lacking_before_its_release_alone(data: st.DataObject) -> None:
    since = data.draw(st.sampled_from([*SINCE]))
    flag = flags()[data.draw(st.sampled_from(SINCE[since].split()))]
    several = [one for one in flags().values() if one.key == flag.key]
    if flag.kind != "switch" or len(several) > 1:
        return
    for core in CORES:
        found = lacking({flag.key: flag.sets}, core)
        assert (found is not None) == after(since, core)
        if found:
            assert str(found).startswith(f"{flag.text}, which ")
            assert (since in str(found)) or since == MAIN


@pytest.mark.parametrize(
    ("name", "first"), [("llama3-8b", "0.16.1"), ("nemotron3-nano-30b-a3b", "0.17.1")]
)
def test_exports_say_what_a_release_lacks(name: str, first: str) -> None:
    job = job_of(name)
    for core in CORES:
        runtime = runtime_of(f"megatron@{core}")
        assert str(runtime) == f"megatron@{core}"
        if after(first, core):
            with pytest.raises(PlanError, match=f"which {first} has, but megatron@{core} lacks"):
                export_job(runtime, job, "run", Expected())
        else:
            usual = export_job(runtime_of("megatron"), job, "run", Expected())
            found = export_job(runtime, job, "run", Expected())
            assert found.files == usual.files
            newer = [note for note in usual.notes if note.startswith(NEWER)]
            assert {*usual.notes} - {*found.notes} == {*newer}  # of the usual release alone
            assert len(newer) == (first != CORES[-1])
            assert all(f"--to megatron@{first}" in note for note in newer)


def test_the_usual_release_is_the_packaged_one() -> None:
    assert runtime_of("megatron").release == ""
    assert releases_of("megatron") == ("", *CORES)
    assert CORES[-1] in EXPORTS["megatron"][""].release
    assert runtime_of("megatron@0.18").release == "0.18.2"
    assert [core_named(f"megatron@{core}") for core in CORES] == [*CORES]
    for named in ("megatron@0.20", "megatron@", "megatron@0.1"):
        with pytest.raises(UsageError, match=r"expected megatron, or megatron@0\.19\.0"):
            core_named(named)


def test_launches_of_a_release_have_its_defaults() -> None:
    values = arguments_of_job(job_of("llama3-8b")).values
    found = read_for(values, "0.16.1", "run.sh")
    assert found["data_parallel_sharding_strategy"] == "no_shard"
    assert {key: found[key] for key in values} == {**values}
    assert "data_parallel_sharding_strategy" not in defaults_of("0.18.2")
    said = {"data_parallel_sharding_strategy": "optim"}
    assert read_for({**values, **said}, "0.16.1", "run.sh").items() >= said.items()
    with pytest.raises(SpecError, match=r"run.sh: found --optimizer soap, which 0.18.2 has"):
        read_for({**values, "optimizer": "soap"}, "0.17.1", "run.sh")


def test_a_release_is_named_that_the_packaged_one_is_too_old_for() -> None:
    """The usual export goes on, and says what its release lacks: of every model that it writes."""
    noted = 0
    for file in sorted(Path("models").glob("*.toml")):
        try:
            job = job_of(file.stem)
            exported = export_job(runtime_of("megatron"), job, "run", Expected())
        except (AssertionError, PlanError, SpecError, ValueError):
            continue
        said = [note for note in exported.notes if note.startswith("release: ")]
        refused = refusal_of(runtime_of(f"megatron@{CORES[-1]}"), job)
        assert bool(said) == bool(refused)
        noted += len(said)
    assert noted > 3
