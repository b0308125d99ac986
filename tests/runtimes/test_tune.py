"""`ilp-plan tune` on a true job: Megatron-Core on gloo, two processes, six plans; none faster is
left out."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.faces.cli.test_tune import rows
from tests.faces.tuned import MODEL, PAIR, SIX

MISSING = [name for name in ("torch", "megatron") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
ROOT = Path(__file__).parents[2]
CODE = "import sys; from ilp_planner.faces.cli.main import main; main(sys.argv[1:])"
# What an exported script starts by torchrun.
PRETRAIN = """\
import runpy, sys
sys.argv[1:] = ["--pretrain", *sys.argv[1:]]
runpy.run_module("tests.runtimes.distributed_optimizer", run_name="__main__")
"""


@pytest.mark.slow  # six plans in processes of their own, each of which imports PyTorch
def test_it_ends_at_the_best_that_was_measured(tmp_path: Path) -> None:
    for name, text in (("small.toml", MODEL), ("pair.toml", PAIR), ("pretrain_gpt.py", PRETRAIN)):
        (tmp_path / name).write_text(text)
    environment = os.environ | {
        "MEGATRON": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONWARNINGS": "ignore",
    }

    def plan(*words: str) -> str:
        command = [sys.executable, "-c", CODE, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    plan(*SIX.split())
    run = ["--run", "bash {script}", "--steps", "8", "--time-limit", "300"]
    found = json.loads(plan("tune", "plan.json", *run, "--json"))
    assert found["reason"] == "proof"
    ended = rows(tmp_path / "tune")
    measured = {row["key"]: row["seconds"] for row in ended if row["status"] == "measured"}
    assert len(measured) == len(ended) <= 6
    assert found["best_s"] == min(measured.values())
    assert str(found["best_run"]) == min(measured, key=measured.__getitem__)
    assert found["machines"] >= 1
