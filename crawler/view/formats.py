"""Format numbers, times and foreign texts for people.

Rule: no I/O, and our own words are ASCII. Text from outside passes `plain` before it is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_SIZES: Final = ("kB", "MB", "GB", "TB", "PB")  # of 1000, as disks are sold
_MINUTE_S: Final = 60
_HOUR_S: Final = 60 * _MINUTE_S
_DAY_S: Final = 24 * _HOUR_S
# From how many seconds on a time is shown in which two units.
_SPANS: Final = (
    (_DAY_S, _DAY_S, "d", _HOUR_S, "h"),
    (_HOUR_S, _HOUR_S, "h", _MINUTE_S, "min"),
    (2 * _MINUTE_S, _MINUTE_S, "min", 1, "s"),
)
SHOWN_CHARS: Final = 200


def number(value: int) -> str:
    """Format a whole number: 12,345."""
    return f"{value:,}"


def many(value: int, thing: str) -> str:
    """Format a number of things: 1 page, 2 pages."""
    return f"{value:,} {thing}" if value == 1 else f"{value:,} {thing}s"


def rate(per_s: float) -> str:
    """Format a rate: 0.25, 8.3 or 120."""
    if per_s >= 100:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"


def size(size_bytes: int) -> str:
    """Format a number of bytes: 532 B, 1.2 kB, 148 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value, unit = size_bytes / 1000, 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_SIZES[unit]}" if value < 9.95 else f"{value:,.0f} {_SIZES[unit]}"


_MS_BELOW: Final = 0.095  # what is 0.0 or 0.1 s tells nothing of a fetch


def span(seconds: float) -> str:
    """Format a duration: 23 ms, 0.3 s, 95 s, 12 min 5 s, 3 h 20 min, 2 d 4 h."""
    if 0 < seconds < _MS_BELOW:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    for least, large, large_name, small, small_name in _SPANS:
        if whole >= least:
            return f"{whole // large} {large_name} {whole % large // small} {small_name}"
    return f"{whole} s"


FAR: Final = 1e11
"""Epoch seconds, in the year 5138: the end of a pause without end, as JSON knows no infinity."""


def until(when: float, now: float) -> str:
    """Format a time ahead: now, in 4.2 s, or, if it is FAR, when it is resumed."""
    if when >= FAR:
        return "when it is resumed"
    return f"in {span(when - now)}" if when > now else "now"


def since(when: float, now: float) -> str:
    """Format a past time: 3 min 5 s ago."""
    return f"{span(now - when)} ago"


def plain(text: str, chars: int = SHOWN_CHARS) -> str:
    """Return *text* short and on one line, without control characters for the terminal."""
    shown = "".join(char if char.isprintable() else "?" for char in text[: chars + 1])
    return shown if len(shown) <= chars else shown[: chars - 3] + "..."


def listed(counts: dict[str, int]) -> str:
    """Format *counts*, the most frequent first: gap 1,203, easing 12. If empty: none."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} {number(value)}" for name, value in ordered) or "none"


def table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    """Format *rows* in columns, of which those numbered in *right* are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
