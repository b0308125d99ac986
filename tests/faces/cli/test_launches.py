"""Configurations and launches of other systems, as `fit`, `analyze`, `compare` and `import` take
them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done
from tests.imported_cases import FILES, LINES, write

Command = Callable[..., Done]
GPUS = ("--gpus", "8xH100")
FEW = ("--time-limit", "0.2")


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_judged(ilp_plan: Command, folder: Path, name: str) -> None:
    """Its GPUs are those of the file or of the cluster; what is not read is named."""
    write(folder, name, unheard_of=1)
    done = ilp_plan("fit", "run.yaml", *GPUS, *FEW)
    assert done.code == 0, done.err
    assert done.out.startswith("FITS")
    assert "unheard_of: not read" in done.out
    assert "of run.yaml, or to change or leave out there" in done.out
    for words in (("analyze", "run.yaml"), ("analyze", "--megatron-script", "run.yaml")):
        assert ilp_plan(*words).code == 0


@pytest.mark.parametrize("name", LINES)
def test_a_launch_is_judged(ilp_plan: Command, folder: Path, name: str) -> None:
    (folder / "run.sh").write_text(f"#!/bin/bash\n{LINES[name]}\n")
    done = ilp_plan("fit", "run.sh", *GPUS, *FEW, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    line = ilp_plan("analyze", "--megatron-args", LINES[name], *GPUS)
    assert line.code == 0, line.err
    for change in found["changes"]:
        assert change["add"] or change["drop"]
        assert not change["fields"]


def test_a_plan_is_imported_and_compared(ilp_plan: Command, folder: Path) -> None:
    write(folder, "nanotron")
    done = ilp_plan("import", "megatron", "run.yaml", *GPUS, "--output", "plan.json")
    assert done.code == 0, done.err
    assert "Megatron-LM, the nearest runtime" in done.err
    other = write(folder, "nanotron", optimizer__zero_stage=1)
    compared = ilp_plan("compare", "plan.json", str(other))
    assert compared.code == 0, compared.err
    assert "run.yaml" in compared.out
    assert "optimizer" in compared.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--set", "tokens.micro_batch_size=0"),
            "tokens.micro_batch_size: found 0, expected at least 1",
        ),
        (("--strict",), "unheard_of: found 1, expected a key of Nanotron that is known here"),
        (("--set", "parallelism.tp=3"), "parallelism.tp"),
    ],
)
def test_mistakes_are_one_line(
    ilp_plan: Command, folder: Path, words: tuple[str, ...], said: str
) -> None:
    write(folder, "nanotron", unheard_of=1)
    done = ilp_plan("fit", "run.yaml", *GPUS, *FEW, "--megatron-script", "run.yaml")
    assert done.code == 2
    done = ilp_plan("fit", "--megatron-script", "run.yaml", *GPUS, *FEW, *words)
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1


def test_torchtitan_is_judged_as_it_runs(ilp_plan: Command, folder: Path) -> None:
    (folder / "run.toml").write_text(
        '[job]\n[model]\nname = "qwen3"\nflavor = "0.6B"\n[training]\nseq_len = 1024\n'
        "local_batch_size = 1\n"
    )
    done = ilp_plan("fit", "run.toml", *GPUS, *FEW)
    assert done.code == 0, done.err
    assert "judged as torchtitan 0.2.2 runs it" in done.out
    assert "takes" in done.out


@pytest.mark.parametrize(
    ("key", "other", "said"),
    [
        ("num-layers", "num_layers", "num_layers: found num-layers too, the same key"),
        ("gradient_accumulation_steps", "gas", "gradient_accumulation_steps: found 4, and gas: 3"),
    ],
)
def test_a_key_that_is_said_twice_is_told(
    ilp_plan: Command, folder: Path, key: str, other: str, said: str
) -> None:
    """In two spellings, or by two names."""
    path = write(folder, "gpt-neox")
    text = path.read_text().replace(key.replace("-", "_") + ":", f"{key}:")
    assert f"{key}:" in text
    path.write_text(f"{text}\n{other}: 3\n")
    done = ilp_plan("fit", str(path), *GPUS, *FEW)
    assert done.code == int("_" not in key)
    assert said in done.out + done.err


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "hello\n", "[1, 2]\n", "a: 1\na: 2\n"])
def test_yaml_of_no_system_is_refused_by_name(ilp_plan: Command, folder: Path, text: str) -> None:
    """Whatever is in it, it is no plan in JSON."""
    (folder / "run.yaml").write_text(text)
    for words in (("fit", "run.yaml", *GPUS), ("analyze", "run.yaml")):
        done = ilp_plan(*words)
        assert done.code == 2
        assert "run.yaml: found YAML of no training system that is known here" in done.err
        assert done.err.count("\n") == 1


def test_a_script_that_begins_like_json_is_a_script(ilp_plan: Command, folder: Path) -> None:
    line = LINES["ms-swift"]
    (folder / "run.sh").write_text(f'[ "$#" = 1 ] || exit 2\n{line}\n')
    done = ilp_plan("fit", "run.sh", *GPUS, *FEW, "--", "a")
    assert done.code == 0, done.err
