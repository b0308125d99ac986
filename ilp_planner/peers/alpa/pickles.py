"""Reads a pickle of Alpa's profile database without running anything that it names.

Only the opcodes that data needs are carried out, by this module itself, and the few classes that
the file names become stand-ins of it: nothing is imported, called or given attributes.
"""

from __future__ import annotations

import pickletools
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.limits import NESTING, PICKLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_VALUES = PICKLE_BYTES  # values and characters that are hashed or shown, shared ones each time
MOST_ALIKE = 64  # keys of one dict with the same hash: more are made to take for ever
SCALARS = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b"} | {
    "u8": "Q", "u4": "I", "u2": "H", "u1": "B", "b1": "?",
}  # fmt: skip
PLAIN = (
    "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
)  # fmt: skip
MADE: dict[str, Callable[[], Any]] = {  # values that an opcode makes of nothing
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}  # fmt: skip
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Result:
    """Stands in for `alpa.mesh_profiling.MeshProfilingResult`: its attributes."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


class _Dtype:
    """Stands in for `numpy.dtype`: its code, `f8`."""

    def __init__(self, code: str) -> None:
        self.code = code


class _Name:
    """A class or function that the file names, with its allowed uses."""

    def __init__(self, text: str, make: Callable[..., Any] | None) -> None:
        self.text = text
        self.make = make


def read_alpa_pickle(content: bytes, source: str) -> Any:
    """Return the content of a pickle: dict, list, tuple, str, bytes, numbers, None and `Result`.

    Raises
    ------
    ProfileError: broken, or it names a class, function or opcode beyond the format; nothing of it
        was run.
    """
    try:
        return _Machine(source).run(content)
    except ProfileError:
        raise
    except (RecursionError, MemoryError) as error:
        raise ProfileError(f"{source}: refused: too deep or too large a pickle") from error
    except Exception as error:  # whatever a stack of the wrong things leads to
        text = " ".join(str(error).split())[:120]
        problem = f" ({text})" if isinstance(error, ValueError) and text else ""
        raise ProfileError(
            f"{source}: neither JSON nor a complete pickle{problem}: expected Alpa's "
            "prof_database.pkl"
        ) from None


def _new_result(*arguments: Any) -> Result:
    if arguments:
        raise ValueError("a MeshProfilingResult with arguments")
    return Result()


def _new_dict(*arguments: Any) -> dict[Any, Any]:
    if len(arguments) > 1 or any(not isinstance(a, _Name) for a in arguments):
        raise ValueError("a defaultdict of something else than lists")
    return {}


def _new_dtype(code: Any, *_: Any) -> _Dtype:
    if code not in SCALARS:
        raise ValueError(f"a number of numpy type {code!r}")
    return _Dtype(code)


def _new_scalar(dtype: Any, raw: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
        raise ValueError("a numpy number of something else than bytes")
    return struct.unpack("<" + SCALARS[dtype.code], raw)[0]


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes in an unknown encoding")
    return text.encode("latin1")


def _reconstructed(kind: Any, base: Any, state: Any) -> Result:
    if not isinstance(kind, _Name) or kind.make is not _new_result or state is not None:
        raise ValueError("an unknown object")
    return Result()


# What protocols 0 to 5 name for such a database, by older and newer releases.
KNOWN: dict[str, Callable[..., Any] | None] = {
    "alpa.mesh_profiling.MeshProfilingResult": _new_result,
    "parax.mesh_profiling.MeshProfilingResult": _new_result,
    "collections.defaultdict": _new_dict,
    "builtins.list": None,
    "__builtin__.list": None,
    "builtins.object": None,
    "__builtin__.object": None,
    "copyreg._reconstructor": _reconstructed,
    "copy_reg._reconstructor": _reconstructed,
    "numpy.dtype": _new_dtype,
    "numpy.core.multiarray.scalar": _new_scalar,
    "numpy._core.multiarray.scalar": _new_scalar,
    "_codecs.encode": _encoded,
}


class _Measure(NamedTuple):
    """The size of a value with all shared parts written out.

    value: itself, so that its id is not given to another one. size: values in it, characters
    counted. height: how deep lists, tuples and dicts in it are in one another.
    """

    value: Any
    size: int
    height: int


class _TooMuchError(Exception):
    """More values, or deeper in one another, than a database has."""


def _measured(value: Any, known: dict[int, _Measure], depth: int = 0) -> _Measure:
    """Return the measure of a value. known: measures by id, with additions.

    Raises
    ------
    _TooMuchError: it is beyond the limits.
    """
    if (measure := known.get(id(value))) is not None:
        if depth + measure.height > NESTING:
            raise _TooMuchError
        return measure
    if isinstance(value, int):
        return _Measure(value, 1 + value.bit_length() // 64, 0)
    if isinstance(value, str | bytes):
        return _Measure(value, 1 + len(value), 0)
    if (parts := _parts(value)) is None:
        return _Measure(value, 1, 0)
    if depth >= NESTING:
        raise _TooMuchError
    inside = [_measured(part, known, depth + 1) for part in parts]
    height = 1 + max((one.height for one in inside), default=0)
    measure = known[id(value)] = _Measure(value, 1 + sum(one.size for one in inside), height)
    if measure.size > MOST_VALUES:
        raise _TooMuchError
    return measure


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the parts of a value; None if it holds none."""
    if isinstance(value, Result):
        value = value.attributes
    if isinstance(value, dict):
        return (part for pair in value.items() for part in pair)
    return value if isinstance(value, list | tuple) else None


class _Machine:
    """The stack that a pickle's opcodes work on."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.tuples: dict[int, _Measure] = {}  # that were keys, by their ids
        self.hashed = 0  # values that hashing has looked at
        self.alike: Counter[tuple[int, int]] = Counter()  # keys of a dict by their hash

    def run(self, content: bytes) -> Any:
        """Carry out the opcodes, up to STOP."""
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name == "STOP":
                (value,) = self.stack
                try:
                    _measured(value, {})
                except _TooMuchError:
                    self.refuse("nests its values without end")
                return value
            if name in PLAIN:
                self.stack.append(argument)
            elif name in MADE:
                self.stack.append(MADE[name]())
            elif name in TUPLES:
                self.stack.append(tuple(self.take(TUPLES[name])))
            else:
                action = getattr(self, f"do_{name.lower()}", None)
                if action is None:
                    self.refuse(f"uses the opcode {name}")
                action(argument)
        raise ValueError("it does not end")

    def refuse(self, what: str) -> NoReturn:
        raise ProfileError(
            f"{self.source}: refused: the pickle {what}, which no profile database of Alpa does; "
            "nothing of it was run"
        )

    def since_mark(self) -> list[Any]:
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    def take(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("a tuple of more than there is")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def named(self, text: str) -> _Name:
        if text not in KNOWN:
            self.refuse(f"asks for {text[:80]!r}")
        return _Name(text, KNOWN[text])

    def do_proto(self, _: Any) -> None:
        pass

    do_frame = do_proto

    def do_mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def do_pop(self, _: Any) -> None:
        self.stack.pop()

    def do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.since_mark()))

    def do_list(self, _: Any) -> None:
        self.stack.append(self.since_mark())

    def do_dict(self, _: Any) -> None:
        values = self.since_mark()
        self.stack.append({})
        self.fill(values)

    def do_append(self, _: Any) -> None:
        self.extend(self.take(1))

    def do_appends(self, _: Any) -> None:
        self.extend(self.since_mark())

    def do_setitem(self, _: Any) -> None:
        self.fill(self.take(2))

    def do_setitems(self, _: Any) -> None:
        self.fill(self.since_mark())

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("items for what is no list")
        target.extend(values)

    def fill(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise ValueError("keys for what is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            self.charge(key, target)
            target[key] = value

    def charge(self, key: Any, target: dict[Any, Any]) -> None:
        """Charge the cost of hashing a key, every time, and of comparing it with equal hashes."""
        if isinstance(key, list | dict):
            raise ValueError("a key that can change")
        try:
            size = _measured(key, self.tuples).size
        except _TooMuchError:
            self.refuse("nests its keys without end")
        place = (id(target), hash(key))
        self.alike[place] += 1
        self.hashed += size * self.alike[place]
        if self.alike[place] > MOST_ALIKE or self.hashed > MOST_VALUES:
            self.refuse("has keys that take for ever to look up")

    def do_put(self, index: Any) -> None:
        self.memo[int(index)] = self.stack[-1]

    do_binput = do_long_binput = do_put

    def do_memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def do_get(self, index: Any) -> None:
        self.stack.append(self.memo[int(index)])

    do_binget = do_long_binget = do_get

    def do_global(self, argument: Any) -> None:
        self.stack.append(self.named(str(argument).replace(" ", ".", 1)))

    def do_stack_global(self, _: Any) -> None:
        module, name = self.take(2)
        if not isinstance(module, str) or not isinstance(name, str):
            self.refuse("asks for something without a name")
        self.stack.append(self.named(f"{module}.{name}"))

    def do_reduce(self, _: Any) -> None:
        what, arguments = self.take(2)
        if not isinstance(what, _Name) or what.make is None or not isinstance(arguments, tuple):
            self.refuse(f"calls {what.text if isinstance(what, _Name) else 'a value'!r}")
        self.stack.append(what.make(*arguments))

    def do_newobj(self, _: Any) -> None:
        what, arguments = self.take(2)
        if not isinstance(what, _Name) or what.make is not _new_result or arguments != ():
            self.refuse(f"makes a {what.text if isinstance(what, _Name) else 'value'!r}")
        self.stack.append(Result())

    def do_build(self, _: Any) -> None:
        (state,) = self.take(1)
        target = self.stack[-1]
        if isinstance(target, Result):
            if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
                self.refuse("gives a MeshProfilingResult a state that is no dict of names")
            target.attributes.update(state)
        elif isinstance(target, _Dtype):
            # (version, byte order, and what only compound types have)
            if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "=", "|"):
                raise ValueError("a numpy number of an unknown byte order")
        else:
            self.refuse("gives a plain value a state")
