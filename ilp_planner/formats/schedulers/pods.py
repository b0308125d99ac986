"""The command of a job of Kubernetes: of its first container, with the files that it is given."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.yaml_files import read_yaml


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
