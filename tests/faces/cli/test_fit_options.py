"""What `fit` and `analyze` choose where nothing is said is something that the runtime runs."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from ilp_planner.analysis.fit import fit as analysis_fit
from ilp_planner.analysis.fit.fit import Fit, draft_of
from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.analysis.fit.settings import settings_of
from ilp_planner.base.library import library_files
from ilp_planner.faces.cli.analyze_sources import OF_JOBS
from ilp_planner.faces.cli.fit import fit
from ilp_planner.inputs.files import find_cluster
from ilp_planner.settings.rules import check_combined, check_encoders
from ilp_planner.settings.table import BY_NAME
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import balanced_layout, read_layout, write_layout
from ilp_planner.specs.recipes import recipes_of
from ilp_planner.specs.training import PARTS
from tests.examples import often
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]

MODELS = ("llama3-8b", "gpt3-1.3b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")
GPUS = "8xH100"
NUMBER = "2"
DONE = (0, 6)
# What an option is about, where it has to be said as well.
BESIDE = {
    "--muon-steps": ["--precision", "bf16"],
    "--muon-tp-mode": ["--precision", "bf16"],
    "--muon-packing": ["--precision", "bf16"],
    "--cp-comm": ["--cp", NUMBER],
    "--micro-batch-group-size": ["--pp", NUMBER, "--virtual-stages", NUMBER],
    "--fp8-attention": ["--precision", "fp8-delayed"],
    "--schedule": ["--pp", NUMBER, "--virtual-stages", NUMBER],
    "--optimizer-offload": ["--sharding", "optimizer"],
    "--sharding-copies": ["--sharding", "optimizer"],
    "--expert-overlap": ["--pp", NUMBER, "--virtual-stages", NUMBER, "--ep", NUMBER],
    "--defer-embedding-wgrad": ["--pp", NUMBER],
    "--tensor-overlap": ["--tp", NUMBER],
    "--virtual-stages": ["--pp", NUMBER],
    "--imbalance": ["--ep", NUMBER],
    "--recompute-layers": ["--recompute-method", "block"],
    "--dp": ["--gpus", "2xH100"],
    "--global-batch-size": ["--dp", NUMBER],
    "--batching": ["--lengths", "lengths.csv"],
    "--lora": ["--lora-targets", "o_proj"],
    "--qlora": ["--lora-targets", "o_proj"],
    "--lora-dropout": ["--lora", NUMBER, "--lora-targets", "o_proj"],
}
MORE = ("precision", "lengths", "batching")  # which launch lines may have beside them
TEXTS = ("layout", "lora_targets", "freeze", "lengths")  # what no number says
OF_EXPERTS = (
    "--ep",
    "--etp",
    "--dispatcher",
    "--grouped-experts",
    "--no-grouped-experts",
    "--imbalance",
    "--expert-overlap",
)


def values() -> list[tuple[str, list[str]]]:
    """Return every option of a job with every value that it may have, or with a number."""
    found: list[tuple[str, list[str]]] = []
    for name, parameter in inspect.signature(fit, eval_str=True).parameters.items():
        if name not in (*OF_JOBS, *MORE):
            continue
        kind, info = get_args(parameter.annotation)[:2]
        option = next(text for text in (info.default, *(info.param_decls or ())) if text)
        switch, slash, negative = option.partition("/")
        if slash:
            found += [(switch, []), (negative, [])]
            continue
        literals = [k for k in (kind, *get_args(kind)) if get_origin(k) is Literal]
        if literals:
            found += [(option, [str(value)]) for value in get_args(literals[0])]
        elif name == "recompute_modules":
            found += [(option, [part]) for part in PARTS]
        elif name == "lora_dropout":
            found.append((option, ["0.1"]))
        elif str in get_args(kind) and name in BY_NAME and BY_NAME[name].domain.values:
            examples = BY_NAME[name].domain.values
            found += [(option, [value]) for value in examples if name not in TEXTS]
        elif name not in TEXTS:
            found.append((option, [] if kind is bool else [NUMBER]))
    return found


def test_options_are_found() -> None:
    options = {option for option, _ in values()}
    assert {"--tp", "--fused-loss", "--precision", "--recompute-modules"} <= options
    options -= {option for option in options if option.startswith("--no-")}
    assert len(options) == len(OF_JOBS) + len(MORE) - len(TEXTS)


def unfit(option: str, value: list[str], model: str) -> bool:
    """Tell whether the model or the GPUs do not have what an option says."""
    experts = model in ("mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")
    recipes = recipes_of(find_cluster(GPUS).device_types["H100-80GB"])
    assert recipes is not None
    return (
        (option in OF_EXPERTS and not experts)
        or option == "--cuda-graphs"  # each goes with experts alone, or without
        or (option == "--fp8-attention" and value != ["off"])  # of heads that few models have
        or (option == "--encoder-recompute" and value != ["none"])  # of models of text alone
        or (option == "--etp" and model == "gpt-oss-20b")  # whose experts have biases
        or (option == "--precision" and value[0] not in (*recipes, "bf16", "fp16", "fp32"))
        or (option == "--optimizer" and model == "gpt3-1.3b" and value == ["muon"])  # of fp16
        or (
            model == "gpt3-1.3b"
            and option in ("--moments", "--gradients")
            and value[0] in ("bf16", "fp8")
        )
        or (option == "--cp-comm" and model == "gpt-oss-20b" and value[0] != "a2a")
        or option
        in ("--recompute-modules", "--images-per-sample", "--image-size", "--audio-seconds")
    )


@pytest.mark.slow
@pytest.mark.parametrize("times", often([False, True], False))
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_refused_for_what_fit_chose(
    ilp_plan: Command, monkeypatch: pytest.MonkeyPatch, model: str, times: bool
) -> None:
    def only(judge: Judge, *_: Any) -> Fit:
        return Fit(as_is=judge.verdict(judge.job), changes=(), singles=0, pairs=0)

    monkeypatch.setattr(analysis_fit, "fit", only)
    Path("lengths.csv").write_text("length,count\n64,9\n512,1\n")
    for option, value in values():
        beside = BESIDE.get(option, [])
        gpus = [] if "--gpus" in beside else ["--gpus", GPUS]
        done = ilp_plan(
            "fit", model, *gpus, option, *value, *beside, *["--verdict"] * (not times)
        )  # fmt: skip
        if unfit(option, value, model):  # then what was said is at fault, and named
            named = " ".join(["found", *value]), model, "experts", "attention in 8 bits"
            assert done.code in DONE or any(n in done.err for n in named), (option, value)
        else:
            assert done.code in DONE, (option, value, done.err)


RECOMPUTED = (
    (),
    ("--recompute", "none"),
    ("--recompute", "selective"),
    ("--recompute-modules", "layernorm"),
    ("--recompute", "full"),
    ("--recompute-method", "uniform", "--recompute-layers", "1"),
    ("--recompute", "full", "--freeze", "encoder"),
    ("--recompute", "full", "--lora", "8", "--lora-targets", "linear_qkv"),
)


def seeing() -> list[str]:
    """Return the models with encoders."""
    decoders = {p.stem: as_decoder(read_model(p).architecture) for p in library_files("models")}
    return [name for name, model in decoders.items() if model and model.encoders]


@pytest.mark.few(4)
@pytest.mark.parametrize("model", seeing())
def test_encoders_are_recomputed_as_the_judge_has_them(
    ilp_plan: Command, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Of jobs of options, and of changes of these: encoders may have to be as the decoder."""
    judges: list[Judge] = []

    def only(judge: Judge, *_: Any) -> Fit:
        judges.append(judge)
        return Fit(as_is=judge.verdict(judge.job), changes=(), singles=0, pairs=0)

    monkeypatch.setattr(analysis_fit, "fit", only)
    for options in RECOMPUTED:
        done = ilp_plan("fit", model, "--gpus", GPUS, *options)
        assert done.code in DONE, (options, done.err)
    for judge in judges:
        runtime = judge.space.runtime
        again = next(one for one in settings_of(runtime) if one.name == "recomputation")
        draft, kinds = draft_of(judge.job), set()
        for value in again.values(draft):
            changed = again.write(draft, value)
            job = changed and changed.job()
            assert job
            if not [*check_combined(job), *check_encoders(job)]:
                kinds.add(value.granularity)
        assert kinds == {"none", "selective", "full"}


@pytest.mark.parametrize("command", ["fit", "analyze"])
@pytest.mark.parametrize("model", seeing())
def test_text_of_a_model_has_no_encoder_to_recompute(
    ilp_plan: Command, command: str, model: str
) -> None:
    verdict = ["--verdict"] * (command == "fit")
    job = (command, model, "--gpus", GPUS, *verdict, "--text-only", "--encoder-recompute")
    for value in ("core", "full"):
        done = ilp_plan(*job, value)
        assert done.code == 2
        assert "--encoder-recompute: found " in done.err
        assert "which has no encoders, expected none" in done.err
    assert ilp_plan(*job, "none").code in DONE


@pytest.mark.parametrize("command", ["fit", "analyze"])
@pytest.mark.parametrize("model", ["llama3-8b", "llama3.2-1b"])
@pytest.mark.parametrize("stages", [2, 4, 6, 8, 9])
def test_a_layout_is_dealt_to_as_many_ranks_as_are_said(
    ilp_plan: Command, command: str, model: str, stages: int
) -> None:
    layers = 32 if model == "llama3-8b" else 16
    text = write_layout(balanced_layout(layers, stages))
    gpus = ["--memory-limit", "80GiB"] if command == "analyze" else ["--gpus", f"{8 * stages}xH100"]
    words = [command, model, *gpus, "--layout", text, *["--verdict"] * (command == "fit")]
    possible = [ranks for ranks in divisors(stages) if ranks > 1]
    for asked, found in (([], "none"), (["--pp", "1"], "1")):
        done = ilp_plan(*words, *asked)
        assert done.code == 2
        assert done.err == (
            f"ilp-plan: --pp: found {found} beside a --layout of {stages} stages, expected the "
            f"number of ranks that they are dealt to, one of {', '.join(map(str, possible))}; "
            f"{stages} would do\n"
        )
    for ranks in possible:
        batch = ["--dp", "8", "--global-batch-size", 8 * ranks]
        assert ilp_plan(*words, "--pp", ranks, *batch).code in DONE
    one = write_layout(balanced_layout(layers, 1))
    assert ilp_plan(*words, "--layout", one).code in DONE


@pytest.mark.parametrize(("pp", "virtual"), [(2, 1), (8, 1), (8, 2), (16, 1)])
def test_layers_that_do_not_divide_are_spread_evenly(
    ilp_plan: Command, pp: int, virtual: int
) -> None:
    job = ["fit", "deepseek-v3", "--gpus", "128xH100", "--verdict", "--pp", pp]
    done = ilp_plan(*job, "--virtual-stages", virtual, "--ep", "8", "--global-batch-size", 256)
    assert done.code in DONE, done.err
    layout = re.search(r"^note +--layout is not given: (\S+) is assumed", done.out, re.M)
    assert layout
    assert read_layout(layout[1]) == balanced_layout(61, pp * virtual)
    said = ilp_plan(*job, "--layout", layout[1], "--ep", "8", "--global-batch-size", 256)
    assert said.out.splitlines()[:2] == done.out.splitlines()[:2]


def test_what_is_assumed_is_said_and_what_is_said_stays(ilp_plan: Command) -> None:
    job = ["fit", "gpt-oss-20b", "--gpus", "64xH100", "--verdict", "--tp", "2", "--cp", "2"]
    done = ilp_plan(*job)
    assert "note    --sequence-parallel --etp 1 --cp-comm a2a: assumed, as Megatron-LM" in done.out
    said = ilp_plan(*job, "--sequence-parallel", "--etp", "1", "--cp-comm", "a2a")
    assert "assumed, as Megatron-LM" not in said.out
    assert said.out.splitlines()[:2] == done.out.splitlines()[:2]
    wrong = ilp_plan(*job, "--cp-comm", "p2p")
    assert "--cp-comm-type: found p2p" in wrong.err


def test_attention_is_what_the_gpus_have(ilp_plan: Command) -> None:
    job = ["fit", "llama3-8b", "--precision", "fp16", "--verdict", "--gpus"]
    old, new = ilp_plan(*job, "8xV100-32GB"), ilp_plan(*job, "8xA100-80GB")
    assert "--attention is not given: unfused is assumed" in old.out
    assert "--attention" not in new.out


# Jobs with more than Megatron-LM's arguments say, and memory for half of each.
MORE_THAN_ARGUMENTS = {
    "adapters": ("llama3.2-1b", "--lora", "8", "--memory-limit", "9GiB"),
    "frozen layers": ("llama3.2-1b", "--freeze", "layers:0-7", "--memory-limit", "16GiB"),
    "an encoder": ("qwen2-vl-2b", "--image-size", "448", "--memory-limit", "36GiB"),
    "documents": ("llama3.2-1b", "--lengths", "lengths.csv", "--memory-limit", "20GiB"),
}


@pytest.mark.parametrize("kind", MORE_THAN_ARGUMENTS)
def test_changes_of_a_job_that_arguments_do_not_say_in_full(
    ilp_plan: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A degree is offered in options, of which `fit` says that they fit; none was, before."""
    monkeypatch.setattr("ilp_planner.analysis.fit.fit.Changes.pairs", lambda *_: None)
    (folder / "lengths.csv").write_text("length,count\n1000,2\n4000,1\n")
    model, *job = (*MORE_THAN_ARGUMENTS[kind], "--gpus", "2xA100-40GB")
    done = ilp_plan("fit", model, *job)
    assert done.out.startswith("DOES NOT FIT"), done.err
    offered = re.search(r"^(--tp 2 .*?)  ", done.out, re.MULTILINE)
    assert offered, done.out
    again = ilp_plan("fit", model, *job, *offered[1].split(), "--verdict")
    assert again.out.startswith("FITS"), again.out


@pytest.mark.slow
def test_grouped_experts_are_offered_to_a_job_without(ilp_plan: Command) -> None:
    """Experts one after the other take several times as long."""
    job = ("qwen3-30b-a3b", "--gpus", "8xH200", "--ep", "8")
    one_by_one = ilp_plan("fit", *job, "--no-grouped-experts").out
    offered = re.search(r"^--grouped-experts .* (-\d+)\.\d+ %", one_by_one, re.M)
    assert offered, one_by_one
    assert int(offered[1]) < -20
    said, unsaid = (ilp_plan("fit", *job, *more).out for more in (("--grouped-experts",), ()))
    assert said == unsaid
    assert "grouped-experts" not in said


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("llama3-8b", ("--lora", "16")),
        ("llama3-8b", ("--qlora",)),
        ("llama3-8b", ()),
        ("qwen3-30b-a3b", ("--ep", "8")),
    ],
)
def test_graphs_that_are_named_can_be_pasted(
    ilp_plan: Command, model: str, more: tuple[str, ...], recompute: str
) -> None:
    """They are named where the training system has them alone, and a change has its note."""
    line = (
        *("fit", model, "--sequence-length", "128", "--gpus", "8xB200", *more),
        *("--recompute", recompute, "--global-batch-size", "8"),
    )
    said = " ".join(ilp_plan(*line).out.split())
    named = re.search(r"`--cuda-graphs (\w+)`", said)
    assert (named is None) == ("--qlora" in more or (recompute == "full" and "--ep" in more))
    assert ("--cuda-graphs" in said) == (named is not None)
    if named is not None:
        assert f"cuda graphs {named[1]}: not counted" in said
        pasted = ilp_plan(*line, "--cuda-graphs", named[1])
        assert pasted.code == 0
        assert "`--cuda-graphs" not in pasted.out
