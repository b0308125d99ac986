"""The models and clusters that come with the planner, and finding a file by its name or path."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Literal

from ilp_planner.errors import SpecError
from ilp_planner.files import existing, places

Kind = Literal["models", "clusters"]


def library_folder() -> Path:
    """Return the folder that holds `models/` and `clusters/`.

    An installed package holds them itself; in a checkout they lie beside it.
    """
    package = Path(str(files("ilp_planner")))
    return package if (package / "models").is_dir() else package.parent


def library_files(kind: Kind) -> list[Path]:
    """Return the files that come with the planner, by name."""
    return sorted((library_folder() / kind).glob("*.toml"))


def known_names(kind: Kind) -> list[str]:
    """Return the names of the files that come with the planner."""
    return [path.stem for path in library_files(kind)]


def find_spec(name: str, kind: Kind, folders: tuple[Path, ...] = ()) -> Path:
    """Return the file that a name means; see `find_specs`."""
    return find_specs(name, kind, folders)[0]


def find_specs(name: str, kind: Kind, folders: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files that a name may mean, best first.

    Parameters
    ----------
    name: a path, or the name of a file that comes with the planner (`gpt3-1.3b`).
    kind: `models` or `clusters`.
    folders: where relative paths may begin, after the current folder and before the planner's own.

    Raises
    ------
    SpecError: there is none; names the nearest.
    """
    library = library_folder()
    tries = places(name, (*folders, library))
    tries.append(library / kind / f"{name.removesuffix('.toml')}.toml")
    if found := existing(tries, Path.is_file):
        return found
    other: Kind = "clusters" if kind == "models" else "models"
    if name in known_names(other):
        raise SpecError(f"{name}: found one of the {other}, expected one of the {kind}")
    known = known_names(kind)
    asked = Path(name).name.removesuffix(".toml").lower()
    near = difflib.get_close_matches(asked, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"{kind} that are here: {', '.join(known)}"
    raise SpecError(f"{name}: no such file; {hint}")
