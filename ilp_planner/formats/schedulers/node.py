"""The start of a run on one node: its script, files and sizes, as every scheduler takes them."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ilp_planner.formats.exported import Exported, module_name

SCRIPT = ".sh"
# Training system -> the words that start it behind torchrun's, in bash: $HERE is the folder of the
# files, $NAME their name, $MODULE the same as a module. Megatron-LM's export starts itself.
STARTS = {
    "torchtitan@0.3.0": '-m torchtitan.train --module "$MODULE" --config planned',
    "torchtitan@0.2.2": '-m torchtitan.train --job.config_file "$HERE/$NAME.toml"',
    "deepspeed@0.19.8": '"${PROGRAM:?a program that calls deepspeed.initialize}" '
    '--deepspeed --deepspeed_config "$HERE/$NAME.json"',
    "peft@0.21": '"$HERE/$MODULE.py" --model "${MODEL:?folder or name of the model}" '
    '--data "${DATA:?JSON lines with a text each}"',
    "nemo@0.3.1": '"${PROGRAM:?a program of a recipe, which takes --config-file}" '
    '--config-file "$HERE/$NAME.yaml"',
}
NEEDED = re.compile(r"\$\{(\w+):\?([^}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """A run, one node at a time.

    nodes, devices: their number, and of each. whole: it takes all devices of its nodes. hosts: the
    nodes by node rank, in the words of the cluster file, where their order counts; empty: any.
    vendor: of the devices; empty: unknown. files: text by suffix; the one of `SCRIPT` starts the
    run on the node of NODE_RANK, with the first one's name as MASTER_ADDR. about: lines for people.
    """

    name: str
    nodes: int
    devices: int
    whole: bool
    hosts: tuple[str, ...]
    vendor: str
    files: Mapping[str, str]
    about: tuple[str, ...]

    @property
    def needed(self) -> dict[str, str]:
        """The variables that the script asks its user for, and their meaning."""
        return dict(NEEDED.findall(self.files[SCRIPT]))

    @property
    def slug(self) -> str:
        """The name in the characters that schedulers take: small letters, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())[:40].strip("-") or "run"


def with_script(exported: Exported, program: str, name: str, nodes: int, devices: int) -> Exported:
    """Return an export with a script that starts it on one node; it may have one.

    Parameters
    ----------
    program: of `STARTS`.
    """
    if SCRIPT in exported.files:
        return exported
    lines = [
        "#!/bin/bash",
        "# Start it on every node, with NODE_RANK and MASTER_ADDR set.",
        "set -euo pipefail",
        "",
        'HERE=$(dirname "$0")',
        f"NAME={shlex.quote(name)}",
        f"MODULE={shlex.quote(module_name(name))}",
        'export PYTHONPATH="$HERE${PYTHONPATH:+:$PYTHONPATH}"',
        f"torchrun --nnodes {nodes} --nproc-per-node {devices} \\",
        '    --node-rank "${NODE_RANK:-0}" --master-addr "${MASTER_ADDR:-localhost}" \\',
        '    --master-port "${MASTER_PORT:-6000}" \\',
        f'    {program} "$@"',
    ]
    return Exported({**exported.files, SCRIPT: "\n".join(lines) + "\n"}, exported.notes)
