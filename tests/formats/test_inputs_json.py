"""What was asked for, as JSON: the inputs by name, hash and content."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.base.files import Document, to_json
from ilp_planner.formats.inputs_json import decode_inputs, decode_operator_inputs, encode_inputs
from ilp_planner.formats.json_fields import Fields
from ilp_planner.inputs.request import Reference, Request
from tests.examples import for_each
from tests.formats.saved_cases import OF_LAYERS, OF_OPERATORS, requests


def written(request: Request) -> dict[str, Any]:
    """Return what a file holds of a request."""
    value: dict[str, Any] = json.loads(to_json(encode_inputs(request)))
    return value


def read(value: dict[str, Any]) -> Request:
    return decode_inputs(Fields(value, file="plan.json", where="inputs"))


@given(request=requests())
def test_any_request_reads_back(request: Request) -> None:
    assert read(written(request)) == request


def test_what_was_not_given_is_left_out() -> None:
    bare = Request(files={"profile": Reference(name="analytic")}, global_batch=16)
    assert written(bare) == {
        "profile": {"name": "analytic", "sha256": None},
        "cost_model": "native",
        "global_batch": 16,
    }
    assert read(written(bare)) == bare


def test_whole_bytes_are_whole_numbers() -> None:
    value = written(OF_LAYERS)
    assert str(value["memory_limit_bytes"]) == str(8 * 2**30)
    assert value["memory_limits_bytes"] == {"A100": 8 * 2**30, "T4": 2**30 + 0.5}


def test_null_is_nothing() -> None:
    value = written(OF_LAYERS)
    kept = dict.fromkeys(("model", "cluster", "max_stages", "max_cp", "experiment"))
    assert read({**value, **kept}) == OF_LAYERS


Damage = list[tuple["Callable[[dict[str, Any]], object]", str]]
BAD: Damage = [
    (lambda d: d.update(modle=1), "inputs.modle: found an unknown key, expected 'model'"),
    (lambda d: d.update(profile=None), "inputs.profile: found null, expected a profile"),
    (lambda d: d.pop("profile"), "inputs.profile: found nothing, expected a profile"),
    (lambda d: d.update(profile="analytic"), "inputs.profile: found 'analytic', expected an obj"),
    (lambda d: d["profile"].update(text=""), "inputs.profile.text: found an unknown key"),
    (lambda d: d["profile"].update(sha256=1), "inputs.profile.sha256: found 1, expected a text"),
    (lambda d: d["hostfile"].update(name=""), "inputs.hostfile.name: found '', expected"),
    (lambda d: d["hostfile"].update(name="a\0b"), "inputs.hostfile.name: found .*, expected"),
    (lambda d: d["hostfile"].update(text=None), "inputs.hostfile.text: found null, expected a"),
    (lambda d: d.update(cost_model=1), "inputs.cost_model: found 1, expected a text"),
    (lambda d: d.update(space=[]), "inputs.space: found a list of 0, expected a text"),
    (lambda d: d.update(max_tp=0), "inputs.max_tp: found 0, expected a whole"),
    (lambda d: d.update(max_cp=1.5), "inputs.max_cp: found 1.5, expected a whole"),
    (lambda d: d.update(global_batch=0), "inputs.global_batch: found 0, expected"),
    (lambda d: d.pop("global_batch"), "inputs.global_batch: found nothing, expected"),
    (lambda d: d.update(memory_limit_bytes=0), "memory_limit_bytes: found 0, expected"),
    (lambda d: d.update(memory_limit_bytes=-1), "memory_limit_bytes: found -1, expected"),
    (lambda d: d["memory_limits_bytes"].update(T4=0), "memory_limits_bytes.T4: found 0, expected"),
    (lambda d: d["memory_limits_bytes"].update(T4=None), "memory_limits_bytes.T4: found null"),
    (lambda d: d.update(memory_limits_bytes=8), "memory_limits_bytes: found 8, expected an object"),
    (lambda d: d.update(micro_batch_sizes=[0]), r"micro_batch_sizes\[0\]: found 0"),
    (lambda d: d.update(micro_batch_sizes=4), "micro_batch_sizes: found 4, expected a list"),
    (lambda d: d.update(micro_batches=[4]), "micro_batches: found an unknown key"),
    (lambda d: d.update(vocabulary=-1), "inputs.vocabulary: found -1, expected"),
    (lambda d: d.update(hidden=0), "inputs.hidden: found 0, expected"),
]


@for_each(("damage", "message"), BAD)
def test_refuses_in_one_line(damage: Callable[[dict[str, Any]], object], message: str) -> None:
    value = written(OF_LAYERS)
    damage(value)
    with pytest.raises(PlanError, match=message) as caught:
        read(value)
    assert str(caught.value).startswith("plan.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["name", "sha256"])
def test_a_missing_field_of_a_file_is_named(key: str) -> None:
    for kind in OF_LAYERS.files:
        value = written(OF_LAYERS)
        del value[kind]["text" if key == "sha256" and "text" in value[kind] else key]
        if key == "sha256":
            value[kind].pop("sha256", None)
        with pytest.raises(PlanError, match=rf"inputs.{kind}.{key}: found nothing, expected "):
            read(value)


@pytest.mark.parametrize("kind", ["hostfile", "clusterfile"])
def test_a_text_that_is_not_what_its_hash_says_is_refused(kind: str) -> None:
    value = written(OF_LAYERS)
    said = value[kind]["sha256"]
    value[kind]["text"] += " "
    own = Document(kind, value[kind]["text"]).sha256
    with pytest.raises(PlanError) as caught:
        read(value)
    assert str(caught.value) == (
        f"plan.json: inputs.{kind}.sha256: found {said}, expected {own}, as text has it"
    )
    value[kind]["sha256"] = None
    with pytest.raises(PlanError, match=rf"{kind}.sha256: found null, expected {own}, as text"):
        read(value)


# ---- of operators, up to version 2 --------------------------------------------------------------

OLD = {
    "model": {"name": "models/tiny.toml", "sha256": "ab12"},
    "cluster": {"name": "pair", "sha256": "cd34"},
    "profile": {"name": "analytic", "sha256": None},
    "cost_model": "native",
    "global_batch": 64,
    "memory_limit_bytes": 8 * 2**30,
    "micro_batches": [1, 2, 4, 8],
    "max_stages": 2,
}


def read_old(value: dict[str, Any]) -> Request:
    return decode_operator_inputs(Fields(value, file="plan.json", where="inputs"))


def test_inputs_of_operators_from_before_are_a_request_of_that_space() -> None:
    request = read_old(OLD)
    assert request == Request(
        files={
            "model": Reference(name="models/tiny.toml", sha256="ab12"),
            "cluster": Reference(name="pair", sha256="cd34"),
            "profile": Reference(name="analytic"),
        },
        space="operators",
        global_batch=64,
        micro_batch_sizes=(1, 2, 4, 8),
        memory_limit=8.0 * 2**30,
        max_stages=2,
    )
    assert request.space == OF_OPERATORS.space


BAD_OLD: Damage = [
    (lambda d: d.pop("cluster"), "inputs.cluster: found nothing, expected an object"),
    (lambda d: d["model"].update(name=""), "inputs.model.name: found '', expected"),
    (lambda d: d.update(memory_limit_bytes=None), "memory_limit_bytes: found null"),
    (lambda d: d.update(memory_limit_bytes=-1), "memory_limit_bytes: found -1, expected"),
    (lambda d: d.update(micro_batches=[1, 0]), r"micro_batches\[1\]: found 0, expected"),
    (lambda d: d.update(micro_batches=4), "micro_batches: found 4, expected a list"),
    (lambda d: d.update(space="groups"), "inputs.space: found an unknown key"),
]


@for_each(("damage", "message"), BAD_OLD)
def test_refuses_inputs_from_before_in_one_line(
    damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    value = json.loads(json.dumps(OLD))
    damage(value)
    with pytest.raises(PlanError, match=message) as caught:
        read_old(value)
    assert str(caught.value).startswith("plan.json: ")
    assert "\n" not in str(caught.value)


def test_every_missing_field_of_inputs_from_before_is_named() -> None:
    value = json.loads(json.dumps(OLD))
    for fields in (value, value["model"], value["cluster"], value["profile"]):
        for key in list(fields):
            kept = fields.pop(key)
            with pytest.raises(PlanError, match=rf"{key}: found nothing, expected "):
                read_old(value)
            fields[key] = kept
