"""Completions of a shell for models, clusters, profiles and plans."""

from __future__ import annotations

from pathlib import Path

from ilp_planner.base.library import Kind, library_files


def models(incomplete: str) -> list[str]:
    """Return the models that a name can become."""
    return _specs("models", incomplete)


def clusters(incomplete: str) -> list[str]:
    """Return the clusters that a name can become."""
    return _specs("clusters", incomplete)


def gpus(incomplete: str) -> list[str]:
    """Return the GPUs that a text can become: `8xA` becomes those that begin so."""
    count, _, start = incomplete.partition("x")
    return [f"{count or 8}x{name}" for name in gpu_names(start)]


def gpu_names(incomplete: str) -> list[str]:
    """Return the rows of the table of GPUs that a name can become."""
    from ilp_planner.specs.gpus import table

    return [name for name in table() if name.casefold().startswith(incomplete.casefold())]


def schemas(incomplete: str) -> list[str]:
    """Return the schemas that a name can become."""
    from ilp_planner.faces.schemas import names

    return [name for name in names() if name.startswith(incomplete)]


def runtimes(incomplete: str) -> list[str]:
    """Return the training systems that a name can become."""
    from ilp_planner.formats.exports import RELEASES

    return [name for name in RELEASES if name.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Return the profiles that a text can become: an estimate, a table, `FORMAT:PATH`."""
    kind, colon, path = incomplete.partition(":")
    if colon:
        return [f"{kind}:{found}" for found in _paths(path, "")]
    formats = [name for name in ("analytic", "aceso:", "amp:", "metis:") if name.startswith(kind)]
    return formats + _paths(incomplete, ".csv")


def plans(incomplete: str) -> list[str]:
    """Return the saved plans that a path can become."""
    return _paths(incomplete, ".json")


def targets(incomplete: str) -> list[str]:
    """Return the systems that a plan can be written for: `torchtitan@` becomes its releases."""
    from ilp_planner.formats.exports import EXPORTS, SCHEDULERS, TARGETS, Runtime, releases_of

    scheduler, colon, within = incomplete.rpartition(":")
    system, at, _ = within.partition("@")
    known = [str(Runtime(system, release)) for release in releases_of(system)]
    if scheduler and scheduler not in SCHEDULERS:
        return []
    names = known if at else EXPORTS if scheduler else TARGETS
    return [scheduler + colon + name for name in names if name.startswith(within)]


def _specs(kind: Kind, incomplete: str) -> list[str]:
    known = [path.stem for path in library_files(kind)]
    return [name for name in known if name.startswith(incomplete)] + _paths(incomplete, ".toml")


def _paths(incomplete: str, ending: str) -> list[str]:
    """Return the folders and the files of one ending that a path can become."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        there = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return []
    found = [path for path in there if path.name.startswith(start) and path.name[0] != "."]
    return [
        f"{folder}{slash}{path.name}{'/' * path.is_dir()}"
        for path in found
        if path.is_dir() or path.name.endswith(ending)
    ]
