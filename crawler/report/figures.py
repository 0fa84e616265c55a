"""Figures, times and foreign texts as a person reads them.

Rule: pure, ASCII, and nothing that comes from outside reaches a terminal unchecked.
"""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("kB", "MB", "GB", "TB", "PB")  # of 1000, as disks are sold
_MINUTE_S: Final = 60
_HOUR_S: Final = 60 * _MINUTE_S
_DAY_S: Final = 24 * _HOUR_S
# The two units that tell enough, and from how many seconds on.
_SPANS: Final = (
    (_DAY_S, _DAY_S, "d", _HOUR_S, "h"),
    (_HOUR_S, _HOUR_S, "h", _MINUTE_S, "min"),
    (2 * _MINUTE_S, _MINUTE_S, "min", 1, "s"),
)
SHOWN_CHARS: Final = 200


def number(value: int) -> str:
    """A whole number: 12,345."""
    return f"{value:,}"


def many(value: int, thing: str) -> str:
    """A number of things: 1 page, 2 pages."""
    return f"{value:,} {thing}" if value == 1 else f"{value:,} {thing}s"


def rate(per_s: float) -> str:
    """How many a second: 0.25, 8.3 or 120."""
    if per_s >= 100:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"


def size(size_bytes: int) -> str:
    """A number of bytes: 532 B, 1.2 kB, 148 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value, unit = size_bytes / 1000, 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_SIZES[unit]}" if value < 9.95 else f"{value:,.0f} {_SIZES[unit]}"


def span(seconds: float) -> str:
    """How long: 0.3 s, 95 s, 12 min 5 s, 3 h 20 min, 2 d 4 h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    for least, large, large_name, small, small_name in _SPANS:
        if whole >= least:
            return f"{whole // large} {large_name} {whole % large // small} {small_name}"
    return f"{whole} s"


def until(when: float, now: float) -> str:
    """A time ahead: now, or in 4.2 s."""
    return f"in {span(when - now)}" if when > now else "now"


def since(when: float, now: float) -> str:
    """A time gone by: 3 min 5 s ago."""
    return f"{span(now - when)} ago"


def plain(text: str, chars: int = SHOWN_CHARS) -> str:
    """*text* on one line and short: a server's words must not steer the terminal."""
    shown = "".join(char if char.isprintable() else "?" for char in text[: chars + 1])
    return shown if len(shown) <= chars else shown[: chars - 3] + "..."


def listed(counts: dict[str, int]) -> str:
    """What was counted, the most frequent first: gap 1,203, easing 12. Or none."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} {number(value)}" for name, value in ordered) or "none"
