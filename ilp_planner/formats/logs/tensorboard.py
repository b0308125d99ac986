"""Event files of TensorBoard: records of protocol buffers, with a length and two check sums each.

The messages are declared here with the fields that are read; the library of protocol buffers, that
OR-Tools brings along, reads them.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import Record
from ilp_planner.formats.logs.runs import Found

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD, TAIL = 12, 4  # bytes around a record: its length with a check sum, the check sum of it
LAST = 10**15  # number of a step
LARGEST = 1 << 28  # bytes of a record
# Message -> fields: name, number, type, message, repeated.
MESSAGES: dict[str, tuple[tuple[str, int, str, str, bool], ...]] = {
    "Tensor": (
        ("dtype", 1, "INT32", "", False),
        ("tensor_content", 4, "BYTES", "", False),
        ("float_val", 5, "FLOAT", "", True),
        ("double_val", 6, "DOUBLE", "", True),
    ),
    "Value": (
        ("tag", 1, "STRING", "", False),
        ("simple_value", 2, "FLOAT", "", False),
        ("tensor", 8, "MESSAGE", "Tensor", False),
    ),
    "Summary": (("value", 1, "MESSAGE", "Value", True),),
    "Event": (
        ("wall_time", 1, "DOUBLE", "", False),
        ("step", 2, "INT64", "", False),
        ("summary", 5, "MESSAGE", "Summary", False),
    ),
}
CONTENT = {1: "<f", 2: "<d"}  # type of a tensor -> of a number in it
END_OF_FIRST = b"brain.Event:"  # in the first record of every file


@cache
def _event() -> Any:
    """Return the class of an event."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="ilp_planner_event.proto", package="ilp_planner")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, other, repeated in fields:
            message.field.add(
                name=field,
                number=number,
                type=getattr(kinds, f"TYPE_{kind}"),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
                type_name=f".ilp_planner.{other}" if other else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ilp_planner.Event"))


def is_events(head: bytes) -> bool:
    """Tell whether a file begins like one of events."""
    return END_OF_FIRST in head[:64] and len(head) > HEAD


def read_events(content: bytes) -> Found:
    """Return the steps of an event file; one that is cut off is read up to there."""
    from google.protobuf.message import DecodeError

    found = Found(title="TensorBoard's events", unit="step")
    steps: dict[int, dict[str, float]] = {}
    event = _event()
    try:
        for part in _records(content):
            one = event.FromString(part)
            for value in one.summary.value:
                known = m.meaning(value.tag)
                number = _number(value)
                if known is not None and number is not None:
                    row = steps.setdefault(one.step, {m.TIME: one.wall_time})
                    row.setdefault(known.name, number * known.factor)
    except DecodeError:
        found.notes.append("it is cut off or damaged: the part before is read")
    for step, values in sorted(steps.items()):
        if abs(step) > LAST:
            continue
        values.pop(m.STEP, None)
        found.records.append(Record(step, values, step))
    return found


def _records(content: bytes) -> Iterator[bytes]:
    place = 0
    while place + HEAD <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        end = place + HEAD + length
        if length > LARGEST or end + TAIL > len(content):
            return
        yield content[place + HEAD : end]
        place = end + TAIL


def _number(value: Any) -> float | None:
    """Return the number of a value: a scalar of the first or of the second kind of summaries."""
    if not value.HasField("tensor"):
        return float(value.simple_value) if value.HasField("simple_value") else None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val):
        if len(numbers) == 1:
            return float(numbers[0])
    kind = CONTENT.get(tensor.dtype)
    if kind is not None and len(tensor.tensor_content) == struct.calcsize(kind):
        return float(struct.unpack(kind, tensor.tensor_content)[0])
    return None
