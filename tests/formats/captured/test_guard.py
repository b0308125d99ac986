"""What a guarded script cannot do: to programs, processes, hosts and files of others."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.captured import kernel
from ilp_planner.formats.captured.guard import Guard
from tests.formats.captured.conftest import HARMFUL, Place, words_of


def test_harmful_programs_are_noted_and_not_run(place: Place) -> None:
    text = "set -e\n"
    for name in HARMFUL:
        text += f"{name} -9 x\n{place.bin}/{name} a; (exec env {name} b)\n"
    found = place.record(text)
    assert place.marks == ""
    said = (("-9", "x"), ("a",), ("b",))
    assert words_of(found.noted) == [(name, *words) for name in HARMFUL for words in said]
    assert found.status == 0


def test_a_program_that_the_user_allows_runs(place: Place) -> None:
    found = place.record("pkill a\nconda b\n", allowed=("conda",))
    assert place.marks == "conda\n"
    assert words_of(found.noted) == [("pkill", "a")]


def test_launches_of_an_allowed_program_are_recorded(place: Place) -> None:
    inner = place.bin / "unlisted"
    inner.write_text("#!/bin/sh\nexec torchrun x.py\n")
    found = place.record("unlisted\n", allowed=("unlisted",))
    assert words_of(found.launches) == [("torchrun", "x.py")]
    assert place.marks == ""


def test_processes_of_others_get_no_signal(place: Place) -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        commands = "kill -9 {pid}", "/bin/kill {pid}", "kill -TERM -- -{pid}"
        found = place.record("".join(f"{c.format(pid=other.pid)}\necho $?\n" for c in commands))
        assert other.poll() is None
        assert place.printed == "0\n0\n0\n"
        assert [one.words[0].rpartition("/")[2] for one in found.noted] == ["kill"] * 3
    finally:
        other.kill()
        other.wait()


def test_a_script_may_end_its_own_processes(place: Place) -> None:
    """`wait` would last for a minute otherwise."""
    found = place.record("bash -c 'while :; do :; done' & kill $!; wait $!; echo $?\n")
    assert place.printed == "143\n"
    assert not found.noted
    assert not found.late


CODE = """\
python3 - {argument} <<'E'
import ctypes, os, signal, struct, sys
pid, call = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True).syscall
{code}
print("done")
E
"""
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of calls of x86_64")
# Code of Python that would end another process by calls that `kill` does not make.
SIGNALS = {
    "tkill": "call(200, pid, 9)",
    "tgkill": "call(234, pid, pid, 9)",
    "rt_sigqueueinfo": "call(129, pid, 9, struct.pack('iii116x', 9, 0, -1))",
    "prlimit64": "call(302, pid, 0, struct.pack('qq', 1, 1), 0)",
    "pidfd_send_signal": "signal.pidfd_send_signal(os.pidfd_open(pid), 9)",
}


@X86
def test_no_other_call_ends_a_process_of_others(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        try:
            found = place.record(CODE.format(argument=other.pid, code="\n".join(SIGNALS.values())))
            assert other.poll() is None
            assert place.printed == "done\n"
            assert len(found.noted) == len(SIGNALS)
            assert all(str(other.pid) in one.words for one in found.noted)
        finally:
            other.kill()


def test_a_process_of_its_own_is_ended_by_its_descriptor(place: Place) -> None:
    code = (
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.pause()\n"
        "signal.pidfd_send_signal(os.pidfd_open(child), 9)\n"
        "print(os.waitpid(child, 0)[1], flush=True)"
    )
    found = place.record(CODE.format(argument=1, code=code))
    assert place.printed == "9\ndone\n"
    assert not found.noted


# Calls by which a program would pass the guard: rings of calls, another that decides on calls, the
# memory of another process, another root.
PAST = {
    "io_uring_setup": "call(425, 4, bytes(256))",
    "seccomp": "call(317, 1, 8, 0)",
    "process_vm_writev": "call(311, pid, 0, 0, 0, 0, 0)",
    "chroot": "call(161, b'/')",
    "mount": "call(165, 0, b'/nowhere', 0, 0, 0)",
}


@X86
def test_no_call_passes_the_guard(place: Place) -> None:
    """Each is answered by the guard: not permitted."""
    code = "".join(
        f"ctypes.set_errno(0)\n{call}\nprint({name!r}, ctypes.get_errno())\n"
        for name, call in PAST.items()
    )
    place.record(CODE.format(argument=1, code=code))
    assert place.printed == "".join(f"{name} 1\n" for name in PAST) + "done\n"


HELD = """\
held = os.memfd_create("x")
os.write(held, open("{program}", "rb").read())
os.fork() or os.execve(held, ["date", "{mark}"], {{}})
os.wait()"""


def test_a_program_that_only_a_descriptor_leads_to_does_not_start(place: Place) -> None:
    """Whatever it calls itself."""
    mark = place.folder / "made"
    program = shutil.which("touch")
    found = place.record(CODE.format(argument=1, code=HELD.format(program=program, mark=mark)))
    assert not mark.exists()
    assert place.printed.endswith("done\n")
    assert found.noted[0].words[1:] == (str(mark),)


def test_a_path_through_a_link_is_followed_as_the_system_does(place: Place) -> None:
    (place.folder / "other" / "inner").mkdir(parents=True)
    (place.folder / "link").symlink_to("other/inner")
    program = place.program(place.folder / "other" / "date")
    program.write_text(f"#!/usr/bin/env python3\nopen({str(place.folder / 'marks')!r}, 'w')\n")
    found = place.record("link/../date a\n")
    assert not (place.folder / "marks").exists()
    assert words_of(found.noted) == [("date", "a")]


def test_a_program_of_the_users_own_is_not_the_listed_one_of_its_name(place: Place) -> None:
    """Those that are installed run."""
    for name in ("date", "sort"):
        file = place.program(place.folder / name)
        file.write_text(f"#!/usr/bin/env python3\nopen({str(place.folder / 'marks')!r}, 'w')\n")
    found = place.record("./date a; $PWD/sort b; env -i /bin/date > /dev/null && echo ran\n")
    assert not (place.folder / "marks").exists()
    assert words_of(found.noted) == [("date", "a"), ("sort", "b")]
    assert place.printed == "ran\n"


def test_no_host_is_reached(place: Place) -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        found = place.record(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached\n")
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert "reached\n" not in place.printed
    assert words_of(found.noted) == [("connect", f"127.0.0.1:{port}")]


def test_no_host_is_reached_with_the_first_data(place: Place) -> None:
    """TCP's fast open connects without `connect`."""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        code = "import socket\na = ('127.0.0.1', pid)\n" + "".join(
            f"try:\n    socket.socket().{send}\nexcept PermissionError:\n    print('no')\n"
            for send in ("sendto(b'x', 1 << 29, a)", "sendmsg([b'x'], [], 1 << 29, a)")
        )
        place.record(CODE.format(argument=port, code=code))
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert place.printed == "no\nno\ndone\n"


# What a script does to the file `old`, or to the folder that it is in.
CHANGES = {
    "truncated as a stream": "exec 3>>old; echo lost > /dev/fd/3; echo new",
    "truncated": "echo new > old; cat old",
    "appended to": "echo new >> old; tail -n 1 old",
    "written over by a program": "echo new | tee old",
    "written over through a link": "echo new > link; cat old",
    "opened to read and write": "exec 3<>old; echo new >&3; head -n 1 old",
    "removed by python": "python3 -c 'import os; os.unlink(\"old\")' || echo new",
    "renamed by python": 'python3 -c \'import os; os.rename("old", "b")\' || echo new',
    "replaced by python": (
        'echo new > b; python3 -c \'import os; os.replace("b", "old")\' || cat b'
    ),
    "truncated by python after it was appended to": (
        'python3 -c \'f = open("old", "a"); f.write("lost"); f.flush(); f.truncate(0)\'; echo new'
    ),
    "truncated by python": "python3 -c 'import os; os.truncate(\"old\", 0)'; echo new",
    "removed after it was written": (
        "echo new > old; python3 -c 'import os; os.unlink(\"old\")'; cat old"
    ),
    "its folder": "python3 -c 'import shutil; shutil.rmtree(\".\", ignore_errors=True)'; echo new",
    "edited in place": "sed -i s/precious/new/ old; echo new",
    "renamed with its folder, in which a file was made": (
        "echo a > b; python3 -c 'import os; os.rename(os.getcwd(), \"../gone\")' || echo new"
    ),
    "removed by perl": '/usr/bin/perl -e \'unlink("old") or print "new\\n"\'',
}


def test_a_file_that_was_there_is_as_it_was(place: Place) -> None:
    """Its content and its time of change, whatever scripts do to it meanwhile, each in a folder."""
    text = ""
    for number, change in enumerate(CHANGES.values()):
        folder = place.folder / str(number)
        folder.mkdir()
        old = folder / "old"
        old.write_text("precious\nlines\n")
        os.utime(old, (1e9, 1e9))
        (folder / "link").symlink_to("old")
        (place.folder / f"{number}.sh").write_text(f"{change}\n")
        text += f"(cd {number} && bash ../{number}.sh > ../{number}.txt 2>&1)\n"
    time.sleep(0.02)
    place.record(text, seconds=60.0)
    for number, change in enumerate(CHANGES):
        old, printed = place.folder / f"{number}" / "old", place.folder / f"{number}.txt"
        assert printed.read_text().endswith("new\n"), (change, printed.read_text())
        assert old.read_text() == "precious\nlines\n", change
        assert old.stat().st_mtime == 1e9, change


def test_the_output_may_be_named(place: Place) -> None:
    """As /dev/stderr, which is the script's and not that of this process."""
    found = place.record("echo 2 >> /dev/stderr\n")
    assert place.printed == "2\n"
    assert not found.kept


def test_settings_of_the_machine_are_not_written(place: Place) -> None:
    """The write would be one of the same value, should it come through."""
    path = Path("/proc/sys/kernel/pid_max")
    before = path.read_text()
    found = place.record(f"cat {path} > {path} || echo refused\n")
    assert place.printed.endswith("refused\n")
    assert path.read_text() == before
    assert words_of(found.noted) == [("write", str(path))]


def test_code_that_trains_is_not_run(place: Place) -> None:
    found = place.record("python3 -c 'from x import *; pretrain(1)'; python3 -c 'print(1)'\n")
    assert place.printed == "1\n"
    assert len(found.noted) == 1


def test_new_files_are_written_and_may_be_removed(place: Place) -> None:
    found = place.record(
        'mkdir -p new; echo a > new/a; python3 -c \'import os; os.rename("new/a", "new/b")\';'
        "echo c > new/c; python3 -c 'import os; os.unlink(\"new/c\")'\n"
    )
    assert (place.folder / "new" / "b").read_text() == "a\n"
    assert not (place.folder / "new" / "c").exists()
    assert not found.noted, found.noted


def test_the_input_is_closed_and_reading_it_is_noticed(place: Place) -> None:
    assert place.record("read -rp password: x; echo $?\n").asked
    assert place.printed.endswith("1\n")
    assert not place.record("echo x | cat; read -r y < run.sh; echo $?\n").asked


def test_a_script_is_ended_at_its_limit_with_all_its_processes(place: Place) -> None:
    text = "bash -c 'echo $$ > pid; while :; do :; done' & trap '' TERM; while :; do :; done\n"
    found = place.record(text, seconds=1.0)
    assert found.late
    process = Path("/proc") / (place.folder / "pid").read_text().strip()
    assert not process.exists() or "State:\tZ" in (process / "status").read_text()


def test_background_jobs_may_launch_after_the_script(place: Place) -> None:
    found = place.record("(python3 -c 'import time; time.sleep(0.5)'; torchrun a.py) &\n")
    assert words_of(found.launches) == [("torchrun", "a.py")]


def test_a_failure_of_the_script_is_kept(place: Place) -> None:
    assert place.record("torchrun a.py; exit 3\n").status == 3
    assert place.record("set -e; ls /nowhere; torchrun a.py").status == 2
    assert "No such file" in place.printed
    assert place.record("torchrun a.py; kill -9 $$").status == -9


def test_ranks_of_nodes_are_one_launch(place: Place) -> None:
    found = place.record("for k in 0 1 2; do torchrun --node_rank $k a.py & done; wait\n")
    assert len(found.launches) == 1
    found = place.record("for k in 1 2; do torchrun --nnodes $k a.py; done\n")
    assert len(found.launches) == 2


def test_gpus_are_counted_as_asked(place: Place) -> None:
    """By the usual commands, and by nothing else; without an answer it is noticed."""
    from ilp_planner.formats.captured.recording import record

    script = place.folder / "run.sh"
    script.write_text(
        "torchrun $(nvidia-smi -L | wc -l) "
        '$(python -c "import torch; print(torch.cuda.device_count())") '
        "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)\n"
    )
    with Path(os.devnull).open("w") as nowhere:
        asked = {"output": nowhere.fileno(), "seconds": 20.0}
        found = record(["bash", str(script)], gpus=4, **asked)  # type: ignore[arg-type]
        assert words_of(found.launches) == [("torchrun", "4", "4", "4")]
        assert not found.counted
        assert record(["bash", str(script)], **asked).counted  # type: ignore[arg-type]


def test_tasks_of_launchers_have_their_variables(place: Place) -> None:
    (place.folder / "job").write_text(
        "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --gpus-per-node=8\n"
        "srun --ntasks-per-node=2 bash -c 'torchrun $SLURM_NNODES $SLURM_PROCID $SLURM_NTASKS'\n"
    )
    found = place.record("sbatch --ntasks-per-node 1 ./job\n")
    (launch,) = found.launches
    assert launch.words == ("torchrun", "4", "0", "8")
    assert [words[0] for words in launch.outer] == ["sbatch", "srun"]
    found = place.record("mpirun -np 16 bash -c 'torchrun $OMPI_COMM_WORLD_SIZE'\n")
    assert words_of(found.launches) == [("torchrun", "16")]


def test_many_processes_and_threads(place: Place) -> None:
    """None is lost, and none hangs."""
    code = (
        "import subprocess as s, threading as t; "
        'a = [t.Thread(target=s.run, args=([str("torchrun"), str(k)],)) for k in range(20)]; '
        "[x.start() for x in a]; [x.join() for x in a]"
    )
    text = f"python3 -c '{code}'; for k in $(seq 20 49); do torchrun $k & done; wait\n"
    found = place.record(text)
    assert {one.words[1] for one in found.launches} == {str(k) for k in range(50)}


def test_children_of_killed_parents_go_on(place: Place) -> None:
    """A parent may end before it has told of its child."""
    code = (
        "import os, signal\n"
        "for k in range(100):\n"
        "    if not os.fork():\n"
        "        if not os.fork():\n"
        '            os.execvp("torchrun", ["torchrun", str(k)])\n'
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found = place.record(f"python3 -c '{code}'\n")
    assert {one.words[1] for one in found.launches} == {str(k) for k in range(100)}
    assert not found.late
    assert found.left == 0


def test_a_new_file_that_is_written_twice_has_what_was_written_last(place: Place) -> None:
    """However soon after the start."""
    for k in range(4):
        place.record(f"echo a > f{k}; echo b >> f{k}; echo c > g{k}; echo d > g{k}\n")
        assert (place.folder / f"f{k}").read_text() == "a\nb\n"
        assert (place.folder / f"g{k}").read_text() == "d\n"


def test_nothing_runs_where_nothing_can_be_guarded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel, "watch", refuse)
    with pytest.raises(PlannerError, match=r"lets no process be watched.*nothing was run"):
        place.record("touch ran\n")
    assert not (place.folder / "ran").exists()


def test_nothing_runs_where_a_trial_launch_would_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the trial is made
    monkeypatch.setattr(Guard, "_program", lambda self, call: None)
    with pytest.raises(PlannerError, match="a trial program was not kept from starting"):
        place.record("touch ran\n")
    assert not (place.folder / "ran").exists()


def test_a_process_without_its_watcher_starts_nothing(tmp_path: Path) -> None:
    """The filter is the process's own: if the watcher dies, it starts no program."""
    code = (
        "import os, sys; from ilp_planner.formats.captured import kernel as k; "
        "k.put_filter(k.filter_program(k.machine())); "
        f"os.execv('/bin/touch', ['touch', {str(tmp_path / 'ran')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search("OSError|NotImplemented|Function not implemented", done.stderr)
    assert not (tmp_path / "ran").exists()


def test_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(PlannerError, match="found Linux on riscv64, expected Linux on x86_64 or"):
        kernel.machine()


def test_handlers_and_timers_are_as_before(place: Place) -> None:
    import signal

    before = signal.getsignal(signal.SIGALRM)
    place.record("torchrun a.py\n")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
