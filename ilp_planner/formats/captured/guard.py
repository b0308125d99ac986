"""A command that runs with every program that it starts looked at first.

The guard holds for the command and all that comes of it, through shells, pipes and background jobs:
none of them starts a program, sends a signal, reaches another host, or removes or changes a file
that was there before, unless the guard lets it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.captured import kernel
from ilp_planner.formats.captured.programs import (
    BEFORE,
    REMOTE,
    SHELLS,
    SLEEPS,
    Kind,
    Ruling,
    counts_gpus,
    name_of,
    ruling_on,
)

if TYPE_CHECKING:
    from types import FrameType

ALL_CHILDREN = 0x40000000  # of waitpid(2): threads too
SETTINGS = ("/sys/", "/proc/sys/", "/proc/sysrq-trigger")  # what is written there takes effect
INTERNET = (2, 10)  # families of addresses
KEPT_BYTES = 256 * 2**20  # of a file that is put back as it was
AFTER = 5.0  # seconds that background jobs have once the command has ended
ABSENT = ".absent"  # the name under which a shell says that it found no such program
PROGRAMS = ("bin", "sbin")  # names of folders whose programs are what they are called
SHEBANG = 128  # bytes
DELETED = " (deleted)"  # behind the name of a file that only an open descriptor leads to
NOT_FOUND = 127  # status of a program that is not there


class Started(NamedTuple):
    """A program that was about to start. outer: words of the launchers around it, the outermost
    first. sure: whether it surely is a launch. piped: somebody reads its output."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    outer: tuple[tuple[str, ...], ...] = ()
    sure: bool = True
    piped: bool = False


class Kept(NamedTuple):
    """A file that a script writes to, as it was before. copy: of its content; None: it is only
    appended to."""

    before: os.stat_result
    copy: Path | None


# From the words of a launcher, the script that it starts and the environment to variables.
Task = Callable[[tuple[str, ...], Path | None, Mapping[str, str]], Mapping[str, str]]


class _TimeUpError(Exception):
    """The time limit was reached."""


@dataclass(slots=True)
class Guard:
    """A guarded run of one command.

    folder: of the stand-ins. allowed: names of programs that run though no table names them, and
    may send signals, reach hosts and change files. task: from the words of a launcher that places
    tasks, and the script that it starts, to the variables of its first one. gpus: of a node, which
    commands that count them are told; None: they count those of this machine.
    launches, noted: what was about to start, in order. kept: files that were put back as they were.
    status: of the command; below 0 by a signal. asked: whether it read its standard input. counted:
    whether it counted this machine's GPUs. late: whether the time limit ended it. left: background
    jobs that were ended.
    """

    folder: Path
    allowed: tuple[str, ...] = ()
    task: Task = lambda words, file, environment: {}
    gpus: int | None = None
    launches: list[Started] = field(default_factory=list)
    noted: list[Started] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    status: int = 0
    asked: bool = False
    counted: bool = False
    late: bool = False
    left: int = 0
    _known: kernel.Machine = field(default_factory=kernel.machine)
    _begun: float = 0.0
    _output: str = ""
    _parents: dict[int, int] = field(default_factory=dict)
    _outer: dict[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    _free: set[int] = field(default_factory=set)
    _early: set[int] = field(default_factory=set)

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], output: int, seconds: float
    ) -> None:
        """Run a command to its end.

        Parameters
        ----------
        output: descriptor that its output goes to. seconds: after which it is ended.

        Raises
        ------
        PlannerError: the system lets nothing be guarded; then nothing has run.
        """
        self._output = held_by(os.getpid(), f"fd/{output}")
        handler = signal.signal(signal.SIGALRM, _time_up)
        root = 0
        try:
            root = self._start(words, environment, output)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            self._watch(root)
        except _TimeUpError:
            self.late = root in self._parents
            self.left = len(self._parents)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            self._end()
            self._put_back()

    def _start(self, words: Sequence[str], environment: Mapping[str, str], output: int) -> int:
        """Start the command, which waits until it is guarded."""
        program = kernel.filter_program(self._known)
        asking = self.folder / "stdin"
        asking.touch()
        self._begun = asking.stat().st_mtime  # by the clock that files are made by
        ready, go = os.pipe()
        process = os.fork()
        if not process:
            try:
                os.close(go)
                os.setsid()
                os.dup2(os.open(asking, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                if os.read(ready, 1) == b"y":
                    kernel.put_filter(program)
                    os.execvpe(words[0], list(words), dict(environment))
            finally:  # whatever went wrong, this process does nothing else
                os._exit(NOT_FOUND)
        os.close(ready)
        self._parents[process] = 0
        try:
            kernel.watch(process)
        except OSError as error:
            os.close(go)
            os.waitpid(process, 0)
            del self._parents[process]
            raise PlannerError(
                f"capture: found a system that lets no process be watched ({error.strerror}), "
                "without which a launch could start; nothing was run; `docker run "
                "--cap-add=SYS_PTRACE` lets it, and `ilp-plan fit run.sh` reads a script and runs "
                "nothing"
            ) from None
        os.write(go, b"y")
        os.close(go)
        return process

    def _watch(self, root: int) -> None:
        """Look at what processes are about to do until all have ended."""
        while self._parents:
            try:
                process, status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                return
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self._parents.pop(process, None)
                self._outer.pop(process, None)
                self._free.discard(process)
                self._early.discard(process)
                self._adopt()
                if process == root:
                    self.status = os.waitstatus_to_exitcode(status)
                    left = signal.getitimer(signal.ITIMER_REAL)[0]
                    signal.setitimer(signal.ITIMER_REAL, min(left or AFTER, AFTER))
            elif os.WIFSTOPPED(status):
                self._stopped(process, os.WSTOPSIG(status), status >> 16)

    def _stopped(self, process: int, number: int, event: int) -> None:
        if process not in self._parents:
            self._early.add(process)  # a child whose parent has not told of it yet
            return
        if event in kernel.FORKED:
            with contextlib.suppress(ProcessLookupError):
                child = kernel.child_of(process)
                self._parents[child] = process
                self._outer[child] = self._outer.get(process, ())
                if process in self._free:
                    self._free.add(child)
                if child in self._early:
                    self._early.remove(child)
                    kernel.go_on(child)
        elif event == kernel.FILTERED:
            with contextlib.suppress(ProcessLookupError):
                self._called(kernel.Call(process, self._known))
        halted = event == kernel.HALTED and number not in (signal.SIGTRAP,)
        kernel.go_on(process, number if not event else 0, listen=halted)

    def _adopt(self) -> None:
        """Let children go on whose parents have ended without telling of them."""
        for child in tuple(self._early):
            known = {kernel.field_of(child, name) for name in ("Tgid", "PPid")} - {child}
            if not known & self._parents.keys():
                self._early.remove(child)
                self._parents[child] = 0
                kernel.go_on(child)

    def _called(self, call: kernel.Call) -> None:
        """Decide on a call, which has not been made yet. What cannot be read is not made."""
        try:
            decide = getattr(self, f"_{CALLS[call.name]}")
            decide(call)
        except (OSError, KeyError, struct.error):
            call.answer(-errno.EPERM)  # which fails where the process is no longer there

    # ---- programs ----------------------------------------------------------------------------

    def _program(self, call: kernel.Call) -> None:
        at = call.name == "execveat"
        path = call.path(1 if at else 0, 0 if at else None)
        words = call.texts(2 if at else 1) or [path]
        environment = dict(text.split("=", 1) for text in call.texts(3 if at else 2) if "=" in text)
        words[0] = (call.text(1) if at else call.text(0)) or path  # none: a file that is held open
        absent = path == str(self.folder / ABSENT)
        skipped = 0
        if absent:
            words, skipped = words[1:], 1
        self._decide(call, 2 if at else 1, path, tuple(words), environment, skipped, absent=absent)

    def _decide(
        self,
        call: kernel.Call,
        words_at: int,
        path: str,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        skipped: int,
        *,
        absent: bool,
    ) -> None:
        here = not absent and (Path(path).exists() or path.endswith(DELETED))
        ours = self.folder in Path(path).parents
        if ours:
            words = (name_of(words[0]), *words[1:])
        name = name_of(words[0])
        folder = held_by(call.process, "cwd")
        around = os.path.dirname(path)  # noqa: PTH120
        known = around in map(os.path.normpath, environment.get("PATH", "").split(":"))
        script = here and not known and is_shell_script(path)
        listed = known or absent or ours or name_of(around) in PROGRAMS
        ruling = ruling_on(words, self.allowed, script=script, folder=folder, listed=listed)
        outer = self._outer.get(call.process, ())
        output = held_by(call.process, "fd/1")
        piped = output.startswith("pipe:") and output != self._output
        started = Started(words, environment, folder, outer, ruling.sure, piped)
        if how := counts_gpus(words):
            self.counted |= self.gpus is None
            if self.gpus is not None:
                call.run_instead(self._count_script(how), len(call.texts(words_at)) - 1)
                return
        if ruling.kind is Kind.LAUNCH:
            self.launches.append(started)
            call.end()
        elif ruling.kind is Kind.INNER:
            before = words[: ruling.inner]
            self._outer[call.process] = (*outer, before)
            if name in BEFORE or name in REMOTE:
                self.noted.append(started)
            task = self._task_script(started, ruling)
            call.run_instead(task, skipped + ruling.inner - 1)
        elif ruling.kind is Kind.RUN:
            if name in SLEEPS and name not in self.allowed and here:
                call.end()
            elif absent or (ours and here):
                call.end(NOT_FOUND)  # a shell has said that it is not there
            elif name in self.allowed:
                self._free.add(call.process)
        elif here or absent:
            self.noted.append(started)
            call.end()
        else:  # as far as can be seen from here; what cannot be seen does not start
            call.answer(-errno.ENOENT)

    def _task_script(self, started: Started, ruling: Ruling) -> str:
        """Write a script that runs the words behind it as the first task of a launcher."""
        words, inner = started.words, ruling.inner
        file = Path(started.folder) / words[inner] if inner < len(words) else None
        variables = self.task(words[:inner], file, started.environment)
        lines = [f"export {name}={value}" for name, value in variables.items()]
        shell = shutil.which("bash") or "/bin/sh"
        run = f"exec {shell} {shlex.join(ruling.shell)}"
        if file is not None:
            run = f'exec {shell} "$@"' if name_of(words[0]) == "sbatch" else 'exec "$@"'
        file = self.folder / f".task{len(list(self.folder.glob('.task*')))}"
        file.write_text("\n".join([f"#!{shell}", *lines, run, ""]))
        file.chmod(0o700)
        return str(file)

    def _count_script(self, how: str) -> str:
        """Write a script that says how many GPUs a node has. how: as of `counts_gpus`."""
        file = self.folder / f".count-{how}"
        each = [f"GPU {k}: as asked" for k in range(self.gpus or 0)]
        told = [str(self.gpus)] if how == "number" else each
        file.write_text("\n".join(["#!/bin/sh", *(f"echo {shlex.quote(t)}" for t in told), ""]))
        file.chmod(0o700)
        return str(file)

    # ---- signals, hosts, files ---------------------------------------------------------------

    def _signal(self, call: kernel.Call) -> None:
        number = kernel.signed(call.argument(0))
        if call.name == "pidfd_send_signal":
            number = kernel.field_of(call.process, "Pid", f"fdinfo/{number}") or -1
        known = abs(number) in self._parents or number == 0
        if (known and number != -1) or self._is_free(call.process, "kill"):
            return
        if call.name == "prlimit64":
            self._note(call, "prlimit", "--pid", str(number))
        else:
            self._note(call, "kill", f"-{call.argument(SIGNAL_AT.get(call.name, 1))}", str(number))
        call.answer(0)

    def _host(self, call: kernel.Call) -> None:
        address = call.memory(call.argument(1), min(call.argument(2), 28))
        family = struct.unpack_from("=H", address)[0]
        if family not in INTERNET or self._is_free(call.process, ""):
            return
        import socket

        end = 8 if family == INTERNET[0] else 24
        host = socket.inet_ntop(family, address[4 if family == INTERNET[0] else 8 : end])
        (port,) = struct.unpack_from("!H", address, 2)
        self._note(call, "connect", f"{host}:{port}")
        call.answer(-errno.ENETUNREACH)

    def _refuse(self, call: kernel.Call) -> None:
        call.answer(-errno.EPERM)

    def _input(self, call: kernel.Call) -> None:
        if held_by(call.process, "fd/0") == str(self.folder / "stdin"):
            self.asked = True

    def _file(self, call: kernel.Call) -> None:
        """Keep a file that is about to be written over, and let none be removed or renamed."""
        if self._is_free(call.process, ""):
            return
        if call.name == "ftruncate":
            path = held_by(call.process, f"fd/{kernel.signed(call.argument(0))}")
            self._keep(call, path, os.O_TRUNC)
            return
        if call.name in ("open", "openat", "openat2", "creat", "truncate"):
            inside = 0 if call.name in ("openat", "openat2") else None
            path = call.path(0 if inside is None else 1, inside)
            flags = os.O_TRUNC
            if call.name in kernel.FLAGS:
                flags = call.argument(kernel.FLAGS[call.name][0])
            elif call.name == "openat2":
                (flags,) = struct.unpack("=Q", call.memory(call.argument(2), 8))
            if flags & kernel.WRITING:
                self._keep(call, path, flags)
            return
        places = {
            "unlink": ((0, None),), "rmdir": ((0, None),), "unlinkat": ((1, 0),),
            "rename": ((0, None), (1, None)), "renameat": ((1, 0), (3, 2)),
            "renameat2": ((1, 0), (3, 2)),
        }[call.name]  # fmt: skip
        for place, folder in places:
            path = call.path(place, folder)
            if path in self.kept or self._was_there(path):
                self._note(call, call.name, path)
                call.answer(-errno.EPERM)
                return

    def _keep(self, call: kernel.Call, path: str, flags: int) -> None:
        real = os.path.realpath(path)
        if real.startswith(SETTINGS) or Path(real).is_block_device():
            self._note(call, "write", real)
            call.answer(-errno.EACCES)
            return
        known = self.kept.get(real)
        appended = flags & os.O_APPEND and not flags & os.O_TRUNC
        if real == self._output or (known and (known.copy or appended)):
            return
        if not known and not (self._was_there(real) and Path(real).is_file()):
            return
        before = known.before if known else Path(real).stat()
        copy = None
        if not appended:
            if before.st_size > KEPT_BYTES:
                self._note(call, call.name, path)
                call.answer(-errno.EACCES)
                return
            copy = self.folder / f".kept{len(self.kept)}"
            shutil.copyfile(real, copy)
            os.truncate(copy, before.st_size)  # less what has been appended meanwhile
        self.kept[real] = Kept(before, copy)

    def _was_there(self, path: str) -> bool:
        """Tell whether a file was there before the command began."""
        try:
            found = os.lstat(path)
        except OSError:
            return False
        first = min(found.st_ctime, found.st_mtime, kernel.birth_of(path))
        return first < self._begun and not stat.S_ISCHR(found.st_mode)

    def _put_back(self) -> None:
        """Give files that were written over the content that they had."""
        for path, (before, copy) in self.kept.items():
            with contextlib.suppress(OSError):
                if copy is None:
                    os.truncate(path, before.st_size)
                else:
                    shutil.copyfile(copy, path)
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _note(self, call: kernel.Call, *words: str) -> None:
        self.noted.append(Started(words, {}, held_by(call.process, "cwd")))

    def _is_free(self, process: int, name: str) -> bool:
        """Tell whether a process comes of a program that the user lets run."""
        return name in self.allowed or process in self._free

    def _end(self) -> None:
        """Kill what still runs, and wait for it."""
        kernel.kill_all([*self._parents, *self._early])
        while self._parents or self._early:
            try:
                process, status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                break
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self._parents.pop(process, None)
                self._early.discard(process)
            else:
                kernel.kill_all([process])
                kernel.go_on(process)


SIGNAL_AT = {"tgkill": 2, "rt_tgsigqueueinfo": 2}  # places of the signal, if not the second
# What a program would do past the guard: to other processes' memory, to files and hosts by another
# way than the calls below, to the machine.
REFUSED = (
    "ptrace", "process_vm_writev", "seccomp", "io_uring_setup", "open_by_handle_at", "chroot",
    "pivot_root", "mount", "move_mount", "umount2", "swapon", "swapoff", "reboot", "sethostname",
    "settimeofday", "clock_settime", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "bpf", "sendto", "sendmsg", "sendmmsg",
)  # fmt: skip
# Call -> the method that decides on it.
CALLS = {
    **dict.fromkeys(("execve", "execveat"), "program"),
    **dict.fromkeys(("kill", "tkill", "tgkill", "pidfd_send_signal", "prlimit64"), "signal"),
    **dict.fromkeys(("rt_sigqueueinfo", "rt_tgsigqueueinfo"), "signal"),
    "connect": "host",
    **dict.fromkeys(REFUSED, "refuse"),
    "read": "input",
    **dict.fromkeys(("open", "openat", "openat2", "creat", "truncate", "ftruncate"), "file"),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2"), "file"),
}


def is_shell_script(path: str) -> bool:
    """Tell whether a file is a text that a shell would read."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(SHEBANG)
    except OSError:
        return False
    first = head.partition(b"\n")[0].decode(errors="replace")
    if first.startswith("#!"):
        return any(name_of(word) in SHELLS for word in first[2:].split())
    return path.endswith(".sh") and b"\0" not in head


def held_by(process: int, what: str) -> str:
    """Return the path, or the kind, of what a process holds: `cwd`, `fd/1`; empty of nothing."""
    try:
        return os.fspath(Path(f"/proc/{process}/{what}").readlink())
    except OSError:
        return ""


def _time_up(number: int, frame: FrameType | None) -> None:
    raise _TimeUpError
