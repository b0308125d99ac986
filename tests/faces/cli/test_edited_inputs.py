"""A saved plan whose inputs were edited in the plan's own file: text and hash agree, and no command
takes them for what the plan was solved with in silence."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faces.cli.conftest import Done

Command = Callable[..., Done]
Edit = Callable[[dict[str, Any]], object]

EDITED = Path("edited.json")
COMMANDS = {
    "evaluate": ("evaluate", EDITED),
    "compare": ("compare", EDITED),
    "export": ("export", EDITED, "--to", "megatron", "--output", "run.sh"),
    "analyze": ("analyze", EDITED),
}
MODEL_EDITS = [
    ("layers = 2", "layers = 3"),
    ("hidden = 256", "hidden = 512"),
    ("heads = 4", "heads = 8"),
    ("sequence = 128", "sequence = 256"),
    ("vocab = 1024", "vocab = 2048"),
    ('name = "tiny"', "# mine\nname = 'tiny'"),
]
CLUSTER_EDITS = [
    ("devices = 2", "devices = 4"),
    ('memory = "8 GiB"', 'memory = "9 GiB"'),
    ('"100 TFLOP/s"', '"50 TFLOP/s"'),
    ("sustained = 0.5", "sustained = 0.6"),
    ('"900 GB/s"', '"90 GB/s"'),
    ('"40 GB/s"', '"400 GB/s"'),
    ('"5 GB/s"', '"6 GB/s"'),
]


def edit(saved: Path, change: Edit) -> None:
    value = json.loads(saved.read_text())
    change(value["inputs"])
    EDITED.write_text(json.dumps(value))


def rewrite(inputs: dict[str, Any], kind: str, old: str, new: str) -> None:
    """Change what a plan holds of an input, and its hash with it."""
    text = inputs[kind]["text"].replace(old, new)
    assert text != inputs[kind]["text"]
    inputs[kind] |= {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("kind", "file", "old", "new"),
    [
        *(("model", "tiny.toml", *pair) for pair in MODEL_EDITS),
        *(("cluster", "pair.toml", *pair) for pair in CLUSTER_EDITS),
    ],
)
def test_an_edit_is_noted_by_every_command(
    ilp_plan: Command, saved: Path, kind: str, file: str, old: str, new: str
) -> None:
    edit(saved, lambda inputs: rewrite(inputs, kind, old, new))
    note = f"{kind} {file}: differs today from what the plan was saved with"
    for arguments in COMMANDS.values():
        done = ilp_plan(*arguments)
        # What cannot be analysed is an error, which says enough.
        refused = arguments[0] == "analyze" and done.code == 1 and done.err.count("\n") == 1
        assert refused or note in done.out + done.err
    done = ilp_plan("compare", saved, EDITED)
    assert f"another problem: {kind} {file} differs" in done.out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i: i.pop("model"), "inputs.model: found none, expected the model "),
        (lambda i: i.pop("cluster"), "inputs.cluster: found none, expected the cluster that"),
        (lambda i: i.update(cluster=None), "inputs.cluster: found none, expected the cluster that"),
        (lambda i: i.pop("profile"), "inputs.profile: found nothing, expected a profile"),
        (lambda i: i.update(model=i["cluster"], cluster=i["model"]),
         "found a cluster, which --cluster takes, expected a model"),
        (lambda i: i["model"].pop("name"), "inputs.model.name: found nothing, expected a text"),
        (lambda i: i["cluster"].update(sha256=None, text=i["cluster"].pop("text") + "#"),
         "inputs.cluster.sha256: found null, expected"),
    ],
)  # fmt: skip
def test_what_is_gone_or_in_another_place_is_one_line(
    ilp_plan: Command, saved: Path, command: str, change: Edit, words: str
) -> None:
    edit(saved, change)
    done = ilp_plan(*COMMANDS[command])
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["export", "analyze"])
def test_a_plan_of_another_model_is_refused(ilp_plan: Command, saved: Path, command: str) -> None:
    edit(saved, lambda inputs: rewrite(inputs, "model", '"tiny"', '"huge"'))
    done = ilp_plan(*COMMANDS[command])
    assert done.code == 1
    assert "plan.model: found 'tiny', expected 'huge', which is the model of its" in done.err
    assert not Path("run.sh").exists()


def test_the_order_of_inputs_says_nothing(ilp_plan: Command, saved: Path) -> None:
    def backwards(inputs: dict[str, Any]) -> None:
        for key in reversed(list(inputs)):
            inputs[key] = inputs.pop(key)

    edit(saved, backwards)
    assert ilp_plan("evaluate", EDITED).out == ilp_plan("evaluate", saved).out
