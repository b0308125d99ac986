"""Schemas of files that people write or tables hold, from where their readers declare the keys."""

from collections.abc import Iterable
from typing import Any

from ilp_planner.analysis.calibration import runs
from ilp_planner.costs.profiles.measurements import COLUMNS, TEXT_COLUMNS, WHOLE, Record
from ilp_planner.faces.sweeps.table import COSTS, FOUND, LAST, TEXTS
from ilp_planner.faces.sweeps.table import WHOLE as WHOLE_OF_SWEEPS
from ilp_planner.formats.captured import job_file as job
from ilp_planner.inputs.constraints import KEEP, NAMES
from ilp_planner.inputs.constraints_file import TABLE
from ilp_planner.specs import cluster_reader as cluster
from ilp_planner.specs import machine
from ilp_planner.specs import model_reader as model
from ilp_planner.specs.cluster import MEASURED, ROOFLINE, Device
from ilp_planner.specs.model import ARCHITECTURES, PRECISIONS, PROFILES, SYSTEMS
from tests.schemas.derived import closed, described, of_class, sentence
from tests.schemas.words import column, meaning

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
SIZE, RATE, TIME, FLOPS = (
    {"type": "string", "examples": [example]}
    for example in ("80 GiB", "300 GB/s", "20 us", "312 TFLOP/s")
)
TEXTS_LIST = {"type": "array", "items": TEXT}


def said(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what it means."""
    return {"description": text, **schema}


def model_file() -> dict[str, Any]:
    """Return the schema of a model's file: each family has keys of its own."""
    families = {name: of_class(kind, optional=True) for name, kind in ARCHITECTURES.items()}
    assert model.KEYS == (
        "name", "family", "precision", "micro_batches", "architecture", "profile", "export", "hub",
    )  # fmt: skip
    any_value = {"type": ["string", "number", "boolean"]}
    body = closed(
        {
            "name": said("What the model is called.", TEXT),
            "family": said("Family of architectures.", {"enum": list(ARCHITECTURES)}),
            "precision": said("Training precision.", {"enum": list(PRECISIONS)}),
            "micro_batches": said(
                "Samples of micro-batches per replica worth trying.",
                {"type": "array", "items": COUNT},
            ),
            "architecture": said("The dimensions, by the family.", {"type": "object"}),
            "profile": said(
                "What profiles call the model.", closed(dict.fromkeys(PROFILES, TEXT), [])
            ),
            "export": said(
                "What exports write besides.",
                closed(
                    {
                        name: said(
                            f"For {name}.", {"type": "object", "additionalProperties": any_value}
                        )
                        for name in SYSTEMS
                    },
                    [],
                ),
            ),
            "hub": said("Names at Hugging Face.", TEXTS_LIST),
        },
        ["name", "family", "precision", "architecture"],
    )
    for name in PROFILES:
        body["properties"]["profile"]["properties"][name] = said(f"Those of {name}.", TEXT)
    choices = [
        {
            "if": {"properties": {"family": {"const": name}}},
            "then": {"properties": {"architecture": {"$ref": f"#/$defs/{name}"}}},
        }
        for name in families
    ]
    return body | {"allOf": choices, "$defs": families}


def cluster_file() -> dict[str, Any]:
    """Return the schema of a cluster's file."""
    matrix = {"type": "array", "items": TEXTS_LIST}
    link = closed(
        {
            "bandwidth": said("Of a large message, one way.", RATE),
            "latency": said("Until a message starts.", TIME),
            "collectives": said(
                "What each of so many devices sends in a large ring.",
                {"type": "object", "additionalProperties": RATE},
            ),
        },
        ["bandwidth", "latency"],
    )
    assert set(link["properties"]) == set(cluster.LINK_KEYS)
    pair = closed({"types": said("Two device types.", TEXTS_LIST), **link["properties"]}, ["types"])
    links = {
        "intra_node": said("Inside nodes.", link),
        "inter_node": said("Between nodes.", link),
        "within": said("Inside nodes of a type.", {"type": "object", "additionalProperties": link}),
        "between": said("Between nodes of two types.", {"type": "array", "items": pair}),
        "matrix": said(
            "From node to node; - on the diagonal.",
            closed(
                {
                    "bandwidth": said("Of large messages.", matrix),
                    "latency": said("For all, or row by row.", {"anyOf": [TIME, matrix]}),
                },
                list(cluster.MATRIX_KEYS),
            ),
        ),
        "fabric": said(
            "The switches between nodes.",
            closed(
                {
                    "nodes_per_leaf": said("Nodes under one leaf switch.", COUNT),
                    "leaves": said(
                        "The leaf switch of each node, by number.",
                        {"type": "array", "items": COUNT},
                    ),
                    "oversubscription": said(
                        "Bandwidth of the nodes under a leaf switch, over that of its uplinks.",
                        {"type": "number", "minimum": 1},
                    ),
                    "rail_only": said(
                        "The network joins only cards at the same place of their nodes.",
                        {"type": "boolean"},
                    ),
                },
                [],
            ),
        ),
    }
    assert tuple(links) == cluster.LINKS_KEYS
    assert tuple(links["fabric"]["properties"]) == cluster.FABRIC_KEYS
    node = {
        "name": said("Of the group of nodes.", TEXT),
        "count": said("Nodes of this kind.", COUNT),
        "device": said("Device type.", TEXT),
        "devices": said("Devices of a node.", COUNT),
        "zone": said("The zone that the nodes are in.", TEXT),
    }
    zone = {
        "name": said("Of the zone.", TEXT),
        "inside": said("The zone that it is in.", TEXT),
        "bandwidth": said("Between two nodes in it.", RATE),
        "latency": said("Until a message starts.", TIME),
    }
    assert (tuple(node), tuple(zone)) == (cluster.NODE_KEYS, cluster.ZONE_KEYS)
    parts = {
        "name": said("What the cluster is called.", TEXT),
        "devices": said(
            "Device types by name.", {"type": "object", "additionalProperties": _device()}
        ),
        "nodes": said(
            "Groups of equal nodes.",
            {"type": "array", "items": closed(node, ["device", "devices"])},
        ),
        "links": said("The links.", closed(links, [])),
        "zones": said(
            "Racks, zones or regions.",
            {"type": "array", "items": closed(zone, ["name", "bandwidth", "latency"])},
        ),
        "notes": said("Remarks that results repeat.", TEXTS_LIST),
    }
    assert tuple(parts) == cluster.KEYS
    return closed(parts, ["name", "devices", "nodes"])


def _device() -> dict[str, Any]:
    """Return the schema of a device type."""
    words = described(Device.__doc__ or "")
    kinds: dict[str, Any] = {
        "memory": SIZE,
        "memory_bandwidth": RATE,
        "host_link": RATE,
        "host_memory": RATE,
        "launch": TIME,
        "profile": TEXT,
        "gpu": TEXT,
        "kernels": {"enum": [MEASURED, ROOFLINE]},
        "flash_attention": {"enum": [2, 3]},
        "peak": closed({key: said(f"In {key}.", FLOPS) for key in cluster.PEAK_KEYS}, []),
        "machine": said("Constants of the machine.", _machine()),
    }
    return closed(
        {key: said(sentence(words[key]), kinds.get(key, NUMBER)) for key in cluster.DEVICE_KEYS}, []
    )


def _machine() -> dict[str, Any]:
    """Return the schema of the constants of a machine, which are seconds or shares."""
    words = described(machine.Machine.__doc__ or "")
    seconds = {"anyOf": [TIME, {"const": 0}]}
    return closed(
        {
            key: said(sentence(words[key]), seconds if key in machine.DURATIONS else NUMBER)
            for key in (*machine.CONSTANTS, *machine.ABOUT)
        },
        [],
    )


def constraints_file() -> dict[str, Any]:
    """Return the schema of a file of constraints."""
    value = {"anyOf": [TEXT, NUMBER, {"type": "array", "items": {"anyOf": [TEXT, NUMBER]}}]}
    names = {
        name: said(f"As --{name.replace('_', '-')} says it.", value)
        for name in NAMES
        if name != KEEP
    }
    names[KEEP] = said("Stages to keep, as --keep says them.", value)
    return closed({TABLE: said("What plans must have.", closed(names, []))}, [TABLE])


def table_row() -> dict[str, Any]:
    """Return the schema of a row of a native table of profiles or links."""
    texts = (*TEXT_COLUMNS, "status", "provenance", "source")
    kinds = {name: TEXT if name in texts else NUMBER for name in COLUMNS}
    kinds |= {name: {"type": "integer"} for name in WHOLE}
    kinds["record"] = {"enum": [str(one) for one in Record]}
    return closed({name: said(column(name), kinds[name]) for name in COLUMNS}, ["record"])


def runs_row() -> dict[str, Any]:
    """Return the schema of a row of a table of runs."""
    words = {
        "run": "A launch line of Megatron-LM, or the path of a launch script or a saved plan.",
        runs.SECONDS: "Seconds of an iteration.",
        runs.MILLISECONDS: "Milliseconds of an iteration.",
        runs.TOKENS: "Tokens per second of all GPUs.",
        "name": "What the run is called.",
        "weight": "How much it counts.",
        "gpus": "GPUs, of a launch that does not say how many.",
        "device": "Device type.",
    }
    kinds = {"run": TEXT, "name": TEXT, "device": TEXT, "gpus": COUNT}
    columns = {name: said(words[name], kinds.get(name, NUMBER)) for name in runs.COLUMNS}
    one = {"oneOf": [{"required": [name]} for name in runs.TIMES]}
    return closed(columns, ["run"]) | one


def sweep_row() -> dict[str, Any]:
    """Return the schema of a row of the table of a sweep; fields that are varied are columns of
    their own."""
    names: Iterable[str] = ("gpus", "gpu", *FOUND, *COSTS, "pareto", *LAST)
    kinds = {name: {"type": ["integer", "null"]} for name in WHOLE_OF_SWEEPS}
    kinds |= {name: {"type": ["string", "null"]} for name in TEXTS}
    kinds["pareto"] = {"type": "boolean"}
    found = closed(
        {
            name: said(
                meaning("sweep", ("rows", name)), kinds.get(name, {"type": ["number", "null"]})
            )
            for name in names
        },
        list(names),
    )
    return found | {"additionalProperties": {"type": ["string", "number", "boolean", "null"]}}


def job_file() -> dict[str, Any]:
    """Return the schema of a captured job."""
    words = {"type": "array", "items": TEXT, "minItems": 1}
    by_name = {"type": "object", "additionalProperties": TEXT}
    launch = closed(
        {
            "words": said("Words of the launcher, its program and their arguments.", words),
            "outer": said(
                "Words of the launchers around it, the outermost first.",
                {"type": "array", "items": words},
            ),
            "folder": said("Folder that it starts in.", TEXT),
            "environment": said("Variables that say something of a job.", by_name),
            "world_size": said(
                "Ranks that the launchers say, or the user; null: they are left open.",
                {"type": ["integer", "null"], "minimum": 1},
            ),
        },
        list(job.LAUNCH_KEYS),
    )
    body = closed(
        {
            "schema": {"const": job.SCHEMA},
            "version": {"const": job.VERSION},
            "command": said("Words of the command that was run.", TEXTS_LIST),
            "folder": said("Folder that it was run in.", TEXT),
            "launch": said(
                "Number of the launch that is meant, from 1 on; null: nobody has said.",
                {"type": ["integer", "null"], "minimum": 1},
            ),
            "launches": said(
                "Launches that were recorded, in order.",
                {"type": "array", "items": launch, "minItems": 1},
            ),
            "not_run": said(
                "Words of programs that were noted and not run.", {"type": "array", "items": words}
            ),
            "files": said("Texts of the files that launches name, by their paths.", by_name),
        },
        list(job.KEYS),
    )
    assert tuple(body["properties"]) == job.KEYS
    return body
