"""Fields by their names, and what their values make of a request."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.files import Document
from ilp_planner.faces.sweeps.fields import find_field, held
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model

BASE = Request(files={"model": Reference(name="llama3-8b"), "cluster": Reference(name="16xH100")})


def put(name: str, text: str, base: Request = BASE) -> Request:
    return find_field(name, (), base).put(base, text)


def model_of(request: Request):
    reference = held(request, "model")
    return read_model(Document(reference.name, reference.text or ""))


def cluster_of(request: Request):
    reference = held(request, "cluster")
    return read_cluster(Document(reference.name, reference.text or ""))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("global_batch", "256", {"global_batch": 256}),
        ("global-batch-size", "256", {"global_batch": 256}),
        ("runtime", "torchtitan", {"space": "torchtitan"}),
        ("sequence_length", "4096", {"sequence": 4096}),
        ("micro_batch_sizes", "1,2", {"micro_batch": (1, 2)}),
        ("memory_limit", "40GiB", {"memory_limit": 40.0 * 2**30}),
        ("text_only", "true", {"text_only": True}),
        ("batching", "grouped", {"batching": "grouped"}),
        ("lengths", "a.csv", {"files": {**BASE.files, "lengths": Reference(name="a.csv")}}),
    ],
)
def test_a_value_is_where_the_request_has_it(
    name: str, text: str, expected: dict[str, object]
) -> None:
    assert put(name, text) == replace(BASE, **expected)  # type: ignore[arg-type]


def test_constraints_are_added_to_those_of_before() -> None:
    request = put("recompute", "none,selective", put("tp", "2..4"))
    assert request.constraints.texts == {"tp": "2..4", "recompute": "none,selective"}
    assert put("tp", "8", request).constraints.texts["tp"] == "8"


def test_keys_of_the_files_are_changed_and_nothing_else() -> None:
    before = model_of(BASE)
    after = model_of(put("layers", "40"))
    assert after == replace(before, architecture=replace(before.architecture, layers=40))
    device = cluster_of(BASE).device_types["H100-80GB"]
    for name, text, changed in (
        ("price", "2.5", replace(device, price=2.5)),
        ("memory", "64GiB", replace(device, memory=64 * 2**30)),
        ("devices.H100-80GB.host_link", "32 GB/s", replace(device, host_link=32e9)),
    ):
        assert cluster_of(put(name, text)).device_types["H100-80GB"] == changed
    faster = cluster_of(put("inter_node.bandwidth", "123 GB/s"))
    assert faster == replace(
        cluster_of(BASE), inter_node=replace(faster.inter_node, bandwidth=123e9)
    )
    assert cluster_of(put("cluster.count", "3")).device_count == 24


def test_several_changes_of_one_file_add_up() -> None:
    request = put("heads", "64", put("layers", "40"))
    architecture = model_of(request).architecture
    assert (architecture.layers, architecture.heads) == (40, 64)  # type: ignore[attr-defined]


def test_a_key_that_another_cluster_has_not_is_an_error_of_the_point() -> None:
    field = find_field("devices.H100-80GB.price", (), BASE)
    other = replace(BASE, files={**BASE.files, "cluster": Reference(name="a100-4x8")})
    with pytest.raises(SpecError, match=r"devices\.H100-80GB\.price: found no field of this name"):
        field.put(other, "2")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("glob_batch", "did you mean 'global_batch'?"),
        ("layrs", "did you mean 'layers'?"),
        ("recomput", "did you mean 'recompute'?"),
        ("zzzzz", "or a key of the model's or the cluster's file"),
        ("bandwidth", "cluster.links.intra_node.bandwidth, cluster.links.inter_node.bandwidth"),
        ("count", "model.architecture.experts.count, cluster.nodes.0.count"),
    ],
)
def test_a_name_of_no_field_or_of_several_is_refused(name: str, end: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_field(name, (), BASE)
    assert str(raised.value).startswith(f"vary: found {name!r}, which ")
    assert str(raised.value).endswith(end)


@pytest.mark.parametrize(
    ("name", "text"),
    [("global_batch", "0"), ("tp", "x"), ("memory_limit", "40"), ("text_only", "maybe")],
)
def test_a_text_that_can_be_no_value_is_refused_before_anything_is_solved(
    name: str, text: str
) -> None:
    with pytest.raises(UsageError, match=rf"^{name}\b.* found '{text}'"):
        find_field(name, (), BASE).check(text)
