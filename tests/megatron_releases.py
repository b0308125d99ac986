"""Megatron-LM's arguments by release, held against the planner's table of them.

`python -m tests.megatron_releases REPOSITORY core_v0.16.1 core_v0.19.0` reads the files of a git
directory at these tags, by their syntax: nothing of them is imported or run. It prints what
docs/reference/releases.md tells of. Arguments are those of `megatron/training/arguments.py`: calls
of `add_argument`, and fields of the dataclasses that `ArgumentGroupFactory` makes arguments of, by
its rules (`megatron/training/argument_utils.py`).
"""

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.flags import flags
from ilp_planner.formats.megatron.settings import FLAGS
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.model_reader import catalogue
from ilp_planner.specs.training import TrainingJob

ARGUMENTS = "megatron/training/arguments.py"
UNKNOWN = "?"  # a default that is no literal


class Argument(NamedTuple):
    """An argument of a release. key: of the value that it sets. choices: none: any."""

    key: str
    default: Any
    choices: tuple[str, ...]


class Release:
    """A release in a git directory."""

    def __init__(self, repository: str, tag: str) -> None:
        self.repository, self.tag = repository, tag

    def git(self, *words: str) -> str:
        """Return what git says; empty where it fails."""
        done = subprocess.run(
            ["git", "-C", self.repository, *words], capture_output=True, text=True, check=False
        )
        return done.stdout

    def read(self, path: str) -> ast.Module:
        return ast.parse(self.git("show", f"{self.tag}:{path}"))

    @cache  # noqa: B019 - a release lives as long as the program
    def class_of(self, name: str) -> ast.ClassDef | None:
        """Return a class by its name."""
        found = self.git("grep", "-lE", rf"^class {name}\b", self.tag, "--", "megatron")
        for line in found.splitlines():
            for node in self.read(line.partition(":")[2]).body:
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return node
        return None

    def fields_of(self, name: str) -> dict[str, ast.AnnAssign]:
        """Return the fields of a dataclass and of its bases, in their order."""
        found: dict[str, ast.AnnAssign] = {}
        node = self.class_of(name)
        for base in node.bases if node else ():
            found |= self.fields_of(ast.unparse(base).rpartition(".")[2])
        for line in node.body if node else ():
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found[line.target.id] = line
        return found

    def arguments(self) -> dict[str, Argument]:
        """Return the arguments by name, without the leading dashes."""
        found: dict[str, Argument] = {}
        for function in self.read(ARGUMENTS).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            lists = {
                ast.unparse(node.targets[0]): literal(node.value)
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
            }
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                called = ast.unparse(node.func).rpartition(".")[2]
                if called == "add_argument":
                    found |= added(node)
                elif called == "ArgumentGroupFactory":
                    words = {word.arg: word.value for word in node.keywords}
                    named = words.get("exclude")
                    out = [] if named is None else lists.get(ast.unparse(named), literal(named))
                    found |= self._made(ast.unparse(node.args[0]).rpartition(".")[2], out or [])
        return found

    def _made(self, name: str, out: list[str]) -> dict[str, Argument]:
        """Return what `ArgumentGroupFactory` makes of a dataclass."""
        found: dict[str, Argument] = {}
        for key, line in self.fields_of(name).items():
            default, meta, made = default_of(line.value)
            if key in out or not made:
                continue
            kind = ast.unparse(line.annotation)
            names = [key]
            if kind == "bool" and default is True:
                names = [f"no-{key}", f"disable-{key}"]
            names = [one.lstrip("-") for one in meta.get("arg_names", names)]
            choices = meta.get("choices") or choices_of(line.annotation)
            row = Argument(meta.get("dest", key), meta.get("default", default), as_words(choices))
            found |= {one.replace("_", "-"): row for one in names}
        return found


def literal(node: ast.expr | None) -> Any:
    """Return the value of a literal; `UNKNOWN` for other expressions."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def as_words(values: Any) -> tuple[str, ...]:
    listed = values if isinstance(values, list | tuple) else ()
    return tuple(sorted(str(value) for value in listed if value is not None))


def choices_of(annotation: ast.expr) -> list[Any]:
    """Return the values of a `Literal` in an annotation."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            inner = literal(node.slice)
            return list(inner) if isinstance(inner, tuple) else [inner]
    return []


def default_of(value: ast.expr | None) -> tuple[Any, dict[str, Any], bool]:
    """Return the default of a field, its `argparse_meta`, and whether the constructor takes it."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field")):
        return literal(value), {}, True
    words = {word.arg: word.value for word in value.keywords}
    meta: dict[str, Any] = {}
    metadata = words.get("metadata")
    for key, inner in (
        zip(metadata.keys, metadata.values, strict=True) if isinstance(metadata, ast.Dict) else ()
    ):
        if literal(key) == "argparse_meta" and isinstance(inner, ast.Dict):
            meta = {literal(k): literal(v) for k, v in zip(inner.keys, inner.values, strict=True)}
    default = literal(words["default"]) if "default" in words else UNKNOWN
    return default, meta, literal(words.get("init")) is not False


def added(call: ast.Call) -> dict[str, Argument]:
    """Return the arguments of a call of `add_argument`."""
    names = [literal(node) for node in call.args]
    long = [name[2:] for name in names if isinstance(name, str) and name.startswith("--")]
    if not long:
        return {}
    words = {word.arg: literal(word.value) for word in call.keywords}
    key = words.get("dest") or long[0].replace("-", "_")
    usual = {"store_true": False, "store_false": True}.get(str(words.get("action")))
    row = Argument(str(key), words.get("default", usual), as_words(words.get("choices")))
    return {name.replace("_", "-"): row for name in long}


def ours() -> dict[str, Argument]:
    """Return the planner's table alike."""
    return {
        name: Argument(flag.key, flag.default, as_words(flag.choices))
        for name, flag in flags().items()
    }


def written() -> set[str]:
    """Return the arguments that the planner may write: those of settings, and of the catalogue's
    models."""
    every = [flag for flag in flags().values() if flag.key in FLAGS.values()]
    found = {flag.name for flag in every}
    for entry in catalogue():
        model = as_decoder(entry.model.architecture)
        if model is not None and not any(misfits(model)):
            job = TrainingJob(model=model, micro_batch=1, global_batch=1, tp=1, pp=1, dp=1)
            found |= {word[2:] for word in arguments_of_job(job).argv if word.startswith("--")}
    return found


def changed(before: Mapping[str, Argument], after: Mapping[str, Argument]) -> Iterator[str]:
    """Yield what differs of the arguments that both have."""
    for name in sorted({*before} & {*after}):
        old, new = before[name], after[name]
        if old.key != new.key:
            yield f"`--{name}` sets `{new.key}`, before `{old.key}`"
        if UNKNOWN not in (old.default, new.default) and as_one(old) != as_one(new):
            yield f"`--{name}`: default `{new.default}`, before `{old.default}`"
        if old.choices and new.choices and old.choices != new.choices:
            more, less = {*new.choices} - {*old.choices}, {*old.choices} - {*new.choices}
            said = [f"also {', '.join(sorted(more))}"] * bool(more)
            said += [f"no longer {', '.join(sorted(less))}"] * bool(less)
            yield f"`--{name}`: {'; '.join(said)}"


def as_one(row: Argument) -> Any:
    """Return a default so that equal ones compare equal."""
    default = row.default
    if isinstance(default, bool | str) or default is None:
        return default or None
    return tuple(default) if isinstance(default, list) else default


def listed(names: set[str]) -> str:
    return ", ".join(f"`--{name}`" for name in sorted(names)) or "none"


def main(repository: str, tags: list[str]) -> None:
    """Print the tables."""
    releases = {tag: Release(repository, tag).arguments() for tag in tags}
    own, said = ours(), written()
    print("| release | arguments | of them in the table | not in it | of the table not in it |")
    print("|---|---:|---:|---:|---:|")
    for tag, found in releases.items():
        both = len({*found} & {*own})
        print(f"| {tag} | {len(found)} | {both} | {len(found) - both} | {len(own) - both} |")
    for before, after in itertools.pairwise(tags):
        old, new = releases[before], releases[after]
        print(f"\n### From {before} to {after}\n")
        print(f"* Added: {listed({*new} - {*old})}")
        print(f"* Removed: {listed({*old} - {*new})}")
        for text in changed(old, new):
            print(f"* {text}")
    for tag, found in releases.items():
        print(f"\n### The planner's table and {tag}\n")
        print(f"* Written by the planner, and not in the release: {listed(said - {*found})}")
        print(f"* Of the release, and not in the table: {listed({*found} - {*own})}")
        for text in changed(found, {name: own[name] for name in {*own} & {*found}}):
            print(f"* {text.replace('before', 'in the release')}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
