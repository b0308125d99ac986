"""Groups of ranks: by arithmetic, equal to what Megatron builds."""

import json
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.groups import (
    ACROSS,
    BETWEEN,
    INSIDE,
    INSTANCE,
    KINDS,
    MIXED,
    NOBODY,
    embedding_groups,
    group_count,
    group_size,
    groups,
    kind_link,
    rank_name,
    stage_link,
    stage_ranks,
)
from ilp_planner.job.states import sharing
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob
from tests.examples import for_each
from tests.rank_groups import group_of, pp_rank_of

CASES = Path("../shared/data/megatron/build_cases.json")


def make_job(
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    cp: int = 1,
    ep: int = 1,
    etp: int = 0,
    order: str = "tp-cp-ep-dp-pp",
    per_node: int = 8,
) -> TrainingJob:
    model = Decoder(
        layers=pp,
        hidden=64,
        heads=16,
        sequence=64,
        vocab=256,
        experts=Experts(count=16, top_k=2, ffn=64) if ep > 1 or etp else None,
    )
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=dp,
        tp=tp,
        pp=pp,
        dp=dp,
        settings=Settings(cp=cp, ep=ep, etp=etp, order=order),
        devices_per_node=per_node,
    )


def built() -> list[dict[str, Any]]:
    if not CASES.is_file():
        return []
    return [case for case in json.loads(CASES.read_text())["cases"] if case["status"] == "built"]


def test_the_cases_of_megatron_are_here() -> None:
    if not CASES.is_file():
        pytest.skip("no ../shared/data/megatron/build_cases.json")
    assert len(built()) >= 8


@for_each("case", built())
def test_equal_to_what_megatron_builds(case: dict[str, Any]) -> None:
    words = shlex.split(case["args"])

    def degree(flag: str) -> int:
        return int(words[words.index(flag) + 1]) if flag in words else 1

    tp, pp = degree("--tensor-model-parallel-size"), degree("--pipeline-model-parallel-size")
    cp, ep = degree("--context-parallel-size"), degree("--expert-model-parallel-size")
    mapped = "--use-tp-pp-dp-mapping" in words
    job = make_job(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=case["world"] // (tp * pp * cp),
        order="tp-cp-ep-pp-dp" if mapped else "tp-cp-ep-dp-pp",
    )
    found = {
        kind: list(group_of(job, kind, case["rank"]).ranks) for kind in ("tp", "dp", "pp", "cp")
    }
    found["ep"] = list(group_of(job, "ep", case["rank"]).ranks)
    assert found == case["groups"]


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    size = st.sampled_from((1, 2, 3, 4))
    tp, pp, dp, cp = (draw(size) for _ in range(4))
    order = draw(st.sampled_from(("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")))
    ep, etp = cp, tp  # else Megatron refuses the second order: its grids would disagree on pp
    if order == "tp-cp-ep-dp-pp":
        etp = draw(st.sampled_from([d for d in (1, 2, 4) if tp * cp * dp % d == 0]))
        ep = draw(st.sampled_from([d for d in (1, 2, 4) if tp * cp * dp // etp % d == 0]))
    per_node = draw(st.sampled_from((2, 4, 8)))
    return make_job(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, etp=etp, order=order, per_node=per_node)


@given(jobs())
def test_every_kind_divides_all_ranks(job: TrainingJob) -> None:
    """Each rank is in exactly one group of a kind, of the size that is said."""
    for kind in KINDS:
        found = [list(group.ranks) for group in groups(job, kind)]
        assert len(found) == group_count(job, kind)
        assert {len(ranks) for ranks in found} == {group_size(job, kind)}
        assert sorted(rank for ranks in found for rank in ranks) == list(range(job.world))
        for ranks in found:
            assert ranks == sorted(ranks)


@given(jobs())
def test_pipeline_groups_are_the_same_in_both_grids(job: TrainingJob) -> None:
    """What Megatron asserts when it builds them."""
    for rank in range(job.world):
        ranks = list(group_of(job, "pp", rank).ranks)
        assert ranks.index(rank) == pp_rank_of(job, rank)
        for kind in ("edp", "ep", "etp", "etp-ep", "dp", "cp", "tp", "dp-cp"):
            assert {pp_rank_of(job, r) for r in group_of(job, kind, rank).ranks} == {
                pp_rank_of(job, rank)
            }


@given(jobs())
def test_stages_divide_all_ranks(job: TrainingJob) -> None:
    counts = Counter(rank for r in range(job.pp) for rank in stage_ranks(job, r).ranks)
    assert counts == Counter(range(job.world))
    for r in range(job.pp):
        assert {pp_rank_of(job, rank) for rank in stage_ranks(job, r).ranks} == {r}


@given(jobs())
def test_links_are_those_of_the_groups(job: TrainingJob) -> None:
    """The link by arithmetic is that of looking at every group."""
    for kind in KINDS:
        spread = set()
        for group in groups(job, kind):
            nodes = {rank // job.devices_per_node for rank in group.ranks}
            spread.add(NOBODY if group.size < 2 else INSIDE if len(nodes) == 1 else BETWEEN)
        expected = MIXED if len(spread) > 1 else spread.pop()
        if expected is MIXED and NOBODY in spread:
            pytest.fail("groups of one kind have one size")
        assert kind_link(job, kind) == expected
        for r in range(job.pp):
            if kind == "pp":
                continue
            mine = set()
            for group in groups(job, kind):
                if pp_rank_of(job, group.first) == r:
                    nodes = {rank // job.devices_per_node for rank in group.ranks}
                    mine.add(NOBODY if group.size < 2 else INSIDE if len(nodes) == 1 else BETWEEN)
            assert kind_link(job, kind, r) == (MIXED if len(mine) > 1 else mine.pop())


@given(jobs())
def test_links_between_stages(job: TrainingJob) -> None:
    if job.pp == 1:
        return
    for r in range(job.pp):
        seen = set()
        after = (r + 1) % job.pp
        for rank in range(job.world):
            if pp_rank_of(job, rank) == r:
                other = list(group_of(job, "pp", rank).ranks)[after]
                same = rank // job.devices_per_node == other // job.devices_per_node
                seen.add(INSIDE if same else BETWEEN)
        assert stage_link(job, r, (r + 1) % job.pp) == (MIXED if len(seen) > 1 else seen.pop())


def test_names() -> None:
    job = make_job(tp=2, pp=2, dp=4)
    assert [rank_name(job, rank) for rank in (0, 7, 8, 15)] == ["n0_g0", "n0_g7", "n1_g0", "n1_g7"]


def test_embedding_groups_join_first_and_last_stage() -> None:
    job = make_job(tp=2, pp=4, dp=1)
    assert [list(group.ranks) for group in embedding_groups(job)] == [[0, 6], [1, 7]]


def test_groups_of_16384_ranks_are_not_enumerated() -> None:
    job = make_job(tp=8, pp=16, dp=128)
    assert job.world == 16384
    first = next(groups(job, "dp"))
    assert (first.first, first.last, first.size) == (0, 1016, 128)


def test_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="must be"):
        next(groups(make_job(tp=2, pp=2, dp=4), "up"))


@given(
    st.sampled_from([1, 2]), st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2, 4]), st.data()
)
def test_instances_divide_the_replicas(tp: int, dp: int, cp: int, data: st.DataObject) -> None:
    """Neighbours share an instance, as many as share states, and each has a peer in every other."""
    sizes = [n for n in range(1, dp * cp + 1) if dp * cp % n == 0]
    size = data.draw(st.sampled_from([n for n in sizes if n % cp == 0 or cp % n == 0]))
    count = dp * cp // size
    plain = make_job(tp=tp, dp=dp, cp=cp, pp=2)
    optimizer = OptimizerSettings(sharding="optimizer", instances=count)
    job = replace(plain, settings=replace(plain.settings, optimizer=optimizer))
    assert group_size(job, "dp-cp", INSTANCE) == sharing(job, expert=False)
    assert group_size(job, "dp-cp", ACROSS) == count
    ones = sorted(tuple(group.ranks) for group in groups(job, "dp-cp", INSTANCE))
    across = sorted(tuple(group.ranks) for group in groups(job, "dp-cp", ACROSS))
    wanted_ones, wanted_across = [], []
    for whole in groups(job, "dp-cp"):
        ranks = list(whole.ranks)
        wanted_ones += [tuple(ranks[i * size : (i + 1) * size]) for i in range(count)]
        wanted_across += [tuple(ranks[i::size]) for i in range(size)]
    assert ones == sorted(wanted_ones)
    assert across == sorted(wanted_across)
