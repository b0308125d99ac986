"""Samples in place of those of a model's file."""

from dataclasses import replace

from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.samples import Samples, with_samples
from tests.examples import for_each
from tests.specs.test_model import MODELS


@for_each("path", MODELS)
def test_samples_beyond_the_positions_are_remarked_on(path):
    """Whatever the model: up to its positions without a word, and one more with."""
    model = read_model(path)
    decoder = as_decoder(model.architecture)
    if decoder is None:
        return
    model = replace(model, architecture=decoder)
    most = decoder.max_position_embeddings
    within = with_samples(model, Samples(most))
    assert not [note for note in within.remarks if "positions" in note]
    beyond = with_samples(model, Samples(4 * most))
    (note,) = [note for note in beyond.remarks if "positions" in note]
    assert f"{4 * most} tokens" in note
    assert f"{most} positions" in note
    assert isinstance(beyond.architecture, Decoder)
    assert beyond.architecture.max_position_embeddings == 4 * most
    sizes = [one.architecture.parameters["word-embedding"].total for one in (within, beyond)]
    assert ("table" in note) == (sizes[1] > sizes[0])
    again = with_samples(beyond, Samples(most))
    assert not [note for note in again.remarks if "positions" in note]
