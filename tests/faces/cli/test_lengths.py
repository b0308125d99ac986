"""Lengths of documents in `solve`, `fit` and saved plans."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.faces.cli.conftest import Done

LENGTHS = "length,count\n64,300\n256,40\n1024,3\n"
SMALL = ("--sequence-length", "1024", "--global-batch-size", "16")


def test_a_saved_plan_holds_its_lengths(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths, saved = tmp_path / "lengths.csv", tmp_path / "plan.json"
    lengths.write_text(LENGTHS)
    asked = ("solve", "gpt3-1.3b", "--gpus", "2xH100", "--runtime", "megatron", *SMALL)
    told = ilp_plan(*asked, "--lengths", str(lengths), "--output", str(saved))
    assert told.code == 0
    assert "packed, " in told.out
    inputs = json.loads(saved.read_text())["inputs"]
    assert inputs["lengths"]["text"] == LENGTHS
    assert inputs["batching"] == "packed"
    lengths.unlink()
    again = ilp_plan("evaluate", str(saved), "--check-certificate", "--json")
    assert again.code == 0
    assert 0 <= json.loads(again.out)["throughput"]["padding"] < 0.1


def test_fit_judges_samples_of_documents(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(LENGTHS)
    asked = ("fit", "gpt3-1.3b", "--gpus", "8xH100", *SMALL, "--lengths", str(lengths))
    assert ilp_plan(*asked, "--batching", "longest", "--verdict").code == 0
    refused = ilp_plan(*asked, "--micro-batch-size", "2")
    assert refused.code
    assert "--micro-batch-size: found 2 with packed samples" in refused.err
    alone = ilp_plan("fit", "gpt3-1.3b", "--gpus", "8xH100", "--batching", "packed")
    assert "--batching: found packed without --lengths" in alone.err


def test_layer_level_plans_count_the_mean(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(LENGTHS)
    asked = ("solve", "gpt3-1.3b", "--gpus", "2xH100", *SMALL, "--lengths", str(lengths))
    for space, said in (("groups", True), ("megatron", False)):
        told = " ".join(ilp_plan(*asked, "--space", space).out.split())
        assert ("counted as in the mean" in told) == said


def test_documents_have_room_for_their_images(
    ilp_plan: Callable[..., Done], tmp_path: Path
) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("\ufeff" + LENGTHS)  # as spreadsheets write it
    asked = (*SMALL, "--gpus", "2xH100", "--lengths", str(lengths))
    refused = ilp_plan("fit", "qwen2-vl-2b", *asked)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "lengths.csv: found a document of 64 tokens with images=1 of 256 tokens" in refused.err
    assert ilp_plan("fit", "qwen2-vl-2b", *asked, "--text-only", "--verdict").code == 0
    lengths.write_text("length,images,count\n64,0,300\n256,0,40\n1024,2,3\n")
    assert ilp_plan("fit", "qwen2-vl-2b", *asked, "--verdict").code == 0


LINE = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --bf16 "
    "--micro-batch-size 1 --global-batch-size 16 --use-distributed-optimizer "
    "--tokenizer-type NullTokenizer --vocab-size 32000 "
)
FACTORY = """model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
template: qwen
cutoff_len: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
bf16: true
"""


def test_launches_say_how_samples_are_made(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    """Of a launch whose documents are known the samples are judged as it makes them, and nothing is
    said to be not counted."""
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(LENGTHS)
    for number, (text, words) in enumerate(
        [
            (FACTORY, "a document each, padded to the longest of its micro-batch"),
            (f"{FACTORY}packing: true\n", "joined and cut"),
            (f"{FACTORY}group_by_length: true\n", "sorted in groups"),
            (f"{FACTORY}train_sampling_strategy: group_by_length\n", "sorted in groups"),
            (f"{FACTORY}packing: true\nneat_packing: true\n", "packed, "),
        ]
    ):
        file = tmp_path / f"run{number}.yaml"
        file.write_text(text)
        asked = ("fit", str(file), "--gpus", "8xH100")
        told = ilp_plan(*asked, "--lengths", str(lengths))
        assert told.code == 0
        assert words in told.out
        assert "counted as full ones" not in told.out
        alone = ilp_plan(*asked).out
        asks = "packing" in text or "group_by" in text
        assert ("(`--lengths`); counted as full ones" in alone) == asks
        assert "padding" not in alone


def test_lines_of_megatron_join_documents_or_have_packs(
    ilp_plan: Callable[..., Done], tmp_path: Path
) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(LENGTHS)
    asked = ("fit", "--gpus", "8xH100", "--lengths", str(lengths), "--megatron-args")
    joined, packed = (ilp_plan(*asked, LINE + more) for more in ("", "--sft"))
    assert "joined and cut" in joined.out
    assert "packed, " in packed.out
    assert "counted as full ones" not in packed.out
    other = ilp_plan(*asked, LINE, "--batching", "packed")
    assert other.err == (
        "ilp-plan: --batching: found packed, expected joined: the launch line says it\n"
    )
    alone = ilp_plan("fit", "--gpus", "8xH100", "--batching", "joined", "--megatron-args", LINE)
    assert "--batching: found joined without --lengths, expected none" in alone.err
    lengths.write_text("length\n2000\n")
    assert "1 of 1 documents are longer than a sample" in ilp_plan(*asked, LINE).out
    longer = ilp_plan(*asked, f"{LINE} --sft")
    assert longer.err.count("\n") == 1
    assert longer.err.endswith(
        "found a document of 2000 tokens, expected at most 1024, the sequence length; "
        "`--seq-length 2048` has room\n"
    )


def test_of_other_launches_it_has_to_be_said(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths, file = tmp_path / "lengths.csv", tmp_path / "neox.yml"
    lengths.write_text(LENGTHS)
    file.write_text(
        "num_layers: 8\nhidden_size: 1024\nnum_attention_heads: 16\nseq_length: 1024\n"
        "max_position_embeddings: 1024\ntrain_micro_batch_size_per_gpu: 1\n"
        "pipe_parallel_size: 1\nmodel_parallel_size: 1\ntrain_batch_size: 16\n"
    )
    asked = ("fit", str(file), "--gpus", "8xH100", "--lengths", str(lengths))
    refused = ilp_plan(*asked)
    assert "--lengths: found no --batching, expected one beside a launch line" in refused.err
    assert ilp_plan(*asked, "--batching", "joined").code in (0, 2)


def test_launches_say_what_becomes_of_longer_documents(
    ilp_plan: Callable[..., Done], tmp_path: Path
) -> None:
    """As the trainer does with them; of a launch that does not say, they are refused."""
    lengths, file = tmp_path / "lengths.csv", tmp_path / "run.yaml"
    lengths.write_text("length,count\n500,100\n1500,60\n4000,20\n")
    factory = (
        "model_name_or_path: Qwen/Qwen3-0.6B\ntemplate: qwen3\nfinetuning_type: full\n"
        "cutoff_len: 2048\nbf16: true\nper_device_train_batch_size: 1\nstage: "
    )
    swift = (
        "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-0.6B --tuner_type full --max_length 2048 "
        "--packing true --micro_batch_size 1 --global_batch_size 16 "
    )
    for name, text, said in (
        ("run.yaml", factory + "sft\n", "cut (17.7 % of all tokens)"),
        ("run.yaml", factory + "sft\nneat_packing: true\n", "cut (17.7 % of all tokens)"),
        ("run.yaml", factory + "pt\n", "split"),
        ("run.sh", swift, "left out (36.4 % of all tokens)"),
        ("run.sh", f"{swift}--truncation_strategy right", "cut (17.7 % of all tokens)"),
        ("run.sh", f"{swift}--truncation_strategy split", "split"),
    ):
        file = tmp_path / name
        file.write_text(text)
        done = ilp_plan("fit", file, "--gpus", "8xH100", "--lengths", lengths, "--verdict")
        assert done.code == 0, done.err
        told = f"20 of 180 documents are longer than a sample of 2048 tokens and are {said}"
        assert told in " ".join(done.out.split())


def test_launches_are_told_of_samples_beyond_the_positions(
    ilp_plan: Callable[..., Done], tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    for tokens, told in ((8192, False), (262144, True)):
        file.write_text(FACTORY.replace("cutoff_len: 1024", f"cutoff_len: {tokens}"))
        assert f"cutoff_len: {tokens}" in file.read_text()
        done = ilp_plan("fit", file, "--gpus", "8xH100", "--verdict")
        assert (f"{tokens} tokens are beyond the " in done.out) is told
