"""How a value from the user becomes a value of ours: strictly, or not at all.

Rule: pure. A string is what a command line gives, a Python value is what a settings
module gives; both are read by the same Kind, and none of them guesses.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TRUE: Final = frozenset({"true", "yes", "1"})
FALSE: Final = frozenset({"false", "no", "0"})
NONE: Final = "none"


class Unfit(ValueError):
    """A value cannot be read, and the text says more about it than what was wanted."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One sort of value. *read* raises ValueError (or Unfit) for anything else."""

    want: str  # completes the sentence "want ..."
    unit: str  # for the tables a person reads
    read: Callable[[object], T]
    secret: bool = False  # what was given is in no error text and no repr


def number(unit: str, least: float = 0.0, most: float = math.inf) -> Kind[float]:
    """A finite number of *unit*s."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return _in_range(float(value), least, most)

    return Kind(f"a number of {unit}, {_range(least, most)}", unit, read)


def whole(unit: str, least: int = 0, most: float = math.inf) -> Kind[int]:
    """A whole number of *unit*s; 3.0 is refused, for it hides a calculation gone wrong."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        return _in_range(int(value), least, most)

    return Kind(f"a whole number of {unit}, {_range(least, most)}", unit, read)


def _in_range(value: T, least: float, most: float) -> T:
    if not (isinstance(value, int | float) and math.isfinite(value) and least <= value <= most):
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    return f"{least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"


def flag() -> Kind[bool]:
    """Yes or no."""

    def read(value: object) -> bool:
        word = str(value).lower() if isinstance(value, bool | int | str) else ""
        if word not in TRUE | FALSE:
            raise ValueError
        return word in TRUE

    return Kind("True or False", "yes or no", read)


def text(want: str, unit: str, pattern: str) -> Kind[str]:
    """A string that *pattern* matches in full."""
    shape = re.compile(pattern)

    def read(value: object) -> str:
        if not (isinstance(value, str) and shape.fullmatch(value)):
            raise ValueError
        return value

    return Kind(want, unit, read)


def choice(words: type[E]) -> Kind[E]:
    """One of the words of an enumeration."""

    def read(value: object) -> E:
        return words(str(value))

    listed = " or ".join(words)
    return Kind(listed, listed, read)


def or_none(kind: Kind[T]) -> Kind[T | None]:
    """What *kind* reads, or the word none: absence has its own name, never a 0."""

    def read(value: object) -> T | None:
        if value is None or (isinstance(value, str) and value.lower() == NONE):
            return None
        return kind.read(value)

    return Kind(f"{kind.want}, or none", f"{kind.unit}, or none", read)


def or_word(kind: Kind[T], words: type[E]) -> Kind[T | E]:
    """What *kind* reads, or one of the words of an enumeration."""

    def read(value: object) -> T | E:
        return words(value) if isinstance(value, str) and value in set(words) else kind.read(value)

    return Kind(
        f"{kind.want}, or {' or '.join(words)}", f"{kind.unit}, or {' or '.join(words)}", read
    )


def many(kind: Kind[T], separator: str = ",", least: int = 0) -> Kind[tuple[T, ...]]:
    """A list: in Python a list or tuple, on a command line parts with *separator* between."""

    def read(value: object) -> tuple[T, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(separator) if part.strip()]
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError
        return tuple(kind.read(one) for one in value)

    return Kind(f"a list, each {kind.want}", f"list of {kind.unit}", read)


def network() -> Kind[Network]:
    """A range of addresses. Host bits set are refused: 10.1.2.3/8 is two things at once."""

    def read(value: object) -> Network:
        if not isinstance(value, str):
            raise ValueError
        try:
            return ipaddress.ip_network(value)
        except ValueError as error:
            raise Unfit(str(error)) from error

    return Kind("a network such as 10.0.0.0/8", "networks", read)


def suffix() -> Kind[str]:
    """A file name extension, lower case, without its dot."""
    return text("an extension such as jpg", "extensions", r"[a-z0-9]{1,16}")


def class_path() -> Kind[str]:
    """Where a class is. Whether it loads is found out where it is used."""
    return text(
        "a class such as package.module.Class", "class path", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
    )


def pattern() -> Kind[re.Pattern[str]]:
    """A regular expression, compiled."""

    def read(value: object) -> re.Pattern[str]:
        if not isinstance(value, str):
            raise ValueError
        try:
            return re.compile(value)
        except re.error as error:
            raise Unfit(f"{value!r} does not compile: {error}") from error

    return Kind("a regular expression", "regular expressions", read)
