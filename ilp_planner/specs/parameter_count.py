"""The number of parameters of a model, by the table of its operators."""

from ilp_planner.specs.architecture import Architecture, Parameters
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.t5 import T5


def tied_parameters(architecture: Architecture) -> int:
    """Return the parameters that are in the table more than once: word embeddings that operators
    share."""
    if isinstance(architecture, T5):
        # The decoder's embedding and the output's words are the encoder's.
        words, positions = architecture.vocab, architecture.max_position_embeddings
        return (2 * words + positions) * architecture.hidden
    if isinstance(architecture, Gpt) or (isinstance(architecture, Decoder) and architecture.tied):
        return architecture.vocab * architecture.hidden
    return 0


def parameter_count(model: ModelSpec) -> int:
    """Return the number of parameters, tied ones once."""
    table = model.architecture.parameters
    repeated = sum(table.get(name, Parameters()).total for name in model.operators)
    return repeated - tied_parameters(model.architecture)
