"""The table of Megatron-LM's arguments, and words to values and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import MOST
from ilp_planner.formats.megatron.flags import find_flag, flags, flags_by_key
from ilp_planner.formats.megatron.values import (
    parse_values,
    read_pattern,
    write_pattern,
    write_value,
)
from tests.examples import for_each


def test_every_entry_of_the_table_is_read() -> None:
    table = flags()
    assert len(table) > 800
    assert all(
        flag.kind in ("switch", "int", "float", "str", "pattern", "sizes")
        for flag in table.values()
    )
    assert all("_" not in name or "opt_param" in name for name in table)
    assert {flag.key for flag in table.values()} == set(flags_by_key())


@for_each(
    ("name", "key", "kind", "default"),
    [
        ("num-layers", "num_layers", "int", None),
        ("tensor-model-parallel-size", "tensor_model_parallel_size", "int", 1),
        ("disable-bias-linear", "add_bias_linear", "switch", True),
        ("fp8-format", "fp8", "str", None),
        ("no-rope-fusion", "apply_rope_fusion", "switch", True),
        ("moe-layer-freq", "moe_layer_freq", "pattern", 1),
        ("hidden-dropout", "hidden_dropout", "float", 0.1),
    ],
)
def test_entries(name: str, key: str, kind: str, default: object) -> None:
    flag = flags()[name]
    assert (flag.key, flag.kind, flag.default) == (key, kind, default)


@for_each(
    ("typed", "hint"),
    [
        ("--tensor-model-parallel-size-per-stage", "did you mean --tensor-model-parallel-size?"),
        ("--num_layers", "did you mean --num-layers?"),
        ("--recompute-granularty", "did you mean --recompute-granularity?"),
        ("--use-legacy-models", "no such argument any more"),
        ("--zzz", "unrecognized arguments"),
    ],
)
def test_unknown_flags(typed: str, hint: str) -> None:
    with pytest.raises(SpecError, match=f"^{typed}: Megatron-LM has") as caught:
        find_flag(typed)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_of_all_kinds() -> None:
    line = (
        "--num-layers 4 --hidden-dropout=0.5 --bf16 --disable-bias-linear --moe-layer-freq "
        "([0]*1+[1]*3) --rampup-batch-size 1 2 3 --recompute-modules mlp moe --window-size 128,0 "
        "--data-path --null-tokenizer-pad-id -1 --num-layers 8"
    )
    assert parse_values(line.split()) == {
        "num_layers": 8,
        "hidden_dropout": 0.5,
        "bf16": True,
        "add_bias_linear": False,
        "moe_layer_freq": (0, 1, 1, 1),
        "rampup_batch_size": (1, 2, 3),
        "recompute_modules": ("mlp", "moe"),
        "window_size": (128, 0),
        "data_path": (),
        "null_tokenizer_pad_id": -1,
    }


@for_each(
    ("words", "message"),
    [
        ("--num-layers", "--num-layers: expected a value after it, found none"),
        ("--num-layers x", "--num-layers: found 'x', expected a whole number"),
        ("--hidden-dropout nan", "--hidden-dropout: found 'nan', expected a number"),
        ("--num-layers 1 2", "'2': expected an argument that begins with --"),
        ("--bf16=1", "--bf16: found '1', expected no value: it is a switch"),
        ("--rampup-batch-size 1 2", "expected 3 values after it, found 2"),
        ("--recompute-method all", "found 'all', expected one of uniform, block"),
        ("--moe-layer-freq [0]*999999999", "expected a whole number or a list"),
        ("--moe-layer-freq __import__('os')", "expected a whole number or a list"),
        ("--bogus 1 --other", "--bogus: Megatron-LM has no such argument .* 1 more unknown"),
    ],
)
def test_what_is_no_value(words: str, message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("[0]*999", r"\[0\]\*999")):
        parse_values(words.split())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_patterns_there_and_back(entries: list[int]) -> None:
    assert read_pattern(write_pattern(tuple(entries))) == tuple(entries)


def test_patterns_as_people_write_them() -> None:
    assert read_pattern("4") == 4
    assert read_pattern("([1]*3+[0]*2)*2") == (1, 1, 1, 0, 0) * 2
    assert read_pattern("[0,1]*2") == (0, 1, 0, 1)
    for text in ("[", "[1]+2", "(1,2)", "[1]*[2]", "[[1]]", "x", "[1]" * 5000):
        with pytest.raises(ValueError, match=r".*"):
            read_pattern(text)


@given(st.sampled_from(sorted(flags_by_key())), st.data())
def test_every_argument_there_and_back(key: str, data: st.DataObject) -> None:
    flag, most = flags_by_key()[key][0], MOST.get(key, 1e6)
    one: st.SearchStrategy = {
        "int": st.integers(-5, int(most)),
        "float": st.floats(-most, most),
        "str": st.sampled_from(flag.choices or ("a", "b/c", "x y", "-a")),
        "pattern": st.integers(0, 9) | st.lists(st.integers(0, 1), min_size=1).map(tuple),
        "sizes": st.lists(st.integers(-1, 9), min_size=2, max_size=2).map(tuple),
        "switch": st.just(flag.sets),
    }[flag.kind]
    if flag.choices and flag.kind == "int":
        one = st.sampled_from([int(choice) for choice in flag.choices])
    if flag.many:
        one = st.lists(one, min_size=max(1, flag.least), max_size=flag.most or 4).map(tuple)
    value = data.draw(one)
    if flag.many and "-a" in value:
        with pytest.raises(ValueError, match="cannot say '-a' among its values"):
            write_value(key, value)
    else:
        assert parse_values(write_value(key, value)) == {key: value}


def test_values_that_look_like_flags_are_written_with_their_flag() -> None:
    assert write_value("window_size", (-1, 0)) == ("--window-size=-1,0",)
    assert write_value("window_size", (4, 0)) == ("--window-size", "4,0")
    assert write_value("load", "-a") == ("--load=-a",)
    assert write_value("seed", -5) == ("--seed", "-5")


def test_of_thousands_of_unknown_flags_one_is_compared_with_all(monkeypatch) -> None:
    """A comparison takes some 40 ms, and only the first unknown argument is said."""
    from ilp_planner.formats.megatron import flags as module
    from ilp_planner.formats.megatron.values import parse_values

    asked = []
    nearest = module._nearest
    monkeypatch.setattr(module, "_nearest", lambda name: asked.append(name) or nearest(name))
    with pytest.raises(SpecError, match=r"--num-layersx: .* did you mean --num-layers\? \(and 999"):
        parse_values(["--num-layersx", *(f"--num-layersx{n}" for n in range(999))])
    assert asked == ["num-layersx"]
