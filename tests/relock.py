"""Hashes for .constraints.txt: pip is asked which files it would install, for every Python and
every processor, and downloads none of them that has no metadata of its own."""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from textwrap import fill
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.locked import FILE, ROOT, Locked, locked

PYTHONS = ("3.11", "3.12", "3.13")
PATCH = 9  # of each: some packages need more than its first release
PROCESSORS = ("x86_64", "aarch64")
GLIBC = ("2_34", "2_31", "2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
OLD_TAGS = ("manylinux2014", "manylinux2010", "manylinux1", "linux")  # of before these
ALONE = {  # installed without what they depend on, which their readers here do not need
    "titan": ("torchtitan==0.2.2",),
    "titan-0.3.0": ("torchtitan==0.3.0", "spmd-types", "torch-checkpointing", "torchdata"),
}
UNCHECKED = {
    "torch": "there are builds of one version for CPUs and for each CUDA and ROCm, with indexes of "
    "their own: whoever runs make says which one by pip's settings"
}
# Asked for by themselves: there are sources alone, builds of many kinds, or two versions.
APART = ("deepspeed", "torch", "torchtitan")
WIDTH = 100  # columns of a remark
HEAD = """\
# The versions that `make` installs, with the hashes of their files for Linux on x86-64 and on ARM,
# Python {first} to {last}; `python -m tests.locked --renew` finds them anew. pip refuses any other
# file, whatever index it comes from.
"""


def report(pins: list[str], *options: str) -> list[dict[str, Any]]:
    """Return what pip would install of these pins, and of nothing that they depend on."""
    with tempfile.TemporaryDirectory() as at:
        file, out = Path(at) / "pins.txt", Path(at) / "report.json"
        file.write_text("".join(f"{pin}\n" for pin in pins))
        words = ["--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--report", str(out)]
        command = [sys.executable, "-m", "pip", "install", *words, "-r", str(file), *options]
        subprocess.run([*command, "--target", at], check=True)
        found: list[dict[str, Any]] = json.loads(out.read_text())["install"]
        return found


def reports(packages: list[Locked]) -> list[dict[str, Any]]:
    """Return what pip would install of all packages, for all Pythons and processors."""
    pins = [f"{package.name}=={package.version}" for package in packages]
    apart = [pin for pin in pins if pin.partition("==")[0].lower() in APART]
    wheels = [pin for pin in pins if pin not in apart]
    found = []
    for python in PYTHONS:
        for processor in PROCESSORS:
            tags = [*(f"manylinux_{glibc}" for glibc in GLIBC), *OLD_TAGS]
            platforms = [word for tag in tags for word in ("--platform", f"{tag}_{processor}")]
            only = ("--only-binary", ":all:", "--python-version", f"{python}.{PATCH}")
            found += report(wheels, *only, *platforms)
    for pin in apart:
        found += report([pin], "--no-build-isolation")
    return found


def needs(found: list[dict[str, Any]]) -> dict[str, list[Requirement]]:
    """Return what packages depend on, by their names."""
    return {
        canonicalize_name(one["metadata"]["name"]): [
            Requirement(text) for text in one["metadata"].get("requires_dist", ())
        ]
        for one in found
    }


def applies(marker: Marker | None, extra: str) -> bool:
    """Tell whether a requirement counts on Linux, with any of the Pythons."""
    return marker is None or any(
        marker.evaluate(
            {
                "python_version": python,
                "python_full_version": f"{python}.{PATCH}",
                "sys_platform": "linux",
                "platform_system": "Linux",
                "os_name": "posix",
                "platform_python_implementation": "CPython",
                "implementation_name": "cpython",
                "platform_machine": processor,
                "extra": extra,
            }
        )
        for python in PYTHONS
        for processor in PROCESSORS
    )


def closure(roots: list[Requirement], known: dict[str, list[Requirement]]) -> set[str]:
    """Return the names of all that requirements need, extras included."""
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(r.name), extra) for r in roots for extra in ("", *r.extras)]
    while waiting:
        name, extra = one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for need in known.get(name, ()):
            if applies(need.marker, extra):
                waiting += [(canonicalize_name(need.name), e) for e in ("", *need.extras)]
    return {name for name, _ in seen}


def sets_of(known: dict[str, list[Requirement]]) -> dict[str, set[str]]:
    """Return what each set of packages needs: `build`, `plan`, the extras, and those alone."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    roots = {"build": content["build-system"]["requires"], "plan": project["dependencies"]}
    roots |= project["optional-dependencies"]
    found = {
        name: closure([Requirement(text) for text in texts], known) for name, texts in roots.items()
    }
    return found | {name: {*pins} for name, pins in ALONE.items()}


def written(found: list[dict[str, Any]], packages: list[Locked]) -> str:
    """Return the file. found: as `reports` has it."""
    hashes: dict[tuple[str, str], set[str]] = {}
    for one in found:
        key = canonicalize_name(one["metadata"]["name"]), one["metadata"]["version"]
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        hashes.setdefault(key, set()).add(f"sha256:{digest}")
    sets = sets_of(needs(found))
    known = {canonicalize_name(package.name) for package in packages}
    missing = {
        name for one, members in sets.items() if one not in ALONE for name in members - known
    }
    if missing:
        raise ValueError(f"{FILE.name}: expected versions of {', '.join(sorted(missing))} as well")
    lines = [HEAD.format(first=PYTHONS[0], last=PYTHONS[-1])]
    for package in sorted(packages, key=lambda p: (p.name.lower(), p.version)):
        name = canonicalize_name(package.name)
        named = {name, f"{name}=={package.version}"}
        users = [one for one, members in sets.items() if members & named]
        if not users:
            continue
        if name in UNCHECKED:
            reason = fill(f"Without hashes: {UNCHECKED[name]}.", WIDTH - 2)
            lines += [f"# {line}\n" for line in reason.splitlines()]
        files = () if name in UNCHECKED else hashes.get((name, package.version), ())
        digests = tuple(sorted(files))
        assert digests or name in UNCHECKED, name
        locked_one = Locked(package.name, package.version, digests, tuple(users))
        lines.append(f"{locked_one.line()}\n    # for {', '.join(users)}\n")
    return "".join(lines)


def renew() -> None:
    """Write the file anew, with the versions that it has.

    Raises
    ------
    ValueError: something is needed that it has no version of.
    """
    packages = locked()
    FILE.write_text(written(reports(packages), packages))
