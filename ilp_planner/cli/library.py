"""Finding the files that options and saved plans name."""

from __future__ import annotations

import difflib
import sysconfig
from pathlib import Path

import ilp_planner
from ilp_planner.errors import SpecError


def library_folders() -> list[Path]:
    """Return where `models/` and `clusters/` are: beside the package, or where pip put them."""
    beside = Path(ilp_planner.__file__).parent.parent
    installed = Path(sysconfig.get_path("data")) / "share" / "ilp-planner"
    return [folder for folder in (beside, installed) if (folder / "models").is_dir()]


def known_names(kind: str) -> list[str]:
    """Return the names of the `models` or `clusters` that come with the planner."""
    folders = (folder / kind for folder in library_folders())
    return sorted({path.stem for folder in folders for path in folder.glob("*.toml")})


def spec_candidates(name: str, kind: str, folders: tuple[Path, ...] = ()) -> list[Path]:
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
    library = library_folders()
    tries = [folder / Path(name).expanduser() for folder in (Path(), *folders, *library)]
    tries += [folder / kind / f"{name.removesuffix('.toml')}.toml" for folder in library]
    found = [path for path in tries if path.is_file()]
    if found:
        return found
    other = "clusters" if kind == "models" else "models"
    if name in known_names(other):
        raise SpecError(f"{name}: found one of the {other}, expected one of the {kind}")
    known = known_names(kind)
    near = difflib.get_close_matches(Path(name).name.removesuffix(".toml"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"{kind} that are here: {', '.join(known)}"
    raise SpecError(f"{name}: no such file; {hint}")
