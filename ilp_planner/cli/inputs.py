"""From options, or from what a saved plan recorded, to a problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.cli.values import split_profile
from ilp_planner.errors import PlanError, SpecError, UsageError
from ilp_planner.file_kinds import FileKind, file_kind
from ilp_planner.files import sha256_of
from ilp_planner.formats.saved_plan import Inputs, Reference
from ilp_planner.library import find_specs, known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.problem import Problem
    from ilp_planner.profiles.table import Profile
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for. profile: `FORMAT:PATH`. memory_limit: bytes; None: the device's."""

    model: str
    cluster: str
    profile: str
    cost_model: str
    global_batch: int
    micro_batches: tuple[int, ...] = ()
    memory_limit: float | None = None
    max_stages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem, and the inputs that it was built from, with hashes."""

    problem: Problem
    inputs: Inputs


def named_once(option: str, said: str | None, position: str | None) -> str | None:
    """Return what an option or an argument without one names.

    Raises
    ------
    UsageError: they name two things.
    """
    if said is not None and position not in (None, said):
        raise UsageError(f"{option}: found {said} and, without an option, {position}: expected one")
    return said or position


def build_case(
    request: Request, *, recorded: Inputs | None = None, folders: tuple[Path, ...] = ()
) -> Case:
    """Read all inputs and build the problem.

    Parameters
    ----------
    recorded: of several files that a name may mean, take the one with the recorded content.
    folders: where relative paths may begin, besides the current folder.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    # Imported here: cost models need numpy, and `ilp-plan --help` does not.
    from ilp_planner.problem import build_problem
    from ilp_planner.specs.cluster_reader import read_cluster

    model, model_hash = find_model(request.model, recorded.model if recorded else None, folders)
    cluster_file, cluster_hash = choose(
        find_specs(request.cluster, "clusters", folders),
        recorded.cluster if recorded else None,
    )
    cluster = read_cluster(cluster_file)
    profile, profile_hash = read_profile(
        request, model, cluster, recorded.profile if recorded else None, folders
    )
    problem = build_problem(
        model,
        cluster,
        profile,
        cost_model=request.cost_model,
        global_batch=request.global_batch,
        micro_batches=request.micro_batches,
        memory_limit=request.memory_limit,
        max_stages=request.max_stages,
    )
    return Case(
        problem=problem,
        inputs=Inputs(
            model=Reference(name=request.model, sha256=model_hash),
            cluster=Reference(name=request.cluster, sha256=cluster_hash),
            profile=Reference(name=request.profile, sha256=profile_hash),
            cost_model=request.cost_model,
            global_batch=request.global_batch,
            memory_limit=problem.memory_limit,
            micro_batches=problem.micro_batches,
            max_stages=problem.max_stages,
        ),
    )


def rebuild_case(saved: SavedPlan, file: Path, *, accept_changed: bool = False) -> Case:
    """Build the problem of a saved plan again, from its inputs.

    Parameters
    ----------
    accept_changed: judge by the inputs as they are now.

    Raises
    ------
    PlanError: an input is not what it was when the plan was saved.
    SpecError, ProfileError: an input is not there or cannot be used.
    """
    inputs = saved.inputs
    request = Request(
        model=inputs.model.name,
        cluster=inputs.cluster.name,
        profile=inputs.profile.name,
        cost_model=inputs.cost_model,
        global_batch=inputs.global_batch,
        micro_batches=inputs.micro_batches,
        memory_limit=inputs.memory_limit,
        max_stages=inputs.max_stages,
    )
    case = build_case(request, recorded=inputs, folders=plan_folders(file))
    if not accept_changed:
        for key in ("model", "cluster", "profile"):
            check_unchanged(file, key, getattr(inputs, key), getattr(case.inputs, key))
    return case


def plan_folders(file: Path) -> tuple[Path, ...]:
    """Return where the relative paths in a plan may begin: its folder, and the one above."""
    folder = file.resolve().parent
    return folder, folder.parent


def check_unchanged(file: Path, key: str, then: Reference, now: Reference) -> None:
    """Compare an input with what it was when the plan was saved.

    Raises
    ------
    PlanError: it has changed.
    """
    if then.sha256 != now.sha256:
        raise PlanError(
            f"{file}: inputs.{key}: found sha256 {now.sha256[:12] or 'null'} of {now.name}, "
            f"expected {then.sha256[:12] or 'null'}: it has changed since the plan was saved "
            "(--accept-changed judges by what it is now)"
        )


def find_model(
    name: str, recorded: Reference | None = None, folders: tuple[Path, ...] = ()
) -> tuple[ModelSpec, str]:
    """Return a model specification and the SHA-256 of its file.

    Raises
    ------
    SpecError: not there, or malformed.
    """
    from ilp_planner.specs.model_reader import read_model

    file, digest = choose(find_specs(name, "models", folders), recorded)
    if file_kind(file) is FileKind.HUGGING_FACE:
        raise SpecError(
            f"{file}: found {FileKind.HUGGING_FACE.value}, expected a model in TOML, or the name "
            f"of one that is here: {', '.join(known_names('models'))}"
        )
    return read_model(file), digest


def read_profile(
    request: Request,
    model: ModelSpec,
    cluster: ClusterSpec,
    recorded: Reference | None,
    folders: tuple[Path, ...],
) -> tuple[Profile, str]:
    """Return the profile and the SHA-256 of the files it came from, empty for none.

    Raises
    ------
    SpecError: the model does not say what the profile calls it.
    ProfileError: not there, or malformed.
    """
    kind, path = split_profile(request.profile)
    if kind == "analytic":
        from ilp_planner.profiles.analytic import analytic_profile

        sizes = {*model.micro_batches, *request.micro_batches}
        return analytic_profile(model, cluster, sorted(sizes)), ""
    if kind == "table":
        return read_operator_table(request, path, model, cluster, recorded, folders)
    if kind != "aceso":
        raise UsageError(
            f"--profile: found {request.profile}, expected FILE.csv, aceso:FOLDER or analytic, "
            "which have operators: a profile of whole layers is for `ilp-plan solve`"
        )
    from ilp_planner.profiles.aceso import SAME_FILES, read_aceso_profile

    if "aceso" not in model.profile:
        raise SpecError(
            f"{request.model}: profile.aceso: found nothing, expected the model's name in {path}"
        )
    key = model.profile["aceso"]
    tries = [start / Path(path).expanduser() for start in (Path(), *folders)]
    prefixes = tuple(f"{k}_" for k in {key, SAME_FILES.get(key, key)})
    folder, digest = choose(
        [place for place in tries if place.is_dir()] or tries[:1],
        recorded,
        lambda name: name.startswith("p2p_") or name.removeprefix("prim_").startswith(prefixes),
    )
    return read_aceso_profile(folder, key, devices_per_node=cluster.devices_per_node), digest


def read_operator_table(
    request: Request,
    path: str,
    model: ModelSpec,
    cluster: ClusterSpec,
    recorded: Reference | None,
    folders: tuple[Path, ...],
) -> tuple[Profile, str]:
    """Return the operators of native tables, and the SHA-256 of these.

    Raises
    ------
    ProfileError: not there, malformed, or of something else.
    """
    from ilp_planner.cli.table_inputs import find_tables, read_tables, wanted_rows
    from ilp_planner.profiles.aceso import LARGEST_TENSOR_DEGREE
    from ilp_planner.profiles.completed_operators import completed_operators
    from ilp_planner.profiles.operator_table import operator_profile

    paths, digest = find_tables(path, recorded, folders)
    table, wanted, most = read_tables(paths), wanted_rows(model), cluster.devices_per_node
    exact = request.cost_model == "aceso"
    if table.machine.get("format") == "aceso":
        most = min(most, LARGEST_TENSOR_DEGREE.get(table.machine.get("model", ""), most))
    elif not exact:
        parts = model.architecture.tensor_parts
        degrees = [1 << bit for bit in range(most.bit_length())]
        table = completed_operators(
            table,
            wanted,
            samples=request.micro_batches,
            degrees=[tp for tp in degrees if parts % tp == 0],
        )
    profile = operator_profile(table, wanted, cluster, largest_degree=most, exact_sizes=exact)
    return profile, digest


def choose(
    paths: Sequence[Path],
    recorded: Reference | None,
    wanted: Callable[[str], bool] = lambda name: True,
) -> tuple[Path, str]:
    """Return the first path with the recorded content, else the first, and its SHA-256.

    Parameters
    ----------
    wanted: which files of a folder count, by name.
    """
    try:
        digests = [sha256_of(path, wanted) if path.exists() else "" for path in paths]
    except OSError as error:
        raise SpecError(f"{error.filename}: cannot be read: {error.strerror}") from None
    place = 0
    if recorded is not None and recorded.sha256 in digests:
        place = digests.index(recorded.sha256)
    return paths[place], digests[place]
