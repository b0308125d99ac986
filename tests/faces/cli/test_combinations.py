"""Every GPU, every model under every runtime, and every two saved plans of a shelf: each command
ends with an answer or with one line that says why there is none.

By default a part of them is tried, in `make test-all` all of them.
"""

import json
import random
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from ilp_planner.base.library import known_names
from ilp_planner.faces.cli.main import run
from ilp_planner.formats.exports import EXPORTS
from ilp_planner.specs.gpus import table
from tests.examples import everything, often, thinned

EARLIER = Path(__file__).parents[2] / "formats" / "saved"  # files of versions before
TARGETS = [*(f"{name}@{r}" if r else name for name, each in EXPORTS.items() for r in each), "aceso"]
DECODER = """\
name = "small"
family = "decoder"
precision = "{precision}"

[architecture]
layers = 4
hidden = 512
heads = 8
sequence = 512
vocab = 8192
gated = true
bias = false
dropout = 0.0
norm = "rmsnorm"
positions = "rope"
"""
GPT = """\
name = "operators"
family = "gpt"
precision = "fp16"

[architecture]
layers = 2
hidden = 256
heads = 4
sequence = 128
vocab = 1024
"""
MIXED = """\
name = "two kinds"

[[nodes]]
name = "a"
count = 2
device = "a100"
devices = 2

[[nodes]]
name = "t"
device = "t4"
devices = 2

[devices.a100]
gpu = "A100-40GB"
price = 2.0

[devices.t4]
gpu = "T4"
price = 0.5

[links.inter_node]
bandwidth = "100 Gbit/s"
latency = "30 us"
"""


class Answer(NamedTuple):
    """How a command has ended. said: its last line on standard error, if it ended with an error."""

    code: int
    said: str


def answer(*words: object) -> Answer:
    """Run a command, and see that it ends with 0 or with one line of a known kind."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(word) for word in words])
    lines = [line for line in err.getvalue().splitlines() if line.startswith("ilp-plan: ")]
    errors = [line for line in lines if not line.startswith("ilp-plan: note: ")]
    command = shlex.join(map(str, words))
    assert "Traceback" not in err.getvalue(), command
    assert "this is a bug" not in err.getvalue(), f"{command}: {err.getvalue()}"
    if code:
        assert code in range(1, 7), command
        assert len(errors) == 1, f"{command}: {err.getvalue()}"
    return Answer(code, errors[-1] if code else "")


def right(*words: object) -> None:
    """Run a command that has an answer."""
    done = answer(*words)
    assert not done.code, f"{shlex.join(map(str, words))}: {done.said}"


def check_exports(plan: str, targets: list[str]) -> set[str]:
    """Export a plan to each of these, and try what a refusal says; return those that run it."""
    accepted = set()
    for target in targets:
        export = ("export", plan, "--output", "run", "--to")
        done = answer(*export, target)
        if not done.code:
            accepted.add(target)
        elif "--nearest writes it" in done.said or "--nearest writes what" in done.said:
            right(*export, target, "--nearest")
        elif "runs it as it is" in done.said:
            right(*export, done.said.split("`")[1])
        else:  # no plan of the model is run
            assert "found" in done.said
            assert any(word in done.said for word in ("expected", "nearest it can run", "but"))
    return accepted


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the current folder of all commands, with these files."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "mixed.toml").write_text(MIXED)
    (folder / "operators.toml").write_text(GPT)
    for precision in ("bf16", "fp16", "fp32"):
        (folder / f"{precision}.toml").write_text(DECODER.format(precision=precision))
    shutil.copytree(EARLIER, folder / "earlier")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        yield folder


# ---- every GPU ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", often(table(), *thinned(table(), 12)))
@pytest.mark.parametrize("nodes", [1, 2])
def test_plans_on_every_gpu_are_saved_read_checked_shown_and_exported(
    place: Path, name: str, nodes: int
) -> None:
    row = table()[name]
    precision = next(one for one in ("bf16", "fp16", "fp32") if one in row.peak)
    gpus, plan = f"{nodes * row.node}x{name}", f"{name}-{nodes}.json"
    solve = ("solve", f"{precision}.toml", "--gpus", gpus, "--global-batch-size", 16, "--gap", 0.2)
    right(*solve, "--output", plan)
    right("evaluate", plan, "--check-certificate")
    right("simulate", plan)
    right("analyze", plan)
    right("show", plan, "--html", "plan.html")
    right("gpus", name)
    right("why", plan)
    right("compare", plan, f"{name}-1.json")
    limits = ("--global-batch-size", 16, "--memory-limit", "2GiB", "--time-limit", 2)
    answer("fit", f"{precision}.toml", "--gpus", gpus, *limits)
    assert "megatron" in check_exports(plan, TARGETS)
    assert name in json.loads(Path(plan).read_text())["inputs"]["cluster"]["text"]


# ---- models and runtimes ------------------------------------------------------------------------

FEW = ("--tp", "2,8", "--recompute", "none,full")  # what keeps spaces of runtimes small
RUNTIMES = {
    "megatron": ("--runtime", "megatron", *FEW),
    "torchtitan": ("--runtime", "torchtitan", *FEW),
    "torchtitan@0.2.2": ("--runtime", "torchtitan@0.2.2", *FEW),
    "deepspeed": ("--runtime", "deepspeed", *FEW),
    "groups": ("--space", "groups"),
    "operators": ("--space", "operators"),
}


def models_and_runtimes() -> list[tuple[str, str]]:
    """Return some, drawn at random: the same few by default, others in each `make test-all`."""
    every = [(model, runtime) for model in sorted(known_names("models")) for runtime in RUNTIMES]
    draw = random.Random() if everything() else random.Random(2)
    return draw.sample(every, 60 if everything() else 4)


def test_models_are_planned_for_runtimes_or_refused(place: Path) -> None:
    for model, runtime in models_and_runtimes():
        first, second = f"{model}-1.json", f"{model}-2.json"
        words = ["solve", model, "--gpus", "32xH100", "--global-batch-size", 32, "--gap", 0.9]
        words += ["--time-limit", 20, *RUNTIMES[runtime]]
        if answer(*words, "--output", first).code:
            continue
        right("evaluate", first, "--check-certificate")
        accepted = check_exports(first, [runtime] if runtime in TARGETS else ["megatron", "aceso"])
        text = Path(first).read_text()  # most exports are written for models of text alone
        sees = "[architecture.encoder]" in text or "[architecture.sounds]" in text
        assert accepted or runtime not in TARGETS or sees
        answer("why", first, "--time-limit", 1, "--workers", 1)
        if not answer(*words, "--max-stages", 1, "--output", second).code:
            right("compare", first, second)
            right("why", second, "--not", first)


# ---- a shelf of plans ---------------------------------------------------------------------------

ON_MIXED = "solve fp16.toml mixed.toml --global-batch-size 16 --gap 0.3"
ON_EQUAL = "solve bf16.toml --gpus 16xA100-40GB --global-batch-size 16 --gap 0.3"
SOLVED = {
    "groups": f"{ON_MIXED} --space groups",
    "a": f"{ON_MIXED} --space groups --without t",
    "t": f"{ON_MIXED} --space groups --without a",
    "price": f"{ON_MIXED} --space groups --objective price",
    "kinds": f"{ON_MIXED} --runtime megatron",
    "megatron": f"{ON_EQUAL} --runtime megatron",
    "few": f"{ON_EQUAL} --runtime megatron --max-devices 8",
    "torchtitan": f"{ON_EQUAL} --runtime torchtitan",
    "deepspeed": f"{ON_EQUAL} --runtime deepspeed",
    "fp8": f"{ON_EQUAL.replace('A100-40GB', 'H100')} --precision fp8-delayed",
    "operators": "solve operators.toml --gpus 4xV100-16GB --space operators "
    "--global-batch-size 16 --gap 0.5",
}
BEFORE = ("operators-v1", "layers-v2", "megatron-v2", "layers-v7")
SHELF = (*SOLVED, *(f"earlier/{name}" for name in BEFORE))


@pytest.fixture(scope="module")
def shelf(place: Path) -> None:
    """Solve what is on it."""
    for name, command in SOLVED.items():
        right(*command.split(), "--output", f"{name}.json")


def both(one: str, other: str) -> Iterator[list[object]]:
    """Yield what is asked about two plans: which is better, why not the other one, what moves to
    the other's cluster, and its problem again from the first."""
    yield ["compare", f"{one}.json", f"{other}.json"]
    yield ["why", f"{one}.json", "--not", f"{other}.json"]
    cluster = json.loads(Path(f"{other}.json").read_text())["inputs"].get("cluster")
    if cluster is not None:
        limit = ("--time-limit", 2, "--workers", 1)
        yield ["replan", f"{one}.json", "--cluster", cluster["name"], *limit]
    if other in SOLVED:
        yield [*SOLVED[other].split(), "--start", f"{one}.json"]


@pytest.mark.parametrize("one", SHELF)
def test_two_plans_are_compared_explained_replanned_and_started_from(shelf: None, one: str) -> None:
    every = [command for other in SHELF for command in both(one, other)]
    for command in thinned(every[SHELF.index(one) % 50 :], 50):
        answer(*command)


def test_a_proof_is_about_the_plans_of_its_own_nodes(shelf: None) -> None:
    """Of plans on other nodes no gap is said, whichever problem they are compared on."""
    for names in (("t", "a", "groups"), ("a", "t", "groups"), ("few", "megatron")):
        out = StringIO()
        with redirect_stdout(out):
            assert run(["compare", *(f"{name}.json" for name in names), "--json"]) == 0
        first, *others = json.loads(out.getvalue())["entries"]
        assert first["gap"] is not None
        for entry in others:
            assert entry["outside"].startswith(("nodes: found ", "time: found "))
            assert entry["gap"] is None
