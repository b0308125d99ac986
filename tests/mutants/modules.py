"""The modules whose mutants are tried, and the tests that are asked first."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DRAWN = 60
"""Mutants that are tried of a module outside the judge."""


class Module(NamedTuple):
    """A module by its path in the package. whole: all of its mutants are tried."""

    path: str
    whole: bool

    @property
    def name(self) -> str:
        """Its dotted name."""
        return ".".join(Path("ilp_planner", self.path).with_suffix("").parts)

    @property
    def file(self) -> Path:
        return ROOT / "ilp_planner" / self.path

    @property
    def compiled(self) -> bool:
        """It has no kernels: those of others may be compiled, and are kept as they are."""
        return "ilp_planner.base.kernels import" not in self.file.read_text()

    @property
    def mirror(self) -> str:
        """The file of its own tests, whether there is one or not."""
        path = Path("tests", self.path)
        return str(path.with_name(f"test_{path.name}"))


JUDGE = (
    "evaluate.py", "optimize/certificate.py", "optimize/coverage.py", "spaces/base.py",
    "spaces/graph_space.py", "spaces/groups/build.py", "spaces/operators/build.py",
    "spaces/operators/certificate.py", "optimize/search/graph_certificate.py", "peers/amp/build.py",
    "peers/metis/build.py", "spaces/training/space.py", "spaces/training/enumerate/rules.py",
    "settings/rules.py", "spaces/training/checked.py", "spaces/training/search/membership.py",
    "spaces/training/torchtitan.py", "spaces/training/deepspeed.py",
)  # fmt: skip
"""The judge and the judges of the spaces, and what derives certificates again."""

DRAWN_FROM = ("costs", "job", "optimize/bounds", "schedule", "spaces/training/bounds")
"""Folders of which each module gives some mutants, with those inside them."""


def modules() -> list[Module]:
    """Return all modules that are tried, the judge first."""
    package = ROOT / "ilp_planner"
    drawn = [
        str(path.relative_to(package))
        for folder in DRAWN_FROM
        for path in sorted((package / folder).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    return [
        *(Module(path, whole=True) for path in JUDGE),
        *(Module(path, whole=False) for path in drawn),
    ]
