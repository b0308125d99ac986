"""From options, or from what a saved plan recorded, to a problem of whole layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.cli.inputs import check_unchanged, choose, find_model, plan_folders
from ilp_planner.cli.library import spec_candidates
from ilp_planner.cli.options import DEFAULT_CLUSTER, DEFAULT_GLOBAL_BATCH, DEFAULT_MODEL
from ilp_planner.cli.table_inputs import (
    find_tables,
    planned_layers,
    read_tables,
    records_in,
    wanted_rows,
)
from ilp_planner.cli.values import split_profile
from ilp_planner.errors import ProfileError, UsageError
from ilp_planner.formats.saved_plan import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.formats.saved_groups import GroupInputs, SavedGroups
    from ilp_planner.mixed.build import ModelSizes
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.profiles.amp import AmpExperiment, AmpProfile
    from ilp_planner.profiles.layers import LayerProfile
    from ilp_planner.profiles.measurements import Measurements
    from ilp_planner.profiles.metis import MetisProfile
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.metis_cluster import MetisCluster
    from ilp_planner.specs.model import ModelSpec

LAYER_PROFILES = ("metis", "amp")
NEED_SIZES = ("metis", "table")  # profiles that may not say the sizes of their model
LAYER_COSTS = ("metis", "amp")
MOST_SAMPLES = 64  # of a replica, that an analytic profile is asked for; more are extrapolated
# Options that say something of layers only, by the field of the inputs.
LAYER_OPTIONS = {
    "memory_rule": "--memory-rule",
    "placement": "--placement",
    "experiment": "--experiment",
    "max_tp": "--max-tp",
    "max_cp": "--max-cp",
    "hidden": "--hidden-size",
    "sequence": "--sequence-length",
    "vocabulary": "--vocab-size",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCase:
    """A problem of whole layers, and the inputs that it was built from, with hashes."""

    problem: GroupProblem
    inputs: GroupInputs


def plans_layers(asked: GroupInputs) -> bool:
    """Tell whether to plan whole layers: when devices differ, when costs or profile are of layers,
    or when the model's operators have no estimates (`family = "decoder"`).

    Raises
    ------
    SpecError, UsageError: a file or an option that cannot be used.
    """
    kind, path = split_profile(asked.files["profile"].name)
    if kind in LAYER_PROFILES or asked.cost_model in LAYER_COSTS or asked.space:
        return True
    if "hostfile" in asked.files or "clusterfile" in asked.files:
        return True
    if asked.cost_model != "native":
        return False
    from ilp_planner.specs.cluster_reader import read_cluster

    name = asked.name("cluster") or DEFAULT_CLUSTER
    if len(read_cluster(spec_candidates(name, "clusters")[0]).type_names) > 1:
        return True
    named = asked.name("model")
    if kind == "table":
        found = records_in(find_tables(path)[0])
        if "operator" not in found or "layer" not in found:
            return "layer" in found
    return (
        named is not None
        and kind in ("analytic", "table")
        and find_model(named)[0].family == "decoder"
    )


def build_layer_case(asked: GroupInputs, folders: tuple[Path, ...] = ()) -> LayerCase:
    """Read all inputs and build the problem.

    Parameters
    ----------
    asked: where its files have hashes, take of several files that a name may mean the one with that
        content.
    folders: where relative paths may begin, besides the current folder.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    return _Reader(asked, folders).case()


def rebuild_layer_case(
    saved: SavedGroups, file: Path, *, accept_changed: bool = False
) -> LayerCase:
    """Build the problem of a saved plan again, from its inputs.

    Parameters
    ----------
    accept_changed: judge by the inputs as they are now.

    Raises
    ------
    PlanError: an input is not what it was when the plan was saved.
    SpecError, ProfileError: an input is not there or cannot be used.
    """
    case = build_layer_case(saved.inputs, plan_folders(file))
    if not accept_changed:
        for kind, then in saved.inputs.files.items():
            check_unchanged(file, kind, then, case.inputs.files[kind])
    return case


def check_num_layers(problem: GroupProblem, layers: int | None) -> None:
    """Refuse another number of layers than `--num-layers` says.

    Raises
    ------
    ProfileError: with the number that would do.
    """
    found = len(problem.costs.layers)
    if layers is not None and layers != found:
        raise ProfileError(
            f"{problem.profile_source}: --num-layers: found {layers}, expected {found}, which the "
            "profile has, embedding and head included"
        )


class _Reader:
    """Reads the files of one request, and keeps their hashes."""

    def __init__(self, asked: GroupInputs, folders: tuple[Path, ...]) -> None:
        self.asked = asked
        self.folders = folders
        self.kind, self.path = split_profile(asked.files["profile"].name)
        self.files: dict[str, Reference] = {}

    def case(self) -> LayerCase:
        """Read everything and build the problem."""
        from ilp_planner.mixed.build import build_group_problem

        self.check()
        asked = self.asked
        if asked.space == "megatron":
            return self.megatron_case()
        if self.kind == "amp":
            self.refuse_model()
            experiment = self.amp_experiment()
            profile, name = experiment.profile, experiment.profile.model.name
            cluster, metis = experiment.cluster, None
            batch, sizes = asked.global_batch or experiment.global_batch, None
            source: AmpProfile | MetisProfile | LayerProfile = profile
        else:
            cluster, metis = self.cluster()
            batch = asked.global_batch or DEFAULT_GLOBAL_BATCH
            source, name, sizes = self.profile(cluster, batch)
        problem = build_group_problem(
            cluster,
            source,
            model=name,
            global_batch=batch,
            cost_model=asked.cost_model,
            sizes=sizes,
            metis_cluster=metis,
            micro_batch_sizes=asked.micro_batch_sizes,
            memory_limit=asked.memory_limit,
            max_stages=asked.max_stages,
            max_tp=asked.max_tp,
            space=asked.space,
            memory_rule=asked.memory_rule or "device",
            placement=asked.placement or "default",
        )
        inputs = replace(
            asked,
            files=self.files,
            global_batch=batch,
            space=problem.space,
            memory_rule=problem.memory_rule,
            placement=problem.placement,
        )
        return LayerCase(problem=problem, inputs=inputs)

    def megatron_case(self) -> LayerCase:
        """Build the problem of planning for Megatron-LM."""
        from ilp_planner.mixed.megatron.build import build_megatron_problem

        asked = self.asked
        others = {
            "--profile": self.kind if self.kind not in ("analytic", "metis", "table") else "",
            "--cost-model": asked.cost_model if asked.cost_model != "native" else "",
            "--hostfile": asked.name("hostfile") or "",
            "--memory-rule": asked.memory_rule if asked.memory_rule != "device" else "",
            "--placement": asked.placement if asked.placement != "default" else "",
        }
        for option, found in others.items():
            if found:
                raise UsageError(
                    f"{option}: found {found} with --runtime megatron, whose times and memory are "
                    "its own, expected none"
                )
        cluster, model = self.cluster_file(), self.model()
        if model is None:
            raise UsageError(
                "--model: found none, expected the model that was profiled: --runtime megatron "
                "needs its dimensions"
            )
        profile = None
        if self.kind == "metis":
            from ilp_planner.profiles.metis import metis_layer_profile

            rows, _, sizes = self.metis_profile(model)
            profile = metis_layer_profile(
                rows, hidden=sizes.need("hidden"), sequence=sizes.need("sequence")
            )
        elif self.kind == "table":
            profile = self.table_profile(self.table(), cluster, model)
        else:
            self.keep("profile", "")
        batch = asked.global_batch or DEFAULT_GLOBAL_BATCH
        problem = build_megatron_problem(
            cluster,
            model,
            global_batch=batch,
            micro_batch_sizes=asked.micro_batch_sizes,
            memory_limit=asked.memory_limit,
            max_stages=asked.max_stages,
            max_tp=asked.max_tp,
            max_cp=asked.max_cp,
            profile=profile,
        )
        inputs = replace(
            asked,
            files=self.files,
            global_batch=batch,
            memory_rule=problem.memory_rule,
            placement=problem.placement,
        )
        return LayerCase(problem=problem, inputs=inputs)

    def check(self) -> None:
        """Refuse options that do not go together."""
        asked, files = self.asked, self.asked.files
        if "cluster" in files and ("hostfile" in files or "clusterfile" in files):
            other = "--hostfile" if "hostfile" in files else "--clusterfile"
            raise UsageError(f"{other}: found --cluster too, expected one description of a cluster")
        if self.kind == "amp" and "clusterfile" in files:
            raise UsageError(
                "--clusterfile: found an amp:FILE, which says what its nodes are, expected only "
                "--hostfile"
            )
        if self.kind != "amp" and ("hostfile" in files) != ("clusterfile" in files):
            given, missing = "--hostfile", "--clusterfile"
            if "clusterfile" in files:
                given, missing = missing, given
            raise UsageError(f"{given}: expected {missing} beside it, found none")
        if asked.max_cp is not None and asked.space != "megatron":
            raise UsageError(f"--max-cp: expected --runtime megatron, found {asked.max_cp}")
        if asked.experiment and self.kind != "amp":
            raise UsageError(f"--experiment: expected --profile amp:FILE, found {self.named}")
        if self.kind == "aceso":
            raise UsageError(
                f"--profile: found {self.named}, expected FILE.csv, metis:FOLDER, amp:FILE or "
                "analytic to plan whole layers"
            )
        if asked.cost_model == "aceso":
            raise UsageError(
                "--cost-model aceso: expected a profile of operators, aceso:FOLDER or analytic, "
                f"and equal devices, found {self.named}"
            )
        for name in ("hidden", "sequence", "vocabulary"):
            if getattr(asked, name) is not None and self.kind not in NEED_SIZES:
                raise UsageError(
                    f"{LAYER_OPTIONS[name]}: expected --profile metis:FOLDER or FILE.csv, which "
                    f"may not say it, found {self.named}"
                )

    @property
    def named(self) -> str:
        """What the user called the profile."""
        return self.asked.files["profile"].name

    def keep(self, kind: str, digest: str) -> None:
        """Take note of what a file held."""
        self.files[kind] = Reference(name=self.asked.files[kind].name, sha256=digest)

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

    # ---- clusters -------------------------------------------------------------------------------

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
            spec_candidates(reference.name, "clusters", self.folders), self.recorded("cluster")
        )
        self.files["cluster"] = Reference(name=reference.name, sha256=digest)
        return read_cluster(found)

    # ---- models and profiles --------------------------------------------------------------------

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
        self.files["model"] = Reference(name=reference.name, sha256=digest)
        return model

    def profile(
        self, cluster: ClusterSpec, batch: int
    ) -> tuple[MetisProfile | LayerProfile, str, ModelSizes | None]:
        """Return the profile, the name of its model and the sizes that it lacks."""
        model = self.model()
        if self.kind == "metis":
            return self.metis_profile(model)
        if self.kind == "table":
            return self.table_of_layers(cluster, model)
        from ilp_planner.profiles.analytic_layers import analytic_layers

        assert model is not None
        self.keep("profile", "")
        sizes = [1 << bit for bit in range(min(batch, MOST_SAMPLES).bit_length())]
        return analytic_layers(model, cluster, sizes), model.name, None

    def metis_profile(self, model: ModelSpec | None) -> tuple[MetisProfile, str, ModelSizes]:
        """Return Metis's profile, the name of its model and the sizes that it lacks."""
        from ilp_planner.profiles.metis import FILE_NAME, read_metis_profile

        folder = self.find("profile", self.path, lambda name: FILE_NAME.fullmatch(name) is not None)
        return self.sized(read_metis_profile(folder), model)

    def sized(
        self, profile: MetisProfile, model: ModelSpec | None
    ) -> tuple[MetisProfile, str, ModelSizes]:
        """Return a profile, the name of its model and the sizes that it lacks."""
        from ilp_planner.mixed.build import ModelSizes, check_model_layers
        from ilp_planner.specs.chain_layers import segments

        asked = self.asked
        given = ModelSizes(
            hidden=asked.hidden, sequence=asked.sequence, vocabulary=asked.vocabulary
        )
        if model is None:
            return profile, profile.model_name or Path(self.path).name, given
        named = self.files["model"].name
        check_model_layers(profile, len(segments(model.operators)), named)
        return profile, model.name, _agreed(given, model, named)

    def table(self) -> Measurements:
        """Return the native table, and take note of what it held."""
        paths, digest = find_tables(self.path, self.recorded("profile"), self.folders)
        self.keep("profile", digest)
        return read_tables(paths)

    def table_of_layers(
        self, cluster: ClusterSpec, model: ModelSpec | None
    ) -> tuple[MetisProfile | LayerProfile, str, ModelSizes]:
        """Return the layers of a native table, in Metis's terms for its cost model; the name of its
        model, and the sizes that the table lacks."""
        from ilp_planner.mixed.build import ModelSizes
        from ilp_planner.profiles.convert.metis import metis_profile

        asked = self.asked
        if asked.cost_model == "metis":
            wanted = wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence)
            return self.sized(metis_profile(self.table(), wanted), model)
        table = self.table()
        profile = self.table_profile(table, cluster, model)
        name = table.machine.get("model") or Path(self.path.split(",")[0]).stem
        return profile, name if model is None else model.name, ModelSizes()

    def table_profile(
        self, table: Measurements, cluster: ClusterSpec, model: ModelSpec | None
    ) -> LayerProfile:
        """Return the layers of a native table, those predicted that it lacks."""
        asked = self.asked
        return planned_layers(
            table,
            cluster,
            model,
            wanted=wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence),
            most_samples=min(asked.global_batch or DEFAULT_GLOBAL_BATCH, MOST_SAMPLES),
            max_tp=asked.max_tp,
        )

    def refuse_model(self) -> None:
        """Refuse a model beside one of AMP's."""
        if "model" in self.asked.files:
            raise UsageError(
                f"--model: found {self.asked.name('model')}, expected none: the experiment of an "
                "amp:FILE says its model"
            )

    def amp_experiment(self) -> AmpExperiment:
        """Return the experiment, on the devices of `--cluster` or `--hostfile` where given."""
        from ilp_planner.profiles.amp import read_amp, read_amp_profile
        from ilp_planner.specs.hostfile import read_hostfile

        asked = self.asked
        file = self.find("profile", self.path)
        if "hostfile" in asked.files:
            hostfile = self.find("hostfile", asked.files["hostfile"].name)
            hosts = read_hostfile(hostfile)
            return read_amp(file, asked.experiment, hosts=hosts, hostfile=str(hostfile))
        experiment = read_amp(file, asked.experiment)
        if "cluster" not in asked.files:
            return experiment
        cluster = self.cluster_file()
        names = [cluster.device_types[name].profile for name in cluster.type_names]
        profile = read_amp_profile(file, experiment.profile.model.name, names)
        return replace(experiment, cluster=cluster, profile=profile)


def _agreed(given: ModelSizes, model: ModelSpec, named: str) -> ModelSizes:
    """Return the sizes of a model; those given beside it must be the same, but for a vocabulary of
    0."""
    architecture = model.architecture
    found = {}
    for size, attribute in (
        ("hidden", "hidden"),
        ("sequence", "sequence"),
        ("vocabulary", "vocab"),
    ):
        said = getattr(architecture, attribute, None)
        asked = getattr(given, size)
        if asked and said not in (None, asked):
            raise UsageError(f"{LAYER_OPTIONS[size]}: found {asked}, expected {said} as in {named}")
        found[size] = said if asked is None else asked
    return replace(given, **found)
