"""The reader of AMP's file: what it gives, and what it says of files that are wrong."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import PlannerError, ProfileError
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.amp.profile import read_amp, read_amp_profile
from ilp_planner.peers.amp.tables import amp_table, layer_profile
from tests.amp_cases import DATA, EXPERIMENTS, SECONDS, content, entry, experiment, published, write
from tests.examples import for_each


def test_rows_models_and_clusters(tmp_path: Path) -> None:
    found = read_amp(write(tmp_path, content()))
    assert (found.name, found.global_batch) == ("pair", 16)
    assert found.cluster.type_names == ("F1", "S1")
    profile = found.profile
    assert profile.degrees("F1") == profile.degrees("S1") == (1, 2)
    assert profile.forward["S1", 2].tolist() == [2 * s for s in SECONDS]
    model = profile.model
    assert model.layers == (
        "embed", "transpose", "block0", "block1", "transpose", "norm", "logits", "to_fp32",
    )  # fmt: skip
    assert model.sent.tolist() == [32 * 64] * 6 + [32 * 128] * 2
    assert model.parameters.sum() == 2 * 12 * 64**2
    assert model.tied_parameters == 64 * 128
    assert np.flatnonzero(model.tied).tolist() == [0, 6]


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    """Neither that of profiles, nor of nodes, nor of keys."""
    values = content()
    first = read_amp(write(tmp_path, values))
    shuffled: Any = values
    for seed in range(5):
        shuffled = _shuffled(values, random.Random(seed))
        again = read_amp(write(tmp_path, shuffled))
        assert again.cluster == first.cluster
        assert list(again.profile.forward) == list(first.profile.forward)
        for key, row in first.profile.forward.items():
            assert (again.profile.forward[key] == row).all()
    assert json.dumps(shuffled) != json.dumps(values)


def _shuffled(value: Any, generator: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        generator.shuffle(keys)
        return {key: _shuffled(value[key], generator) for key in keys}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        generator.shuffle(items := [_shuffled(item, generator) for item in value])
        return items
    return value


def test_a_hostfile_names_the_nodes(tmp_path: Path) -> None:
    hosts = (("n1", 2), ("n2", 4))
    found = read_amp(write(tmp_path, content()), hosts=hosts, hostfile="hostfile")
    assert [(g.name, g.devices) for g in found.cluster.nodes] == [("n1", 2), ("n2", 4)]


def test_rows_for_a_cluster_from_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path, content())
    profile = read_amp_profile(path, "gpt", ["slow.large", "fast.large GPU"])
    assert sorted(profile.forward) == [
        ("fast.large GPU", 1), ("fast.large GPU", 2), ("slow.large", 1), ("slow.large", 2),
    ]  # fmt: skip
    with pytest.raises(ProfileError, match="rows of 'gpt' on 'H100', found those on fast"):
        read_amp_profile(path, "gpt", ["H100"])


def test_a_layer_profile_has_one_sample_and_predicted_memory(tmp_path: Path) -> None:
    profile = read_amp(write(tmp_path, content())).profile
    layers = layer_profile(profile)
    assert layers.samples("F1", 2) == (1,)
    assert layers.time[LayerKey("F1", 1, 1)].tolist() == [3 * s for s in SECONDS]
    assert layers.gradients.sum() == 4 * (2 * 12 * 64**2 + 2 * 64 * 128)
    assert layers.state["F1", 2].sum() == 16 * layers.gradients.sum() / 4 / 2
    assert (layers.activation["F1", 2][2:4] < layers.activation["F1", 1][2:4]).all()
    assert layers.boundary[[0, 1, -1]].tolist() == [0, 2 * 32 * 64, 0]
    assert layers.isolated
    assert layers.notes


# ---- what is wrong is named ---------------------------------------------------------------------


def changed(*path: str | int, to: Any = None) -> dict[str, Any]:
    """Return the file with one value replaced, or removed."""
    values: Any = content()
    at = values
    for key in path[:-1]:
        at = at[key]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return values  # type: ignore[no-any-return]


SHORT = SECONDS[:-1]
CASES = {
    "no clusters": (changed("clusters"), "clusters must be an object, found nothing"),
    "no profiles": (changed("profiles"), "profiles must be an object, found nothing"),
    "no model": (changed("gpt"), "gpt must be an object, found nothing"),
    "no batch": (changed("clusters", "pair", "gbs"), "clusters.pair: gbs is missing"),
    "layers asked": (changed("gpt", "layers", to=3),
     "profiles.gpt_F_1: forward_s must have 9 layers, as 'gpt' has with its 3 blocks, found 8"),
    "layers counted": (changed("profiles", "gpt_S_1", "n_layers", to=9),
     "profiles.gpt_S_1: n_layers must be the length of forward_s (8), found 9"),
    "negative time": (changed("profiles", "gpt_F_1", "forward_s", 2, to=-1.0),
     "profiles.gpt_F_1: forward_s[2] must be positive seconds, found -1.0"),
    "endless time": (changed("profiles", "gpt_F_1", "forward_s", 2, to=10**400),
     "profiles.gpt_F_1.forward_s[2]: found a number of 401 digits, expected at most 40"),
    "a text for a time": (changed("profiles", "gpt_F_1", "forward_s", 0, to="fast"),
     "profiles.gpt_F_1: forward_s[0] must be positive seconds, found 'fast'"),
    "no times": (changed("profiles", "gpt_F_1", "forward_s", to={}),
     "profiles.gpt_F_1: forward_s must be a list of seconds, found {}"),
    "unknown instance": (changed("clusters", "pair", "nodes", 1, "instance", to="p5.48xlarge"),
     "profiles: expected rows of 'gpt' on 'p5.48xlarge', found those on fast.large, slow.large"),
    "two of one kind": (changed("profiles", "again", to=entry("fast.large", 1)),
     "profiles.gpt_F_1: must differ from again in instance or tp, found the same"),
    "two samples": (changed("profiles", "gpt_F_1", "mbs", to=2),
     "profiles.gpt_F_1: mbs must be 1: AMP scales one sample, found 2"),
    "a list for a file": ([1, 2], "expected an object with clusters and profiles, found [1, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_line_says_what_is_wrong(tmp_path: Path, case: str) -> None:
    values, expected = CASES[case]
    path = write(tmp_path, values)
    with pytest.raises(PlannerError) as error:
        read_amp(path, "pair")
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert message.removeprefix(f"{path}: ").startswith(expected)
    assert "\n" not in message
    assert len(message) < 300 + len(str(path))


def test_nan_is_no_number(tmp_path: Path) -> None:
    path = write(tmp_path, changed("profiles", "gpt_F_1", "forward_s", 2, to=float("nan")))
    with pytest.raises(ProfileError, match="not valid JSON: NaN is not a number"):
        read_amp(path)


def test_an_experiment_must_be_chosen(tmp_path: Path) -> None:
    values = content()
    values["clusters"]["more"] = values["clusters"]["pair"]
    path = write(tmp_path, values)
    assert read_amp(path, "more").name == "more"
    with pytest.raises(PlannerError, match="expected one of pair, more, found no experiment"):
        read_amp(path)
    with pytest.raises(PlannerError, match="expected one of pair, more, found 'mare'"):
        read_amp(path, "mare")


@pytest.mark.slow
def test_every_value_may_be_missing_or_wrong(tmp_path: Path) -> None:
    """Whatever is removed or replaced by nonsense gives a result or one line, never a traceback."""

    def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
        items = value.items() if isinstance(value, dict) else enumerate(value[:2])
        found = []
        for key, inner in items:
            found.append((*path, key))
            if isinstance(inner, dict | list):
                found += places(inner, (*path, key))
        return found

    tried = 0
    for place in places(content()):
        for wrong in (
            None,
            "",
            "x",
            -1,
            0,
            1.5,
            10**400,
            1e308,
            5e-324,
            True,
            [],
            {},
            [None],
            {"a": 1},
        ):
            path = write(tmp_path, changed(*place, to=wrong))
            tried += 1
            try:
                read_amp(path)
            except PlannerError as error:
                assert "\n" not in str(error)  # noqa: PT017
    assert tried > 500


# ---- TransGAN -----------------------------------------------------------------------------------


def transgan() -> dict[str, Any]:
    values = content()
    values["clusters"]["pair"]["model"] = "gan"
    values["gan"] = {"depth": [2, 0, 0, 0, 0, 1], "gf_dim": 128, "bottom_width": 3}
    values["gan_units"] = {"dp_units_to_ds_layer": [0, 2, 3, 6]}
    for row in values["profiles"].values():
        row["model"] = "gan"
    return values


def test_a_model_may_have_layers_that_are_not_cut_between(tmp_path: Path) -> None:
    profile = read_amp(write(tmp_path, transgan())).profile
    assert profile.forward["F1", 1].tolist() == [SECONDS[n] for n in (0, 2, 3, 6)]
    model = profile.model
    assert model.parameters.tolist() == [0, 12 * 128**2, 12 * 128**2, 12 * 2**2]
    assert model.sent.tolist() == [128 * 9] * 4
    between = [SECONDS[0], SECONDS[1] + SECONDS[2], SECONDS[3], sum(SECONDS[4:])]
    found = layer_profile(profile).time[LayerKey("F1", 1, 1)]
    assert found == pytest.approx([3 * seconds for seconds in between])
    unknown = replace(profile, model=replace(model, memory=None))
    with pytest.raises(ProfileError, match="'gan': expected a model whose memory follows"):
        layer_profile(unknown)
    assert any("not known" in note for note in amp_table(unknown).notes)
    assert amp_table(unknown).frame["state_bytes"].isna().all()


def test_blocks_of_six_sizes_stand_where_amp_s_program_has_them(tmp_path: Path) -> None:
    values, depth = transgan(), [2, 1, 1, 1, 2, 3]
    values["gan"] = {"depth": depth, "gf_dim": 128, "bottom_width": 3}
    del values["gan_units"]
    for row in values["profiles"].values():
        row["forward_s"] = [1e-4 * (n + 1) for n in range(32 + sum(depth))]
        row["n_layers"] = 32 + sum(depth)
    model = read_amp(write(tmp_path, values)).profile.model
    assert model.rows == (0, 3, 4, 9, 12, 19, 27, 28, 36, 37, 38)
    assert np.sqrt(model.parameters / 12).tolist() == [0, 128, 128, 128, 128, 32, 8, 8, 2, 2, 2]
    assert model.layers[3:8] == ("second0", "third0", "quarter0", "sixteenth0", "sixteenth1")
    values["profiles"]["gpt_F_1"]["forward_s"].pop()
    values["profiles"]["gpt_F_1"]["n_layers"] -= 1
    with pytest.raises(PlannerError, match="must have 42 layers, as 'gan' has with its 10 blocks"):
        read_amp(write(tmp_path, values))


@published
def test_the_published_units_are_where_amp_s_program_has_them(tmp_path: Path) -> None:
    values = json.loads((DATA / "profiles.json").read_text())
    del values["transgan_units"]
    model = read_amp(write(tmp_path, values), "het_model").profile.model
    assert model.rows == experiment("het_model").profile.model.rows


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("gan", "depth", 3, "gan: depth must be a list of 6 numbers of blocks, found 3"),
        ("gan", "depth", [2, 0, 1], "gan: depth must be a list of 6 numbers of blocks, found"),
        ("gan", "depth", [2**22, 1, 0, 0, 0, 0], "gan: depth must add up to at most 20000 blocks"),
        ("gan_units", "dp_units_to_ds_layer", [0, 2, 3], "must list 4 layers .* found 3"),
        ("gan_units", "dp_units_to_ds_layer", [0, 3, 2, 6], "must be ascending layer numbers"),
        ("gan_units", "dp_units_to_ds_layer", [0, 2, 3, 8], "must have at least 9 layers"),
    ],
)
def test_units_must_be_layers(
    tmp_path: Path, section: str, key: str, value: Any, expected: str
) -> None:
    values = transgan()
    values[section][key] = value
    with pytest.raises(PlannerError, match=expected):
        read_amp(write(tmp_path, values))


@published
@for_each("name", EXPERIMENTS)
def test_the_published_file_reads(name: str) -> None:
    found = experiment(name)
    assert found.cluster.device_count == 16
    assert len(found.profile.model.layers) == (25 if name == "het_model" else 30)
    for device in found.cluster.type_names:
        assert found.profile.degrees(device) == (1, 2, 4)
