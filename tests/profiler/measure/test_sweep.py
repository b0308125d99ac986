"""Sweeps: every row on disk, what does not fit said so, what is lost not lost with its rows."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import MeasureError, ProfileError, UsageError
from ilp_planner.costs.profiles.measurements import (
    Record,
    measurements_of,
    read_measurements,
    rows_of,
)
from ilp_planner.profiler.measure import sweep as module
from ilp_planner.profiler.measure.journal import begun, row_key
from ilp_planner.profiler.measure.layers import LayerBench
from ilp_planner.profiler.measure.run import measure_model
from ilp_planner.profiler.measure.wish import Spread
from tests.profiler.measure.small_decoders import GPT, LLAMA, MIXED, spec

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
LAYERS = (Record.LAYER,)


def measure(path, model=LLAMA, **options):
    given = {
        "device": "cpu",
        "dtype": "fp32",
        "repeats": 1,
        "records": LAYERS,
        "micro_batch_sizes": (1, 2),
    }
    return measure_model(spec(model), output=path, **given | options)


def rows_at(path, **columns):
    rows = rows_of(read_measurements(path).frame)
    return [r for r in rows if all(r.get(name) == value for name, value in columns.items())]


def limited(monkeypatch, fits):
    """Let stacks run out of memory unless `fits(kinds, job)`."""
    made = LayerBench.__init__

    def start(self, kinds, job, target, *, copies):
        if not fits(tuple(kinds), job):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        made(self, kinds, job, target, copies=copies)

    monkeypatch.setattr(LayerBench, "__init__", start)


def test_rows_of_every_shard(tmp_path):
    path = tmp_path / "profile.csv"
    summary = measure(path, degrees=(1, 2))
    assert (summary.measured, summary.exhausted, summary.failed) == (16, [], [])
    table = read_measurements(path)
    assert table.machine["model"] == "small"
    assert table.machine["dtype"] == "fp32"
    assert "scaled_dot_product" in table.machine["attention"]
    for row in rows_at(path, record="layer"):
        assert row["time_s"] == pytest.approx(row["forward_s"] + row["backward_s"])
        assert row["optimizer_s"] > 0
        assert row["state_bytes"] == 4 * row["weight_bytes"]
        assert row["repeats"] == 1
        assert row["sequence"] == 16
    layers = {r["tp"]: r for r in rows_at(path, name="layer", micro_batch=2)}
    hidden = 4 * 2 * 16 * 32
    assert "messages" not in layers[1]
    assert (layers[2]["messages"], layers[2]["message_bytes"]) == (2, hidden)
    assert layers[1]["input_bytes"] == layers[1]["output_bytes"] == hidden
    (first,) = rows_at(path, name="embedding", micro_batch=2, tp=2)
    assert (first["messages"], first["message_bytes"]) == (0.5, hidden)
    assert first["layers"] == "0"


def test_every_kind_of_layer_is_measured(tmp_path):
    path = tmp_path / "profile.csv"
    measure(path, MIXED, micro_batch_sizes=(1,))
    found = {row["layers"]: row["name"] for row in rows_at(path, record="layer")}
    assert found == {"0": "embedding", "1": "layer", "2-4": "layer with experts", "5": "head"}


def test_ranks_of_experts_and_of_parts_of_samples_have_rows_of_their_own(tmp_path):
    path = tmp_path / "profile.csv"
    degrees = {"degrees": (1, 2), "micro_batch_sizes": (1,)}
    spread = Spread(context=(1, 2), experts=(4,), tensor=(1, 2))
    summary = measure(path, MIXED, **degrees, spread=spread)
    assert summary.failed == []
    rows = rows_at(path, record="layer")
    whole = [row for row in rows if "ep" not in row]
    assert {(row["tp"], row.get("cp", 1), row["name"]) for row in whole} == {
        (tp, cp, name) for tp in (1, 2) for cp in (1, 2)
        for name in ("embedding", "layer", "layer with experts", "head")
    }  # fmt: skip
    apart = [row for row in rows if "ep" in row]
    assert {row["name"] for row in apart} == {"layer with experts"}
    found = sorted((row["tp"], row.get("cp", 1), row["ep"], row["etp"]) for row in apart)
    assert found == [
        (1, 1, 4, 1), (1, 2, 4, 1), (2, 1, 1, 1), (2, 1, 4, 1), (2, 1, 4, 2), (2, 2, 1, 1),
        (2, 2, 4, 1), (2, 2, 4, 2),
    ]  # fmt: skip
    sent = {(row["etp"], row["messages"]) for row in apart if row["tp"] == 2}
    assert sent == {(1, 1), (2, 1)}, "attention's; the experts' are the planner's"
    again = measure(path, MIXED, **degrees, spread=spread, resume=True)
    assert (again.measured, again.there) == (0, len(rows) + 2)


@pytest.mark.parametrize(
    ("model", "spread", "message"),
    [
        (MIXED, Spread(experts=(3,)), "ep: found 3, expected a divisor of 4 experts: 1, 2, 4"),
        (LLAMA, Spread(experts=(2,)), "ep: found 2, expected none: the model has no experts"),
        (MIXED, Spread(tensor=(2,)), "etp: found 2, expected 1 or a tp .*: 1$"),
        (LLAMA, Spread(context=(3,)), "cp: found 3, expected half of a divisor of the 16 tok"),
    ],
)
def test_degrees_that_do_not_divide_are_refused(tmp_path, model, spread, message):
    with pytest.raises(UsageError, match=message):
        measure(tmp_path / "profile.csv", model, spread=spread)
    assert not (tmp_path / "profile.csv").exists()


def test_operators_of_both_splits(tmp_path):
    path = tmp_path / "profile.csv"
    measure(path, GPT, degrees=(1, 2), records=(Record.OPERATOR,), micro_batch_sizes=(1,))
    rows = rows_at(path, record="operator")
    assert len(rows) == 2 * 2 * 16
    qkv = {(r["tp"], r["split"]): r for r in rows if r["name"] == "enc-attention-qkv"}
    assert qkv[1, 0]["time_s"] == qkv[1, 1]["time_s"], "one device has nothing to divide"
    assert qkv[2, 1]["output_bytes"] > qkv[2, 0]["output_bytes"]
    assert qkv[1, 0]["flop"] == 2 * 16 * 32 * 96


def test_the_table_can_be_read_after_every_row(tmp_path, monkeypatch):
    path = tmp_path / "profile.csv"
    counts = []
    add = module.Sweep._write

    def write(self, row):
        add(self, row)
        counts.append(len(read_measurements(path).frame))

    monkeypatch.setattr(module.Sweep, "_write", write)
    measure(path)
    assert counts == list(range(1, len(counts) + 1))


def test_what_does_not_fit_is_said_and_larger_ones_are_not_tried(tmp_path, monkeypatch):
    """The head runs out of memory from two samples on; all else fits, but not beside it."""
    path = tmp_path / "profile.csv"
    tried = []

    def fits(kinds, job):
        tried.append((kinds, job.micro_batch))
        return "head" not in kinds or job.micro_batch < 2

    limited(monkeypatch, fits)
    summary = measure(path, micro_batch_sizes=(1, 2, 4))
    heads = {row["micro_batch"]: row for row in rows_at(path, name="head")}
    assert [heads[m]["status"] for m in (1, 2, 4)] == ["ok", "out_of_memory", "out_of_memory"]
    assert "Tried to allocate" in heads[2]["source"]
    assert heads[4]["source"] == "not tried: micro-batch 2 did not fit"
    assert "time_s" not in heads[4]
    assert len(rows_at(path, name="layer", status="ok")) == 3
    assert not [kinds for kinds, size in tried if size == 4 and "head" in kinds]
    assert len(summary.exhausted) == 2


def test_a_cpu_is_asked_before_it_is_filled(tmp_path, monkeypatch):
    path = tmp_path / "profile.csv"
    monkeypatch.setattr("ilp_planner.profiler.measure.target.free_memory", lambda: 1000.0)
    summary = measure(path)
    assert summary.measured == 0
    assert {row["status"] for row in rows_at(path)} == {"out_of_memory"}
    assert "would need about" in rows_at(path, micro_batch=1)[0]["source"]


def test_what_fails_is_said_and_the_rest_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "profile.csv"

    def sample(self, passes):
        if self.job.micro_batch == 1:
            raise RuntimeError("no kernel image is available\nfor execution")
        real(self, passes)

    real = LayerBench.sample
    monkeypatch.setattr(LayerBench, "sample", sample)
    summary = measure(path)
    assert len(summary.failed) == 3
    assert (
        rows_at(path, status="failed")[0]["source"] == "no kernel image is available for execution"
    )
    assert len(rows_at(path, status="ok", record="layer")) == 3
    # What failed is tried again.
    monkeypatch.setattr(LayerBench, "sample", real)
    again = measure(path, resume=True)
    assert (again.measured, again.failed) == (4, [])
    assert not rows_at(path, status="failed")


def test_a_gpu_that_disappears_leaves_its_rows(tmp_path, monkeypatch):
    path = tmp_path / "profile.csv"

    def sample(self, passes):
        if self.job.micro_batch == 2:
            raise RuntimeError("CUDA error: device lost\nCUDA kernel errors might be asynchronous")
        real(self, passes)

    real = LayerBench.sample
    monkeypatch.setattr(LayerBench, "sample", sample)
    with pytest.raises(MeasureError, match=r"does not answer any more .*4 rows .*`resume` goes on"):
        measure(path)
    assert len(rows_at(path)) == 4
    monkeypatch.setattr(LayerBench, "sample", real)
    summary = measure(path, resume=True)
    assert (summary.there, summary.measured) == (4, 4)
    keys = [row_key(row) for row in rows_at(path)]
    assert len(keys) == len(set(keys)) == 8


def test_going_on_does_not_measure_twice(tmp_path, monkeypatch):
    path = tmp_path / "profile.csv"
    measure(path, GPT, records=(Record.LAYER, Record.OPERATOR), micro_batch_sizes=(1,))
    before = path.read_text()
    monkeypatch.setattr(LayerBench, "__init__", None)
    summary = measure(
        path, GPT, records=(Record.LAYER, Record.OPERATOR), micro_batch_sizes=(1,), resume=True
    )
    assert (summary.measured, summary.there) == (0, 4 + 32)
    assert path.read_text() == before


def test_half_a_line_is_taken_off(tmp_path):
    path = tmp_path / "profile.csv"
    measure(path, micro_batch_sizes=(1,))
    text = path.read_text()
    path.write_text(text + "layer,CPU,he")
    summary = measure(path, micro_batch_sizes=(1, 2), resume=True)
    assert (summary.there, summary.measured) == (4, 4)
    assert path.read_text().startswith(text)


def test_a_table_of_something_else_is_not_gone_on_with(tmp_path):
    path = tmp_path / "profile.csv"
    measure(path, micro_batch_sizes=(1,))
    with pytest.raises(ProfileError, match="dtype: found 'fp32', expected 'bf16' to go on"):
        measure(path, resume=True, dtype="bf16")
    with pytest.raises(ProfileError, match="device: found 'CPU', expected 'EPYC'"):
        measure(path, resume=True, device_name="EPYC")
    assert begun(tmp_path / "none.csv", {}) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 64},
        *(
            pytest.param(other, marks=pytest.mark.slow)
            for other in ({"layers": 5}, {"vocab": 600}, {"heads": 2})
        ),
    ],
)
def test_a_model_that_was_changed_is_not_gone_on_with(tmp_path, change):
    """Its name is the same, and the rows would be taken for its own."""
    path = tmp_path / "profile.csv"
    measure(path, micro_batch_sizes=(1,))
    before = path.read_text()
    with pytest.raises(
        ProfileError, match=r"architecture: found 'layers 3, hidden 32, .* expected"
    ):
        measure(path, replace(LLAMA, **change), micro_batch_sizes=(1,), resume=True)
    assert path.read_text() == before
    # The tokens of a sample are in every row.
    longer = replace(LLAMA, sequence=32, max_position_embeddings=32)
    assert measure(path, longer, micro_batch_sizes=(1,), resume=True).measured == 4


def test_rows_with_and_without_messages_are_not_mixed(tmp_path):
    path = tmp_path / "profile.csv"
    measure(path, micro_batch_sizes=(1,))
    links = measurements_of(
        [
            {"record": "collective", "name": "all_reduce", "group_size": 2, "hosts": 1}
            | {"bytes": size, "time_s": 0.5, "status": "ok", "provenance": "measured"}
            for size in (1.0, 1e9)
        ],
        "links.csv",
    )
    with pytest.raises(ProfileError, match=r"links: found 'not in .*expected 'in .*links\.csv"):
        measure(path, micro_batch_sizes=(1, 2), links=links, resume=True)


def test_links_are_in_the_times(tmp_path):
    path = tmp_path / "profile.csv"
    links = measurements_of(
        [
            {"record": "collective", "name": "all_reduce", "group_size": 2, "hosts": 1}
            | {"stride": 1, "groups": 1, "bytes": size, "time_s": 1000.0 + size * 1e-6}
            for size in (64, 4096, 2**20)
        ],
        "links.csv",
    )
    measure(path, degrees=(1, 2), micro_batch_sizes=(1,), links=links)
    (row,) = rows_at(path, name="layer", tp=2)
    assert "messages" not in row
    assert 4000 < row["time_s"] < 4500, "two all-reduces each way, of a thousand seconds"
    assert 2000 < row["forward_s"] < 2250
    (alone,) = rows_at(path, name="layer", tp=1)
    assert alone["time_s"] < 500
    with pytest.raises(ProfileError, match="expected rows of all_reduce"):
        measure(path, links=measurements_of([], "none.csv"))


@pytest.mark.slow
def test_shares_of_the_work_grow_to_the_end(tmp_path):
    seen = []
    measure(
        tmp_path / "profile.csv",
        GPT,
        degrees=(1, 2),
        micro_batch_sizes=(1,),
        records=(Record.LAYER, Record.OPERATOR),
        progress=lambda share, what: seen.append(share),
    )
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0


def test_nothing_is_begun_that_cannot_be_done(tmp_path):
    path = tmp_path / "profile.csv"
    with pytest.raises(UsageError, match="expected a divisor of 2"):
        measure(path, degrees=(1, 4))
    with pytest.raises(UsageError, match="expected gpt, t5 or resnet: of others"):
        measure(path, records=(Record.OPERATOR,))
    assert not path.exists()
