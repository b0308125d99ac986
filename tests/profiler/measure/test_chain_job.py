"""Shares of T5 and Wide ResNet: their parts, and what is known of these without measuring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.profiler.measure.wish import Wish
from ilp_planner.specs.architecture import Parameters
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.resnet import WideResNet
from tests.examples import examples
from tests.profiler.measure.small_chains import CHAINS, IMAGES, SIDES, shard
from tests.profiler.measure.small_decoders import LLAMA

FLOAT = 4


@examples(12)
@given(
    blocks=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    base=st.integers(1, 8),
    factor=st.integers(1, 3),
)
def test_runs_cover_every_layer_once_and_hold_what_is_alike(blocks, base, factor):
    edge = 2 ** (len(blocks) + 1)
    model = WideResNet(blocks=blocks, in_channels=base, width_factor=factor, image=edge, classes=2)
    job = shard(model)
    parts = segments(model.operators)
    covered = [(layer, r.kind) for r in job.runs for layer in range(r.first, r.last + 1)]
    assert [layer for layer, _ in covered] == list(range(len(parts)))
    for layer, kind in covered:
        names = model.operators[parts[layer].start : parts[layer].stop]
        alike = job.names(kind)
        assert [job.works[name] for name in names] == [job.works[name] for name in alike]
        assert sum(model.parameters.get(n, Parameters()).total for n in names) == job.parameters(
            kind
        )


def test_the_parts_of_a_t5():
    runs = [(run.kind, run.layers) for run in shard(SIDES).runs]
    assert runs == [
        ("embedding", "0"),
        ("enc", "1-2"),
        ("decoder-embedding", "3"),
        ("dec", "4-5"),
        ("head", "6"),
    ]


def test_the_parts_of_a_wide_resnet():
    runs = [(run.kind, run.layers) for run in shard(IMAGES).runs]
    assert runs == [
        ("stem", "0"),
        ("group 1 entry", "1"),
        ("group 1 block", "2"),
        ("group 2 entry", "3"),
        ("head", "4"),
    ]


def test_what_crosses_cuts_by_hand():
    """Two samples: 16 and 8 tokens of 32 numbers. The encoder's output travels on, made once."""
    job = shard(SIDES)
    encoded, hidden = FLOAT * 2 * 16 * 32, FLOAT * 2 * 8 * 32
    cuts = [(v["input_bytes"], v["output_bytes"]) for v in map(job.known_values, job.kinds)]
    both = encoded + hidden
    assert cuts == [(0, encoded), (encoded, encoded), (encoded, both), (both, both), (both, 0)]
    over = [job.handed(kind) for kind in job.kinds]
    assert over[2:] == [(encoded, hidden), (hidden, hidden), (hidden, 0)]
    assert [job.passing(kind) for kind in job.kinds] == [0, 0, 0, encoded, 0]


@pytest.mark.parametrize("name", CHAINS)
def test_what_a_part_leaves_the_next_takes_over(name):
    job = shard(CHAINS[name])
    for before, after in zip(job.kinds, job.kinds[1:], strict=False):
        assert job.handed(before)[1] == job.handed(after)[0]
    for tensors, kind in ((job.shapes(kind), kind) for kind in job.kinds):
        count = sum(a * b * c * (d or [1])[0] for a, b, c, *d in tensors)
        assert job.known_values(kind)["input_bytes"] == FLOAT * count


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", CHAINS)
def test_ranks_share_the_arithmetic(name, tp):
    model = CHAINS[name]
    job, whole = shard(model, tp), shard(model)
    counts = [run.last - run.first + 1 for run in job.runs]
    total = sum(n * job.known_values(r.kind)["flop"] for n, r in zip(counts, job.runs, strict=True))
    flops = model.flops
    undivided = flops.get("fc", 0)
    expected = sum(flops.get(n, 0) for n in model.operators) - undivided
    assert total == 2 * (expected / tp + undivided)
    assert all(whole.sent(kind) == ([], []) for kind in whole.kinds)


def test_gathered_tensors_count_by_half():
    """The stem makes 2 x 4 x 16 x 16 numbers; a block's first convolution reduces its input's."""
    job = shard(IMAGES, tp=2)
    stem, entry = job.sent("stem"), job.sent("group 1 entry")
    assert stem == ([FLOAT * 2 * 4 * 16**2 / 2], [])
    maps = FLOAT * 2 * 8**2
    assert entry[0] == [maps * n / 2 for n in (4, 8, 16, 16)]
    assert entry[1] == [maps * n for n in (4, 4, 8, 4)]


def test_degrees_and_samples_that_cannot_be():
    with pytest.raises(UsageError, match=r"tp: found 3, expected a divisor of 4: 1, 2, 4$"):
        shard(SIDES, tp=3)
    assert shard(LLAMA) is None
    for model, why in ((SIDES, "two sequences"), (IMAGES, "no tokens")):
        spec = ModelSpec(name="small", precision="fp32", architecture=model)
        wish = Wish(model=spec, degrees=(1,), micro_batch_sizes=(1,), sequences=(64,))
        with pytest.raises(UsageError, match=f"sequence: found 64, .* has {why}"):
            wish.jobs("fp32")
