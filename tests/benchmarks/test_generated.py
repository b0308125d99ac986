"""Generated instances are what their recipe says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.generated import DEGREES, GIB, SAMPLES, instance
from tests.examples import examples, for_each

SIZES = st.tuples(st.integers(1, 4), st.sampled_from([4, 8, 12, 16, 64]), st.integers(1, 20))


@examples(20)
@given(size=SIZES, seed=st.integers(0, 10**6))
def test_everything_is_within_the_documented_ranges(size, seed):
    types, devices, layers = size
    profile, cluster, batch = instance(types, devices, layers, seed)
    assert len(profile.layers) == layers + 2
    assert cluster.type_counts == (devices,) * types
    assert batch == (512 if types * devices <= 256 else 1024)
    rates = [device.arithmetic("fp16") for device in cluster.device_types.values()]
    assert 20e12 <= min(rates) == rates[0] <= 40e12
    assert max(rates) <= 6 * min(rates)
    memories = [device.memory / GIB for device in cluster.device_types.values()]
    assert min(memories) in (16, 24, 32)
    assert max(memories) <= 80
    assert all(20e9 <= link.bandwidth <= 300e9 for link in cluster.within.values())
    assert all(1e9 <= link.bandwidth <= 25e9 for link in cluster.between.values())
    assert len(cluster.between) == types * (types + 1) // 2
    middle = profile.gradients[1:-1]
    assert middle.max() <= 1.5 * middle.min()
    assert set(profile.devices) == set(cluster.type_names)
    for name in cluster.type_names:
        (size,) = set(cluster.node_sizes(name))
        assert size in (4, 8)
        assert profile.degrees(name) == tuple(t for t in DEGREES if t <= size)
        for tp in profile.degrees(name):
            assert profile.samples(name, tp) == SAMPLES


@examples(10)
@given(size=SIZES, seed=st.integers(0, 10**6))
def test_tensor_parallelism_helps_but_not_fully_and_samples_cost(size, seed):
    profile, cluster, _ = instance(*size, seed)
    for name in cluster.type_names:
        for tp in profile.degrees(name):
            alone = profile.time[name, 1, 8].sum()
            assert profile.time[name, tp, 8].sum() >= alone / tp
            times = [profile.time[name, tp, x].sum() for x in SAMPLES]
            assert times == sorted(times)
            assert times[-1] <= 16 * times[0]
            np.testing.assert_allclose(profile.state[name, tp] * tp, profile.state[name, 1])


def test_a_seed_says_everything():
    def numbers(*arguments):
        profile, cluster, batch = instance(*arguments)
        rows = [profile.time[key] for key in sorted(profile.time)]
        return np.concatenate([*rows, profile.boundary]), repr(cluster), batch

    first, again, other = (numbers(3, 16, 6, seed) for seed in (1, 1, 2))
    assert first[1:] == again[1:]
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] != other[1]


def test_memory_is_tight_somewhere():
    """Some type cannot hold half of the model, divided over half a node, with 4 x 4 samples."""
    for arguments in ((3, 64, 48), (3, 16, 96), (2, 256, 32)):
        for seed in range(3):
            profile, cluster, _ = instance(*arguments, seed)
            half = slice(0, len(profile.layers) // 2)
            tight = []
            for name in cluster.type_names:
                key = (name, profile.degrees(name)[-2])
                need = profile.state[key][half].sum() + 16 * profile.activation[key][half].sum()
                tight.append(need > cluster.device_types[name].memory)
            assert any(tight)


@for_each("size", [(0, 8, 8), (2, 6, 8), (2, 8, 0)])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(ValueError, match="expected at least one type"):
        instance(*size, 0)
