"""Keys and values in the words of a launch: options, overrides and files that it names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError, shown
from ilp_planner.base.file_kinds import OF_JSON, FileKind, kind_of_text
from ilp_planner.base.files import Document, read_document, read_json
from ilp_planner.base.yaml_files import read_yaml, scalar
from ilp_planner.formats.imported.table import dotted_option, flat
from ilp_planner.formats.megatron.launchers import Open
from ilp_planner.specs.toml_reader import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ilp_planner.formats.megatron.launchers import FindOpen

WORDS = {"true": True, "false": False, "none": None, "null": None}
OVERRIDE = re.compile(r"[+~]{0,2}([\w.@/-]+)=(.*)", re.DOTALL)
FILES = (".yml", ".yaml", ".json", ".toml")
# Keys whose values are files -> the section that their keys stand in.
NAMING = {
    "deepspeed": "deepspeed.",
    "dist_config.config_file": "deepspeed.",
    "fsdp_config": "fsdp_config.",
}
NO_FILE = ("", "none", "null", "false", "true")  # values of these keys that name none
PRESET = re.compile(r"zero([01](?!_)|[23])(_offload)?")  # of ms-swift
# The key of a section that decides most.
DECIDING = {"deepspeed.": "zero_optimization.stage", "fsdp_config.": "fsdp_sharding_strategy"}


class Files(NamedTuple):
    """Files that words name. folder: of relative paths. texts: of files by their whole paths, where
    these are not the ones that lie there. modules: folders in which Python looks for modules."""

    folder: Path = Path()
    texts: Mapping[str, str] = {}
    modules: tuple[Path, ...] = ()

    def is_there(self, path: Path) -> bool:
        """Tell whether there is such a file."""
        return os.path.normpath(path) in self.texts or path.is_file()

    def named(self, name: str | Path) -> Path:
        """Return the path of a file: in this folder, in one of three folders around it, or in the
        working directory. A file that is nowhere has its path in this folder."""
        around = [self.folder, *self.folder.resolve().parents[:3], Path()]
        found = (here / name for here in around if self.is_there(here / name))
        return next(found, self.folder / name)

    def document(self, path: Path) -> Document:
        """Return a file.

        Raises
        ------
        SpecError: it cannot be read.
        """
        text = self.texts.get(os.path.normpath(path))
        return read_document(path, SpecError) if text is None else Document(str(path), text)


def pairs_of(
    syntax: str, words: Sequence[str], find_open: FindOpen, files: Files
) -> list[tuple[str, Any]]:
    """Return the keys and values of a launch's words. syntax: as `imports` has it.

    Raises
    ------
    SpecError: a word that is neither, or a file that cannot be read.
    """
    if syntax == "overrides":
        return list(_overrides(words, find_open))
    if syntax == "files":
        return list(_files(words, files))
    if syntax == "module":
        from ilp_planner.formats.imported.torchtitan_python import module_pairs

        return list(module_pairs(words, files))
    return list(_options(words, find_open))


def _options(words: Sequence[str], find_open: FindOpen) -> Iterable[tuple[str, Any]]:
    """Yield `--key value...` and `--key=value`; without a value it is true."""
    name, values = "", list[str]()
    for word in (*words, "--"):
        if not word.startswith("--"):
            if not name:
                raise SpecError(f"{word!r:.80}: expected an option that begins with --")
            values.append(word)
            continue
        if name:
            yield name, _value(name, values, find_open)
        name, equals, inside = word[2:].partition("=")
        name, values = name.replace("-", "_"), [inside] if equals else []


def _value(name: str, values: list[str], find_open: FindOpen) -> Any:
    for value in values:
        if unknown := find_open(f"--{name}", value):
            return unknown
    if not values:
        return True
    found = [WORDS.get(value.lower(), value) for value in values]
    return found[0] if len(found) == 1 else found


def _overrides(words: Sequence[str], find_open: FindOpen) -> Iterable[tuple[str, Any]]:
    """Yield `key=value`, as Hydra has it, whose values are YAML; and options and words of the
    program with dashes before their names."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        match = None if word.startswith("-") else OVERRIDE.fullmatch(word)
        if match:
            yield match[1], find_open(match[1], match[2]) or scalar(match[2])
        elif word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            apart = not equals and rest and rest[0][:1] != "-" and "=" not in rest[0]
            yield f"--{name}", rest.pop(0) if apart else value or True
        elif re.fullmatch(r"[\w.-]+", word):
            yield f"--{word}", True
        else:
            raise SpecError(f"{word!r:.80}: expected KEY=VALUE")


def _files(words: Sequence[str], files: Files) -> Iterable[tuple[str, Any]]:
    """Yield the keys of all files that are named, in order; `-d FOLDER` is before their names."""
    rest, before = list(words), Path()
    while rest:
        word = rest.pop(0)
        name, equals, inside = word.partition("=")
        if word in ("-d", "--conf_dir") and rest:
            before = Path(rest.pop(0))
        elif name in ("--config", "--config-file", "--config_file", "--job.config_file"):
            rest = [inside, *rest] if equals else rest
        elif word.startswith("--"):
            key, value = dotted_option(word, rest)
            yield key, scalar(value)
        elif match := OVERRIDE.fullmatch(word):
            yield match[1], scalar(match[2])
        elif Path(word).suffix in FILES or (before != Path() and word):
            path = before / word
            named = path if path.suffix else path.with_suffix(".yml")
            yield from keys_of(files.named(named), files=files)


def keys_of(
    path: Path, section: str = "", files: Files | None = None, config: str = ""
) -> Iterable[tuple[str, Any]]:
    """Return the keys of a file of YAML, JSON, TOML or Python, dots between the names of sections.

    section: put before them. config: the name of one of several in a file of Python.

    Raises
    ------
    SpecError: it cannot be read, or holds no keys.
    """
    document = (files or Files()).document(path)
    kind = kind_of_text(document.text)
    if kind is FileKind.TITAN_PYTHON:
        from ilp_planner.formats.imported.torchtitan_python import python_keys

        return list(python_keys(document, config))
    if kind is FileKind.TITAN or path.suffix == ".toml":
        return list(flat(read_toml(document, None, FileKind.TITAN).values, section))
    # YAML may begin like JSON, with a bracket.
    is_json = path.suffix == ".json" or (kind in OF_JSON and path.suffix not in FILES)
    read = read_json if is_json else read_yaml
    values = read(document, SpecError)
    if not isinstance(values, dict):
        raise SpecError(f"{path}: found {shown(values)}, expected keys with values")
    pairs = list(flat(values, section))
    if kind is FileKind.PRIMUS:
        from ilp_planner.formats.imported.primus import with_defaults

        pairs = [(key, with_defaults(value)) for key, value in pairs]
    return pairs


def with_files(pairs: Iterable[tuple[str, Any]], files: Files) -> Iterable[tuple[str, Any]]:
    """Yield keys and values, with those of files that values name. If there is no such file, the
    key in it that decides most has an open value."""
    for key, value in pairs:
        yield key, value
        if key not in NAMING or not isinstance(value, str) or value.lower() in NO_FILE:
            continue
        if NAMING[key] == "deepspeed." and (preset := PRESET.fullmatch(value)):
            for name, one in _preset(preset):
                yield f"{NAMING[key]}zero_optimization.{name}", one
            continue
        found = files.named(value)
        if files.is_there(found) and found.suffix in FILES:
            yield from keys_of(found, NAMING[key], files)
            continue
        what = f"which is not there, expected it in {files.folder} or in this folder"
        if Path(value).suffix not in FILES:
            what = f"expected a file that ends in {', '.join(FILES)}"
        most = f"{NAMING[key]}{DECIDING[NAMING[key]]}"
        yield most, Open(value, f"{key}: found {value}, {what}", f"--set {most}=VALUE")


def _preset(named: re.Match[str]) -> Iterable[tuple[str, Any]]:
    """Yield the keys of a file that ms-swift has by a name, `swift/config/zero2_offload.json`."""
    stage = int(named[1])
    yield "stage", stage
    for part in ("optimizer", *["param"] * (stage == 3)) if named[2] else ():
        yield f"offload_{part}.device", "cpu"


def launcher_files(words: Sequence[str], files: Files) -> Iterable[tuple[str, Any]]:
    """Return the keys of the file that Accelerate is told of."""
    for k, word in enumerate(words):
        name, equals, inside = word.partition("=")
        if name == "--config_file" and "accelerate" in words[0]:
            named = inside if equals else "".join(words[k + 1 : k + 2])
            return list(keys_of(files.named(named), files=files))
    return ()
