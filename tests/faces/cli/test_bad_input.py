"""Every bad input gives one line on stderr and the right exit code, and nothing on stdout."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from tests.faces.cli.conftest import Done
from tests.small import ACESO, CLUSTER, MODEL

Command = Callable[..., Done]

# What Typer itself complains of, in the words of its version: until 0.25 they were Click's.
OWN = hasattr(typer, "TyperException")
NO_NUMBER = "found 'soon', expected a valid number" if OWN else "'soon' is not a valid float"
NO_OPTION = "No such option: --modle" if OWN else "No such option '--modle'"


def refused(done: Done, code: int, *words: str) -> None:
    """Assert one line with all the words."""
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("ilp-plan: ")
    for word in words:
        assert word in done.err


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("layers = 2", "layers = 0", ["layers", "at least 1", "0"]),
        ("layers = 2", "layers = -2", ["layers", "at least 1", "-2"]),
        ("layers = 2", "layers = 'two'", ["layers", "whole number", "two"]),
        ("layers = 2", "layers = ", ["not valid TOML", "line 6"]),
        ("layers = 2", "layer = 2", ["unknown key 'layer'", "did you mean 'layers'"]),
        ("hidden = 256\n", "", ["hidden is missing"]),
        ('family = "gpt"', 'family = "gtp"', ["family", "did you mean 'gpt'"]),
        ('family = "gpt"', 'family = "llama"', ["family", "decoder: Llama, Mistral, Qwen"]),
    ],
)
def test_model_file(ilp_plan: Command, old: str, new: str, words: list[str]) -> None:
    Path("bad.toml").write_text(changed(MODEL, old, new))
    done = ilp_plan("solve", "--model", "bad.toml", "--cluster", "pair.toml")
    refused(done, 1, "bad.toml", *words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("devices = 2", "devices = 0", ["devices", "0"]),
        ('memory = "8 GiB"', 'memory = "-3 GiB"', ["memory must be positive", "-3 GiB"]),
        ('memory = "8 GiB"', "memory = 8", ["memory", "'8 GB'", "found 8"]),
        ('memory = "8 GiB"', 'memory = "8 gigs"', ["memory", "'8 GiB' or '8 GB'", "'8 gigs'"]),
        ('memory = "8 GiB"', 'memory = "many"', ["memory", "many"]),
        ('bandwidth = "40 GB/s"', 'bandwith = "40 GB/s"', ["did you mean 'bandwidth'"]),
    ],
)
def test_cluster_file(ilp_plan: Command, old: str, new: str, words: list[str]) -> None:
    Path("bad.toml").write_text(changed(CLUSTER, old, new))
    done = ilp_plan("solve", "--model", "tiny.toml", "--cluster", "bad.toml")
    refused(done, 1, "bad.toml", *words)


@pytest.mark.parametrize("option", ["--model", "--cluster"])
def test_missing_spec_file(ilp_plan: Command, option: str) -> None:
    refused(ilp_plan("solve", option, "nowhere/none.toml"), 1, "nowhere/none.toml: no such file")


def test_missing_spec_names_the_nearest(ilp_plan: Command) -> None:
    refused(ilp_plan("solve", "--model", "gpt3-1.3"), 1, "gpt3-1.3", "did you mean 'gpt3-1.3b'?")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--global-batch-size", "0"], 2, ["--global-batch-size"]),
        (["--global-batch-size", "many"], 2, ["--global-batch-size"]),
        (
            ["--global-batch-size", "7", "--micro-batch-size", "2"],
            3,
            ["micro-batch-size 1 would do"],
        ),
        (["--micro-batch-size", "0"], 2, ["--micro-batch-size", "'0'"]),
        (["--micro-batch-size", "-1"], 2, ["--micro-batch-size", "'-1'"]),
        (["--micro-batch-size", "two"], 2, ["--micro-batch-size", "'two'"]),
        (["--memory-limit", "28000"], 2, ["--memory-limit", "unit", "28000"]),
        (["--memory-limit", "-3GiB"], 2, ["--memory-limit must be positive", "-3GiB"]),
        (["--memory-limit", "much"], 2, ["--memory-limit", "much"]),
        (["--max-stages", "0"], 2, ["--max-stages"]),
        (["--time-limit", "-1"], 2, ["--time-limit"]),
        (["--time-limit", "nan"], 2, ["--time-limit"]),
        (["--time-limit", "soon"], 2, ["--time-limit", NO_NUMBER]),
        (["--gap", "2"], 2, ["--gap", "fraction"]),
        (["--gap", "-0.1"], 2, ["--gap", "fraction"]),
        (["--gap", "0.1", "--require-gap", "0.01"], 2, ["--gap 0.1", "--require-gap 0.01"]),
        (["--solver", "magic"], 2, ["--solver", "magic", "cp-sat"]),
        (["--cost-model", "magic"], 2, ["--cost-model", "magic", "native"]),
        (["--workers", "0"], 2, ["--workers"]),
        (["--profile", "magic:here"], 2, ["--profile", "magic:here", "aceso:FOLDER"]),
        (["--profile", "aceso"], 2, ["--profile", "aceso:FOLDER"]),
        (["--profile", "analytic:here"], 2, ["--profile", "reads no file"]),
        (["--profile", "aceso:nowhere"], 1, ["nowhere", "no such profile folder"]),
        (["--output", "nowhere/p.json"], 1, ["nowhere/p.json", "no such folder"]),
        (["--output", "."], 1, ["is a folder"]),
        (["--modle", "x"], 2, [NO_OPTION, "--model"]),
        (["extra"], 2, ["--model: found tiny.toml", "extra"]),
        (["--cost-model", "magic"], 2, ["--cost-model': 'magic' is not one of 'native'"]),
        (["--profile", "table:"], 2, ["--profile", "without a file, expected FILE.csv"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_options(
    ilp_plan: Command, tiny: list[str], arguments: list[str], code: int, words: list[str]
) -> None:
    refused(ilp_plan("solve", *tiny, *arguments), code, *words)


def test_unknown_command(ilp_plan: Command) -> None:
    refused(ilp_plan("sovle"), 2, "sovle")


def test_output_is_checked_before_anything_is_read(ilp_plan: Command) -> None:
    done = ilp_plan("solve", "--model", "none.toml", "--output", "nowhere/p.json")
    refused(done, 1, "nowhere/p.json")


HEADER = (
    "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,"
    "fwd_reserved,bwd_reserved\n"
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["column 'op_name' is missing"]),
        ("op_name,forward-compute\n", ["backward-compute"]),
        (HEADER + "encoder-embedding,1,2\n", ["line 2"]),
        (HEADER + "encoder-embedding,x,2,3,4,5,6,7,8\n", ["line 2", "forward-compute", "'x'"]),
        (HEADER + "encoder-embedding,-1,2,3,4,5,6,7,8\n", ["line 2", "forward-compute", "'-1'"]),
        (HEADER + "encoder-embedding,1,2,3,4,5,6,7,8\n", ["enc-1st-layernorm", "no row"]),
    ],
)
def test_profile_files(ilp_plan: Command, tiny: list[str], content: str, words: list[str]) -> None:
    database = Path("database")
    database.mkdir()
    (database / "p2p_intra_node.csv").write_text("1,2\n10,20\n")
    (database / "gpt_tiny_mbs1_tp1_algo0.csv").write_text(content)
    done = ilp_plan("solve", *tiny, "--profile", "aceso:database")
    refused(done, 1, "database", *words)


def test_a_model_without_a_key_in_the_profile(ilp_plan: Command) -> None:
    Path("bare.toml").write_text(MODEL.partition("[profile]")[0])
    Path("database").mkdir()
    arguments = ["--model", "bare.toml", "--cluster", "pair.toml", "--profile", "aceso:database"]
    refused(ilp_plan("solve", *arguments), 1, "bare.toml", "profile.aceso")


def test_memory_in_which_nothing_fits(ilp_plan: Command, operators: list[str]) -> None:
    done = ilp_plan("solve", *operators, "--memory-limit", "1MiB")
    assert done.code == 3
    assert re.fullmatch(r"ilp-plan: infeasible: .*(operator|stage).*MiB.*\n", done.err)


@pytest.mark.parametrize("command", ["evaluate", "simulate", "export", "compare"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["no such file"]),
        ("{", ["line 1, column 2", "not valid JSON"]),
        ("{}", ["schema: found nothing, expected"]),
        ("[]", ["expected an object"]),
    ],
)
def test_plan_files(ilp_plan: Command, command: str, content: str | None, words: list[str]) -> None:
    if content is not None:
        Path("p.json").write_text(content)
    options = ["--to", "aceso", "--output", "a.json"] if command == "export" else []
    refused(ilp_plan(command, "p.json", *options), 1, "p.json", *words)
    assert not Path("a.json").exists()


@pytest.mark.skipif(not ACESO.is_dir(), reason="no ../shared/data/aceso")
def test_import_of_a_plan_for_another_model(ilp_plan: Command) -> None:
    theirs = ACESO / "plans" / "aceso_t5_3B_4g.json"
    done = ilp_plan("import", "aceso", theirs, "--output", "p.json")
    refused(done, 1, "aceso_t5_3B_4g.json", "t5 3B", "gpt3-1.3b")
    assert not Path("p.json").exists()


def test_import_of_an_unknown_format(ilp_plan: Command) -> None:
    refused(ilp_plan("import", "alpa", "x.json", "--output", "p.json"), 2, "alpa", "aceso")


def test_an_error_with_line_breaks_is_still_one_line(ilp_plan: Command, tiny: list[str]) -> None:
    Path("two\nlines.toml").write_text("x")
    refused(ilp_plan("solve", "--model", "two\nlines.toml"), 1, "two lines.toml")


def test_a_plan_that_was_tampered_with(ilp_plan: Command, saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["result"]["objective_s"] /= 2
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert "plan.json: result.objective_s: found" in done.err
    assert done.err.count("\n") == 1


# ---- files in the wrong place -------------------------------------------------------------------

PROFILE_CSV = HEADER + "encoder-embedding,1,2,3,4,5,6,7,8\n"
FILES = {
    "prof.csv": PROFILE_CSV,
    "run.sh": "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n",
    "run.args.json": '{"format": "megatron-lm launch", "argv": []}',
    "aceso.json": '{"model_name": "gpt", "num_ops_in_each_stage": [1]}',
    "config.json": '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}',
    "words.md": "# Words\n\nGive it a model, a cluster and a profile: it plans, and so on.\n",
}


def test_a_cluster_where_a_model_goes(ilp_plan: Command) -> None:
    refused(ilp_plan("solve", "a100-4x8"), 1, "found one of the clusters")


def test_a_folder_of_nearly_that_name(ilp_plan: Command, tiny: list[str]) -> None:
    Path("database").mkdir()
    Path("tiny.toml").write_text(MODEL)
    done = ilp_plan("solve", *tiny, "--profile", "aceso:databse")
    refused(done, 1, "databse: no such profile folder, expected a folder with", "'database'?")


# ---- repairs that are offered work --------------------------------------------------------------


def test_model_and_cluster_by_position(ilp_plan: Command, fake: SimpleNamespace) -> None:
    options = ("--global-batch-size", "64", "--space", "operators")
    assert ilp_plan("solve", "tiny.toml", "pair.toml", *options).code == 0
    both = ("--cluster", "pair.toml", "--model", "tiny.toml")
    assert ilp_plan("solve", "tiny.toml", *both, *options).code == 0
    done = ilp_plan("solve", "tiny.toml", "pair.toml", "--cluster", "a100-4x8")
    refused(done, 2, "--cluster: found a100-4x8", "pair.toml", "expected one")
    assert len(fake.calls) == 2


def test_a_precision_that_the_devices_have(ilp_plan: Command) -> None:
    tiny = ["--global-batch-size", "4", "--time-limit", "20"]
    model = Path(__file__).parents[3].joinpath("models/qwen2.5-7b.toml").read_text()
    model = re.sub(r"(?m)^layers = .*", "layers = 2", model)
    Path("bf16.toml").write_text(model)
    done = ilp_plan("solve", "bf16.toml", "v100-32gb-1x4", "--runtime", "megatron", *tiny)
    refused(done, 1, "'v100-32gb-1x4'", "'v100-sxm2-32gb'", "bf16", "--precision fp16 would do")
    asked = ["--precision", "fp16", *tiny]
    done = ilp_plan("solve", "bf16.toml", "v100-32gb-1x4", "--runtime", "megatron", *asked)
    assert done.code == 0, done.err


def test_aceso_costs_for_a_decoder(ilp_plan: Command) -> None:
    named = ("llama3-8b", "b200-1x8", "--time-limit", "60", "--global-batch-size", "8")
    for options in ((), ("--space", "groups"), ("--runtime", "megatron")):
        done = ilp_plan("solve", *named, "--cost-model", "aceso", *options)
        assert done.code in (1, 2)
        assert done.err.count("\n") == 1
        assert "--cost-model native" in done.err
        if options:
            done = ilp_plan("solve", *named, "--cost-model", "native", *options)
            assert done.code == 0, done.err
