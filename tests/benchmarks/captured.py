"""How many launch scripts are captured, and read as a job: `python -m tests.benchmarks.captured`.

python -m tests.benchmarks.captured FOLDER PATTERN [--gpus-per-node 8] [--set NAME=VALUE ...]

FOLDER holds a copy of a repository that may come to harm, and PATTERN matches paths of its scripts.
A script gets the arguments that its own comments, or a README of its folder or above it, have the
user pass: those of the first command there that runs it. It runs in its folder, and again at the
top of the copy if it launches nothing there. Nothing is trained, and no network is asked.
"""

import argparse
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.captured.job_file import files_of, launch_of
from ilp_planner.formats.captured.reader import read_recorded
from ilp_planner.formats.captured.recording import Recording, record
from ilp_planner.formats.megatron.arguments import job_of_arguments

SECONDS = 30.0
SHELLS = ("bash", "sh", "sbatch", "source", ".")


class Row(NamedTuple):
    """One script. read: whether it is a job; why: what is missing if not."""

    script: str
    arguments: int
    captured: bool
    read: bool
    why: str


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of the commands of a page that run a script of a shell."""
    for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        for part in re.split(r"&&|;", line.strip().strip("`")):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            if any(word.endswith(".sh") for word in words[:6]):
                yield words


def arguments_of(script: Path, root: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables and arguments that a README has the user pass to a script."""
    for folder in (script.parent, *script.parent.parents):
        pages = (*sorted(folder.glob("*.md")), *([script] if folder == script.parent else []))
        for page in pages:
            text = page.read_text(errors="replace")
            if page == script:  # the comments of its head
                text = "\n".join(re.findall(r"^# ?(.*)", text, re.MULTILINE))
            for words in commands_in(text):
                at = next((k for k, w in enumerate(words) if Path(w).name == script.name), None)
                if at is None or not set(words[:at]) & {*SHELLS}:
                    continue
                pairs = (w.partition("=") for w in words[:at] if re.match(r"\w+=", w))
                return {name: value for name, _, value in pairs}, words[at + 1 :]
        if folder == root:
            break
    return {}, []


def judged(script: Path, root: Path, gpus: int, given: dict[str, str]) -> Row:
    """Capture a script, and read what it launches."""
    variables, arguments = arguments_of(script, root)
    name = str(script.relative_to(root))
    try:
        found = captured(script, script.parent, arguments, {**os.environ, **variables}, gpus)
    except PlannerError as error:
        return Row(name, len(arguments), False, False, str(error))
    if not found.launches:
        found = captured(script, root, arguments, {**os.environ, **variables}, gpus)
    if not found.launches:
        late = " (time limit)" if found.late else ""
        return Row(name, len(arguments), False, False, f"status {found.status}{late}")
    why = ""
    for one in map(launch_of, found.launches):
        try:
            job_of_arguments(
                read_recorded(one, files_of([one])[0], "launch", supplied=given, strict=False)
            )
        except PlannerError as error:
            why = why or str(error)
        else:
            return Row(name, len(arguments), True, True, "")
    return Row(name, len(arguments), True, False, why)


def captured(
    script: Path, folder: Path, arguments: list[str], environment: dict[str, str], gpus: int
) -> Recording:
    """Run a script in a folder, as a job of Slurm if it asks Slurm for something."""
    path = os.path.relpath(script, folder)
    shell = "sbatch" if "\n#SBATCH " in script.read_text(errors="replace") else "bash"
    place = f'cd {shlex.quote(str(folder))} && exec {shell} {shlex.quote(path)} "$@"'
    with Path(os.devnull).open("w") as nowhere:
        return record(
            ["bash", "-c", place, script.name, *arguments],
            seconds=SECONDS,
            gpus=gpus,
            environment=environment,
            output=nowhere.fileno(),
        )


def main() -> None:
    """Print a line for each script, and the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pattern")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    root = asked.folder.resolve()
    given = dict(text.split("=", 1) for text in asked.set)
    paths = (p for p in sorted(root.rglob("*")) if p.is_file())
    scripts = [p for p in paths if re.search(asked.pattern, str(p.relative_to(root)))]
    rows = [judged(script, root, asked.gpus_per_node, given) for script in scripts]
    for row in rows:
        print(f"{row.script}\t{row.arguments}\t{row.captured}\t{row.read}\t{row.why}")
    count = Counter((row.captured, row.read) for row in rows)
    taken = count[True, True] + count[True, False]
    print(f"{len(rows)} scripts, {taken} captured, {count[True, True]} read as a job")


if __name__ == "__main__":
    main()
