"""All schemas, from outputs and from where files declare their keys."""

from collections.abc import Iterable, Mapping
from typing import Any

from ilp_planner.faces.schemas import VERSION
from ilp_planner.formats.captured.job_file import VERSION as JOB_VERSION
from ilp_planner.formats.saved_json import VERSION as PLAN_VERSION
from tests.schemas import declared
from tests.schemas.inferred import Writer, objects_of
from tests.schemas.titles import FILES, OUTPUTS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DECLARED = {
    "model": declared.model_file,
    "cluster": declared.cluster_file,
    "constraints": declared.constraints_file,
    "table": declared.table_row,
    "runs": declared.runs_row,
    "job": declared.job_file,
    "sweep-table": declared.sweep_row,
}


def schemas(examples: Mapping[str, Iterable[Any]]) -> dict[str, dict[str, Any]]:
    """Return every schema by its name. examples: outputs and files, by the name of their schema."""
    found = {}
    objects = objects_of(value for values in examples.values() for value in values)
    for name, title in (OUTPUTS | FILES).items():
        make = DECLARED.get(name)
        body = Writer(name, examples[name], objects).body() if make is None else make()
        if name in OUTPUTS:
            body["properties"]["schema"]["const"] = f"ilp-planner/{name}"
            body["properties"]["version"]["const"] = VERSION
        if name == "plan":
            body["properties"]["schema"]["const"] = "ilp-planner plan"
            body["properties"]["version"]["const"] = PLAN_VERSION
        version = {"plan": PLAN_VERSION, "job": JOB_VERSION}.get(name, VERSION)
        head = {"$schema": DRAFT, "$id": f"urn:ilp-planner:{name}:{version}", "title": title}
        found[name] = head | body
    return found
