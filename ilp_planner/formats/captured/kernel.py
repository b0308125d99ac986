"""The system calls of processes that this one watches, by Linux's ptrace and seccomp.

A filter of seccomp stops a process as it enters one of some system calls. Until the watcher lets it
go on, nothing of the call has happened: its arguments may be read, another program or another
number put in its place, or an answer given instead. Filters hold for all children, and no process
can take one off.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import os
import platform
import re
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Machine(NamedTuple):
    """Numbers of a kind of processor. audit: its name for seccomp. registers: places of the
    arguments, the number of the call, its answer and the stack in what ptrace returns; `number` of
    -1: it has a set of its own. calls: name -> number."""

    audit: int
    arguments: tuple[int, ...]
    number: int
    answer: int
    stack: int
    calls: Mapping[str, int]


MACHINES = {
    "x86_64": Machine(
        0xC000003E, (14, 13, 12, 7, 9, 8), 15, 10, 19,
        {
            "read": 0, "open": 2, "connect": 42, "execve": 59, "kill": 62, "truncate": 76,
            "ftruncate": 77,
            "rename": 82, "rmdir": 84, "creat": 85, "unlink": 87, "ptrace": 101, "exit_group": 231,
            "openat": 257, "unlinkat": 263, "renameat": 264, "renameat2": 316, "execveat": 322,
            "pidfd_send_signal": 424, "openat2": 437,
            "rt_sigqueueinfo": 129, "pivot_root": 155, "chroot": 161, "settimeofday": 164,
            "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
            "sethostname": 170, "init_module": 175, "delete_module": 176, "tkill": 200,
            "clock_settime": 227, "tgkill": 234, "kexec_load": 246, "rt_tgsigqueueinfo": 297,
            "prlimit64": 302, "open_by_handle_at": 304, "process_vm_writev": 311,
            "finit_module": 313, "seccomp": 317, "kexec_file_load": 320, "bpf": 321,
            "io_uring_setup": 425, "move_mount": 429, "sendto": 44, "sendmsg": 46, "sendmmsg": 307,
        },
    ),
    "aarch64": Machine(
        0xC00000B7, (0, 1, 2, 3, 4, 5), -1, 0, 31,
        {
            "unlinkat": 35, "renameat": 38, "truncate": 45, "ftruncate": 46, "openat": 56,
            "read": 63, "exit_group": 94, "ptrace": 117, "kill": 129, "connect": 203, "execve": 221,
            "renameat2": 276, "execveat": 281, "pidfd_send_signal": 424, "openat2": 437,
            "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "kexec_load": 104,
            "init_module": 105, "delete_module": 106, "clock_settime": 112, "tkill": 130,
            "tgkill": 131, "rt_sigqueueinfo": 138, "reboot": 142, "sethostname": 161,
            "settimeofday": 170, "swapon": 224, "swapoff": 225, "rt_tgsigqueueinfo": 240,
            "prlimit64": 261, "open_by_handle_at": 265, "process_vm_writev": 271,
            "finit_module": 273, "seccomp": 277, "bpf": 280, "kexec_file_load": 294,
            "io_uring_setup": 425, "move_mount": 429, "sendto": 206, "sendmsg": 211,
            "sendmmsg": 269,
        },
    ),
}  # fmt: skip
# Calls that stop only if an argument has one of these bits, or is 0.
WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
FAST_OPEN = 0x20000000  # of send(2): it connects
LISTENER = 8  # of seccomp(2): another process decides on calls, before this one is asked
FLAGS = {
    "open": (1, WRITING),
    "openat": (2, WRITING),
    "read": (0, 0),
    "seccomp": (1, LISTENER),
    "sendto": (3, FAST_OPEN),
    "sendmsg": (2, FAST_OPEN),
    "sendmmsg": (3, FAST_OPEN),
    "prlimit64": (0, 2**32 - 1),  # of another process than the one that calls
}
FREE = ("exit_group",)  # in the table as an answer, and never stopped
# Of ptrace(2), seccomp(2) and prctl(2).
GET_MESSAGE, GET_SET, PUT_SET, CONTINUE, SEIZE, LISTEN = 0x4201, 0x4204, 0x4205, 7, 0x4206, 0x4208
GENERAL, NUMBER = 1, 0x404  # sets of registers
FORKED, EXECUTED, FILTERED, HALTED = (1, 2, 3), 4, 7, 128
WATCH_ALL = 2 | 4 | 8 | 16 | 0x80 | 0x100000  # children, programs, filters; all end with us
NO_NEW_PRIVILEGES, SET_FILTER = 38, 1
ALLOW, TRACE, KILL = 0x7FFF0000, 0x7FF00000, 0x80000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
X32 = 0x40000000  # where numbers of another kind of call begin, on x86_64
SECCOMP = {"x86_64": 317, "aarch64": 277}
MOST_WORDS, MOST_BYTES = 100_000, 8 * 2**20  # of the arguments of a program
BELOW = 256  # bytes below the stack, where a process keeps nothing
# Paths of a process's own: name -> its place in /proc.
OWN_FILES = {
    "/dev/stdin": "fd/0",
    "/dev/stdout": "fd/1",
    "/dev/stderr": "fd/2",
    "/dev/fd": "fd",
    "/proc/self": ".",
    "/proc/thread-self": ".",
}
HERE = -100  # a folder's number that means the current one
NO_FOLLOW, BIRTH = 0x100, 0x800  # of statx(2)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def machine() -> Machine:
    """Return the numbers of this machine.

    Raises
    ------
    PlannerError: its calls are not known here.
    """
    name = platform.machine()
    if platform.system() != "Linux" or name not in MACHINES:
        raise PlannerError(
            f"capture: found {platform.system()} on {name}, expected Linux on "
            f"{' or '.join(MACHINES)}; `ilp-plan fit run.sh` reads a script and runs nothing"
        )
    return MACHINES[name]


def filter_program(known: Machine) -> bytes:
    """Return the filter that stops at the calls of a machine's table.

    Calls in the words of another kind of processor, which the table does not speak of, end the
    process.
    """
    rows: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, known.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),
        (AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, KILL),
    ]
    for name, number in known.calls.items():
        if name in FREE:
            continue
        if name not in FLAGS:
            rows += [(EQUAL, 0, 1, number), (RETURN, 0, 0, TRACE)]
            continue
        place, bits = FLAGS[name]
        test = (ANY_BIT, 0, 1, bits) if bits else (EQUAL, 0, 1, 0)
        rows += [(EQUAL, 0, 4, number), (LOAD, 0, 0, 16 + 8 * place), test]
        rows += [(RETURN, 0, 0, TRACE), (RETURN, 0, 0, ALLOW)]
    rows.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def put_filter(program: bytes) -> None:
    """Put a filter on this process, for good.

    Raises
    ------
    OSError: the system has none.
    """
    text = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text))
    held = ctypes.create_string_buffer(header, len(header))
    if _libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no new privileges")
    if _libc.syscall(SECCOMP[platform.machine()], SET_FILTER, 0, ctypes.byref(held)):
        raise OSError(ctypes.get_errno(), "seccomp")


def watch(process: int) -> None:
    """Watch a process and all its children from now on.

    Raises
    ------
    OSError: the system does not let it be watched.
    """
    _ptrace(SEIZE, process, 0, WATCH_ALL)


def go_on(process: int, number: int = 0, *, listen: bool = False) -> None:
    """Let a stopped process go on. number: of a signal that it is to get. listen: it stays stopped
    until a signal lets it go on."""
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
        _ptrace(LISTEN if listen else CONTINUE, process, 0, number)


def child_of(process: int) -> int:
    """Return the child whose start a stopped process tells of."""
    found = ctypes.c_ulong()
    _ptrace(GET_MESSAGE, process, 0, ctypes.addressof(found))
    return found.value


def signed(value: int) -> int:
    """Return a register as a 32-bit number with a sign."""
    return ctypes.c_int(value & 0xFFFFFFFF).value


def field_of(process: int, name: str, file: str = "status") -> int:
    """Return a number of a process's status in /proc, as PPid; 0 if it has ended. file: another
    one with such lines."""
    try:
        text = Path(f"/proc/{process}/{file}").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def birth_of(path: str) -> float:
    """Return when a file was made; infinite where the file system does not say."""
    held = ctypes.create_string_buffer(256)
    if _libc.statx(HERE, os.fsencode(path), NO_FOLLOW, BIRTH, held):
        return math.inf
    (known,) = struct.unpack_from("=I", held, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", held, 80)
    return float(seconds + nanoseconds * 1e-9) if known & BIRTH else math.inf


class Call:
    """A system call that a process is about to make."""

    def __init__(self, process: int, known: Machine) -> None:
        self.process, self.known = process, known
        self._registers = self._read_registers()
        number = self._register(known.number) if known.number >= 0 else self._read_number()
        self.name = next((n for n, v in known.calls.items() if v == number), "")

    def argument(self, place: int) -> int:
        """Return an argument as a number."""
        return self._register(self.known.arguments[place])

    def text(self, place: int) -> str:
        """Return the text that an argument points to."""
        return self._text_at(self.argument(place))

    def texts(self, place: int) -> list[str]:
        """Return the texts of the list that an argument points to."""
        found: list[str] = []
        at, size = self.argument(place), 0
        while at and len(found) < MOST_WORDS and size < MOST_BYTES:
            (pointer,) = struct.unpack("P", self.memory(at + 8 * len(found), 8))
            if not pointer:
                break
            found.append(self._text_at(pointer))
            size += len(found[-1])
        return found

    def path(self, place: int, folder: int | None = None) -> str:
        """Return the whole path of an argument.

        folder: place of the number of the folder that it starts from; None: the current one.
        """
        number = HERE if folder is None else signed(self.argument(folder))
        held = "cwd" if number == HERE else f"fd/{number}"
        try:
            start = Path(f"/proc/{self.process}/{held}").readlink()
        except OSError:
            start = Path("/")
        written = start / self.text(place)
        path = os.path.normpath(written)
        for name, its in OWN_FILES.items():  # what is of the process, and would be of this one
            if path == name or path.startswith(f"{name}/"):
                return f"/proc/{self.process}/{its}{path.removeprefix(name)}"
        if ".." in written.parts:  # of what a link leads to, where there is one before it
            return os.path.join(os.path.realpath(written.parent), written.name)  # noqa: PTH118
        return path

    def memory(self, at: int, size: int) -> bytes:
        """Return bytes of the process."""
        with self._memory("rb") as file:
            file.seek(at)
            return file.read(size)

    def end(self, status: int = 0) -> None:
        """Let the process end, with a status, in place of the call."""
        self._set_number(self.known.calls["exit_group"])
        self._put(self.known.arguments[0], status)
        self._write_registers()

    def answer(self, value: int) -> None:
        """Answer the call without its being made. value: below 0 a negative number of an error."""
        self._set_number(-1)
        self._put(self.known.answer, value)
        self._write_registers()

    def run_instead(self, path: str, skipped: int = 0) -> None:
        """Let a call that starts a program start another one.

        skipped: how many words at the beginning are left out.
        """
        text = os.fsencode(path) + b"\0"
        at = (self._register(self.known.stack) - BELOW - len(text)) & ~15
        with self._memory("r+b") as file:
            file.seek(at)
            file.write(text)
        first = 1 if self.name == "execveat" else 0
        self._put(self.known.arguments[first], at)
        words = self.known.arguments[first + 1]
        self._put(words, self._register(words) + 8 * skipped)
        self._write_registers()

    def _memory(self, mode: str) -> io.FileIO:
        return io.FileIO(f"/proc/{self.process}/mem", mode)

    def _text_at(self, at: int) -> str:
        parts = []
        while at:
            piece = self.memory(at, 256 - at % 256)  # to the end of a page at most
            text, end, _ = piece.partition(b"\0")
            parts.append(text)
            if end or not piece or sum(map(len, parts)) > MOST_BYTES:
                break
            at += len(piece)
        return os.fsdecode(b"".join(parts))

    def _register(self, place: int) -> int:
        return int(struct.unpack_from("=Q", self._registers, 8 * place)[0])

    def _put(self, place: int, value: int) -> None:
        struct.pack_into("=Q", self._registers, 8 * place, value & (2**64 - 1))

    def _read_registers(self) -> ctypes.Array[ctypes.c_char]:
        held = ctypes.create_string_buffer(1024)
        size = _transfer(GET_SET, self.process, GENERAL, held, len(held))
        return ctypes.create_string_buffer(held.raw[:size], size)

    def _write_registers(self) -> None:
        _transfer(PUT_SET, self.process, GENERAL, self._registers, len(self._registers))

    def _read_number(self) -> int:
        held = ctypes.create_string_buffer(4)
        _transfer(GET_SET, self.process, NUMBER, held, 4)
        return int(struct.unpack("=i", held.raw)[0])

    def _set_number(self, number: int) -> None:
        if self.known.number >= 0:
            self._put(self.known.number, number)
            return
        held = ctypes.create_string_buffer(struct.pack("=i", number), 4)
        _transfer(PUT_SET, self.process, NUMBER, held, 4)


def _transfer(
    request: int, process: int, which: int, held: ctypes.Array[ctypes.c_char], size: int
) -> int:
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(held), size)
    _ptrace(request, process, which, ctypes.addressof(vector))
    return int(vector[1])


def _ptrace(request: int, process: int, address: int, data: int) -> None:
    if _libc.ptrace(request, process, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")


def kill_all(processes: Sequence[int]) -> None:
    """Kill processes; those that have ended are passed over."""
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
