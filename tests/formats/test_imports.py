"""Whose configuration a file is, and what commands do with it."""

import shlex
from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.imports import IMPORTS, read, recognise_file, recognise_words
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.ranks import Gpus
from ilp_planner.formats.megatron.script import read_launch, read_script
from tests.imported_cases import FILES, LINES, SMALLEST, arguments_of, recognised, write


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_recognised_and_read_where_launches_are(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name)
    assert recognised(file).row.name == name
    args = read_launch(str(file), 8)
    assert args.values == arguments_of(name).values
    assert job_of_arguments(args).world == 8


def test_other_files_are_nobodys(tmp_path: Path) -> None:
    for text in ("layers: 8\n", "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n", ""):
        (tmp_path / "a.yaml").write_text(text)
        assert recognise_file(tmp_path / "a.yaml") is None
    assert recognise_file(tmp_path / "none.yaml") is None


def test_ranks_are_those_of_the_file_else_of_the_cluster(tmp_path: Path) -> None:
    gpus = Gpus(16, 8, "two-nodes")
    nanotron = read(recognised(write(tmp_path, "nanotron")), gpus=gpus)
    assert nanotron.world == 8
    assert "8 ranks" in nanotron.launch
    assert read(recognised(write(tmp_path, "gpt-neox")), gpus=gpus).world == 16
    assert read(recognised(write(tmp_path, "gpt-neox")), 4).world == 4


def test_values_from_outside_count(tmp_path: Path) -> None:
    found = recognised(write(tmp_path, "gpt-neox"))
    args = read(found, 8, supplied={"train_micro_batch_size_per_gpu": "1", "pos_emb": "learned"})
    assert args["micro_batch_size"] == 1
    assert args["position_embedding_type"] == "learned_absolute"


def test_a_key_that_is_set_must_be_there(tmp_path: Path) -> None:
    found = recognised(write(tmp_path, "nanotron"))
    with pytest.raises(SpecError, match=r"did you mean tokens\.micro_batch_size\?"):
        read(found, 8, supplied={"tokens.micro_batch_siz": "1"})
    assert read(found, 8, supplied={"general.run": "x"}).world == 8
    (tmp_path / "run.sh").write_text(f"{LINES['ms-swift']}\n")
    args = read_launch(str(tmp_path / "run.sh"), supplied={"NOBODY": "1"})
    assert "--set NOBODY: nothing in the script reads it" in args.remarks


def test_strict_refuses_unknown_keys(tmp_path: Path) -> None:
    found = recognised(write(tmp_path, "gpt-neox", new_key=3))
    assert read(found, 8).remarks
    with pytest.raises(SpecError, match="new_key: found 3, expected a key of GPT-NeoX"):
        read(found, 8, strict=True)


def test_every_import_has_a_case() -> None:
    """Of Python in tests/formats/imported/test_torchtitan_python.py."""
    assert {row.name for row in IMPORTS if row.syntax != "module"} == SMALLEST.keys()


@pytest.mark.parametrize("name", LINES)
def test_a_launch_is_read_from_its_line_and_from_a_script(tmp_path: Path, name: str) -> None:
    """As its keys say it, with variables of the shell in the script."""
    line = LINES[name]
    environment, _, rest = line.partition("=8 ") if line.startswith("NPROC") else ("", "", line)
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/bash\nTP=2\n{line.replace('size 2 ', 'size $TP ')} $@\n")
    args = read_launch(str(script), 8)
    assert args.values == arguments_of(name, 8).values
    assert read_script(script).world == 8
    found = recognise_words(shlex.split(rest), {environment: "8"} if environment else None)
    assert found is not None
    assert found.row.name == name
    assert read(found, 8).values == args.values


def test_what_is_open_and_about_the_plan_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    line = LINES["ms-swift"].replace("parallel_size 2 ", "parallel_size $TP ", 1)
    script.write_text(f"{line} --output_dir $OUT --dataset a $DATA\n")
    with pytest.raises(SpecError, match=r"line 1: variable TP is not set .*: --set TP=VALUE"):
        read_launch(str(script))
    assert read_launch(str(script), supplied={"TP": "2"}).world == 8
    args = read_launch(str(script), supplied={"TP": "2", "micro_batch_size": "1"})
    assert args["micro_batch_size"] == 1


def test_ranks_that_a_launch_leaves_open_are_the_cluster_s(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"NNODES=$WORLD_SIZE {LINES['ms-swift']}\n")
    assert read_launch(str(script), gpus=Gpus(16, 8, "two-nodes")).world == 16
    with pytest.raises(SpecError, match="--world-size N"):
        read_launch(str(script))


def test_files_of_gpt_neox_count_together(tmp_path: Path) -> None:
    """The last one counts; YAML in brackets, with commas at the end, is no JSON."""
    model, other = write(tmp_path, "gpt-neox"), tmp_path / "other.yml"
    other.write_text('{\n  "train_micro_batch_size_per_gpu": 1,\n  "fp16": {"enabled": true},\n}\n')
    for line in (
        f"python ./deepy.py train.py {model} {other}",
        f"./deepy.py train.py -d {tmp_path} run.yaml other.yml",
    ):
        found = recognise_words(shlex.split(line))
        assert found is not None
        assert read(found, 8)["micro_batch_size"] == 1
    (tmp_path / "run.sh").write_text("python deepy.py train.py run.yaml other.yml\n")
    assert read_launch(str(tmp_path / "run.sh"), 8)["micro_batch_size"] == 1


def test_texts_stand_for_files(tmp_path: Path) -> None:
    """As a launch that was recorded elsewhere brings them along."""
    text = write(tmp_path, "nanotron").read_text()
    (tmp_path / "run.yaml").unlink()
    words = ["run_train.py", "--config-file", "run.yaml"]
    with pytest.raises(SpecError, match="no such file"):
        recognise_words(words, folder=tmp_path)
    found = recognise_words(words, folder=tmp_path, texts={str(tmp_path / "run.yaml"): text})
    assert found is not None
    assert read(found).values == arguments_of("nanotron", None).values
