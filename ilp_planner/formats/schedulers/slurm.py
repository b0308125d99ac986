"""A batch script for Slurm: `sbatch` gets the nodes, one `srun` starts a launcher on each."""

import shlex

from ilp_planner.formats.exported import Exported, commented
from ilp_planner.formats.schedulers.node import SCRIPT, NodeRun

# With one task on each node, its number is the node's; a task knows it only while it runs.
START = 'NODE_RANK=$SLURM_PROCID exec bash "$0" "$@"'


def around(run: NodeRun) -> Exported:
    """Return the batch script and, beside it, the files of a run."""
    asked = [
        f"--job-name={run.slug}",
        f"--nodes={run.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={run.devices}",
    ]
    notes = ["account, partition and time: not written; give them to sbatch, before the file"]
    if run.whole:
        asked += ["--exclusive", "--mem=0"]
    else:
        notes.append("cpus-per-task and mem: not written; nodes are shared, give them to sbatch")
    notes += [f"{name}: set it where sbatch is called: {text}" for name, text in run.needed.items()]
    order: list[str] = []
    if run.hosts:
        notes.append("HOSTS: set it to the names of the nodes by node rank, as the file says")
        order = [
            *commented([f"NODE_RANK {rank}: {host}" for rank, host in enumerate(run.hosts)]),
            'read -r -a hosts <<< "${HOSTS:?names of the nodes by node rank, as above}"',
            "SLURM_HOSTFILE=$(mktemp)",
            'printf "%s\\n" "${hosts[@]}" > "$SLURM_HOSTFILE"',
            "export SLURM_HOSTFILE",
        ]
    else:
        order = ['mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")']
    script = shlex.quote(f"{run.name}{SCRIPT}")
    placed = " --distribution=arbitrary" if run.hosts else ""
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in asked),
        *commented([*run.about, "sbatch it in the folder of this file, which every node sees"]),
        "set -euo pipefail",
        "",
        *order,
        "export MASTER_ADDR=${hosts[0]}",
        "export MASTER_PORT=${MASTER_PORT:-6000}",
        f"srun --kill-on-bad-exit=1{placed} bash -c {shlex.quote(START)} \\",
        f'    {script} "$@"',
    ]
    return Exported({".sbatch": "\n".join(lines) + "\n", **run.files}, tuple(notes))
