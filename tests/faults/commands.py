"""Commands that write files, small enough to be killed hundreds of times, and what must hold of
their files whenever that happens."""

import csv
import json
import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from ilp_planner.costs.profiles.measurements import read_measurements
from tests.analysis.calibration.machines import DEFAULT, JOBS, TOML, runs_on
from tests.faces import tuned
from tests.small import CLUSTER, MODEL

MARK = "ILP_PLAN_TESTED"  # a variable that the processes of one trial have
TINY = MODEL.replace("hidden = 256", "hidden = 32").replace("sequence = 128", "sequence = 16")
JOURNAL_SUFFIX = ".jsonl"


class Command(ABC):
    """A command that writes files.

    words: of the command line. outputs: the files that it writes. whole: what a file holds that a
    run which nobody disturbs has written, by `outputs`; filled by `learn`.
    """

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...]

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Write the files that it reads."""

    def begin(self, folder: Path, **more: str) -> subprocess.Popen[str]:
        """Begin it. more: variables of its environment."""
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen(
            [sys.executable, "-m", "ilp_planner", *self.words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, MARK: str(folder), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def learn(self, folder: Path) -> None:
        """Keep what a run has written that nobody disturbed."""
        self.whole = {name: self.content(folder / name) for name in self.outputs}

    @abstractmethod
    def content(self, path: Path) -> object:
        """Return what a whole file says, the same after every run; raise of one that is broken."""

    def check_killed(self, folder: Path) -> None:
        """Hold what a killed run has left to being whole, or not there."""
        for name in self.outputs:
            if (folder / name).exists():
                assert self.content(folder / name) == self.whole[name], name

    def check_done(self, folder: Path) -> None:
        """Hold the files of a run to the end to what nobody disturbed."""
        for name in self.outputs:
            assert self.content(folder / name) == self.whole[name], name

    def progress(self, folder: Path) -> list[str]:
        """Return what is done already and must not be done again."""
        return []

    def expected(self, folder: Path) -> set[str]:
        """Return the names of all files that may be there at the end."""
        return set(self.outputs)


class Solve(Command):
    """`solve --output`, of operators; the same file to the byte after every run."""

    name = "solve"
    words = (
        "solve", "tiny.toml", "pair.toml", "--space", "operators", "--global-batch-size", "64",
        "--output", "plan.json", "--reproducible",
    )  # fmt: skip
    outputs = ("plan.json",)

    def prepare(self, folder: Path) -> None:
        (folder / "tiny.toml").write_text(MODEL)
        (folder / "pair.toml").write_text(CLUSTER)

    def content(self, path: Path) -> object:
        return json.loads(path.read_text())


class Sweep(Command):
    """A sweep of two dozen points, with a journal."""

    name = "sweep"
    words = (
        "sweep", "tiny.toml", "pair.toml", "--vary", "global_batch=8..31", "--output", "s.csv",
        "--workers", "2",
    )  # fmt: skip
    outputs = ("s.csv",)
    prepare = Solve.prepare
    same = ("global_batch", "status", "step_s", "bound_s", "peak_memory_bytes")

    def content(self, path: Path) -> object:
        with path.open(newline="") as file:
            return [tuple(row[name] for name in self.same) for row in csv.DictReader(file)]

    def check_killed(self, folder: Path) -> None:
        """A table may have some of the rows: it is written when a sweep is interrupted as well."""
        if (folder / "s.csv").exists():
            assert set(self.content(folder / "s.csv")) <= set(self.whole["s.csv"])  # type: ignore[call-overload]

    def progress(self, folder: Path) -> list[str]:
        path = folder / f"s.csv{JOURNAL_SUFFIX}"
        return path.read_text().split("\n")[1:-1] if path.exists() else []

    def check_done(self, folder: Path) -> None:
        super().check_done(folder)
        keys = [json.loads(line)["key"] for line in self.progress(folder)]
        assert len(keys) == len(set(keys)) == len(self.whole["s.csv"])  # type: ignore[arg-type]

    def expected(self, folder: Path) -> set[str]:
        return {*self.outputs, f"s.csv{JOURNAL_SUFFIX}"}


class Measure(Command):
    """`profile measure` of a small model on the CPU; what is there is not measured again."""

    name = "profile measure"
    words = (
        "profile", "measure", "--model", "tiny.toml", "--output", "p.csv", "--device", "cpu",
        "--tp", "1", "2", "--micro-batch-size", "1", "2", "4", "--repeats", "3", "--resume",
    )  # fmt: skip
    outputs = ("p.csv",)

    def prepare(self, folder: Path) -> None:
        (folder / "tiny.toml").write_text(TINY)

    def content(self, path: Path) -> object:
        frame = read_measurements(path).frame
        names = ["record", "name", "layers", "tp", "split", "micro_batch"]
        rows = [tuple(map(str, row)) for row in frame[names].itertuples(index=False)]
        assert len(rows) == len(set(rows)), "a row is there twice"
        return rows

    def check_killed(self, folder: Path) -> None:
        if (folder / "p.csv").exists():
            found, every = self.content(folder / "p.csv"), self.whole["p.csv"]
            assert found == every[: len(found)]  # type: ignore[index, arg-type]

    def progress(self, folder: Path) -> list[str]:
        path = folder / "p.csv"
        return path.read_text().split("\n")[:-1] if path.exists() else []


class Calibrate(Command):
    """`calibrate`, six runs."""

    name = "calibrate"
    words = ("calibrate", "runs.csv", "--cluster", "mine.toml", "--output", "ours.toml")
    outputs = ("ours.toml",)

    def prepare(self, folder: Path) -> None:
        from ilp_planner.formats.megatron.arguments import arguments_of_job

        (folder / "mine.toml").write_text(TOML)
        with (folder / "runs.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["run", "seconds", "gpus"])
            for run in runs_on(DEFAULT, JOBS[:6]):
                writer.writerow([" ".join(arguments_of_job(run.job).argv), run.seconds, 8])

    def content(self, path: Path) -> object:
        return path.read_bytes()


class Tune(Command):
    """A tuning among a few plans, each run by a script that answers at once."""

    name = "tune"
    words = (
        "tune", "plan.json", "--run", f"{sys.executable} hidden.py {{script}}", "--time-limit",
        "300",
    )  # fmt: skip
    outputs = ("tune/runs.csv",)

    def prepare(self, folder: Path) -> None:
        from contextlib import chdir, redirect_stdout
        from io import StringIO

        from ilp_planner.faces.cli.main import run

        for name, text in tuned.FILES.items():
            (folder / name).write_text(text)
        if not self.plan:
            with tempfile.TemporaryDirectory() as at, chdir(at), redirect_stdout(StringIO()):
                for name, text in tuned.FILES.items():
                    Path(name).write_text(text)
                assert run(tuned.SIX.split()) == 0
                self.plan = Path("plan.json").read_text()
        (folder / "plan.json").write_text(self.plan)

    plan = ""

    def content(self, path: Path) -> object:
        with path.open(newline="") as file:
            return [tuple(row.values()) for row in csv.DictReader(file)]

    def progress(self, folder: Path) -> list[str]:
        path = folder / "tune" / "journal.jsonl"
        return path.read_text().split("\n")[1:-1] if path.exists() else []

    def check_done(self, folder: Path) -> None:
        super().check_done(folder)
        rows = {row["key"]: row for row in map(json.loads, self.progress(folder))}
        assert not {row["status"] for row in rows.values()} & {"asked", "begun"}
        plans = {json.dumps(row["plan"]) for row in rows.values()}
        assert len(plans) == len(rows), "a plan was run twice"

    def expected(self, folder: Path) -> set[str]:
        return {"tune"}


COMMANDS: tuple[Command, ...] = (Solve(), Sweep(), Measure(), Calibrate(), Tune())


def living(folder: Path) -> list[int]:
    """Return the processes that a trial in a folder has begun and that still run."""
    wanted, found = f"{MARK}={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found
