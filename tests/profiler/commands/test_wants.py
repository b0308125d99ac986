"""From the text of `--want` to what is asked for."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.measurements import Record
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.profiler.commands.wants import parse_wants
from ilp_planner.profiler.predict.answers import CollectiveWant, ProductWant
from tests.examples import for_each


@pytest.mark.slow
@for_each(
    ("text", "wants"),
    [
        ("tp=8 micro_batch=16", [Want(tp=8, micro_batch=16)]),
        ("tp=2,4 micro-batch-size=1", [Want(tp=2, micro_batch=1), Want(tp=4, micro_batch=1)]),
        ("record=operator name=dense split=0", [
            Want(record=Record.OPERATOR, name="dense", split=0)
        ]),
        ("device=A100 layers=1-24 sequence=8192 hidden=4096", [
            Want(device="A100", layers="1-24", sequence=8192, hidden=4096)
        ]),
        ("collective=all-reduce group_size=16 hosts=2 stride=1 groups=1 bytes=64MiB", [
            CollectiveWant(
                name="all_reduce", group_size=16, hosts=2, stride=1, groups=1, size=64 * 2**20
            )
        ]),
        ("collective=all_gather bytes=1 KiB,64 group_size=2", [
            CollectiveWant(name="all_gather", group_size=2, size=1024.0),
            CollectiveWant(name="all_gather", group_size=2, size=64.0),
        ]),
        ("flop=1.5TFLOP dtype=fp16", [ProductWant(flop=1.5e12, dtype="fp16")]),
        ("flop=1e9", [ProductWant(flop=1e9)]),
    ],
)  # fmt: skip
def test_what_is_asked_for(text, wants):
    assert list(parse_wants([text])) == wants


@for_each(
    ("text", "said"),
    [
        ("", "found nothing"),
        ("tp", "found 'tp', expected KEY=VALUE"),
        ("tp=", "found 'tp='"),
        ("tpp=2", "did you mean 'tp'?"),
        ("tp=0", "tp: found '0', expected a whole number of at least 1"),
        ("tp=two", "expected a whole number"),
        ("tp=2.5", "expected a whole number"),
        ("tp=2 tp=4", "expected tp=2,4"),
        ("layers=4-2", "a layer or a range of layers"),
        ("split=2", "split: found '2', expected 0 or 1"),
        ("record=link", "expected one of layer, operator, step"),
        ("group_size=4", "name it first: collective=all_reduce"),
        ("collective=all_reduce bytes=1MiB", "without group_size"),
        ("collective=reduce group_size=2 bytes=1MiB", "expected one of all_gather, all_reduce"),
        ("collective=all_reduce group_size=2 bytes=-1MiB", "must be positive"),
        ("collective=all_reduce group_size=2 bytes=1Mib", "must have a unit out of"),
        ("collective=all_reduce group_size=2 hosts=4 bytes=1MiB", "group_size=4 or more"),
        ("collective=all_reduce tp=2 group_size=2 bytes=1MiB", "found 'tp'"),
        ("flop=many", "a number of FLOP such as 1e12"),
        ("flop=1e999", "a number of FLOP"),
        ("tp=" + ",".join(["1"] * 400) + " micro_batch=" + ",".join(["1"] * 400), "at most"),
    ],
)
def test_what_cannot_be_asked_for(text, said):
    with pytest.raises(UsageError, match=r"^--want: ") as caught:
        parse_wants([text])
    assert said in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_is_a_bug(text):
    with contextlib.suppress(UsageError):
        parse_wants([text])
