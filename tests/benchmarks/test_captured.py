"""The count of captured scripts, on a repository of three."""

from pathlib import Path

import pytest

from tests.benchmarks.captured import arguments_of, commands_in, judged
from tests.formats.captured.conftest import unguarded

PAGE = """\
Run it:
```bash
cd examples
NODES=2 sh run.sh \\
  8 \\
  "a b"   # the size
bash other.sh $X && bash third.sh 1
```
"""
SCRIPT = """\
#!/bin/bash
set -e
torchrun --nproc_per_node $(nvidia-smi -L | wc -l) --nnodes $NODES pretrain_gpt.py \\
  --num-layers $1 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 128 \\
  --max-position-embeddings 64 --micro-batch-size 1
"""


def test_arguments_are_those_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(PAGE)
    folder = tmp_path / "examples"
    folder.mkdir()
    assert len(list(commands_in(PAGE))) == 3
    for name, wanted in {
        "run.sh": ({"NODES": "2"}, ["8", "a b"]),
        "third.sh": ({}, ["1"]),
        "fourth.sh": ({}, []),
    }.items():
        (folder / name).write_text("")
        assert arguments_of(folder / name, tmp_path) == wanted
    (folder / "fourth.sh").write_text("#!/bin/bash\n# bash fourth.sh 4\n")
    assert arguments_of(folder / "fourth.sh", tmp_path) == ({}, ["4"])


@pytest.mark.skipif(bool(unguarded()), reason=unguarded())
def test_a_script_is_captured_and_read(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "run.sh").write_text(SCRIPT)
    row = judged(tmp_path / "run.sh", tmp_path, 8, {})
    assert (row.script, row.arguments, row.captured, row.read) == ("run.sh", 2, True, True)
    (tmp_path / "other.sh").write_text("exit 3\n")
    row = judged(tmp_path / "other.sh", tmp_path, 8, {})
    assert (row.captured, row.why) == (False, "status 3")
    (tmp_path / "third.sh").write_text("megatron sft --model x\n")
    row = judged(tmp_path / "third.sh", tmp_path, 8, {})
    assert (row.captured, row.read) == (True, False)
