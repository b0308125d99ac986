"""Writes the schemas: `python -m tests.schemas`."""

import sys
import tempfile
from pathlib import Path

from ilp_planner.base.files import to_json, write_text
from ilp_planner.faces.schemas import FOLDER
from tests.schemas.build import schemas
from tests.schemas.cases import examples


def main() -> None:
    """Write every schema; take away those that are no longer there."""
    with tempfile.TemporaryDirectory() as folder:
        made = schemas(examples(Path(folder)))
    for file in FOLDER.glob("*.json"):
        if file.stem not in made:
            file.unlink()
    for name, schema in made.items():
        write_text(FOLDER / f"{name}.json", to_json(schema))
    print(f"{len(made)} schemas", file=sys.stderr)


main()
