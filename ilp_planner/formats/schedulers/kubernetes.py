"""A job of Kubernetes: a JobSet with a pod for each node, and a ConfigMap with the run's files.

Field names are of jobset.x-k8s.io/v1alpha2 (`config/components/crd/bases` of the repository
kubernetes-sigs/jobset) and of the jobs and pods inside it. Pod k of the job `nodes` of a set is
reached as SET-nodes-0-k.SET.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.yaml_files import read_yaml
from ilp_planner.formats.exported import Exported, commented, file_name
from ilp_planner.formats.schedulers.node import SCRIPT, NodeRun

FOLDER = "/plan"  # of the files, in a pod
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class _Text(str):
    """A text of several lines, written as it is."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    pass


_Dumper.add_representer(
    _Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)


def around(run: NodeRun) -> Exported:
    """Return the objects of Kubernetes that hold and start a run, in one file.

    Raises
    ------
    PlanError: the plan's nodes differ, where pods may run on any node.
    """
    if run.hosts:
        raise PlanError(
            f"nodes: found {', '.join(run.hosts[:4])}, whose order counts, expected nodes that are "
            "alike, as pods may run on any; for `slurm` the order is said in HOSTS"
        )
    open_values = {"IMAGE": "the image, with the training system in it", **run.needed}
    resource = RESOURCES.get(run.vendor, "${RESOURCE}")
    if run.vendor not in RESOURCES:
        open_values["RESOURCE"] = "the cluster's name of its GPUs, as nvidia.com/gpu"
    # A set's name begins the names of its pods, which begin with a letter.
    name = run.slug if run.slug[0].isalpha() else f"run-{run.slug}"
    names = [file_name(run.name, suffix) for suffix in run.files]
    keys = {re.sub(r"[^-.\w]", "_", file, flags=re.ASCII): file for file in names}
    texts = map(_Text, run.files.values())
    held = _object("v1", "ConfigMap", name) | {"data": dict(zip(keys, texts, strict=True))}
    items = [{"key": key, "path": file} for key, file in keys.items()]
    started = _object("jobset.x-k8s.io/v1alpha2", "JobSet", name)
    started["spec"] = {"replicatedJobs": [_nodes(run, name, resource, items)]}
    variables = " ".join(f"${one}" for one in open_values)
    head = [
        *run.about,
        f"{variables}: set them, then: envsubst '{variables}' < FILE | kubectl apply -f -",
    ]
    both = {"apiVersion": "v1", "kind": "List", "items": [held, started]}
    text = yaml.dump(both, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    notes = [f"{one}: a placeholder, for envsubst: {means}" for one, means in open_values.items()]
    notes.append("network cards, volumes, node selectors, queue: not written; add your cluster's")
    return Exported({".yaml": "\n".join(commented(head)) + f"\n{text}"}, tuple(notes))


def _object(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def _nodes(run: NodeRun, name: str, resource: str, items: list[dict[str, str]]) -> dict[str, Any]:
    """Return the job with a pod for each node."""
    variables: list[dict[str, Any]] = [
        {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
        {"name": "MASTER_ADDR", "value": f"{name}-nodes-0-0.{name}"},
        {"name": "MASTER_PORT", "value": "6000"},
        *({"name": each, "value": f"${{{each}}}"} for each in run.needed),
    ]
    container = {
        "name": "trainer",
        "image": "${IMAGE}",
        "command": ["bash", f"{FOLDER}/{run.name}{SCRIPT}"],
        "env": variables,
        "resources": {"limits": {resource: run.devices}},
        "volumeMounts": [
            {"name": "plan", "mountPath": FOLDER},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "plan", "configMap": {"name": name, "items": items}},
            # NCCL's own between the processes of a node; containers have 64 MB of it otherwise.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    job = {
        "completionMode": "Indexed",
        "completions": run.nodes,
        "parallelism": run.nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {"name": "nodes", "replicas": 1, "template": {"spec": job}}


# The command of a job of Kubernetes: of its first container, with the files that it is given.


class Pod(NamedTuple):
    """What one pod runs. script: its command, as bash has it. files: texts by their paths there.
    environment: variables whose values are written."""

    script: str
    files: Mapping[str, str]
    environment: Mapping[str, str]


def read_pod(document: Document) -> Pod:
    """Return what the first container with a command runs, in a job of any kind or a list of them.

    Raises
    ------
    SpecError: not YAML of one document, or no container has a command.
    """
    objects = list(_mappings(read_yaml(document, SpecError)))
    for spec in objects:
        for container in _dicts(spec.get("containers")):
            said = (container.get("command"), container.get("args"))
            words = [str(word) for part in said if isinstance(part, list) for word in part]
            if not words:
                continue
            given = {
                str(one["name"]): str(one["value"])
                for one in _dicts(container.get("env"))
                if {"name", "value"} <= one.keys()
            }
            for name, value in given.items():  # Kubernetes puts these in itself
                words = [word.replace(f"$({name})", value) for word in words]
            return Pod(shlex.join(words), dict(_files(objects, spec, container)), given)
    raise SpecError(
        f"{document.name}: found no container with a command, expected one that starts a training"
    )


def _files(
    objects: list[dict[str, Any]], spec: dict[str, Any], container: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the files of the ConfigMaps beside a job that its container mounts."""
    maps = {
        str(one["metadata"]["name"]): one["data"]
        for one in objects
        if one.get("kind") == "ConfigMap"
        and isinstance(one.get("metadata"), dict)
        and "name" in one["metadata"]
        and isinstance(one.get("data"), dict)
    }
    folders = {
        str(mount.get("name")): mount.get("mountPath")
        for mount in _dicts(container.get("volumeMounts"))
    }
    for volume in _dicts(spec.get("volumes")):
        held = volume.get("configMap")
        folder = folders.get(str(volume.get("name")))
        if not isinstance(held, dict) or not folder:
            continue
        texts = maps.get(str(held.get("name")), {})
        paths = {str(one.get("key")): one.get("path") for one in _dicts(held.get("items"))}
        for key, text in texts.items():
            if name := paths.get(str(key), None if paths else key):
                yield str(PurePosixPath(str(folder), str(name))), str(text)


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings of a file, the outer ones first."""
    if isinstance(value, dict):
        yield value
    inside = value.values() if isinstance(value, dict) else value
    for inner in inside if isinstance(value, dict | list) else ():
        yield from _mappings(inner)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
