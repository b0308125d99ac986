"""What attention keeps, where it depends on its kernel."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from ilp_planner.job.attention import (
    _attention_modules,
    attention_modules,
    local_softmax,
    reads_strided,
)
from ilp_planner.job.modules import Kept, Module
from ilp_planner.job.recompute import PARTS
from ilp_planner.specs.training import Kernels, Recompute, TrainingJob
from tests.job.test_sparse import job_of as sparse_job
from tests.training_jobs import deepseek, gpt, job, llama, settings


def kept(modules: tuple[Module, ...], inside: str = "") -> Iterator[tuple[str, Kept]]:
    """Yield what modules keep, with the module's name."""
    for module in modules:
        for one in module.kept:
            yield module.name, one
        yield from kept(module.children)


def with_kernels(case: TrainingJob, **changes: object) -> TrainingJob:
    kernels = replace(case.settings.kernels, **changes)
    return replace(case, settings=replace(case.settings, kernels=kernels))


def test_unfused_attention_repeats_keys_and_values_for_every_query_head() -> None:
    """16 heads of queries and 8 of keys, on two ranks: 512 tokens of 2 samples, 16 numbers each."""
    found = {}
    for attention in ("unfused", "flash"):
        case = with_kernels(job(llama()), attention=attention)
        every = dict(kept(attention_modules(case)))
        assert every
        found[attention] = {
            one.name: one.shape
            for name, one in kept(attention_modules(case))
            if name == "core_attention" and one.name in ("queries", "keys", "values")
        }
    queries, keys = (512, 2, 8 * 16), (512, 2, 4 * 16)
    assert found["unfused"] == {"queries": queries, "keys": queries, "values": queries}
    assert found["flash"] == {"queries": queries, "keys": keys, "values": keys}


def test_attention_reads_the_product_in_place_but_in_the_legacy_model() -> None:
    """GPT has learned positions, so that nothing is rotated."""
    case = job(gpt())
    assert reads_strided(case)
    assert not reads_strided(job(llama()))
    assert not reads_strided(replace(case, settings=replace(case.settings, cp=2)))
    assert not reads_strided(with_kernels(case, implementation="local", attention="flash"))
    assert reads_strided(with_kernels(case, implementation="local", attention="unfused"))


@pytest.mark.parametrize(("sequence", "is_pytorch_s"), [(4096, False), (4097, True)])
def test_the_fused_softmax_is_for_4096_tokens_at_most(sequence: int, is_pytorch_s: bool) -> None:
    kernels = Kernels(implementation="local", attention="unfused")
    case = job(gpt(sequence=sequence), tp=1, dp=4, settings=settings(kernels=kernels))
    assert local_softmax(case) == is_pytorch_s


def test_compressed_widths_stay_without_recomputing_what_widens_them() -> None:
    """`mla_up_proj` keeps what enters the norms, 48 and 32 wide; else their outputs as well."""
    found = {}
    for modules in ((), ("mla_up_proj",)):
        again = Recompute(granularity="selective", modules=modules) if modules else Recompute()
        case = job(deepseek(), settings=settings(recompute=again))
        found[modules] = [
            (name, one.shape[-1])
            for name, one in kept(attention_modules(case))
            if "up_proj" in name or "layernorm" in name
        ]
    assert len(found[()]) > len(found["mla_up_proj",])
    assert {width for _, width in found["mla_up_proj",]} >= {48, 32}


@pytest.mark.parametrize("case", [job(gpt()), job(llama()), job(deepseek()), sparse_job()])
def test_only_its_own_parts_change_what_attention_keeps(case: TrainingJob) -> None:
    """Modules are cached without the recomputed parts of the rest of a layer."""
    names = (*PARTS,)
    every = [some for count in (1, 2, 3) for some in combinations(names, count)]
    for modules in every:
        again = Recompute(granularity="selective", modules=modules)
        one = replace(case, settings=replace(case.settings, recompute=again))
        assert attention_modules(one) == _attention_modules.__wrapped__(one)
