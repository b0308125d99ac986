"""Forms in which scripts launch: each is recorded with its words, and no launcher runs.

All of them are inner scripts of one: a number in their words tells their launches apart.
"""

import re
import shutil

from tests.formats.captured.conftest import Place, words_of

WORDS = "--nproc_per_node 8 pretrain_gpt.py --num-layers {tag}"
T = f"torchrun {WORDS}"
# Form -> the script, and the words of its launch: none are those of `T`, `=` the script's own.
# {bin}: the folder of the real launchers; {tag}: its number.
FORMS: dict[str, tuple[str, str]] = {
    "plain": (T, ""),
    "by an absolute path": (f"{{bin}}/{T}", ""),
    "by a path that is not there": (f"/nowhere/bin/{T}", ""),
    "by a relative path": (f"./bin/{T}", ""),
    "by a path in a variable": (f"RUN={{bin}}/torchrun; $RUN {WORDS}", ""),
    "by a path that a command tells": (f"$(command -v torchrun) {WORDS}", ""),
    "a line in a variable": (f'CMD="{T}"; $CMD', ""),
    "by eval": (f'CMD="{T}"; eval "$CMD"', ""),
    "by exec": (f"exec {T}", ""),
    "by exec with a path": (f"exec {{bin}}/{T}", ""),
    "by exec under another name": (f"exec -a other {{bin}}/{T}", ""),
    "after exec of streams": (f"exec > log 2>&1; {T}", ""),
    "by nohup": (f"nohup {{bin}}/{T} > log 2>&1 &\nwait", ""),
    "by env": (f"env A=1 {T}", ""),
    "by env without variables": (f"env -i PATH={{bin}} {T}", ""),
    "by timeout": (f"timeout 10 {{bin}}/{T}", ""),
    "by nice, stdbuf and setsid": (f"nice -n 5 stdbuf -oL setsid -w {T}", ""),
    "by time": (f"time {T}", ""),
    "by command": (f"command {T}", ""),
    "by command in the usual path": (f"command -p {T} || {T}", ""),
    "by sudo": (f"sudo -E {T}", ""),
    "by numactl that is not there": (f"/nowhere/numactl --all {T} || {T}", ""),
    "by a profiler": (f"nsys profile -o out {T}", ""),
    "by conda": (f"conda run -n env {T}", ""),
    "by uv": (f"uv run --with x {T}", ""),
    "by make": (f"printf 'all:\\n\\t{T}\\n' > Makefile; make -s", ""),
    "by xargs": (f"echo {WORDS} | xargs {{bin}}/torchrun", ""),
    "by find": (f"find run.sh -exec {T} \\;", ""),
    "in a function": (f"go() {{{{ {T}; }}}}; go", ""),
    "in a function of the same name": (f'torchrun() {{{{ command torchrun "$@"; }}}}; {T}', ""),
    "in a pipeline": (f"{T} 2>&1 | tee log", ""),
    "in the background": (f"{T} &", ""),
    "in the background, disowned": (f"({T} &) & disown", ""),
    "in a subshell": (f"(cd bin && {T})", ""),
    "in a substitution": (f"X=$({T})", ""),
    "in a process substitution": (f"cat < <({T})", ""),
    "as a co-process": (f"coproc {T}; wait", ""),
    "in a test": (f"if ! {T}; then echo failed; fi", ""),
    "in a trap": (f"trap '{T}' EXIT", ""),
    "in an inner bash": (f"bash -c '{{bin}}/{T}'", ""),
    "in an inner bash without variables": (f"env -i bash -c '{{bin}}/{T}'", ""),
    "in an inner sh": (f"sh -c '{T}'", ""),
    "in an inner script": (f"echo '{T}' > in.sh; bash in.sh", ""),
    "in a script with a shebang": (
        f"printf '#!/bin/bash\\n{T}' > in; cp -p bin/torchrun x; cat in > x; ./x || bash in", ""
    ),
    "in a login shell": (f"bash -lc '{T}'", ""),
    "on another host": (f"ssh -p 22 -tt host 'cd . && {T}'", ""),
    "on other hosts, by their names": (
        f"for h in a b; do ssh $h {T} --node_rank $h; done", f"{T} --node_rank a"
    ),
    "on many hosts": (f"pdsh -w host[1-8] {T}", ""),
    "on another host, by its input": (f"ssh host bash <<EOF\n{T}\nEOF", ""),
    "in a here-document": (f"bash <<EOF\n{T}\nEOF", ""),
    "in a sourced file": (f"echo '{T}' > in.sh; source ./in.sh", ""),
    "with another PATH": (f"export PATH={{bin}}:/usr/bin:/bin; {T}", ""),
    "with no PATH but the usual": (f"export PATH=/usr/bin:/bin; {T}", ""),
    "with a hash of its place": (f"hash -p {{bin}}/torchrun torchrun; {T}", ""),
    "over lines": (T.replace(" ", " \\\n  "), ""),
    "by a link": (f"ln -s {{bin}}/torchrun torchrun 2>/dev/null; ./{T}", ""),
    "by python's module": (
        f"{{bin}}/python3.99 -u -m torch.distributed.run {WORDS}",
        f"python3.99 -u -m torch.distributed.run {WORDS}",
    ),
    "by python, joined": (f"python3.99 -mtorch.distributed.launch {WORDS}", "="),
    "by a launcher's file": (f"python3.99 {{bin}}/torchrun {WORDS}", "="),
    "by python alone": ("python3.99 pretrain_gpt.py --a {tag}", "="),
    "by a program's path": ("/nowhere/pretrain_gpt.py --a {tag}", "pretrain_gpt.py --a {tag}"),
    "by python that runs a shell": (
        f"python3 -c 'import os; os.execv(\"{{bin}}/torchrun\", \"{T}\".split())'", ""
    ),
    "by python that starts processes": (
        f"python3 -c 'import subprocess as s; s.run(\"{{bin}}/{T}\".split())'", ""
    ),
    "by perl": (f"/usr/bin/perl -e 'exec \"{{bin}}/{T}\"'", ""),
    "by awk": (f"echo | awk '{{{{ system(\"{{bin}}/{T}\") }}}}'", ""),
    "by srun": (f"srun -N 2 {T}", "="),
    "by srun of a shell": (f"srun -N 2 bash -c '{T}'", ""),
    "by srun of a container": (f"srun -N 2 singularity exec image bash -c '{T}'", ""),
    "by mpirun": ("mpirun -np 8 python3.99 train.py --a {tag}", "="),
    "by mpirun of a script": (f"echo '{T}' > in.sh; mpirun -np 2 bash in.sh", ""),
    "by sbatch": (f"echo '{T}' > in.sh; sbatch -N 2 in.sh", ""),
    "by sbatch of a line": (f"sbatch --wrap '{T}'", ""),
    "by sbatch of a here-document": (f"sbatch -N 2 <<EOF\n#!/bin/bash\n{T}\nEOF", ""),
    "by deepspeed": ("deepspeed --num_gpus 8 train.py --a {tag}", "="),
    "by accelerate": ("accelerate launch train.py --a {tag}", "="),
    "by ray": ("ray job submit --address=x -- python3 train.py --a {tag}", "="),
    "by ms-swift": ("{bin}/megatron sft --model {tag}", "megatron sft --model {tag}"),
    "by LLaMA-Factory": ("llamafactory-cli train {tag}.yaml", "="),
    "in a container": (f"docker run image bash -c '{T}'", ""),
}  # fmt: skip


NEEDS = {"by make": "make", "by perl": "perl"}  # of what few machines lack


def test_launches_are_recorded_and_do_not_start(place: Place) -> None:
    known = {form for form in FORMS if form not in NEEDS or shutil.which(NEEDS[form])}
    wanted, text = {}, ""
    for tag, (form, (script, words)) in enumerate(FORMS.items(), 100):
        if form not in known:
            continue
        folder = place.folder / str(tag)
        folder.mkdir()
        (folder / "bin").symlink_to(place.bin)
        (folder / "run.sh").write_text(script.format(bin=place.bin, tag=tag) + "\n")
        wanted[form] = [
            tuple({"": T, "=": script}.get(words, words).format(bin=place.bin, tag=tag).split())
        ]
        text += f"(cd {tag} && bash run.sh)\n"
    found = place.record(text, seconds=120.0)
    assert place.marks == "", place.printed
    launched = words_of(found.launches)
    for tag, form in enumerate(FORMS, 100):
        if form in known:
            alone = re.compile(rf"(?<![\w-]){tag}\b")  # not in the name of a folder
            its = [words for words in launched if any(map(alone.search, words))]
            assert its == wanted[form], (form, place.printed)
    assert len(launched) == len(known)
    assert not found.late


def test_the_real_launchers_would_leave_a_mark(place: Place) -> None:
    """Guard the guard: a program that the user lets run does."""
    place.record("unlisted\n", allowed=("unlisted",))
    assert place.marks == "unlisted\n"


def test_there_are_at_least_thirty_forms() -> None:
    assert len(FORMS) >= 30
    assert not [form for form, (text, _) in FORMS.items() if re.search(r"[^{]\{[^{bt]", text)]
