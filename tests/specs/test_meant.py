"""GPUs that are written loosely, and variants of models, are told the right name."""

import re

import pytest

import ilp_planner as ilp
from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.library import find_spec, hub_names, nearest_model
from ilp_planner.inputs.files import find_cluster
from ilp_planner.specs.gpu_cluster import parse_gpus
from ilp_planner.specs.gpus import gpu, meant, table
from tests.examples import for_each, thinned


@for_each("row", table().values())
def test_every_row_is_meant_however_it_is_written(row) -> None:
    stem = re.sub(r"-[0-9]+GB$", "", row.name)
    size = round(row.sold / 2**30)
    loose = [stem, stem.lower(), stem.replace("-", " "), f"NVIDIA {stem}", f"{stem} SXM"]
    loose += [f"{stem} {size}GB", f"{stem}-{size}gib", f"nvidia-{stem.lower()}-{size}g"]
    for said in loose:
        try:
            assert gpu(said).name.startswith(stem)
        except SpecError as error:
            assert row.name in meant(said), said
            named = str(error).partition("did you mean ")[2].rstrip("?").split(" or ")
            assert [gpu(name).name for name in named] == meant(said)
        if re.search(r"\d+g", said, re.IGNORECASE) and not re.search(r"\dg", stem.lower()):
            assert all(gpu(n).memory == row.memory for n in meant(said) if n.startswith(stem)), said


@for_each(
    ("said", "names"),
    [
        ("16xA100", "16xA100-40GB or 16xA100-80GB"),
        ("4xv100 32", "4xV100-32GB"),
        ("2xMI300", "2xMI300X"),
        ("2xRTX 5060", "2xRTX-5060-Ti-8GB or 2xRTX-5060-Ti-16GB"),
        ("2xRTX 5060 16GB", "2xRTX-5060-Ti-16GB"),
        ("8xMI355", "8xMI355X"),
    ],
)
def test_what_is_suggested_works(said: str, names: str) -> None:
    for read in (parse_gpus, find_cluster, lambda text: ilp.problem("llama3-8b", text)):
        with pytest.raises((UsageError, SpecError), match=f"did you mean {names}\\?$"):
            read(said)
    assert [parse_gpus(name).name for name in names.split(" or ")] == names.split(" or ")


def test_a_gpu_that_is_in_no_row_is_not_taken_for_another() -> None:
    assert meant("RTX 3080") == meant("A5000") == meant("") == meant("gb") == []
    with pytest.raises(SpecError, match="nearest: RTX-3090"):
        gpu("RTX 3080")
    with pytest.raises(UsageError, match="did you mean 8xRTX-4090"):
        parse_gpus("4090")


VARIANTS = ("-it", "-Instruct", "-Instruct-2507", "-GGUF", "-Chat-hf", "-FP8")


@for_each("hub", [*thinned(hub_names(), 8), "google/gemma-3-27b", "google/gemma-3-4b"])
def test_variants_of_a_model_are_told_its_name(hub: str) -> None:
    own = hub_names().get(hub)
    stem = own.stem if own else hub.rpartition("/")[2].replace("-3", "3") + "-text"
    for end in VARIANTS:
        found = nearest_model(hub + end)
        assert found == stem or stem.startswith(f"{found}-"), hub + end
        assert find_spec(found, "models")


@for_each(
    ("hub", "stem"),
    [
        ("google/gemma-3-27b-it", "gemma3-27b-text"),
        ("Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "qwen2.5-vl-7b"),
        ("somebody/gemma-9b", ""),
        ("google/gemma-3-270m", ""),
    ],
)
def test_family_and_size_decide(hub: str, stem: str) -> None:
    assert nearest_model(hub) == stem
    with pytest.raises(SpecError) as caught:
        find_spec(hub, "models")
    assert (f"did you mean '{stem}'?" in str(caught.value)) == bool(stem)
