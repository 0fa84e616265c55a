"""A knob is a field of a frozen dataclass that a user may turn.

Rule: its name, type, default, unit and meaning stand in one place, the field itself; the
reader, settings.py, the documentation and the error texts are all made from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol, TypeVar

from crawler.core.errors import ConfigError
from crawler.core.kinds import Kind, Unfit

T = TypeVar("T")
KNOB: Final = "knob"
_FEW: Final = 10  # names that fit into an error text


class Comparable(Protocol):
    """A value that has an order."""

    def __le__(self, other: Any, /) -> bool:
        """Whether it is not above *other*."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of the table of what can be set."""

    name: str  # as the user writes it
    field: str  # as we write it
    default: object
    kind: Kind[object]
    meaning: str  # one line

    def read(self, given: Mapping[str, object]) -> object:
        """The user's value, or the default. Raises ConfigError."""
        if self.name not in given:
            return self.default
        value = given[self.name]
        try:
            return self.kind.read(value)
        except (ValueError, OverflowError) as error:
            detail = f" ({error})" if isinstance(error, Unfit) else ""
            shown = "not shown, it may hold a password" if self.kind.secret else repr(value)
            raise ConfigError(f"{self.name} is {shown}; want {self.kind.want}{detail}") from error


def knob(default: T, kind: Kind[T], meaning: str) -> T:
    """Declare a field that a user may set."""
    return field(default=default, repr=not kind.secret, metadata={KNOB: (kind, meaning)})


def knobs(group: type[Any], prefix: str = "") -> list[Knob]:
    """The rows of a group, in order. With a prefix the names are settings, in capitals."""
    rows = []
    for one in fields(group):
        kind, meaning = one.metadata[KNOB]
        name = (prefix + one.name).upper() if prefix else one.name
        rows.append(Knob(name, one.name, one.default, kind, meaning))
    return rows


def read_group(group: type[T], given: Mapping[str, object], prefix: str = "") -> T:
    """Build *group* from what the user gave."""
    return group(**{row.field: row.read(given) for row in knobs(group, prefix)})


def refuse_unknown(what: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raise ConfigError for the first name that is none of *names*, with the nearest right one."""
    right = {name.casefold(): name for name in names}
    for name in given:
        if name not in right.values():
            nearest = difflib.get_close_matches(name.casefold(), right, n=1)
            few = f"; there are {', '.join(right.values())}" if len(right) < _FEW else ""
            hint = f"; did you mean {right[nearest[0]]}?" if nearest else few
            raise ConfigError(f"unknown {what} {name}{hint}")


def refuse_disorder(low: str, low_value: Comparable, high: str, high_value: Comparable) -> None:
    """Raise ConfigError if the low end of a range is above its high end."""
    if not low_value <= high_value:
        raise ConfigError(f"{low} ({low_value}) is above {high} ({high_value})")
