"""What the planner is installed with: a bill of materials beside a wheel, and a table of licences.

`python -m tests.components --sbom dist` writes `ilp_planner-VERSION.cdx.json` into a folder, in the
format of CycloneDX 1.6; `python -m tests.components` prints the table of docs/reference/hostile.md.
"""

import argparse
import hashlib
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ilp_planner.base.files import to_json, write_text
from tests.locked import ROOT, Locked, of_sets

SET = "plan"  # what a plan needs: all other sets are for tests, measurements and clusters
LICENCES = {  # of packages that say it in words of their own, as SPDX has it
    "MIT License": "MIT",
    "Apache-2.0 license": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "Apache License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
}
SPDX = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def licence(name: str) -> str:
    """Return the licence of an installed package: an expression of SPDX where it says one.

    Raises
    ------
    ValueError: it says nothing.
    """
    about = metadata.metadata(name)
    classified = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier") or ()
        if text.startswith("License :: OSI")
    ]
    for said in (about["License-Expression"], about["License"], *classified):
        if said and "\n" not in said:
            return LICENCES.get(said, said)
    raise ValueError(f"{name}: says no licence, expected one")


def table() -> list[str]:
    """Return lines of Markdown: a package, its version and its licence."""
    rows = [f"| {p.name} | {p.version} | {licence(p.name)} |" for p in of_sets({SET})]
    return ["| package | version | licence |", "|---|---|---|", *rows]


def component(package: Locked) -> dict[str, Any]:
    """Return a package as CycloneDX has it: each of its files may be what is installed, so their
    hashes are properties, and no single one is the package's."""
    said = licence(package.name)
    known = {"expression": said} if SPDX.fullmatch(said) else {"license": {"name": said}}
    purl = f"pkg:pypi/{canonicalize_name(package.name)}@{package.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "licenses": [known],
        "properties": [{"name": "ilp-planner:file", "value": one} for one in package.hashes],
    }


def bill(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [component(package) for package in of_sets({SET})]
    purl = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": project["name"],
                "version": project["version"],
                "purl": purl,
                "licenses": [{"expression": project["license"]}],
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
                ],
            }
        },
        "components": packages,
        "dependencies": [{"ref": purl, "dependsOn": [one["bom-ref"] for one in packages]}],
    }


def write_bill(folder: Path) -> Path:
    """Write the bill beside the newest wheel of a folder; return its file."""
    wheel = max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    name = "-".join(wheel.name.split("-")[:2])
    path = folder / f"{name}.cdx.json"
    write_text(path, to_json(bill(wheel)))
    return path


def main() -> None:
    """Print the licences, or write the bill of materials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    print("\n".join(table()) if asked.sbom is None else write_bill(asked.sbom))


if __name__ == "__main__":
    main()
