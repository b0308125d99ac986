"""`ilp-plan models`, and models of Hugging Face where a model goes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.base.files import Document
from ilp_planner.base.library import hub_names, library_files
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from tests.examples import thinned
from tests.faces.cli.conftest import Done
from tests.faces.cli.test_bad_input import refused

Command = Callable[..., Done]
TINY = {
    "model_type": "qwen3",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}
ON = ("--gpus", "2xA100-80GB", "--global-batch-size", "8", "--time-limit", "20")


def write(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(TINY | changes))
    return path


# ---- the catalogue ------------------------------------------------------------------------------


def test_the_table(ilp_plan: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = ilp_plan("models")
    assert done.code == 0
    lines = done.out.partition("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:]] == [f.stem for f in library_files("models")]
    row = next(line.split() for line in lines if line.startswith("qwen3-32b "))
    assert row == ["qwen3-32b", "32.76", "B", "decoder", "64", "5120", "arXiv", "2505.09388"]


def test_json(ilp_plan: Command) -> None:
    rows = {row["name"]: row for row in json.loads(ilp_plan("models", "--json").out)["models"]}
    assert len(rows) == len(library_files("models"))
    row = rows["gpt-oss-120b"]
    assert (row["parameters"], row["layers"], row["hidden"]) == (116_829_156_672, 36, 2880)
    assert row["hub"] == ["openai/gpt-oss-120b"]
    assert "openai/gpt-oss-120b" in row["source"]
    assert rows["wide-resnet-1b"]["layers"] is None


def test_a_model_file_of_any_model(ilp_plan: Command) -> None:
    write(Path("mine"), quantization_config={"bits": 4})
    done = ilp_plan("models", "mine")
    assert done.out.startswith("# mine: 156,352 parameters.")
    assert "note: quantization_config: is about inference" in done.err
    Path("mine.toml").write_text(done.out)
    assert read_model(Path("mine.toml")) == read_model(Path("mine/config.json"))
    found = json.loads(ilp_plan("models", "Qwen/Qwen3-32B", "--json").out)
    assert (found["name"], found["parameters"]) == ("qwen3-32b", 32_762_123_264)


# ---- where a model goes -------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["org/name", "org/name/", "org/name/config.json"])
def test_a_folder_and_its_file(ilp_plan: Command, named: str) -> None:
    write(Path("org/name"))
    done = ilp_plan("solve", named, *ON)
    assert done.code == 0, done.err
    assert " name on 2 x " in done.out.replace("org/", " ")


def test_a_name_of_the_configuration_here(ilp_plan: Command) -> None:
    write(Path(), _name_or_path="org/name")
    assert "  org/name on 2 x " in ilp_plan("solve", "org/name", *ON).out
    refused(ilp_plan("solve", "org/other", *ON), 1, "org/other: no such model here")


def test_a_name_of_the_catalogue(ilp_plan: Command) -> None:
    found = [
        json.loads(ilp_plan("models", hub, "--json").out)["name"] for hub in thinned(hub_names(), 5)
    ]
    assert found == [path.stem for path in thinned(hub_names().values(), 5)]
    lower = json.loads(ilp_plan("models", "qwen/qwen3-32b", "--json").out)
    assert lower["name"] == "qwen3-32b"


def test_a_name_that_nobody_has_says_what_brings_it(ilp_plan: Command) -> None:
    repair = "`hf download Qwen/Qwen3-33B config.json --local-dir Qwen/Qwen3-33B`"
    refused(ilp_plan("solve", "Qwen/Qwen3-33B", *ON), 1, "mean 'Qwen/Qwen3-32B'?", repair)
    write(Path("Qwen/Qwen3-33B"))  # which is where that puts it
    assert ilp_plan("solve", "Qwen/Qwen3-33B", *ON).code == 0
    Path("empty").mkdir()
    refused(ilp_plan("solve", "empty", *ON), 1, "empty: found a folder without config.json")


# ---- saved plans --------------------------------------------------------------------------------


def test_a_plan_holds_the_model_that_it_was_made_with(ilp_plan: Command) -> None:
    path = write(Path("org/name"))
    assert ilp_plan("solve", "org/name", *ON, "--output", "plan.json").code == 0
    held = json.loads(Path("plan.json").read_text())["inputs"]["model"]
    assert held["text"].startswith("# From org/name/config.json.\nname = ")
    assert "differs today" not in ilp_plan("evaluate", "plan.json").out
    write(Path("org/name"), intermediate_size=128)
    assert "model org/name: differs today" in ilp_plan("evaluate", "plan.json").out
    changed = ilp_plan("evaluate", "plan.json", "--accept-changed")
    assert "differs today" not in changed.out
    shutil.rmtree(path.parent)
    assert ilp_plan("evaluate", "plan.json").code == 0


def test_a_plan_for_the_text_of_a_model_of_pictures(ilp_plan: Command) -> None:
    inner = TINY | {"model_type": "qwen3_vl_text"}
    folder = Path("see")
    folder.mkdir()
    values = {"model_type": "qwen3_vl", "text_config": inner, "vision_config": {"depth": 2}}
    (folder / "config.json").write_text(json.dumps(values))
    assert " pixels: " in ilp_plan("solve", "see", *ON).out
    done = ilp_plan("solve", "see", *ON, "--text-only", "--output", "plan.json")
    assert "vision parts: left out, the text alone is planned" in done.out
    for more in ((), ("--accept-changed",)):
        again = ilp_plan("evaluate", "plan.json", *more)
        assert again.code == 0
        assert "differs" not in again.out
    job = ("analyze", "--model", "see", "--dp", "2")
    assert "vision parts" not in ilp_plan(*job).out
    assert "vision parts: left out" in ilp_plan(*job, "--text-only").out


def test_samples_of_another_length(ilp_plan: Command) -> None:
    write(Path("long"), max_position_embeddings=32768)
    assert "sequence: 4096 tokens assumed" in ilp_plan("solve", "long", *ON).out
    args = ("solve", "long", *ON, "--runtime", "megatron", "--sequence-length", "1024")
    done = ilp_plan(*args, "--output", "plan.json")
    assert done.code == 0, done.err
    assert "tokens assumed" not in done.out
    assert ilp_plan("evaluate", "plan.json").code == 0
    assert ilp_plan("export", "plan.json", "--to", "megatron", "--output", "run.sh").code == 0
    script = Path("run.sh").read_text()
    for words in ("--seq-length 1024", "--rotary-base 1000000", "--norm-epsilon 1e-06"):
        assert words in script
    assert script.count("--vocab-size") == 1
    done = ilp_plan("import", "megatron", "run.sh", "--output", "back.json", *ON[:2])
    assert done.code == 0, done.err
    back = read_model(Path("back-model.toml")).architecture
    assert back.rotary == read_model(Path("long/config.json")).architecture.rotary
    assert back.sequence == 1024


def test_what_megatron_lm_cannot_train(ilp_plan: Command) -> None:
    write(Path("soft"), model_type="gemma2")
    done = ilp_plan("solve", "soft", *ON, "--runtime", "megatron")
    refused(done, 1, "model 'soft': norm_at: found both, expected input", "--space planner")
    done = ilp_plan("solve", "soft", *ON, "--space", "planner", "--output", "plan.json")
    assert done.code == 0, done.err
    done = ilp_plan("export", "plan.json", "--to", "megatron", "--output", "run.sh")
    refused(done, 1, "norm_at: found both, expected input: Megatron-LM has no other")


def test_a_model_to_analyse_by_position(ilp_plan: Command) -> None:
    write(Path("org/name"))
    for named in ("org/name", "org/name/config.json"):
        same = ilp_plan("analyze", "--model", named, "--tp", "2").out
        assert ilp_plan("analyze", named, "--tp", "2").out == same
    refused(ilp_plan("analyze", "lama3-8b"), 1, "lama3-8b: no such file; did you mean 'llama3-8b'")
    refused(ilp_plan("analyze", "none.json"), 1, "none.json: no such file")
    refused(ilp_plan("analyze", "org/name", "--model", "x"), 2, "--model: found PLAN too")


SEEING = {
    "model_type": "qwen2_vl",
    "text_config": {
        "model_type": "qwen2_vl_text", "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": 1000, "max_position_embeddings": 512,
    },
    "vision_config": {"depth": 2, "embed_dim": 64, "num_heads": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", ["config.json", "model.toml"])
@pytest.mark.parametrize("text_only", [False, True])
def test_a_plan_keeps_its_images_or_its_text_alone(
    ilp_plan: Command, name: str, text_only: bool
) -> None:
    config = Document("config.json", json.dumps(SEEING))
    Path("config.json").write_text(config.text)
    Path("model.toml").write_text(model_text(read_config(config)))
    asked = ("solve", name, *ON, "--sequence-length", "512")
    found = ilp_plan(*asked, *("--text-only",) * text_only, "--output", "plan.json")
    assert found.code == 0, found.err
    assert ("pixels: 256 of 512 tokens" in found.out) != text_only
    held = json.loads(Path("plan.json").read_text())["inputs"]["model"]
    assert ("[architecture.encoder]" in held["text"]) != text_only
    for changed in ((), ("--accept-changed",)):
        again = ilp_plan("evaluate", "plan.json", *changed)
        assert again.code == 0, again.err
        assert "differs today" not in again.out
    refused(
        ilp_plan(*asked, "--text-only", "--images-per-sample", "2"), 2,
        "--images-per-sample: found 2 with --text-only, which leaves images and sounds out",
    )  # fmt: skip
