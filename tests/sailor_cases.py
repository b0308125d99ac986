"""Sailor's files for tests: where the published ones are, and small ones to write and to break."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "shared" / "data" / "sailor" / "opt350.json"
published = pytest.mark.skipif(
    not DATA.is_file(), reason="Sailor's profiles are not in ../shared/data/sailor"
)
ZONE = "us-central1-a"
MODEL = "OPT-350"
# `basic_cluster_config.json` of eth-easl/sailor, as far as it is needed, with GPU_MEMORY of
# sailor_planner/cpp_src/planner_utils.cpp, which its planner counts with, in bytes.
MACHINES = {
    "A100-40": {"gpus_per_node": 4, "mem_per_gpu": 40 * 2**30},
    "V100-16": {"gpus_per_node": 4, "mem_per_gpu": 16 * 2**30},
    "zone": ZONE,
}


def write_published(folder: Path) -> Path:
    """Write the published figures of OPT-350 as the files of Sailor's repository; return where."""
    held = json.loads(DATA.read_text())
    return write_files(
        folder,
        {
            "profiles_tmp.json": {MODEL: held["times"]["values"]},
            "llm_info.json": {MODEL: held["layers"]["values"]},
            "basic_cluster_config.json": MACHINES,
            "multizone_bandwidths_het.json": {ZONE: held["network"]["values"]},
        },
    )


def write_files(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files by name; return the folder."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def write_quotas(path: Path, **gpus: int) -> Path:
    """Write the quotas of one zone, a100 and v100 GPUs; return the file."""
    names = {"a100": "A100-40", "v100": "V100-16"}
    path.write_text(json.dumps({names[kind]: {ZONE: count} for kind, count in gpus.items()}))
    return path


def small_files() -> dict[str, Any]:
    """Return the files of a model of three layers on two GPU types, degrees 1 and 2."""
    times = {
        str(size): {
            str(tp): {
                str(layer): [0.001 * size / tp, 0.002 * size / tp, 0.0005] for layer in range(3)
            }
            for tp in (1, 2)
        }
        for size in (1, 2)
    }
    sizes = {
        str(tp): {
            str(layer): {
                "params_floats": 1_000_000 * (layer + 1) // tp,
                "act_mem_floats": 400_000 // tp,
                "act_output_floats": 300_000,
                "act_input_floats": 300_000,
            }
            for layer in range(3)
        }
        for tp in (1, 2)
    }
    curve = [[0.1, 2.0], 3e9]
    ends = {gpu: {"4": curve} for gpu in ("A100-40", "V100-16")}
    zones = dict.fromkeys((ZONE, "us-west1-b"), ends)
    files = {
        "profiles_tmp.json": {"small": {"A100-40": times, "V100-16": times}},
        "llm_info.json": {"small": sizes},
        "basic_cluster_config.json": dict(MACHINES),
        "multizone_bandwidths_het.json": {
            zone: {gpu: {"4": zones} for gpu in ("A100-40", "V100-16")} for zone in zones
        },
        "intra_node_bandwidths.json": {
            gpu: {"2": [[30.0], 3e10], "4": [[20.0], 2e10]} for gpu in ("A100-40", "V100-16")
        },
    }
    return dict(json.loads(json.dumps(files)))  # which no two entries share
