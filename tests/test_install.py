"""The wheel holds all that a plan needs: installed anywhere, it plans models that are named.

By default it is installed into a copy of the running environment, which needs no network.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.components import table, write_bill
from tests.locked import locked, of_sets
from tests.locked import main as locked_main
from tests.lowest import lower_bounds, pins
from tests.relock import closure

ROOT = Path(__file__).parents[1]
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
CASE = ("--model", "gpt3-350m", "--cluster", "v100-32gb-1x8")
WHERE = "import ilp_planner; print(ilp_planner.__file__)"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: object, path: Path | None = None, home: Path | None = None) -> str:
    """Run a command far from the repository, which nothing names; return what it prints.

    Parameters
    ----------
    path: a folder to import from. home: that of the user, in which the command runs.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    environment |= {} if home is None else {"HOME": str(home)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=home or "/",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of links to the sources, so that nothing is written into the repository."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("clusters", "ilp_planner", "models", *FILES):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources)
    return next(folder.glob("*.whl"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return the Python of a new environment that imports what this one has."""
    venv.create(tmp_path / "copy")
    paths = dict.fromkeys(("base", "platbase"), str(tmp_path / "copy"))
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    here = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "others.pth").write_text("".join(f"{folder}\n" for folder in here))
    return tmp_path / "copy" / "bin" / "python"


@pytest.mark.slow
def test_the_wheel_holds_models_clusters_and_types(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("models", "clusters"):
        assert {f"ilp_planner/{kind}/{path.name}" for path in (ROOT / kind).glob("*.toml")} <= names
    templates = (ROOT / "ilp_planner" / "faces" / "page" / "templates").glob("*.*")
    assert {f"ilp_planner/faces/page/templates/{path.name}" for path in templates} <= names
    data = {"kernel_constants.json", "gpus.toml"}
    assert {"ilp_planner/py.typed", *(f"ilp_planner/specs/{name}" for name in data)} <= names
    assert {Path(name).parts[0].partition("-")[0] for name in names} == {"ilp_planner"}


@pytest.mark.slow
def test_it_plans_in_a_copy_of_this_environment(wheel: Path, copy: Path):
    run(*PIP, "--python", copy, "install", "--no-deps", "--ignore-installed", wheel)
    assert "FITS" in run(copy.with_name("ilp-plan"), "analyze", *CASE)
    assert str(copy.parents[1]) in run(copy, "-c", WHERE)


@pytest.mark.slow
def test_it_plans_where_the_sources_are_installed_for_editing(sources: Path, copy: Path):
    editable = ("--no-build-isolation", "--editable", sources)
    run(*PIP, "--python", copy, "install", "--no-deps", "--ignore-installed", *editable)
    assert "FITS" in run(copy.with_name("ilp-plan"), "analyze", *CASE)
    assert str(ROOT) in run(copy, "-c", WHERE)


@pytest.mark.slow
def test_it_plans_from_a_folder_of_its_own(wheel: Path, tmp_path: Path):
    run(*PIP, "install", "--no-deps", "--target", tmp_path, wheel)
    assert "FITS" in run(sys.executable, "-m", "ilp_planner", "analyze", *CASE, path=tmp_path)
    assert str(tmp_path) in run(sys.executable, "-c", WHERE, path=tmp_path)


@pytest.mark.slow
def test_it_solves_where_only_pip_has_been(wheel: Path, tmp_path: Path):
    """In an empty environment, with what pip finds for the bounds; then from a folder."""
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip = (python, *PIP[1:])
    run(*pip, "install", wheel)
    command, home = python.with_name("ilp-plan"), tmp_path / "home"
    home.mkdir()
    assert "PROVED OPTIMAL" in run(command, "solve", *CASE, "--output", "plan.json", home=home)
    assert "derived again" in run(
        command, "evaluate", "plan.json", "--check-certificate", home=home
    )
    run(command, "show", "plan.json", "--html", "plan.html", "--png", "plan.svg", home=home)
    run(command, "export", "plan.json", "--to", "megatron", "--output", "run.sh", home=home)
    run(*pip, "uninstall", "--yes", "ilp-planner")
    run(*pip, "install", "--no-deps", "--target", tmp_path / "folder", wheel)
    solved = run(python, "-m", "ilp_planner", "solve", *CASE, path=tmp_path / "folder")
    assert "PROVED OPTIMAL" in solved


def test_every_package_has_a_lowest_version_and_a_pin():
    known = pins()
    for name, lowest in lower_bounds().items():
        assert Version(known[name]) >= Version(lowest), name


# ---- what make installs -------------------------------------------------------------------------


def test_every_file_that_is_installed_has_a_hash_but_for_those_that_say_why():
    for package in locked():
        assert package.sets
        assert package.hashes or package.name == "torch"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in package.hashes)


@pytest.mark.parametrize("name", ["build", "plan", "test"])
def test_a_set_holds_all_that_its_packages_need(name: str):
    """pip is told to install nothing else."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    texts = {"build": content["build-system"]["requires"], "plan": project["dependencies"]}
    wanted = texts.get(name) or project["optional-dependencies"][name]
    there = {canonicalize_name(package.name): package for package in of_sets({name})}
    known = {
        package: [Requirement(text) for text in distribution(package).requires or ()]
        for package in there
    }
    roots = [Requirement(text) for text in wanted]
    assert closure(roots, known) <= {*there}
    for root in roots:
        assert root.specifier.contains(there[canonicalize_name(root.name)].version)


def test_what_is_printed_is_what_pip_reads(capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["locked", "build"])
    locked_main()
    line, *hashes = capsys.readouterr().out.split(" \\\n    ")
    assert line == f"setuptools=={pins()['setuptools']}"
    assert all(text.startswith("--hash=sha256:") for text in hashes)
    with pytest.raises(ValueError, match="found plam, expected sets of"):
        of_sets({"plam"})


@pytest.mark.slow
def test_the_bill_of_materials_names_all_files(wheel: Path, tmp_path: Path):
    shutil.copy(wheel, tmp_path)
    bill = json.loads(write_bill(tmp_path).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = {part["name"]: part for part in bill["components"]}
    assert {*named} == {package.name for package in of_sets({"plan"})}
    assert all(part["licenses"] for part in named.values())
    references = [part["bom-ref"] for part in named.values()]
    assert len(set(references)) == len(references)
    assert bill["dependencies"][0]["dependsOn"] == references
    numpy = {entry["value"] for entry in named["numpy"]["properties"]}
    assert numpy == {*next(p for p in of_sets({"plan"}) if p.name == "numpy").hashes}


def test_the_manual_lists_the_licences():
    shown = (ROOT / "docs" / "reference" / "hostile.md").read_text()
    assert "\n".join(table()) in shown
