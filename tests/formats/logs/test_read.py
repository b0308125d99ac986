"""Files are read with the memory that they take, and from pipes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from ilp_planner.formats.logs.base import RunLog
from ilp_planner.formats.logs.read import read_log

LINE = " iteration {0:8}/ 20 | elapsed time per iteration (ms): 998.{0} | global batch size: 64 |\n"
LOG = "".join(map(LINE.format, range(1, 21)))
LITTLE = """\
import resource, sys
from pathlib import Path
from ilp_planner.formats.logs.read import read_log
read_log(Path(sys.argv[1]))  # imports what it needs
held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**28,) * 2)
print(len(read_log(Path(sys.argv[1])).seconds))
"""


def test_a_small_log_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(LOG)
    words = [sys.executable, "-c", LITTLE, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.returncode) == ("20\n", 0), done.stderr


def test_a_log_from_a_pipe_is_read_whole(tmp_path: Path) -> None:
    path, text = tmp_path / "pipe", "".join(map(LINE.format, range(1, 2001)))
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    found = read_log(path)
    writer.join()
    (tmp_path / "run.log").write_text(text)
    same = read_log(tmp_path / "run.log")
    assert isinstance(found, RunLog)
    assert isinstance(same, RunLog)
    assert len(found.seconds) == len(same.seconds) > 0
