"""What `make` installs: exact versions with the hashes of their files, out of .constraints.txt.

`python -m tests.locked plan test` prints what these sets need, as pip's requirements;
`python -m tests.locked --renew` finds the hashes of all files anew, by asking pip. Needs nothing
but Python for the former, as nothing else is there yet.
"""

import argparse
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILE = ROOT / ".constraints.txt"
ENTRY = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s\\]+)((?:[\s\\]+--hash=\S+)*)\n    # for (.*)$", re.M)


class Locked(NamedTuple):
    """A package. hashes: of its files, as `sha256:...`; none of one that is installed unchecked.
    sets: what needs it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    sets: tuple[str, ...]

    def line(self) -> str:
        """Return it as a requirement of pip."""
        return " \\\n    ".join(
            [f"{self.name}=={self.version}", *(f"--hash={digest}" for digest in self.hashes)]
        )


def locked() -> list[Locked]:
    """Return all packages of the file."""
    return [
        Locked(name, version, tuple(re.findall(r"--hash=(\S+)", hashes)), tuple(sets.split(", ")))
        for name, version, hashes, sets in ENTRY.findall(FILE.read_text())
    ]


def of_sets(names: set[str], *, checked: bool = True) -> list[Locked]:
    """Return the packages that sets need, those that are checked or the others.

    Raises
    ------
    ValueError: there is no such set.
    """
    known = locked()
    unknown = names - {one for package in known for one in package.sets}
    if unknown:
        raise ValueError(f"found {', '.join(sorted(unknown))}, expected sets of {FILE.name}")
    return [p for p in known if names.intersection(p.sets) and bool(p.hashes) == checked]


def main() -> None:
    """Print the requirements of sets, or write the file anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--unchecked", action="store_true", help="those without hashes instead")
    parser.add_argument("--renew", action="store_true")
    asked = parser.parse_args()
    if asked.renew:
        from tests.relock import renew

        renew()
    for package in of_sets(set(asked.sets), checked=not asked.unchecked):
        print(package.line())


if __name__ == "__main__":
    main()
