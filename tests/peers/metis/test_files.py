import json
import math
import os
import random
import re

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.metis.files import read_metis_profile, write_metis_profile
from ilp_planner.peers.metis.profile import file_name
from ilp_planner.peers.metis.tables import metis_layer_profile
from tests.metis_cases import MODEL_FILE, SAMPLES, SHARED, needs_data, synthetic_profile


def content(layers=3, scale=1.0):
    return {
        "model": {
            "model_name": "small",
            "num_layers": layers,
            "parameters": {
                "total_parameters_bytes": 30,
                "parameters_per_layer_bytes": [10] * layers,
                "activation_paramters_bytes": [1] * layers,
            },
        },
        "execution_time": {
            "total_time_ms": 9.0,
            "forward_backward_time_ms": 4.0 * scale * layers,
            "batch_generator_time_ms": 0.5,
            "optimizer_time_ms": 6.0,
            "layer_compute_total_ms": [3.0 * scale] * layers,
        },
        "execution_memory": {"total_memory": 30, "layer_memory_total_mb": [10] * layers},
    }


def write(folder, files):
    for name, value in files.items():
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def name(device="A100", tp=1, samples=1):
    return file_name(LayerKey(device, tp, samples))


def without(path, table=None):
    """Leave one key of a file out; `a.b` is b in a."""
    table = content() if table is None else table
    *tables, key = path.split(".")
    inner = table
    for part in tables:
        inner = inner[part]
    del inner[key]
    return table


def replaced(path, value):
    table = content()
    *tables, key = path.split(".")
    inner = table
    for part in tables:
        inner = inner[part]
    inner[key] = value
    return table


def test_reads(tmp_path):
    profile = read_metis_profile(write(tmp_path, {name(): content(), name(tp=2): content()}))
    assert profile.layers == 3
    assert profile.device_types == ("A100",)
    assert profile.degrees("A100") == (1, 2)
    assert profile.samples("A100", 2) == (1,)
    row = profile.rows[LayerKey("A100", 1, 1)]
    assert row.compute.tolist() == [3.0] * 3
    assert row.memory.tolist() == [10.0] * 3
    assert row.sync == 3.0
    assert profile.optimizer == 12.0  # doubled, as Metis does
    assert profile.batch_generator == 0.5
    assert profile.parameters.tolist() == [10.0] * 3
    assert profile.model_name == "small"
    assert profile.notes == ()


def test_constants_come_from_the_least_file_of_the_first_type(tmp_path):
    files = {
        name(device, tp, samples): replaced("execution_time.optimizer_time_ms", value)
        for value, (device, tp, samples) in enumerate(
            [("T4", 1, 1), ("A100", 2, 1), ("A100", 1, 4), ("A100", 1, 2)]
        )
    }
    folder = write(tmp_path, files)
    assert read_metis_profile(folder).optimizer == 6.0
    assert read_metis_profile(folder, model_file=name("T4")).optimizer == 0.0
    assert read_metis_profile(folder, model_file=name(tp=2)).optimizer == 2.0
    with pytest.raises(ProfileError, match=r"model file 'x\.json' must be one of its files"):
        read_metis_profile(folder, model_file="x.json")


def test_the_order_of_the_directory_does_not_matter(tmp_path, monkeypatch):
    """The system may list a folder in any order."""
    names = [name(d, tp, b) for d in ("T4", "A100") for tp in (1, 2) for b in (1, 2)]
    listed = write(tmp_path, {n: content(scale=1 + i) for i, n in enumerate(names)})
    first = read_metis_profile(listed)
    files = list(tmp_path.iterdir())
    for seed in range(5):
        shuffled = random.Random(seed).sample(files, len(files))
        monkeypatch.setattr(type(tmp_path), "iterdir", lambda _, s=shuffled: iter(s))
        monkeypatch.setattr(os, "listdir", lambda _, s=shuffled: [p.name for p in s])
        again = read_metis_profile(listed)
        assert list(again.rows) == list(first.rows)
        assert again.constants == first.constants == LayerKey("A100", 1, 1)
        assert again.notes == first.notes
        assert all((again.rows[k].compute == row.compute).all() for k, row in first.rows.items())


def test_strays_are_left_out_with_a_note(tmp_path):
    files = {
        name(): content(),
        "summary.json": "not even JSON",
        "DeviceType.A100_tp0_bs1.json": "{}",
        "DeviceType.A100_tp1_bs1 (copy).json": "{}",
        "notes.txt": "",
    }
    (tmp_path / "sub.json").mkdir()
    profile = read_metis_profile(write(tmp_path, files))
    assert len(profile.rows) == 1
    (note,) = profile.notes
    assert "ignored, not named DeviceType.TYPE_tpN_bsN.json" in note
    assert "and 1 more" in note


def test_holes_are_left_out_with_a_note(tmp_path):
    files = {name(tp=tp, samples=b): content() for tp in (1, 2) for b in (1, 2)}
    del files[name(tp=2, samples=2)]
    (note,) = read_metis_profile(write(tmp_path, files)).notes
    assert note.endswith(f"not profiled, and left out of every plan: {name(tp=2, samples=2)}")


def test_no_forward_backward_time(tmp_path):
    """As in the README of Metis, which it cannot read itself."""
    files = {name(): without("execution_time.forward_backward_time_ms")}
    profile = read_metis_profile(write(tmp_path, files))
    assert profile.rows[LayerKey("A100", 1, 1)].sync == 0.0
    assert "forward_backward_time_ms is missing in " + name() in profile.notes[0]


def test_forward_backward_time_of_just_the_layers(tmp_path):
    files = {name(): replaced("execution_time.forward_backward_time_ms", 9.0)}
    profile = read_metis_profile(write(tmp_path, files))
    assert profile.rows[LayerKey("A100", 1, 1)].sync == 0.0
    assert profile.notes == ()


def test_forward_backward_time_of_less_than_the_layers(tmp_path):
    files = {name(): replaced("execution_time.forward_backward_time_ms", 8.0)}
    profile = read_metis_profile(write(tmp_path, files))
    assert profile.rows[LayerKey("A100", 1, 1)].sync == -1.0
    assert "is less than its layers in " + name() in profile.notes[0]


TIMES = "execution_time.layer_compute_total_ms"
MEMORY = "execution_memory.layer_memory_total_mb"
PARAMETERS = "model.parameters.parameters_per_layer_bytes"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must be an object, found [1]"),
        (without("execution_time"), "execution_time is missing, found model, execution_memory"),
        (replaced("execution_time", 3), "execution_time must be an object, found 3"),
        (without(TIMES), f"{TIMES} is missing, found"),
        (replaced(TIMES, 3), f"{TIMES} must be a list of numbers, found 3"),
        (replaced(TIMES, []), f"{TIMES} must be a list of numbers, found []"),
        (replaced(TIMES, [1, "2", 3]), f'{TIMES}[1] must be a finite number, found "2"'),
        (replaced(TIMES, [1, True, 3]), f"{TIMES}[1] must be a finite number, found true"),
        (replaced(TIMES, [1, 10**400, 3]), f"{TIMES}[1]: found a number of 401 digits"),
        (replaced(TIMES, [1, math.nan, 3]), "not valid JSON: NaN is not a number"),
        (replaced(TIMES, [1, 2, -3]), f"{TIMES}[2] must be positive, found -3"),
        (replaced(TIMES, [1, 2, 0]), f"{TIMES}[2] must be positive, found 0"),
        (replaced(TIMES, [1, 2]), f"{MEMORY} must have 2 entries as {TIMES}, found 3"),
        (without("execution_memory"), "execution_memory is missing"),
        (without(MEMORY), f"{MEMORY} is missing, found total_memory"),
        (replaced(MEMORY, [1, 2, -3]), f"{MEMORY}[2] must not be negative, found -3"),
        (without("model"), "model is missing"),
        (without("model.parameters"), "model.parameters is missing"),
        (replaced(PARAMETERS, [1, 2]), f"{PARAMETERS} must have 3 entries"),
        (replaced(PARAMETERS, [1, 2, -3]), f"{PARAMETERS}[2] must not be negative"),
        (without("execution_time.optimizer_time_ms"), "optimizer_time_ms is missing, found"),
        (replaced("execution_time.optimizer_time_ms", "1"), "optimizer_time_ms must be a finite"),
        (replaced("execution_time.batch_generator_time_ms", -1), "number of at least 0, found -1"),
    ],
)
def test_one_line_per_error(tmp_path, broken, message):
    write(tmp_path, {name(): broken})
    with pytest.raises(ProfileError) as error:
        read_metis_profile(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / name()}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_model_wide_figures_are_needed_once(tmp_path):
    files = {name(): content(), name(samples=2): without("model")}
    assert len(read_metis_profile(write(tmp_path, files)).rows) == 2


def test_files_with_different_layers(tmp_path):
    write(tmp_path, {name(): content(), name(samples=2): content(layers=2)})
    with pytest.raises(ProfileError) as error:
        read_metis_profile(tmp_path)
    assert str(error.value) == (
        f"{tmp_path / name(samples=2)}: {TIMES} must have 3 entries as in {name()}, found 2"
    )


def test_folders_without_a_profile(tmp_path):
    with pytest.raises(ProfileError, match="no such profile folder"):
        read_metis_profile(tmp_path / "absent")
    with pytest.raises(ProfileError, match=r"must have files DeviceType\.TYPE_tpN_bsN\.json"):
        read_metis_profile(tmp_path)
    write(tmp_path, {name(): content(), "DeviceType.a100_tp1_bs1.json": content()})
    with pytest.raises(ProfileError, match="expected one file for"):
        read_metis_profile(tmp_path)


def test_round_trip(tmp_path):
    profile = synthetic_profile({"A100": 1.0, "H100": 0.5}, 4)
    write_metis_profile(profile, tmp_path / "new" / "folder")
    again = read_metis_profile(tmp_path / "new" / "folder")
    assert list(again.rows) == list(profile.rows)
    for key, row in profile.rows.items():
        for field in ("compute", "memory"):
            np.testing.assert_array_equal(getattr(again.rows[key], field), getattr(row, field))
        assert again.rows[key].forward_backward == row.forward_backward
        assert again.rows[key].optimizer == row.optimizer
        assert again.rows[key].batch_generator == row.batch_generator
    np.testing.assert_array_equal(again.parameters, profile.parameters)


@needs_data
def test_the_published_samples(tmp_path):
    profile = read_metis_profile(SAMPLES, model_file=MODEL_FILE)
    assert len(profile.rows) == 9
    assert profile.notes == ()
    layers = metis_layer_profile(profile, hidden=4096, sequence=1024)
    assert layers.gradients[1] == 2 * 202383360
    assert "202383360 in a layer) are element counts" in layers.notes[0]
    # Mixed-precision Adam: 18 bytes per parameter, and the measurement agrees within a tenth.
    assert layers.state["A100", 1][1] / 202383360 == pytest.approx(18, rel=0.1)
    write_metis_profile(profile, tmp_path)
    for path in SAMPLES.iterdir():
        old, new = json.loads(path.read_text()), json.loads((tmp_path / path.name).read_text())
        for table in ("execution_time", "execution_memory", "model"):
            for key, value in new[table].items():
                if key in old[table] and key != "parameters":
                    assert value == old[table][key], (path.name, key)


def test_the_readmes_example(tmp_path):
    """The example of Metis's README, as it is written there."""
    readme = SHARED / "seeds" / "metis.txt"
    if not readme.is_file():
        pytest.skip("the README is not in ../shared/seeds")
    example = re.search(
        r"Example Profile Data\s*(\{.*?\n\})\s*\n", readme.read_text(), re.DOTALL
    ).group(1)
    profile = read_metis_profile(write(tmp_path, {name(): example}))
    assert profile.layers == 10
    assert "forward_backward_time_ms is missing" in profile.notes[0]
    layers = metis_layer_profile(profile, hidden=4096, sequence=1024)
    assert layers.gradients[1] == 2 * 50601984
