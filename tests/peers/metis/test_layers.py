import numpy as np
import pytest

from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow
from ilp_planner.peers.metis.tables import metis_layer_profile

MIB = 2**20


def flat_profile(figure, memory, *, tp=1, layers=4):
    """memory: samples -> MB of every layer."""
    rows = {
        LayerKey("A100", tp, samples): MetisRow(
            compute=np.full(layers, 2.0),
            memory=np.full(layers, float(held)),
            forward_backward=9.0,
            optimizer=8.0,
            batch_generator=1.0,
            parameters=np.full(layers, float(figure)),
        )
        for samples, held in memory.items()
    }
    return MetisProfile(source="flat", rows=rows, constants=min(rows))


class TestLayerProfile:
    H = 1024
    ELEMENTS = 12 * 1024**2

    def test_terms(self):
        profile = metis_layer_profile(
            flat_profile(self.ELEMENTS, {1: 500, 2: 600, 4: 800}), hidden=self.H, sequence=128
        )
        key = LayerKey("A100", 1, 2)
        # The measured forward and backward of all layers is kept: what is beyond them comes last.
        np.testing.assert_allclose(profile.time[key], [2e-3, 2e-3, 2e-3, 3e-3])
        np.testing.assert_allclose(profile.state["A100", 1], 400 * MIB)
        np.testing.assert_allclose(profile.activation["A100", 1], 100 * MIB)
        assert profile.boundary.tolist() == [0, *[2 * 128 * self.H] * 3, 0]
        assert profile.optimizer["A100", 1].sum() == pytest.approx(8e-3)
        assert profile.measured == frozenset(profile.time)
        assert profile.samples("A100", 1) == (1, 2, 4)

    @pytest.mark.parametrize(
        "memory", [{1: 500, 2: 480, 4: 460}, {1: 300, 2: 1000, 4: 1100}, {1: 10, 4: 1000}, {2: 77}]
    )
    def test_memory_covers_what_was_measured(self, memory):
        profile = metis_layer_profile(
            flat_profile(self.ELEMENTS, memory), hidden=self.H, sequence=128
        )
        state, slope = profile.state["A100", 1], profile.activation["A100", 1]
        assert (state >= 0).all()
        assert (slope >= 0).all()
        for samples, held in memory.items():
            assert (state + samples * slope >= held * MIB * (1 - 1e-12)).all()

    @pytest.mark.parametrize(
        ("figure", "tp", "gradient", "noted"),
        [
            (1.0, 1, 2, True),  # element counts
            (1.05, 1, 2, True),
            (2.0, 1, 2, False),  # fp16 bytes
            (4.0, 1, 4, False),  # fp32 bytes
            (0.25, 4, 2, True),  # element counts of one of four devices
        ],
    )
    def test_gradients_are_bytes(self, figure, tp, gradient, noted):
        profile = metis_layer_profile(
            flat_profile(figure * self.ELEMENTS, {1: 500, 2: 600}, tp=tp), hidden=self.H, sequence=1
        )
        np.testing.assert_allclose(profile.gradients, gradient * self.ELEMENTS, rtol=0.06)
        assert any("are element counts, not bytes" in note for note in profile.notes) == noted

    @pytest.mark.parametrize(("unit", "gradient"), [(1, 2), (2, 2), (4, 4)])
    def test_gradients_by_the_memory_where_the_shape_is_another(self, unit, gradient):
        parameters = 100e6
        state = parameters * (16 if unit == 4 else 18) / MIB
        profile = metis_layer_profile(
            flat_profile(parameters * unit, {1: state + 100, 2: state + 200}),
            hidden=self.H,
            sequence=1,
        )
        np.testing.assert_allclose(profile.gradients, gradient * parameters)

    def test_no_parameters(self):
        profile = metis_layer_profile(flat_profile(0, {1: 5}), hidden=self.H, sequence=1)
        assert not profile.gradients.any()
