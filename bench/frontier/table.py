"""The figures of the frontiers side by side, with what the project promises.

Rule: a promise in bytes or of growth holds on every machine. One of so many a second was made
for two quiet cores and is only shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OURS: Final = "gossamer"
THEIRS: Final = "scrapy-redis"
Figures = dict[str, dict[str, float]]  # frontier -> name -> figure


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    least: float | None = None
    most: float | None = None  # holds on every machine

    def bar(self) -> str:
        if self.least is not None:
            return f">= {self.least:,.0f}"
        return "" if self.most is None else f"<= {self.most:g}"


ROWS: Final = (
    Row("new_per_s", "links added a second, all new", least=80_000),
    Row("mixed_per_s", "links added a second, one new in nine", least=130_000),
    Row("turns_per_s", "lease, release, finish a second (theirs: pop)", least=20_000),
    Row("new_redis_us", "us of Redis: a new link"),
    Row("mixed_redis_us", "us of Redis: a link, one new in nine"),
    Row("turns_redis_us", "us of Redis: lease, release, finish"),
    Row("waiting_bytes", "bytes: a waiting URL of 90, 100 a host", most=120),
    Row("seen_bytes", "bytes: a seen URL", most=12),
    Row("waiting_host_bytes", "bytes: a host with one URL waiting, all in"),
    Row("claim_bytes", "bytes: a claim of content"),
)


def table(figures: Figures) -> str:
    lines = [f"{'':46}" + "".join(f"{name:>15}" for name in (OURS, THEIRS, "promised"))]
    for row in ROWS:
        both = (_shown(figures.get(name, {}).get(row.name)) for name in (OURS, THEIRS))
        lines.append(f"{row.title:46}" + "".join(f"{each:>15}" for each in (*both, row.bar())))
    return "\n".join(lines)


def _shown(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 1_000 else f"{figure:.2f}"


def missed(figures: Figures) -> list[str]:
    """What does not hold that holds on every machine."""
    ours = figures.get(OURS, {})
    return [
        f"{row.title}: {ours[row.name]:.2f}, promised {row.bar()}"
        for row in ROWS
        if row.most is not None and ours.get(row.name, 0.0) > row.most
    ]
