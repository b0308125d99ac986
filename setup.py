"""What pyproject.toml cannot say: `models/` and `clusters/` are folders of the package."""

from setuptools import find_packages, setup

DATA = ("models", "clusters")
FILES = {
    "ilp_planner": ["py.typed"],
    "ilp_planner.faces.page": ["templates/*"],
    "ilp_planner.faces.schemas": ["*.json"],
    "ilp_planner.specs": ["*.json", "*.toml"],
}

setup(
    packages=[*find_packages(include=["ilp_planner*"]), *(f"ilp_planner.{name}" for name in DATA)],
    package_dir={f"ilp_planner.{name}": name for name in DATA},
    package_data=FILES | {f"ilp_planner.{name}": ["*.toml"] for name in DATA},
)
