"""`--micro-batch-size` counts samples of a replica wherever a training runtime is planned for."""

import json
from pathlib import Path

import pytest

import ilp_planner as ilp
from ilp_planner.faces.sweeps.fields import find_field
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import problem_of
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.spaces.registry import build_problem, with_micro_batch
from ilp_planner.spaces.training.search.possible import possible_parts
from tests.small import CLUSTER, MODEL

FILES = {"model": Reference(name="gpt3-1.3b"), "cluster": Reference(name="16xA100-80GB")}


@pytest.mark.parametrize("space", ["megatron", "deepspeed"])
@pytest.mark.parametrize("sizes", [(1,), (2, 4), (8,)])
def test_a_runtime_has_all_degrees_with_these_samples_of_a_replica(
    space: str, sizes: tuple[int, ...]
) -> None:
    model = "llama3.2-1b"
    files = {"model": Reference(name=model), "cluster": Reference(name="4xA100-80GB")}

    def degrees(**said: object) -> set[object]:
        request = Request(files=files, space=space, global_batch=64, **said)  # type: ignore[arg-type]
        problem = build_problem(InputFiles(request))
        return {part.degrees._replace(choice=0) for part in possible_parts(problem, problem.costs)}

    asked = degrees(micro_batch=sizes)
    assert asked == {one for one in degrees() if one.micro_batch in sizes}  # type: ignore[attr-defined]
    assert len({one.dp for one in asked}) > 1  # type: ignore[attr-defined]
    assert asked == degrees(constraints=constraints_of({"micro_batch_size": list(sizes)}))


def test_python_and_sweeps_say_the_same() -> None:
    problem = ilp.problem(
        "llama3.2-1b", "4xA100-80GB", space="megatron", global_batch=64, micro_batch_sizes=[2, 4]
    )
    assert problem.request is not None
    assert problem.request.constraints.texts == {"micro_batch_size": "2,4"}
    assert problem.request.micro_batch_sizes == problem.request.micro_batch == ()
    for name in ("micro_batch_size", "micro_batch_sizes", "micro-batch-size"):
        field = find_field(name, (), Request(files={}))
        assert field.put(Request(files={}), "2,4").micro_batch == (2, 4)


def test_other_spaces_count_the_samples_of_all_replicas() -> None:
    asked = Request(files={}, micro_batch=(8, 16))
    assert with_micro_batch(asked, runtime=False) == Request(files={}, micro_batch_sizes=(8, 16))
    problem = ilp.problem(
        "gpt3-350m", "4xV100-32GB", space="operators", global_batch=64, micro_batch_sizes=[16]
    )
    assert problem.micro_batch_sizes == (16,)


def test_a_saved_file_of_before_keeps_its_meaning(tmp_path: Path) -> None:
    """It says `micro_batch_sizes` of all replicas, which no file of a runtime says any more."""
    (tmp_path / "tiny.toml").write_text(MODEL)
    (tmp_path / "pair.toml").write_text(CLUSTER)
    result = ilp.solve(
        ilp.problem(
            str(tmp_path / "tiny.toml"), "4xA100-80GB", space="megatron", global_batch=16,
            micro_batch_sizes=[2],
        )
    )  # fmt: skip
    file = tmp_path / "plan.json"
    result.save(file)
    saved = json.loads(file.read_text())
    assert saved["inputs"]["constraints"] == {"micro_batch_size": "2"}
    assert "micro_batch_sizes" not in saved["inputs"]
    plan = result.plan
    assert plan is not None
    assert plan.micro_batch_size == 2 * plan.stages[0].dp
    del saved["inputs"]["constraints"]
    saved["inputs"]["micro_batch_sizes"] = [plan.micro_batch_size]
    file.write_text(json.dumps(saved))
    before = problem_of(read_saved(file), file, accept_changed=True)
    assert before.micro_batches == (16 // plan.micro_batch_size,)
    assert before.constraints.micro_batch_size is None
