"""The files that a problem of whole layers is read from, and what they held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.cli.inputs import choose, find_model
from ilp_planner.cli.options import DEFAULT_CLUSTER, DEFAULT_MODEL
from ilp_planner.cli.values import split_profile
from ilp_planner.errors import UsageError
from ilp_planner.formats.saved_plan import Reference
from ilp_planner.library import find_specs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.saved_groups import GroupInputs
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.metis_cluster import MetisCluster
    from ilp_planner.specs.model import ModelSpec


class LayerFiles:
    """Finds and reads the files of one request, and keeps their hashes in `held`."""

    def __init__(self, asked: GroupInputs, folders: tuple[Path, ...]) -> None:
        self.asked = asked
        self.folders = folders
        self.kind, self.path = split_profile(asked.files["profile"].name)
        self.held: dict[str, Reference] = {}

    @property
    def named(self) -> str:
        """What the user called the profile."""
        return self.asked.files["profile"].name

    def keep(self, kind: str, digest: str) -> None:
        """Take note of what a file held."""
        self.held[kind] = Reference(name=self.asked.files[kind].name, sha256=digest)

    def recorded(self, kind: str) -> Reference | None:
        """Return what a saved plan says of a file."""
        reference = self.asked.files.get(kind)
        return reference if reference is not None and reference.sha256 else None

    def find(self, kind: str, path: str, wanted: Callable[[str], bool] = lambda name: True) -> Path:
        """Return where a file or folder is."""
        tries = [start / Path(path).expanduser() for start in (Path(), *self.folders)]
        there = [place for place in tries if place.exists()] or tries[:1]
        found, digest = choose(there, self.recorded(kind), wanted)
        self.keep(kind, digest)
        return found

    def cluster(self) -> tuple[ClusterSpec, MetisCluster | None]:
        """Return the cluster, and what Metis's files say of it where they describe it."""
        asked = self.asked
        if "hostfile" in asked.files:
            from ilp_planner.specs.metis_cluster import metis_cluster_spec, read_metis_cluster

            metis = read_metis_cluster(
                self.find("hostfile", asked.files["hostfile"].name),
                self.find("clusterfile", asked.files["clusterfile"].name),
            )
            return metis_cluster_spec(metis, Path(asked.files["hostfile"].name).name), metis
        if "cluster" not in asked.files and self.kind != "analytic":
            raise UsageError(
                "--cluster: found none, expected a cluster whose devices are in the profile "
                "(or --hostfile and --clusterfile)"
            )
        return self.cluster_file(), None

    def cluster_file(self) -> ClusterSpec:
        """Return the cluster of `--cluster`."""
        from ilp_planner.specs.cluster_reader import read_cluster

        reference = self.asked.files.get("cluster", Reference(name=DEFAULT_CLUSTER))
        found, digest = choose(
            find_specs(reference.name, "clusters", self.folders), self.recorded("cluster")
        )
        self.held["cluster"] = Reference(name=reference.name, sha256=digest)
        return read_cluster(found)

    def model(self) -> ModelSpec | None:
        """Return the model that was named; the default one where an analytic profile needs one."""
        reference = self.asked.files.get("model")
        if reference is None:
            if self.kind != "analytic":
                return None
            if "hostfile" in self.asked.files:
                raise UsageError("--model: found none, expected a model to estimate")
            reference = Reference(name=DEFAULT_MODEL)
        model, digest = find_model(reference.name, self.recorded("model"), self.folders)
        self.held["model"] = Reference(name=reference.name, sha256=digest)
        return model
