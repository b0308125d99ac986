"""`ilp-plan evaluate`: judged from the inputs, whatever the file claims."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faces.cli.conftest import Done, swapped
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]


@pytest.fixture
def check() -> Iterator[SimpleNamespace]:
    """Replace the certificate checker; `holds` and `bound` are what it finds."""
    box = SimpleNamespace(holds=True, bound=1e-3)

    def check_certificate(problem: object, certificate: dict[str, object]) -> SimpleNamespace:
        part = SimpleNamespace(
            part=4, claimed=1e-3, rederived=box.bound, by="stage bounds", holds=box.holds
        )
        return SimpleNamespace(bound=box.bound, parts=(part,), holds=box.holds, notes=())

    with swapped("ilp_planner.optimize.certificate", "check_certificate", check_certificate):
        yield box


def test_a_good_plan(ilp_plan: Command, saved: Path) -> None:
    done = ilp_plan("evaluate", saved)
    assert done.code == 0
    assert done.err == ""
    assert "plan            legal" in done.out
    assert "claimed gap     1.00 %" in done.out


def test_the_verdict_comes_first(ilp_plan: Command, saved: Path, check: SimpleNamespace) -> None:
    words = {"claimed by the file": (), "derived again": ("--check-certificate",)}
    for word, option in words.items():
        done = ilp_plan("evaluate", saved, *option)
        head = done.out.split("\n\n")[0]
        step, verdict, *_ = head.splitlines()
        assert " per step  " in step
        assert verdict.startswith("WITHIN 1.1 %  ")
        assert f"; {word}" in " ".join(head.split()), head
        assert max(map(len, done.out.splitlines())) <= 120


def test_as_json(ilp_plan: Command, saved: Path, check: SimpleNamespace) -> None:
    done = ilp_plan("evaluate", saved, "--json", "--check-certificate")
    assert done.code == 0
    value = json.loads(done.out)
    assert value["legal"] is True
    assert value["iteration_time_s"] > 0
    assert value["certificate"]["bound_s"] == check.bound
    assert value["certificate"]["parts"][0]["by"] == "stage bounds"


def test_inputs_are_found_from_another_folder(
    ilp_plan: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved.resolve()
    below = path.parent / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert ilp_plan("evaluate", path).code == 0


def test_of_two_files_the_one_with_the_recorded_content_counts(
    ilp_plan: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved.resolve()
    other = path.parent / "other"
    other.mkdir()
    (other / "tiny.toml").write_text("nonsense")
    monkeypatch.chdir(other)
    assert ilp_plan("evaluate", path).code == 0


@pytest.mark.parametrize(("kind", "name"), [("model", "tiny.toml"), ("cluster", "pair.toml")])
def test_a_changed_file_is_noted_and_the_plan_judged_by_what_it_holds(
    ilp_plan: Command, saved: Path, kind: str, name: str
) -> None:
    before = json.loads(ilp_plan("evaluate", saved, "--json").out)
    assert before.pop("notes") == []
    text = Path(name).read_text()
    for old, new in (("hidden = 256", "hidden = 512"), ('"900 GB/s"', '"90 GB/s"')):
        text = text.replace(old, new)
    Path(name).write_text(text)
    note = f"{kind} {name}: differs today from what the plan was saved with, which it is judged by"
    after = json.loads(ilp_plan("evaluate", saved, "--json").out)
    assert after.pop("notes") == [note]
    assert after == before
    done = ilp_plan("evaluate", saved)
    assert done.code == 0
    assert f"note            {note}\n" in done.out


def test_a_changed_profile_is_refused_unless_accepted(ilp_plan: Command) -> None:
    """A plan holds no profile, which can be large: only its path and hash."""
    write_room(Path())
    options = ["--cluster", "room.toml", "--profile", "metis:profile", *SIZE_OPTIONS]
    options += ["--global-batch-size", "16", "--output", "plan.json"]
    assert ilp_plan("solve", *options).code == 0
    file = min(Path("profile").glob("*_tp1_bs1.json"))
    file.write_text(file.read_text() + "\n")
    done = ilp_plan("evaluate", "plan.json")
    assert done.code == 1
    assert done.out == ""
    assert "plan.json: inputs.profile: found sha256 " in done.err
    assert "has changed since the plan was saved (--accept-changed judges by what " in done.err
    assert ilp_plan("evaluate", "plan.json", "--accept-changed").code == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_judged_by_the_files_that_are_there(
    ilp_plan: Command, saved: Path, version: int
) -> None:
    """Its keys as they were then: sizes, inputs by name and hash alone."""
    data = json.loads(saved.read_text())
    plan, inputs, result = data["plan"], data["inputs"], data["result"]
    plan["micro_batch"] = plan["global_batch"] // plan.pop("micro_batches")
    for kind in ("model", "cluster"):
        del inputs[kind]["text"]
    (limit,) = inputs.pop("memory_limits_bytes").values()
    inputs |= {"memory_limit_bytes": limit, "micro_batches": [1, 2, 4, 8], "max_stages": 2}
    listed = data["certificate"]["parts"]
    data["certificate"]["parts"] = [part for part in listed if part["micro_batch"] <= 8]
    del inputs["space"]
    if version == 1:
        result |= data.pop("run")
    saved.write_text(json.dumps(data | {"version": version}))
    done = ilp_plan("evaluate", saved)
    assert done.code == 0, done.err
    assert "plan            legal" in done.out
    cluster = Path("pair.toml")
    cluster.write_text(cluster.read_text() + "# a remark\n")
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert "plan.json: inputs.cluster: found sha256 " in done.err
    assert "(--accept-changed judges by what it is now)" in done.err
    assert ilp_plan("evaluate", saved, "--accept-changed").code == 0


def test_a_file_of_a_newer_version_says_what_reads_it(ilp_plan: Command, saved: Path) -> None:
    data = json.loads(saved.read_text()) | {"version": 9}
    data["run"]["versions"]["ilp-planner"] = "9.1"
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert done.err == (
        "ilp-plan: plan.json: version: found 9, expected 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8; "
        "ilp-planner 9.1 reads it\n"
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("micro_batches", 3, "micro-batches: found 3 micro-batches, expected a divisor of 64"),
        ("model", "giant", "model: found giant, expected tiny"),
        ("global_batch", 128, "global batch: found 128 samples, expected 64"),
    ],
)
def test_an_illegal_plan_is_1_whatever_the_file_claims(
    ilp_plan: Command, saved: Path, key: str, value: object, words: str
) -> None:
    data = json.loads(saved.read_text())
    data["plan"][key] = value
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.out.startswith("NOT LEGAL  it breaks ")
    assert "BROKEN RULE" in done.out


def test_memory_is_computed_again(ilp_plan: Command, saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["inputs"]["memory_limit_bytes"] = 1000
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert "inputs.memory_limits_bytes.gpu: found 8589934592, expected at most 1000" in done.err
    data["inputs"]["memory_limits_bytes"] = {"gpu": 1000}
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert "stage 0, device 0: memory: found" in done.err
    assert "(1 more)" in done.err


def test_certificate_that_holds(ilp_plan: Command, saved: Path, check: SimpleNamespace) -> None:
    done = ilp_plan("evaluate", saved, "--check-certificate")
    assert done.code == 0
    assert "proved by the certificate, derived again" in done.out
    assert "claimed gap" not in done.out


def test_certificate_that_does_not_hold(
    ilp_plan: Command, saved: Path, check: SimpleNamespace
) -> None:
    check.holds, check.bound = False, 1e-4
    done = ilp_plan("evaluate", saved, "--check-certificate")
    assert done.code == 1
    assert done.err.endswith("certificate: the bound of micro-batch 4 does not hold\n")
    assert "NO" in done.out


@pytest.mark.usefixtures("check")
def test_no_certificate(ilp_plan: Command, saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["certificate"] = None
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved, "--check-certificate")
    assert done.code == 1
    assert "result.bound_s: found" in done.err
    assert "there is no certificate that proves any bound" in done.err
    assert "the file has no certificate that proves it" in done.out
    assert "proved optimal" not in done.out
    value = json.loads(ilp_plan("evaluate", saved, "--json").out)
    assert value["holds"] is False
    assert value["faults"][0] in done.err


def test_the_real_search_and_the_real_check(ilp_plan: Command, tiny: list[str]) -> None:
    path = Path("real.json")
    assert ilp_plan("solve", *tiny, "--output", path).code == 0
    done = ilp_plan("evaluate", path, "--check-certificate")
    assert done.code == 0
    assert "proved optimal" in done.out
    data = json.loads(path.read_text())
    for part in data["certificate"]["parts"]:
        part["bound_s"] *= 1.2
    path.write_text(json.dumps(data))
    done = ilp_plan("evaluate", path, "--check-certificate")
    assert done.code == 1
    assert "does not hold" in done.err
    del data["certificate"]["parts"][0]["by"]
    path.write_text(json.dumps(data))
    done = ilp_plan("evaluate", path, "--check-certificate")
    assert done.code == 1
    assert "real.json: certificate: malformed" in done.err


def test_a_bound_above_the_time_is_an_error(
    ilp_plan: Command, saved: Path, check: SimpleNamespace
) -> None:
    check.bound = 1e6
    done = ilp_plan("evaluate", saved, "--check-certificate")
    assert done.code == 1
    assert "the bound of 1000000.0 s is above the " in done.err
    assert "gap" not in done.out


def test_a_plan_outside_the_space_of_the_proof_has_no_gap(
    ilp_plan: Command, saved: Path, check: SimpleNamespace
) -> None:
    data = json.loads(saved.read_text())
    size = data["plan"]["global_batch"] // data["plan"]["micro_batches"]
    data["inputs"]["micro_batch_sizes"] = [m for m in (1, 2, 4, 8) if m != size]
    saved.write_text(json.dumps(data))
    check.bound = 1e6
    done = ilp_plan("evaluate", saved, "--check-certificate")
    assert done.code == 1, "the certificate has parts that the inputs do not have"
    assert "certificate.parts: found micro_batch" in done.err
    assert "proof           outside: micro-batch: found" in done.out
    assert "gap" not in done.out
    value = json.loads(ilp_plan("evaluate", saved, "--check-certificate", "--json").out)
    assert value["outside"].startswith("micro-batch: found")
    assert value["certificate"]["gap"] is None


def test_a_claimed_bound_above_the_time_is_an_error(ilp_plan: Command, saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["result"]["bound_s"] = 1e6
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert "result.bound_s: found 1000000.0, expected" in done.err


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d["result"].update(bound_s=1e9), "result.bound_s: found 1000000000.0, expected"),
        (lambda d: d["result"].update(gap=0.5), "result.gap: found 0.5, expected 0.01"),
        (lambda d: d["result"].update(status="optimal"), "result.status: found optimal, expected"),
        (lambda d: d["certificate"].update(parts(1, 2, 4, 8, 16, 8)),
         "certificate.parts: found micro_batch 8 2 times, expected once"),
        (lambda d: d["certificate"].update(parts(1, 2, 4, 8, 16, 32)),
         "certificate.parts: found micro_batch 32, expected none of that name"),
        (lambda d: d["certificate"].update(parts(1, 2, 4, 16)),
         "certificate.parts: found no micro_batch 8, expected all"),
        (
            lambda d: (
                d["inputs"].update(micro_batch_sizes=[4]) or d["certificate"].update(parts(4, 8))
            ),
            "certificate.parts: found micro_batch 8, expected none of that name",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_remarked_on(
    ilp_plan: Command, saved: Path, damage: Callable[[dict[str, Any]], object], words: str
) -> None:
    data = json.loads(saved.read_text())
    data["certificate"] = parts(1, 2, 4, 8, 16) | {"bound_s": data["result"]["bound_s"]}
    saved.write_text(json.dumps(data))
    assert ilp_plan("evaluate", saved).code == 0
    damage(data)
    saved.write_text(json.dumps(data))
    done = ilp_plan("evaluate", saved)
    assert done.code == 1
    assert f"plan.json: {words}" in done.err
    assert done.err.count("\n") == 1


def parts(*sizes: int) -> dict[str, Any]:
    """Return a certificate that lists these micro-batch sizes."""
    return {"parts": [{"micro_batch": size, "bound_s": None, "by": "chain-dp"} for size in sizes]}


def test_a_proof_is_checked_without_the_planner(
    ilp_plan: Command, operators: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "proved.json"
    done = ilp_plan("solve", *operators, "--output", path, "--check")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith("checked           independently, ")
    done = ilp_plan("evaluate", path, "--independent")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].startswith("checked   independently")
    record = json.loads(path.read_text())
    record["plan"]["stages"][0]["strategies"][0]["tp"] = 3
    path.write_text(json.dumps(record))
    done = ilp_plan("evaluate", path, "--independent")
    assert done.code == 1
    assert done.err.count("\n") == 1


def test_a_proof_of_samples_of_another_length_than_the_model_s_is_checked(
    ilp_plan: Command, tmp_path: Path
) -> None:
    path = tmp_path / "proved.json"
    words = ["llama3.2-1b", "--gpus", "2xH100", "--global-batch-size", "4"]
    done = ilp_plan("solve", *words, "--sequence-length", "2048", "--output", path, "--check")
    assert done.code == 0, done.err
    record = json.loads(path.read_text())
    record["inputs"]["sequence"] = 1024
    path.write_text(json.dumps(record))
    done = ilp_plan("evaluate", path, "--independent")
    assert done.code == 1
    assert "sequence: found 1024, expected 2048 as proved" in done.err


def test_the_independent_check_goes_alone(ilp_plan: Command, saved: Path) -> None:
    done = ilp_plan("evaluate", saved, "--independent", "--check-certificate")
    assert done.code == 2
    assert "--check-certificate: expected no --independent beside it" in done.err
