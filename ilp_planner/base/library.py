"""The models and clusters that come with the planner, and finding a file by its name or path."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import existing, places

Kind = Literal["models", "clusters"]
CONFIG = "config.json"  # of a model of Hugging Face
WORD = re.compile(r"[0-9.]+(?:x[0-9]+)?b(?![a-z])|[0-9]+(?:\.[0-9]+)*|[a-z]+")
SLIP = 0.9  # how like a name is that differs in a letter or two, as `SequenceMatcher.ratio` has it
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


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


def find_spec(name: str, kind: Kind) -> Path:
    """Return the file that a name means; see `find_specs`."""
    return find_specs(name, kind)[0]


def find_specs(name: str, kind: Kind, folders: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files that a name may mean, best first.

    Parameters
    ----------
    name: a path, or the name of a file that comes with the planner (`gpt3-1.3b`); of a model also
        a folder with a `config.json` of Hugging Face, and the name that it has there
        (`Qwen/Qwen3-32B`): of such a folder, of the configuration in this one, or of ours.
    kind: `models` or `clusters`.
    folders: bases of relative paths, after the current folder and before the planner's own.

    Raises
    ------
    SpecError: there is none; names the nearest.
    """
    library = library_folder()
    tries = places(name, (*folders, library))
    if kind == "models":
        tries = [_config_in(path) for path in tries] + _named_configs(name, folders)
    tries.append(library / kind / f"{name.removesuffix('.toml')}.toml")
    if found := existing(tries, Path.is_file):
        return found
    if kind == "models" and _is_hub_name(name):
        return [_hub_file(name)]
    other: Kind = "clusters" if kind == "models" else "models"
    if name in known_names(other):
        raise SpecError(f"{name}: found one of the {other}, expected one of the {kind}")
    if kind == "models" and Path(name).is_dir():
        raise SpecError(f"{name}: found a folder without {CONFIG}, expected one with it")
    known = known_names(kind)
    asked = Path(name).name.removesuffix(".toml").lower()
    near = difflib.get_close_matches(asked, known, n=1)
    every = "`ilp-plan models` lists those that are here"
    if kind == "clusters":
        every = f"clusters that are here: {', '.join(known)}"
    hint = f"did you mean {near[0]!r}?" if near else every
    raise SpecError(f"{name}: no such file; {hint}")


def hub_names() -> dict[str, Path]:
    """Return the models that come with the planner by the names that they have at Hugging Face."""
    found: dict[str, Path] = {}
    for path in library_files("models"):
        with contextlib.suppress(OSError, ValueError):
            found |= dict.fromkeys(_hub_names_in(path, path.stat().st_mtime_ns), path)
    return found


@cache
def _hub_names_in(path: Path, changed: int) -> tuple[str, ...]:
    """Return the names at Hugging Face that a file says. changed: when it was."""
    return tuple(tomllib.loads(path.read_text(encoding="utf-8")).get("hub", ()))


def library_model(name: str) -> Path | None:
    """Return our file of a model by its name here, by that at Hugging Face, or by a folder that is
    called so; None: there is none."""
    parts = name.strip("/").casefold().split("/")
    wanted = "/".join(parts[-2:])
    hubs = {hub.casefold(): path for hub, path in hub_names().items()} if len(parts) > 1 else {}
    own = {path.stem: path for path in library_files("models")} if len(parts) == 1 else {}
    return hubs.get(wanted) or own.get(wanted)


def _is_hub_name(name: str) -> bool:
    """Tell whether a name can be one of Hugging Face's: an owner and a model."""
    return bool(HUB_NAME.fullmatch(name)) and not name.endswith((".toml", ".json"))


def _hub_file(name: str) -> Path:
    """Return our file of a model that Hugging Face has.

    Raises
    ------
    SpecError: there is none; says how to get its configuration.
    """
    known = {hub.casefold(): (hub, path) for hub, path in hub_names().items()}
    if name.casefold() in known:
        return known[name.casefold()][1]
    slip = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=SLIP)
    near = nearest_model(name) or (known[slip[0]][0] if slip else "")
    meant = f"did you mean {near!r}? " if near else ""
    raise SpecError(
        f"{name}: no such model here, expected one of `ilp-plan models` or {name}/{CONFIG}; {meant}"
        f"`hf download {name} {CONFIG} --local-dir {name}` brings it"
    )


def nearest_model(name: str) -> str:
    """Return the model here with the family and size of a name at Hugging Face, as of a variant for
    chats or pictures; empty if there is none.

    All that tells the model here from others must be in the name, and the most of that decides.
    """
    asked = _words(name.rpartition("/")[2])
    sizes = {word for word in asked if word[0].isdigit() and word.endswith("b")}
    called = {path.stem: [path.stem] for path in library_files("models")}
    for hub, path in hub_names().items():
        called[path.stem].append(hub.rpartition("/")[2])
    found = {
        stem: max(len(_words(one)) for one in names if _words(one) <= asked)
        for stem, names in called.items()
        if any(_words(one) <= asked and sizes <= _words(one) for one in names)
    }
    return max(found, key=lambda stem: (found[stem], -len(stem)), default="")


def _words(name: str) -> set[str]:
    """Return the distinction of a model: letters, versions and sizes, without `text`."""
    return set(WORD.findall(name.casefold())) - {"text"}


def _config_in(path: Path) -> Path:
    """Return the configuration in a folder; a path that is none as it is."""
    with contextlib.suppress(OSError):
        return path / CONFIG if path.is_dir() else path
    return path


def _named_configs(name: str, folders: tuple[Path, ...]) -> list[Path]:
    """Return the configurations in these folders and the current one that say this name."""
    found = []
    for folder in (Path(), *folders) if _is_hub_name(name) else ():
        with contextlib.suppress(OSError, ValueError, RecursionError):
            values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            if isinstance(values, dict) and values.get("_name_or_path") == name:
                found.append(folder / CONFIG)
    return found
