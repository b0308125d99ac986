"""Notes on a launch line that the models of memory and communication leave out."""

from ilp_planner.formats.megatron.arguments import read_arguments
from ilp_planner.formats.megatron.notes import unmodelled
from tests.examples import for_each

LINE = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --bf16 "
    "--vocab-size 100 --max-position-embeddings 32768"
)


def notes(more: str) -> tuple[str, ...]:
    return unmodelled(read_arguments(f"{LINE} {more}", 8))


@for_each(("length", "saved"), [(8192, ""), (16384, "256.00 MiB"), (32768, "1.00 GiB")])
def test_a_mask_that_nobody_reads(length: int, saved: str) -> None:
    found = notes(f"--seq-length {length}")
    assert len(found) == bool(saved)
    assert all(f"would save {saved}" in note for note in found)
    assert not notes(f"--seq-length {length} --no-create-attention-mask-in-dataloader")


@for_each(
    ("more", "noted"),
    [
        ("--fp8-format hybrid", ()),
        ("--fp8-format hybrid --transformer-impl local", ("local modules do without",)),
        ("--fp8-format e4m3 --fp8-recipe custom --fp8-quantizer-factory mine.factory",
         ("a recipe of one's own",)),
        ("--fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16",
         ("memory of layers that stay as they are; counted as quantised",)),
        ("--fp8-format hybrid --tensor-model-parallel-size 2 --sequence-parallel",
         ("inputs gathered quantised",)),
        ("--cpu-offloading-num-layers 1", ()),
        ("--fine-grained-activation-offloading --offload-modules core_attn "
         "--fine-grained-offloading-max-inflight-offloads 2",
         ("--fine-grained-offloading-max-inflight-offloads: not counted: its cap",)),
        ("--optimizer-cpu-offload --use-precision-aware-optimizer", ()),
        ("--optimizer muon --muon-tp-mode duplicated --muon-num-ns-steps 8", ()),
        ("--optimizer dist_muon", ()),
        ("--optimizer muon --muon-no-split-qkv", ("--muon-no-split-qkv: not counted",)),
        ("--optimizer muon --no-use-layer-wise-param-layout", ()),
        ("--optimizer dist_muon --no-use-layer-wise-param-layout", ()),
        ("--optimizer muon --muon-use-syrk", ("--muon-use-syrk: not counted: the half",)),
        ("--optimizer muon --muon-fp32-matmul-prec high", ("counted as medium",)),
        ("--optimizer muon --muon-coefficient-type cubic5", ("counted as quintic",)),
        ("--optimizer muon --muon-scalar-optimizer lion", ("counted as adam",)),
        ("--optimizer adaptive_muon", ("--optimizer: not counted: the products of its step",)),
        ("--optimizer lion", ()),
        ("--cuda-graph-impl local", ("--cuda-graph-impl: not counted: memory of graphs",)),
        ("--enable-cuda-graph", ("--enable-cuda-graph: not counted: memory of graphs",)),
        ("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap "
         "--disable-tp-comm-overlap-ag",
         ("userbuffers", "--no-tp-comm-overlap-ag: not counted: counted as overlapped")),
    ],
)  # fmt: skip
def test_what_is_not_counted(more: str, noted: tuple[str, ...]) -> None:
    found = notes(f"--seq-length 64 {more}")
    assert len(found) == len(noted)
    assert all(text in line for text, line in zip(noted, found, strict=True))


VIRTUAL = (
    "--seq-length 8 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"
)


@for_each(
    ("more", "noted"),
    [
        ("", ""),
        ("--microbatch-group-size-per-virtual-pipeline-stage 2", ""),
        ("--microbatch-group-size-per-virtual-pipeline-stage 4", ""),
        ("--no-overlap-p2p-communication", ""),
        (
            "--no-overlap-p2p-communication --microbatch-group-size-per-virtual-pipeline-stage 4",
            "counted as overlapped",
        ),
        ("--overlap-p2p-communication-warmup-flush", "the memory of inputs that come ahead"),
    ],
)
def test_turns_of_virtual_stages_that_are_counted_otherwise(more: str, noted: str) -> None:
    found = [note for note in notes(f"{VIRTUAL} {more}") if "CUDA_DEVICE" not in note]
    assert len(found) == bool(noted)
    assert all(note.startswith(more.split()[0]) and noted in note for note in found)
    alone = notes("--seq-length 8 --no-overlap-p2p-communication")
    assert not any("p2p" in note for note in alone)  # no stages that take turns
