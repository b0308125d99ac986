"""The analysis tool's report reproduced: every number and group that it printed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.peers.analysis_tool.numbers import tool_figures
from ilp_planner.peers.analysis_tool.report import tool_object, tool_text
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.examples import for_each

DATA = Path("../shared/data")
NUMBERS = DATA / "megatron" / "analysis_tool_numbers.json"
MEASURED = DATA / "measured" / "seed_pr482.json"
PRINTED = Path("../shared/seeds/megatron-analysis-tool.txt")
MODEL = Decoder(layers=32, hidden=4096, heads=32, sequence=2048, vocab=50257, gated=True)
SETTINGS = Settings(
    optimizer=OptimizerSettings(sharding="optimizer"), kernels=Kernels(implementation="local")
)
# The one that its own code does not give (`analysis_tool_numbers`).
UNLIKE = "est dp8 pp1 tp1 mbs2"


def make_job(
    *, tp: int = 2, pp: int = 2, dp: int = 4, micro_batch: int = 4, batch: int = 512
) -> TrainingJob:
    return TrainingJob(
        model=MODEL,
        micro_batch=micro_batch,
        global_batch=batch,
        tp=tp,
        pp=pp,
        dp=dp,
        settings=SETTINGS,
    )


@pytest.fixture(scope="module")
def text() -> str:
    return tool_text(make_job())


def section(text: str, title: str) -> str:
    """Return one section of the report."""
    start = text.index(f"***{title}***")
    end = text.find("***", start + len(title) + 6)
    return text[start : end if end > 0 else None]


def after(text: str, *labels: str) -> str:
    """Return the number that follows the labels, one after the other."""
    place = 0
    for label in labels:
        place = text.index(label, place) + len(label)
    found = re.search(r"-?[\d,]+(?:\.\d+)?", text[place:])
    assert found
    return found[0].replace(",", "")


def row(text: str, name: str, number: int = 0) -> list[str]:
    """Return the cells after a name in a table."""
    lines = [line for line in text.split("\n") if re.search(rf"└─{name}\b", line)]
    return re.split(r"\s{2,}|\s", lines[number].split(name, 1)[1].strip())


def printed_numbers(text: str) -> dict[str, str]:
    """Return what the report says, under the names of the data file."""
    full = section(text, "Full Model without Parallel")
    gpu = section(text, "Memory demand on each GPU in the cluster")
    cluster = section(text, "Cluster Communication Summary")
    pipe = section(text, "Pipeline Parallel Communications")
    data = section(text, "Data Parallel Communications")
    tensor = section(text, "Tensor Parallel Communications")
    found = {
        "ffn (swiglu)": row(full, "dense_4h_to_h")[0].split(",")[1].split("]")[0],
        "padded vocab": row(full, "word_embeddings")[0].split("[")[1].split(",")[0],
        "total params": after(full, "Amount of Parameters:"),
        "full params GB": after(full, "\nParameters:"),
        "full grads GB": after(full, "\nGradients:"),
        "full opt GB": after(full, "States:"),
        "full act GB": after(full, "\nActivations:"),
        "full total GB": after(full, "Total memory demand:"),
        "per-GPU params": after(gpu, "Amount of Parameters:"),
        "gpu g_params GB": after(gpu, "\nParameters:"),
        "gpu g_grads GB": after(gpu, "\nGradients:"),
        "gpu g_opt GB": after(gpu, "States:"),
        "gpu g_act GB": after(gpu, "\nActivations:"),
        "gpu peak GB": after(gpu, "Memory Requirement:"),
    }
    for key, name in (
        ("pp", "Pipeline Parallelism"),
        ("dp", "Data Parallelism"),
        ("tp", "Tensor Parallelism"),
        ("all", "All Communication"),
    ):
        found[f"cluster {key}_n"] = after(cluster, name, "frequency/iteration:")
        found[f"cluster {key}_v GB"] = after(cluster, name, "volume/iteration:")
    layer = row(full, "ParallelTransformer")
    found |= {
        "table emb act MB": row(full, "Embedding")[0],
        "table word_emb w MB": row(full, "word_embeddings")[1],
        "table pos_emb w MB": row(full, "position_embeddings")[1],
        "table layer act MB": layer[-1].removesuffix("/layer"),
        "table input LN w MB": row(full, "input_layernorm")[1],
        "table input LN act MB": row(full, "input_layernorm")[2],
        "table self_attn act MB": row(full, "self_attention")[0],
        "table qkv w MB": row(full, "query_key_value")[1],
        "table rearrange qkv act MB": row(full, "rearrange")[0],
        "table flash act MB": row(full, "core_attention_flash")[0],
        "table rearrange act MB": row(full, "rearrange", 1)[0],
        "table dense w MB": row(full, "dense")[1],
        "table dense act MB": row(full, "dense")[2],
        "table post LN act MB": row(full, "post_attention_layernorm")[2],
        "table mlp act MB": row(full, "mlp")[0],
        "table h_to_4h w MB": row(full, "dense_h_to_4h")[1],
        "table bias_glue act MB": row(full, "bias_glue")[0],
        "table 4h_to_h w MB": row(full, "dense_4h_to_h")[1],
        "table 4h_to_h act MB": row(full, "dense_4h_to_h")[2],
        "table drop_add act MB": row(full, "drop_add_fusion")[0],
        "table TP qkv w MB": row(tensor, "query_key_value")[1],
        "table TP rearrange qkv act MB": row(tensor, "rearrange")[0],
        "table TP flash act MB": row(tensor, "core_attention_flash")[0],
        "table TP rearrange act MB": row(tensor, "rearrange", 1)[0],
        "table TP dense w MB": row(tensor, "dense")[1],
        "table TP h_to_4h w MB": row(tensor, "dense_h_to_4h")[1],
        "table TP 4h_to_h w (tool prints UNSPLIT value) MB": row(tensor, "dense_4h_to_h")[1],
        "table TP bias_glue act (tool prints UNSPLIT value) MB": row(tensor, "bias_glue")[0],
        "table TP word_emb w (tool prints UNSPLIT value) MB": row(tensor, "word_embeddings")[1],
        "table TP mlp act (tool prints UNSPLIT value) MB": row(tensor, "mlp")[0],
        "table TP self_attn act (UNSPLIT value) MB": row(tensor, "self_attention")[0],
        "table TP layer act (UNSPLIT value) MB": row(tensor, "ParallelTransformer")[-1].split("/")[
            0
        ],
        "PP single volume MB": after(pipe, "each single", "volume:"),
        "PP freq/gpu/iter": after(pipe, "each iteration communication", "frequency:"),
        "PP vol/gpu/iter MB": after(pipe, "each iteration communication", "volume:"),
        "DP RS volume GB": after(data, "synchronize_gradient", "volume:"),
        "grad accumulation": after(data, "forward_and_backward_compute *"),
        "TP freq/gpu/mb": after(tensor, "each gpu", "each micro_batch", "frequency:"),
        "TP vol/gpu/mb GB": after(tensor, "each gpu", "each micro_batch", "volume:"),
        "TP vol/layer GB": after(tensor, "each transformer", "volume:"),
        "TP freq/gpu/iter": after(tensor, "each gpu", "each iteration", "frequency:"),
        "TP vol/gpu/iter GB": after(tensor, "each gpu", "each iteration", "volume:"),
        "TP freq/cluster/mb": after(tensor, "cluster:", "each micro_batch", "frequency:"),
        "TP vol/cluster/mb GB": after(tensor, "cluster:", "each micro_batch", "volume:"),
        "TP freq/cluster/iter": after(tensor, "cluster:", "each iteration", "frequency:"),
        "TP vol/cluster/iter GB": after(tensor, "cluster:", "each iteration", "volume:"),
    }
    parts = ("input_layernorm", "self_attention", "post_attention_layernorm", "mlp")
    sums = [float(row(full, name)[-1]) for name in (*parts, "drop_add_fusion")]
    found["sum of displayed sub-rows != 1320 (64+384+64+744+96)"] = str(sum(sums))
    return found


def estimates() -> dict[str, str]:
    """Return the tool's figures for the four measured runs, as its reports print them."""
    found = {}
    for tp, pp, dp, micro_batch, batch, name in (
        (1, 1, 8, 2, 2048, "dp8 pp1 tp1 mbs2"),
        (2, 1, 4, 4, 512, "dp4 pp1 tp2 mbs4"),
        (1, 2, 4, 2, 2048, "dp4 pp2 tp1 mbs2"),
        (8, 1, 1, 4, 128, "dp1 pp1 tp8 mbs4"),
    ):
        report = tool_text(make_job(tp=tp, pp=pp, dp=dp, micro_batch=micro_batch, batch=batch))
        found[f"est {name}"] = after(report, "Memory demand on each GPU", "Memory Requirement:")
    return found


def data(path: Path) -> Any:
    if not path.is_file():
        pytest.skip(f"no {path}")
    return json.loads(path.read_text())


def test_every_number_that_the_tool_printed(text: str) -> None:
    """81 checks: 80 as printed, and the one of another revision as its code gives it."""
    checks = data(NUMBERS)["checks"]
    assert len(checks) == 81
    found = printed_numbers(text) | estimates()
    measured = data(MEASURED)["rows"]
    names = [name for name in found if name.startswith("est ")]
    for name, measurement in zip(names, measured, strict=True):
        # That column is made of printed figures, also where the table has another revision's.
        said = measurement["estimate"] if name == UNLIKE else float(found[name])
        error = 100 * (measurement["measured"] - said) / measurement["measured"]
        found["err% " + name.removeprefix("est ").rpartition(" ")[0]] = f"{error:.1f}"
    wrong = {}
    for name, formulas, printed, equal in checks:
        if formulas == "groups":
            continue  # below
        if float(found.pop(name)) != float(formulas if name == UNLIKE else printed):
            wrong[name] = (printed, formulas)
        assert equal == (name != UNLIKE)
    assert not wrong
    assert not found, "a number that the data file does not have"


def test_every_group_that_the_tool_printed(text: str) -> None:
    """The same lists in the same order, in the same sections."""
    if not PRINTED.is_file():
        pytest.skip(f"no {PRINTED}")
    theirs = PRINTED.read_text()
    for title in (
        "Pipeline Parallel Communications",
        "Data Parallel Communications",
        "Tensor Parallel Communications",
    ):
        expected = re.findall(r"\[n\d.*?\]", section(theirs, title))
        assert len(expected) >= 8
        assert re.findall(r"\[n\d.*?\]", section(text, title)) == expected


def test_every_line_that_the_tool_printed(text: str) -> None:
    """But for the spaces between columns, the sections are the same, line by line."""
    if not PRINTED.is_file():
        pytest.skip(f"no {PRINTED}")
    theirs = PRINTED.read_text()
    for title in (
        "Full Model without Parallel",
        "Cluster Communication Summary",
        "Memory demand on each GPU in the cluster",
        "Pipeline Parallel Communications",
        "Data Parallel Communications",
        "Tensor Parallel Communications",
    ):
        mine = words(section(text, title))
        expected = words(section(theirs, title))
        assert len(expected) > 5
        assert mine[: len(expected) - 1] == expected[:-1]


def words(text: str) -> list[str]:
    """Return the lines of a section up to its closing rule, spaces aside."""
    lines = [re.sub(r"[\s=-]+", "", line) for line in text.split("\n")]
    found = [line for line in lines if line and not line.startswith("Given")]
    return found[: next((i for i, x in enumerate(found) if x.startswith("yxyOo")), None)]


def test_json_has_the_same_figures() -> None:
    found = tool_object(make_job())
    assert found["full_model"]["parameters"] == 6642245632
    assert found["rank"]["parameters"] == 1718898688
    assert found["cluster_per_iteration"]["All Communication"]["messages"] == 34818
    assert found["groups"]["pp"][0] == "[n0_g0 n1_g0]"
    assert len(found["stages"]) == 2


def test_one_gpu_sends_nothing() -> None:
    figures = tool_figures(make_job(tp=1, pp=1, dp=1))
    assert {count for count, _ in figures.cluster.values()} == {0}


def test_many_groups_are_not_all_printed() -> None:
    job = make_job(tp=2, pp=2, dp=64)
    short, full = tool_text(job), tool_text(job, all_groups=True)
    assert "more (--all-groups lists them)" in short
    assert len(re.findall(r"\[n\d.*?\]", section(full, "Tensor Parallel Communications"))) == 128


@for_each(
    ("what", "change"),
    [
        ("sequence parallelism", {"settings": replace(SETTINGS, sequence_parallel=True)}),
        ("recomputation",
         {"settings": replace(SETTINGS, recompute=Recompute(granularity="selective"))}),
        ("optimizer sharding", {"settings": Settings()}),
        ("context parallelism", {"settings": replace(SETTINGS, cp=2)}),
        ("SwiGLU", {"model": replace(MODEL, gated=False)}),
        ("mixture of experts",
         {"model": replace(MODEL, experts=Experts(count=8, top_k=2, ffn=1024))}),
    ],
)  # fmt: skip
def test_what_the_tool_cannot_say(what: str, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^--compat analysis-tool: {what}: found .*, expected "):
        tool_text(replace(make_job(), **change))


def test_a_note_where_the_model_is_another(text: str) -> None:
    assert "the tool assumes" not in text
    job = replace(make_job(), model=replace(MODEL, tied=False, bias=False))
    assert "the tool assumes a tied embedding, biases" in tool_text(job)
