"""The verbs from Python: what they take, what they give back, and what they refuse."""

import re
from pathlib import Path

import pytest

import ilp_planner as ilp
from ilp_planner.costs.profiles.analytic import analytic_profile
from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.faces.api.words import as_text
from ilp_planner.faces.cli.main import run
from ilp_planner.faces.report.tables import Table
from tests.examples import for_each
from tests.small import CLUSTER, MODEL
from tests.spaces.objectives.cases import group_problem

LIMITS = ilp.Limits(seconds=60)
SPACES = ("operators", "groups", "megatron")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    model, cluster = tmp_path / "tiny.toml", tmp_path / "pair.toml"
    model.write_text(MODEL)
    cluster.write_text(CLUSTER)
    return model, cluster


@pytest.fixture(params=SPACES)
def result(request: pytest.FixtureRequest, files: tuple[Path, Path]) -> ilp.Result:
    problem = ilp.problem(*files, global_batch=8, space=request.param)
    return ilp.solve(problem, limits=LIMITS)


def test_a_result_says_what_it_is(result: ilp.Result) -> None:
    assert isinstance(result, ilp.Result)
    assert result.status is ilp.Status.OPTIMAL
    assert repr(result).startswith("<Result optimal ")
    assert "gap 0 %" in repr(result)
    assert "PROVED OPTIMAL" in str(result).splitlines()[1]
    assert "iteration time" in result.details
    assert result._repr_html_().startswith("<div")
    assert "Proved optimal" in result._repr_html_()
    assert "iteration time" in result._repr_html_()  # and all other lines, folded away
    assert result.page().startswith("<!DOCTYPE html>")
    for thing in (result, result.problem, result.problem.space, result.plan, result.evaluation):
        assert len(repr(thing)) < 120
        assert "\n" not in repr(thing)


def test_a_saved_result_is_judged_and_proved_again(result: ilp.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "plan.json")
    saved = ilp.load(tmp_path / "plan.json")
    assert saved.plan == result.plan
    assert saved.evaluation.iteration_time == pytest.approx(result.objective, rel=1e-6)
    for check in (saved.check(), ilp.check(tmp_path / "plan.json"), ilp.check(result)):
        assert check.holds, check.fault
        assert check.bound == pytest.approx(result.bound, rel=1e-6)
        assert "derived again" in str(check)


def test_a_false_claim_does_not_hold(result: ilp.Result, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    result.save(file)
    text = file.read_text()
    objective = f'"objective_s": {result.objective!r}'
    assert objective in text
    file.write_text(text.replace(objective, f'"objective_s": {result.objective / 2!r}'))
    check = ilp.check(file)
    assert not check
    assert "objective_s" in check.fault


def test_frames(result: ilp.Result) -> None:
    stages = result.evaluation.frame("stages")
    assert list(stages.columns) == ["stage", "seconds", "bytes"]
    assert len(stages) == len(result.plan.stages)
    assert result.evaluation.frame("violations").empty
    with pytest.raises(ilp.UsageError, match="expected one of stages"):
        result.evaluation.frame("stage")


def test_an_unknown_runtime_lists_those_known(result: ilp.Result, tmp_path: Path) -> None:
    with pytest.raises(ilp.UsageError, match="expected one of aceso, megatron, torchtitan"):
        result.export("megatrn", tmp_path / "run.sh")


def test_progress_is_called_with_objective_and_bound(files: tuple[Path, Path]) -> None:
    calls: list[tuple[float, float]] = []
    problem = ilp.problem(*files, global_batch=8)
    result = ilp.solve(problem, seconds=60, progress=lambda *pair: calls.append(pair))
    assert calls[-1][0] == pytest.approx(result.objective)
    assert all(bound <= objective * (1 + 1e-6) for objective, bound in calls)


@pytest.mark.parametrize("space", SPACES)
def test_objects_make_the_same_problem_as_their_files(
    files: tuple[Path, Path], space: str, tmp_path: Path
) -> None:
    model, cluster = ilp.read_model(files[0]), ilp.read_cluster(files[1])
    named = ilp.solve(ilp.problem(*files, global_batch=8, space=space), limits=LIMITS)
    given = ilp.solve(ilp.problem(model, cluster, global_batch=8, space=space), limits=LIMITS)
    assert given.plan == named.plan
    assert given.objective == named.objective
    assert given.check().holds
    given.save(tmp_path / "plan.json")
    saved = ilp.load(tmp_path / "plan.json")
    assert saved.check().holds
    assert saved.problem.notes == given.problem.notes == named.problem.notes
    assert (saved.problem.spec, saved.problem.cluster) == (model, cluster)


def test_profile_objects(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, cluster = ilp.read_model(files[0]), ilp.read_cluster(files[1])
    operators = analytic_profile(model, cluster)
    layers = analytic_layers(model, cluster, [1, 2, 4, 8])
    assert ilp.problem(*files, profile=operators, global_batch=8).space.name == "operators"
    planned = ilp.problem(*files, profile=layers, global_batch=8)
    assert planned.space.name == "groups"
    result = ilp.solve(planned, limits=LIMITS)
    with pytest.raises(ilp.UsageError, match="save: found an input that came as an object"):
        result.save(tmp_path / "plan.json")


def test_gpus_instead_of_a_cluster(files: tuple[Path, Path]) -> None:
    problem = ilp.problem(files[0], gpus="2 x nvidia t4", global_batch=8)
    assert problem.cluster.name == "2xT4"
    assert any("nodes of 2 T4 are assumed" in note for note in problem.notes)
    with pytest.raises(ilp.UsageError, match=r"gpus: found 2xT4 and `cluster=.*pair.toml\"`"):
        ilp.problem(*files, gpus="2xT4")
    with pytest.raises(ilp.UsageError, match="gpus: found 2, expected a text"):
        ilp.problem(files[0], gpus=2)  # type: ignore[arg-type]


@for_each(
    ("verb", "thing", "expected"),
    [
        (ilp.solve, "llama3-8b", "solve: found 'llama3-8b', expected a Problem"),
        (ilp.check, 3, "check: found 3, expected a Result or a Saved"),
        (ilp.analyze, "x", "analyze: found 'x', expected a TrainingJob or a Result or a Saved"),
        (ilp.problem, 3, "model: found 3, expected one of a name, a path, a ModelSpec"),
        (ilp.load, 3, "load: found 3, expected the path of a saved plan"),
        (lambda thing: ilp.evaluate(thing, None), 3, "evaluate: found 3, expected a Problem"),
    ],
)
def test_an_object_of_the_wrong_kind_is_refused(verb, thing, expected) -> None:
    with pytest.raises(ilp.UsageError, match=expected):
        verb(thing)


def test_objects_of_the_package_in_the_wrong_place_are_named(files: tuple[Path, Path]) -> None:
    problem = ilp.problem(*files, global_batch=8)
    plan = ilp.solve(problem, limits=LIMITS).plan
    cluster = ilp.read_cluster(files[1])
    for verb, words in (
        (lambda: ilp.solve(plan), "solve: found a Plan, expected a Problem"),
        (lambda: ilp.solve(problem, limits=3), "solve: limits: found 3, expected a Limits"),
        (lambda: ilp.evaluate(plan, problem), "evaluate: found a Plan, expected a Problem"),
        (lambda: ilp.evaluate(problem, problem), "evaluate: found a Problem, expected a Plan"),
        (lambda: ilp.check(plan), "check: found a Plan, expected a Result or a Saved"),
        (lambda: ilp.analyze(problem), "analyze: found a Problem, expected a TrainingJob or"),
        (lambda: ilp.load(plan), "load: found a Plan, expected the path of a saved plan"),
        (lambda: ilp.problem(cluster), "model: found a ClusterSpec, expected .* a ModelSpec"),
        (lambda: ilp.problem(profile=plan), "profile: found a Plan, expected .* a LayerProfile"),
    ):
        with pytest.raises(ilp.UsageError, match=f"^{words}"):
            verb()


@pytest.mark.parametrize(("space", "other"), [("groups", "operators"), ("operators", "groups")])
def test_a_plan_of_other_units_is_judged_illegal(
    files: tuple[Path, Path], space: str, other: str
) -> None:
    problem = ilp.problem(*files, global_batch=8, space=space)
    plan = ilp.solve(ilp.problem(*files, global_batch=8, space=other), limits=LIMITS).plan
    evaluation = ilp.evaluate(problem, plan)
    assert not evaluation.legal
    assert str(evaluation.violations[0]).startswith(f"plan: {problem.space.unit}s covered once")


def test_messages_speak_of_keywords() -> None:
    with pytest.raises(ilp.UsageError) as caught:
        ilp.problem("gpt3-1.3b", profile="nothing")
    assert str(caught.value).startswith("profile: found 'nothing'")
    with pytest.raises(ilp.UsageError, match=r'^`max_cp=2`: expected `space="megatron"`, found gr'):
        ilp.problem("gpt3-1.3b", space="groups", max_cp=2)
    with pytest.raises(ilp.UsageError, match=r'^hidden_size: found operators.* `space="groups"`'):
        ilp.problem("gpt3-1.3b", space="operators", hidden_size=64)
    with pytest.raises(ilp.UsageError, match=r"^`hostfile`: expected a `clusterfile` beside it"):
        ilp.problem("gpt3-1.3b", hostfile="hosts", space="groups")


@for_each(
    ("keywords", "expected"),
    [
        ({"space": "megatrn"}, "space: found 'megatrn', expected one of operators"),
        ({"global_batch": 0}, "global_batch: found 0, expected a whole number"),
        ({"micro_batch_sizes": [0]}, "micro_batch_sizes: found 0, expected a whole number"),
        ({"micro_batch_sizes": 4}, "micro_batch_sizes: found 4, expected a list"),
        ({"memory_limit": "28"}, "memory_limit"),
        ({"memory_limit": [28]}, "memory_limit: found a list, expected bytes, or a size"),
    ],
)
def test_nonsense_is_refused(keywords, expected) -> None:
    with pytest.raises(ilp.UsageError, match=expected):
        ilp.problem("gpt3-1.3b", **keywords)


@pytest.mark.slow
def test_a_number_may_be_a_text(files: tuple[Path, Path]) -> None:
    """Of all verbs, as of problems."""
    result = ilp.solve(ilp.problem(*files, global_batch="8"), limits=LIMITS, top="2")
    assert "global batch 16" in str(ilp.replan(result, global_batch="16", seconds=20))
    assert len(ilp.sweep(*files, vary={"global_batch": [8]}, workers="1", seconds=20)) == 1


@for_each("limits", [{"gap": -0.1}, {"gap": 1.0}, {"workers": 0}, {"seconds": float("nan")}])
def test_limits_refuse_nonsense(limits) -> None:
    with pytest.raises(ilp.UsageError, match=next(iter(limits))):
        ilp.Limits(**limits)


def test_a_name_that_is_nearly_one_suggests_it() -> None:
    with pytest.raises(ilp.SpecError, match="did you mean 'llama3-8b'"):
        ilp.problem("lama3-8b")


@pytest.mark.parametrize("space", SPACES)
def test_a_plan_names_files_beside_it(
    files: tuple[Path, Path], space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = ilp.problem(files[0].name, files[1].name, global_batch=8, space=space)
    ilp.solve(problem, limits=LIMITS).save("plan.json")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ilp.check(tmp_path / "plan.json").holds


def test_a_job_on_devices_that_differ_has_the_memory_of_each_stage_s_own() -> None:
    problem = ilp.problem("gpt3-350m", "mixed-a100-t4", global_batch=128, max_stages=4)
    result = ilp.solve(problem, limits=ilp.Limits(seconds=60, gap=0.2))
    analysis = ilp.analyze(result)
    assert analysis.fits
    memory, types = analysis.frame("memory"), problem.cluster.type_of
    for limit, stage in zip(memory["limit_bytes"], result.plan.stages, strict=False):
        own = {problem.cluster.device_types[types[d]].memory for d in stage.devices}
        assert limit == min(own)
    order = [stage.devices[0] // 4 for stage in result.plan.stages[: result.plan.ranks]]
    said = [note for note in analysis.notes if "nodes " + ", ".join(map(str, order)) in note]
    assert len(said) == (order != sorted(order))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [pytest.param(128, marks=pytest.mark.slow), 96])
def test_a_plan_on_devices_that_differ_is_analysed_by_stage(batch: int) -> None:
    options = {"global_batch": batch, "max_stages": 3, "space": "groups"}
    problem = ilp.problem("gpt3-350m", "mixed-a100-t4", **options)
    result = ilp.solve(problem, limits=ilp.Limits(seconds=60, gap=0.2))
    memory = ilp.analyze(result).frame("memory")
    assert len(memory) == len(result.plan.stages)
    assert (memory["needed_bytes"] > 0).all()
    said = ilp.analyze(result, limit=1e9).frame("memory")
    assert set(said["limit_bytes"]) == {1e9}


def test_a_problem_without_a_plan_says_why(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = ilp.solve(ilp.problem(*files, global_batch=8, memory_limit="1 MB"), seconds=60)
    assert repr(result) == "<Result infeasible, no plan>"
    assert str(result).startswith("PROVED INFEASIBLE  ")
    for verb in (lambda: result.save(tmp_path / "x.json"), result.check, result.analyze):
        with pytest.raises(ilp.PlanError, match="no plan: in every plan some device"):
            verb()


@pytest.mark.parametrize("space", SPACES)
def test_the_text_is_that_of_the_command_line(
    files: tuple[Path, Path],
    space: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for what to type next, and in a terminal of fewer columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    result = ilp.solve(ilp.problem(*files, global_batch=8, space=space), limits=LIMITS)
    chosen = [] if space == "megatron" else ["--space", space]
    command = ["solve", "--model", str(files[0]), "--cluster", str(files[1])]

    def settled(text: str) -> list[str]:
        text = re.sub(r"\nnext .*(\n  .*)*", "", text)
        return [line for line in text.splitlines() if line and "stopped by" not in line]

    for option, text in (([], str(result)), (["--verbose"], result.details)):
        assert run([*command, "--global-batch-size", "8", *chosen, *option]) == 0
        assert settled(text) == settled(capsys.readouterr().out)


def test_constraints(files: tuple[Path, Path], tmp_path: Path) -> None:
    said = {"tp": [1, 2], "pp": range(1, 3), "recompute": "none", "headroom": 2**30}
    problem = ilp.problem(*files, global_batch=8, space="megatron", **said)
    assert problem.constraints.texts == {
        "tp": "1,2", "pp": "1..2", "recompute": "none", "headroom": "1 GiB",
    }  # fmt: skip
    result = ilp.solve(problem, limits=LIMITS)
    result.save(tmp_path / "plan.json")
    assert ilp.load(tmp_path / "plan.json").problem.constraints == problem.constraints
    file = tmp_path / "mine.toml"
    file.write_text("[constraints]\ntp = 1\npp = 1")
    for given in (file, {"tp": 1, "pp": 1}):
        both = ilp.problem(*files, global_batch=8, space="megatron", constraints=given, pp=2)
        assert both.constraints.texts == {"tp": "1", "pp": "2"}
    said = {"layout": "even", "keep": f"{tmp_path / 'plan.json'}:stage0"}
    for keywords in (said, {"constraints": said}):
        kept = ilp.problem(*files, global_batch=8, space="megatron", **keywords).constraints
        assert kept.texts == said
        assert kept.keep[0].ranges
    for keywords, words in (
        ({"constraints": {"tpp": 1}}, "constraints: found 'tpp', expected some of tp, pp"),
        ({"constraints": 3}, "constraints: found 3, expected a path or a mapping"),
        ({"tp": 1.5}, "tp: found 1.5, expected a whole number"),
        ({"tp": 64}, "`tp=64`: no plan of"),
        ({"tp": "8..16", "space": "groups"}, '`tp="8..16"`: expected `space="megatron"`, found g'),
    ):
        with pytest.raises(ilp.PlannerError, match=f"^{words}"):
            ilp.problem(*files, **{"global_batch": 8, "space": "megatron", **keywords})


def test_what_tokens_cost_is_minimised_over_sets_of_nodes() -> None:
    """The result is of the nodes in use, and its proof is derived again for all sets."""
    problem = group_problem(1)
    fastest, cheapest = (ilp.solve(problem, objective=name) for name in ("time", "price"))
    assert fastest.aim is None
    assert cheapest.aim is not None
    assert cheapest.problem.cluster.node_count == len(cheapest.aim.best[0].on.nodes)
    check = cheapest.check()
    assert check.holds
    assert check.judgement.aim is not None
    assert check.judgement.aim.bound == pytest.approx(cheapest.aim.best[0].value)
    assert "PROVED CHEAPEST" in str(cheapest)
    assert "the least price" in cheapest.details
    within = ilp.solve(problem, max_price_per_hour=cheapest.aim.best[0].on.hourly)
    assert within.aim is not None
    assert within.objective <= cheapest.objective
    for said in ({"top": 2}, {"start": cheapest}):
        with pytest.raises(ilp.UsageError, match="found it where any nodes may be used"):
            ilp.solve(problem, objective="price", **said)
    with pytest.raises(ilp.UsageError, match=r"^objective: found 'fame'"):
        ilp.solve(problem, objective="fame")


def test_a_notebook_prints_tables_and_lines_in_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    table = Table("stage")
    table.add("7")
    assert as_text([("gap", "0 %")], [table]).split() == ["stage", "7", "gap", "0", "%"]


RUN = {"tokens": "20B", "days": 2, "gpus": "A100-80GB", "max_gpus": 16, "global_batch": 64}


@pytest.mark.slow
def test_size(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as the command; a price is that of a GPU and hour."""
    import json

    found = ilp.size("llama3.2-1b", price=2, **RUN)
    assert repr(found) == "<Size llama3.2-1b, in time on A100-80GB>"
    assert "PROVED SMALLEST" in str(found)
    assert "next" not in str(found)
    words = "size llama3.2-1b --tokens 20B --days 2 --gpus A100-80GB --max-gpus 16"
    run([*words.split(), "--global-batch-size", "64", "--price", "2", "--json"])
    assert json.loads(capsys.readouterr().out) == found.summary


@for_each(
    ("said", "message"),
    [
        ({"days": 0}, "days: found 0, expected a number, 1.2e-17 or more"),
        ({"spares": 2}, "spares: found 2 without repair"),
        ({"mtbf": -1}, "mtbf: found -1, expected GPU-hours above 0"),
        ({"restart": "soon"}, "restart: found 'soon', expected a time with its unit"),
        ({"max_devices": 8}, "size: found 'max_devices', which sizing says"),
        ({"gpus": "H1000"}, "H1000"),
        ({"tokens": "many"}, "tokens"),
    ],
)
def test_size_refuses_what_is_none(said: dict[str, object], message: str) -> None:
    with pytest.raises(ilp.PlannerError, match=re.escape(message)):
        ilp.size("llama3.2-1b", **(RUN | said))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="size\\(\\) got an unexpected keyword argument 'devises'"):
        ilp.size("llama3.2-1b", devises=8, **RUN)  # type: ignore[arg-type]
