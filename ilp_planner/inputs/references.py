"""The files that a file names: relative to its folder in the file, to the current folder in memory.
Readers and writers of a file turn one into the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import sha256_of
from ilp_planner.base.library import library_folder
from ilp_planner.inputs.files import split_profile
from ilp_planner.inputs.tables import joined_digest

if TYPE_CHECKING:
    from ilp_planner.inputs.request import Reference, Request
    from ilp_planner.settings.kept import KeptStage


class Named(NamedTuple):
    """The target of a reference. kind: out of `FILES`. sha256: of the content; empty: not
    recorded."""

    kind: str
    paths: tuple[str, ...]
    sha256: str = ""

    def is_there(self, folder: Path) -> bool:
        """Tell whether all that is named is in a folder."""
        return all(map(_exists, self.at(folder)))

    def at(self, folder: Path) -> list[Path]:
        """Return the paths from a folder on."""
        return [folder / path for path in self.paths]

    def is_same(self, folder: Path) -> bool:
        """Tell whether a file in a folder has the recorded content; of a folder of files, which
        whoever reads them finds out, whether it is there."""
        if not self.sha256 or not self.is_there(folder):
            return False
        with contextlib.suppress(OSError):
            paths = self.at(folder)
            return paths[0].is_dir() or joined_digest(list(map(sha256_of, paths))) == self.sha256
        return False

    @property
    def movable(self) -> bool:
        """Whether it depends on a folder: not the name of a model, a cluster or GPUs."""
        if any(Path(path).is_absolute() or path.startswith("~") for path in self.paths):
            return False
        if self.kind not in ("model", "cluster"):
            return True
        (path,) = self.paths
        return Path(path).suffix in (".toml", ".json") and not _exists(library_folder() / path)


Rename = Callable[[Named], Sequence[str]]


def named_in(request: Request, file: Path) -> Request:
    """Return the request of a file, with references relative to the current folder.

    The target of a reference is in the folder of the file. Older files had names relative to the
    command's folder: a target in the folder above, or in the current one with the recorded content,
    is taken as well.
    """
    here, folder = _here(), _folder(file)

    def rename(named: Named) -> Sequence[str]:
        if not named.movable:
            return named.paths
        folders = (folder, folder.parent, here)
        same = (each for each in folders if named.is_same(each))
        beside = (each for each in folders[:2] if named.is_there(each))
        chosen = next(same, None) or next(beside, None)
        if chosen is None and not named.is_there(here):
            return named.paths
        # Another file that happens to have this name here is not what was meant.
        return [_relative(path, here) for path in named.at(chosen or folder)]

    return request if folder == here else _renamed(request, rename)


def named_for(request: Request, file: Path) -> Request:
    """Return the request for a file, with references relative to its folder."""
    here, folder = _here(), _folder(file)

    def rename(named: Named) -> Sequence[str]:
        if not named.movable or not named.is_there(here):
            return named.paths
        return [_relative(path, folder) for path in named.at(here)]

    return request if folder == here else _renamed(request, rename)


def named_from(request: Request, folder: Path) -> Request:
    """Return a request of another process, which ran in a folder, for this one."""

    def rename(named: Named) -> Sequence[str]:
        there = named.movable and named.is_there(folder)
        return list(map(str, named.at(folder))) if there else named.paths

    return request if folder == _here() else _renamed(request, rename)


def stage_from(stage: KeptStage, folder: Path) -> KeptStage:
    """Return a stage to keep that a file in a folder names, its plan relative to the current
    one."""
    name, number = stage.place
    return replace(stage, said=f"{folder / name}:stage{number}")


def _here() -> Path:
    """Return the current folder, or its former path if it is gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def _folder(file: Path) -> Path:
    """Return the folder that names in a file are relative to: of a pipe or a device the current
    one."""
    with contextlib.suppress(OSError):
        whole = file.resolve()
        return whole.parent if whole.is_file() or not whole.exists() else _here()
    return _here()


def _renamed(request: Request, rename: Rename) -> Request:
    """Return a request with other names of references. Of a stage that it keeps, all is held, and
    its name is the user's alone."""
    files = {kind: _reference(kind, one, rename) for kind, one in request.files.items()}
    return replace(request, files=files)


def _reference(kind: str, reference: Reference, rename: Rename) -> Reference:
    name, before = reference.name, ""
    paths: tuple[str, ...] = (name,)
    if kind == "profile":
        try:
            profile, path = split_profile(name)
        except UsageError:  # which whoever reads the profile says
            return reference
        if not path:
            return reference
        before = name[: len(name) - len(path)]
        several = path.split(",") if profile == "table" else [path]
        paths = tuple(part.strip() for part in several)
    found = rename(Named(kind, paths, reference.sha256))
    return replace(reference, name=before + ",".join(found))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # what the system refuses to tell of
        return False


def _relative(path: Path, folder: Path) -> str:
    """Return a path as it is named in a folder; whole if they have nothing in common."""
    whole = Path(os.path.realpath(path.parent)) / path.name
    shared = os.path.commonpath((whole, folder))
    return str(whole) if shared == folder.anchor else os.path.relpath(whole, folder)
