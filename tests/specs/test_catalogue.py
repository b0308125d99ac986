"""The models that come with the planner are those that were published."""

import re
from dataclasses import replace

from ilp_planner.base.library import hub_names
from ilp_planner.specs.catalogue import catalogue
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import parameter_count
from tests.examples import for_each
from tests.specs.hugging_face.published import PUBLISHED, document

HERE = hub_names()
SAME = [name for name in PUBLISHED if name in HERE]


@for_each("name", SAME)
def test_a_name_at_hugging_face_means_what_its_configuration_says(name):
    """But for the tokens of a sample, of which that says nothing."""
    found = read_model(HERE[name]).architecture
    wanted = read_config(document(name)).architecture
    assert replace(found, sequence=wanted.sequence) == wanted
    assert parameter_count(read_model(HERE[name])) == PUBLISHED[name][1]


@for_each(
    ("model", "name"),
    [
        ("gemma3-4b-text", "google/gemma-3-4b-pt"),
        ("gemma3-12b-text", "google/gemma-3-12b-pt"),
        ("gemma3-27b-text", "google/gemma-3-27b-pt"),
        ("nemotron4-340b", "nvidia/Nemotron-4-340B-Base"),
    ],
)
def test_models_without_a_name_at_hugging_face(model, name):
    found = next(entry.model for entry in catalogue() if entry.model.name == model)
    assert found.architecture == read_config(document(name)).architecture


def test_most_of_what_was_published_is_there():
    assert len(SAME) > 60
    assert len(set(hub_names())) == sum(len(entry.hub) for entry in catalogue())


@for_each("entry", catalogue())
def test_every_model_says_where_its_numbers_are_from(entry):
    if entry.hub:
        assert re.search(r"published config\.json|Compared with", entry.source)
    assert re.search(r"arXiv|config\.json|Compared with|Aceso|Metis|Narayanan|our", entry.source)
