"""Long rows of numbers as short text; a script on the page decodes it."""

from __future__ import annotations

import zlib
from base64 import b64encode
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def packed(*columns: NDArray[np.integer]) -> str:
    """Return columns of whole numbers, one after the other, as 32-bit integers that are deflated
    (RFC 1950) and written in base64.

    Browsers undo both without a library (`DecompressionStream`). Repetition, as of the
    micro-batches of a pipeline, is counted by the compression instead of listed.

    Raises
    ------
    ValueError: a number has more than 32 bits.
    """
    values = np.concatenate(columns).astype(np.int64)
    limits = np.iinfo(np.int32)
    if values.size and not limits.min <= values.min() <= values.max() <= limits.max:
        raise ValueError("packed numbers need at most 32 bits")
    return b64encode(zlib.compress(values.astype("<i4").tobytes(), level=9)).decode("ascii")
