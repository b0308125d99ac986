"""`ilp-plan supports` says of a model what the planner then does with it."""

import pytest

import ilp_planner as ilp
from ilp_planner.analysis.supports import support_of
from ilp_planner.base.library import library_files
from ilp_planner.faces.report.expected import known_of
from ilp_planner.faces.report.supports import supports_lines
from ilp_planner.formats.exports import EXPORTS
from ilp_planner.inputs.files import find_model
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.training import BITS, PRECISIONS, QUANTISED
from tests.examples import for_each, thinned

MODELS = (
    "llama3-8b", "gemma2-9b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3.5-0.8b-text",
    "nemotron3-nano-30b-a3b", "phi2", "falcon-7b", "gpt3-1.3b",
)  # fmt: skip
GPUS = ("A100-80GB", "H100-80GB", "B200")


@for_each("model", MODELS)
def test_a_system_plans_a_model_if_its_problem_is_built(model: str) -> None:
    found = {row.runtime: row for row in support_of(find_model(model)).planned}
    assert tuple(found) == RUNTIMES
    for name, row in found.items():
        said = ""
        try:
            ilp.problem(model, gpus="8xH100-80GB", global_batch=8, space=name)
        except ilp.PlannerError as error:
            said = str(error)
        assert bool(said) == bool(row.refused)
        assert row.refused.partition(":")[0] in said


def test_exports_write_the_plan_that_is_found(tmp_path) -> None:
    said = {one.to: one for one in ilp.supports("llama3.2-1b").found.exports}
    assert len(said) == sum(len(releases) for releases in EXPORTS.values())
    problem = ilp.problem(
        "llama3.2-1b", gpus="1xH100-80GB", global_batch=1, space="megatron", micro_batch_sizes=[1]
    )
    plan = ilp.solve(problem, seconds=20)
    for to in ("megatron", "nemo@0.3.1"):
        assert said[to][1:] == ("", False)
        plan.export(to, str(tmp_path / f"run-{to[:4]}"))
    assert said["peft@0.21"].part


def test_errors_are_those_that_a_plan_shows() -> None:
    shown = support_of(find_model("llama3.2-1b"), ["MI300X", "h100"], devices=8)
    assert [row.gpu for row in shown.priced if row.bits == 16] == ["MI300X", "H100-80GB"]
    problem = ilp.problem("llama3.2-1b", gpus="8xH100-80GB", global_batch=8, space="megatron")
    plan = ilp.solve(problem, seconds=20)
    known = known_of(plan.problem, plan.plan).error
    own = next(row.error for row in shown.priced if (row.gpu, row.bits) == ("H100-80GB", 16))
    assert (known.low, known.high) == (own.low, own.high)
    many = support_of(find_model("llama3.2-1b"), ["H100"], devices=1024)
    assert many.priced[0].error.high > own.high


def test_precisions_are_those_of_the_gpu() -> None:
    rows = support_of(find_model("llama3-8b"), ["A100-80GB", "H100", "B200"]).priced
    found = {name: [row.bits for row in rows if row.gpu.startswith(name)] for name in "AHB"}
    assert found == {"A": [16], "H": [16, 8], "B": [16, 8, 4]}


@pytest.mark.slow
@for_each("model", thinned((path.stem for path in library_files("models")), 4))
def test_a_listed_precision_of_a_gpu_is_one_that_a_problem_has(model: str) -> None:
    """Models of the library, on a GPU of each generation, in all precisions."""
    spec = find_model(model)
    found = support_of(spec, GPUS)
    listed = {(row.gpu, row.bits) for row in found.priced}
    if not found.layers:
        assert not listed
        return
    assert {name for name, _ in found.unable} == {*GPUS} - {name for name, _ in listed}
    built = {
        (name, BITS.get(QUANTISED.get(precision, ""), 8 * PRECISIONS[spec.precision]))
        for name in GPUS
        for precision in ("", *QUANTISED)
        if any(_is_built(model, name, space, precision) for space in RUNTIMES)
    }
    assert listed == built


def _is_built(model: str, name: str, space: str, precision: str) -> bool:
    try:
        ilp.problem(
            model, gpus=f"8x{name}", global_batch=8, space=space, precision=precision or None
        )
    except ilp.PlannerError:
        return False
    return True


@pytest.mark.slow
@for_each("model", (*MODELS, "deepseek-v3.2", "glm5", "glm5.2"))
def test_the_next_command_has_room_for_the_states(model: str) -> None:
    spec = find_model(model)
    text = dict(supports_lines(support_of(spec)))["next"]
    words = text.partition(";")[0].split()
    said = dict(zip(words[3::2], words[4::2], strict=True))
    count, name = said["--gpus"].split("x", 1)
    assert 18 * parameter_count(spec) <= int(count) * gpu(name).memory
    ilp.problem(model, gpus=said["--gpus"], space=said.get("--runtime"))


def test_from_python() -> None:
    found = ilp.supports("llama3-8b", gpus="H100,B200")
    assert repr(found).startswith("<Supports llama3-8b, planned for megatron")
    assert found.summary["errors"][0]["gpu"] == "H100-80GB"
    assert "next" not in str(found)
    with pytest.raises(ilp.UsageError, match="devices"):
        ilp.supports("llama3-8b", devices=0)
