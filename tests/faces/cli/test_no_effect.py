"""What the user wrote is never dropped in silence: where it counts for nothing, that is said."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.faces.cli.wording import option_of
from ilp_planner.settings.table import SETTINGS
from tests import amp_cases
from tests.faces.cli.conftest import Done
from tests.mixed_cases import SIZE_OPTIONS, write_room
from tests.small import MODEL

Command = Callable[..., Done]

JOB = ["--model", "gpt3-1.3b"]
ROOM = ["--hostfile", "hostfile", "--clusterfile", "clusterfile.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "--runtime", "megatron", *JOB, "--clusterfile", "any.json"],
         "--clusterfile: found any.json with --runtime megatron"),
        (["solve", *JOB, "--reproducible"], "--reproducible: found no --output, expected the file"),
        (["solve", *JOB, "--check"], "--check: found no --output, expected an --output"),
        (["analyze", *JOB, "--accept-changed"], "--accept-changed: expected a PLAN, whose inputs"),
        (["analyze", *JOB, "--etp", "2"], "--etp: found gpt3-1.3b, which has no experts"),
        (["analyze", *JOB, "--dispatcher", "flex"], "--dispatcher: found gpt3-1.3b, which has no"),
        (["analyze", *JOB, "--grouped-experts"], "--grouped-experts: found gpt3-1.3b, which has"),
        (["fit", *JOB, "--gpus", "8xH100", "--encoder-recompute", "full"],
         "--encoder-recompute: found gpt3-1.3b, which has no encoders"),
        (["analyze", *JOB, "--cp-comm", "a2a"], "--cp-comm: found --cp 1, expected more for a2a"),
        (["analyze", "--model", "llama3-8b", "--compat", "analysis-tool", "--stage", "0"],
         "--stage: found --compat too, whose report has no stages"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)  # fmt: skip
def test_what_goes_with_something_else_is_refused(
    ilp_plan: Command, arguments: list[str], words: str
) -> None:
    done = ilp_plan(*arguments)
    assert done.code == 2
    assert done.err.startswith(f"ilp-plan: {words}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--time-limit=5", "--workers=1", "--seed=1"])
def test_limits_of_solvers_need_some(ilp_plan: Command, saved: Path, option: str) -> None:
    done = ilp_plan("compare", saved, option)
    assert done.code == 2
    name = option.partition("=")[0]
    assert done.err == f"ilp-plan: {name}: found no --solvers, expected some that it is for\n"
    assert ilp_plan("compare", saved, option, "--solvers", "dp,cp-sat").code == 0


DP = ["--global-batch-size", "16", "--solver", "dp"]
AMP = ["solve", "--profile", "amp:amp.json", "--cost-model", "amp"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", *DP, "--seed", "0"], "--seed: found 0 with dp, which draws nothing"),
        ([*AMP, "--solver", "dp", "--workers", "2"],
         "--workers: found 2 with dp, which plans of space amp in one thread"),
        ([*AMP, "--memory-rule", "device"], "--memory-rule device: found it with --cost-model amp"),
        (["solve", *DP, "--space", "groups", "--placement", "default"],
         "--placement default: found it with --space groups, expected none: a choice of"),
        (["solve", *DP, "--runtime", "megatron", "--placement", "default"],
         "--placement default: found it with --runtime megatron, expected none: a choice of"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)  # fmt: skip
def test_choices_that_change_nothing_are_refused(
    ilp_plan: Command, tiny: list[str], folder: Path, arguments: list[str], words: str
) -> None:
    amp_cases.write(folder, amp_cases.content())
    problem = [] if "amp:amp.json" in arguments else tiny[:4]
    done = ilp_plan(*arguments, *problem)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(f"ilp-plan: {words}")


def test_solvers_that_draw_nothing_are_compared_without_a_seed(
    ilp_plan: Command, saved: Path
) -> None:
    done = ilp_plan("compare", saved, "--seed", "1", "--solvers", "dp")
    assert done.code == 2
    assert done.err.startswith("ilp-plan: --seed: found 1 with dp, which draws nothing")


@pytest.mark.usefixtures("fake")
def test_operators_are_prepared_in_threads(ilp_plan: Command, operators: list[str]) -> None:
    assert ilp_plan("solve", *operators, "--solver", "dp", "--workers", "1").code == 0


@pytest.mark.parametrize(
    "option", ["--cluster=pair.toml", "--memory-limit=1GiB", "--stage=0", "--all-groups"]
)
def test_a_plan_of_operators_has_its_own_figures(
    ilp_plan: Command, saved: Path, option: str
) -> None:
    assert "no training job says this plan" in ilp_plan("analyze", saved).out
    done = ilp_plan("analyze", saved, option)
    assert done.code == 2
    name = option.partition("=")[0]
    assert done.err.startswith(f"ilp-plan: {name}: found a plan that no training job says")


def test_a_vocabulary_is_metis_s(ilp_plan: Command, folder: Path) -> None:
    write_room(folder)
    options = [*ROOM, "--profile", "metis:profile", *SIZE_OPTIONS, "--global-batch-size", "16"]
    note = "vocabulary 4000: without effect, only Metis's costs need one"
    assert note in ilp_plan("solve", *options).out
    assert note not in ilp_plan("solve", *options, "--cost-model", "metis").out


@pytest.mark.parametrize("space", ["operators", "groups", "megatron"])
def test_micro_batches_of_a_model_are_tried_of_estimated_operators(
    ilp_plan: Command, folder: Path, space: str
) -> None:
    (folder / "tiny.toml").write_text(f"micro_batches = [2, 4]\n{MODEL}")
    problem = ["--model", "tiny.toml", "--cluster", "pair.toml", "--global-batch-size", "16"]
    done = ilp_plan("solve", *problem, "--space", space)
    assert done.code == 0
    note = "micro_batches of tiny: without effect, they are tried of estimated operators"
    assert (note in done.out) == (space != "operators")


def test_a_key_of_a_model_that_no_profile_is_read_by_is_noted(
    ilp_plan: Command, folder: Path
) -> None:
    write_room(folder)
    (folder / "known.toml").write_text(
        MODEL.replace("aceso =", "metis =").replace("layers = 2", "layers = 4")
    )
    options = ["--hidden-size", "256", "--sequence-length", "128", "--vocab-size", "1024"]
    options += [*ROOM, "--profile", "metis:profile", "--global-batch-size", "16"]
    note = "profile.metis of tiny: without effect, only Aceso's files need a key"
    done = ilp_plan("solve", "--model", "known.toml", *options)
    assert (done.code, done.err) == (0, "")
    assert note in done.out


def test_threads_that_a_space_has_not_are_noted(
    ilp_plan: Command, tiny: list[str], folder: Path
) -> None:
    amp_cases.write(folder, amp_cases.content())
    note = "workers 2: without effect, space amp has one thread"
    assert note in ilp_plan(*AMP, "--workers", "2").out
    options = ["solve", *tiny[:4], "--global-batch-size", "16", "--workers", "2", "--space"]
    for space in ("megatron", "groups", "operators"):
        assert "without effect" not in ilp_plan(*options, space).out


def test_a_job_of_options_has_what_it_brings(ilp_plan: Command) -> None:
    """A value without effect is said as well, though it is the usual one."""
    for row in (row for row in SETTINGS if row.beside):
        assert row.beside
        other, brought = row.beside
        if not row.of_jobs or row.name == "muon_packing":
            continue
        for value in row.domain.values[:2]:
            words = ["qwen3-0.6b", "--gpus", "1xH100", option_of(row.name)]
            done = ilp_plan("fit", *words, value.replace("+", ","), "--verdict")
            if "found muon without" in done.err:
                continue
            assert done.code in (0, 6), done.err
            name = row.name.replace("_", " ")
            usual = value == row.search_of("").values[0]
            said = "without effect but beside" if usual else f"{other} {brought} is assumed"
            assert (f"{name} {value.replace('+', ',')}: {said}" in done.out) or (
                usual and row.choice is not None and not row.choice.rest
            ), done.out


def test_a_remedy_leaves_out_what_decides_nothing(ilp_plan: Command) -> None:
    """And the command without it runs."""
    job = ["solve", "qwen3-0.6b", "--gpus", "1xH100", "--global-batch-size", "8"]
    job += ["--time-limit", "5"]
    for more in (["--lora", "16"], ["--precision", "fp16"]):
        done = ilp_plan(*job, *more, "--muon-steps", "10")
        assert done.code == 3, done.out
        assert done.err.endswith("; without --muon-steps there are some\n")
        assert ilp_plan(*job, *more).code == 0
    for runtime in ("torchtitan", "deepspeed"):
        done = ilp_plan(*job, "--runtime", runtime, "--muon-steps", "10")
        assert ", expected none or --runtime megatron" in done.err
