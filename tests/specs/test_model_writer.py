"""What is written of a model is read again as the same one."""

from dataclasses import replace

from ilp_planner.base.files import Document
from ilp_planner.base.library import library_files
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from tests.examples import for_each


def again(spec: ModelSpec) -> ModelSpec:
    return read_model(Document("written", model_text(spec)))


@for_each("path", library_files("models"))
def test_known_models(path):
    spec = read_model(path)
    assert again(spec) == spec


def test_names_sizes_and_keys_of_all_kinds():
    spec = replace(
        read_model(library_files("models")[0]),
        name='a "model" \\ of\tours [architecture]',
        micro_batch_sizes=(3, 5),
        profile={"metis": 'a"key', "amp": "x"},
        export={"nemo": {"one.two": 1, "three": 0.5, "four": True, "five": "ü"}, "deepspeed": {}},
    )
    assert again(spec) == spec
