"""Changes of a launch line, of options or of a plan that describe another job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """The changes.

    add: words to add; they precede present ones of the same name. drop: options to leave out.
    gpus: that it runs on then; 0: as many as before. environment: variables to set, or to unset
    with an empty text. language: of the words, if it differs from the changed line's.
    fields: of a plan, if no words say it: each with its new and old value.
    """

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    language: str = ""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        to_set = [f"{name}={value}" for name, value in self.environment.items() if value]
        to_unset = [name for name, value in self.environment.items() if not value]
        texts = (
            f"{self.gpus:,} GPUs" if self.gpus else "",
            f"{self.language and f'{self.language}: '}{shlex.join(self.add)}" if self.add else "",
            *self.fields,
            f"without {' '.join(self.drop)}" if self.drop else "",
            f"with {' '.join(to_set)} set" if to_set else "",
            f"with {' '.join(to_unset)} unset" if to_unset else "",
        )
        return ", ".join(text for text in texts if text)
