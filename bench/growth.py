"""How the cost of a page grows: whole crawls of the synthetic web, one property changed at a time.
`python -m bench.growth --picture docs/growth.svg`, 15 minutes; `--pages 1000 10000` chooses how
far the first row goes.

Rule: what a page costs is the slope between two crawls, so that their starts are taken out. The
machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Final, NamedTuple

from bench.crawls import Ours
from bench.measure import Cost, slope
from bench.race import HOSTS, compile_first, one, web

FEW: Final = 500
MANY: Final = 3_500
_MANY_HOSTS: Final = 1_000  # so that hosts do not bound how many requests go on at once


class Point(NamedTuple):
    """One crawl: what is changed, to what, and with what it is done."""

    property: str
    value: float
    hosts: int = HOSTS
    web: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    few: int = FEW
    many: int = MANY


def points(pages: Sequence[int]) -> list[Point]:
    return [
        # The web has ten times as many, else the last pages would have no new links.
        *(
            Point("pages", n, few=n // 10, many=n, web=(f"--pages={max(5_000, n // HOSTS * 10)}",))
            for n in pages
        ),
        *(Point("hosts", n, hosts=n) for n in (100, 1_000, 10_000)),
        Point("hosts", 100_000, hosts=100_000, few=2_000, many=12_000),
        *(Point("links a page", n, web=(f"--links={n}",)) for n in (10, 40)),
        Point("links a page", 400, web=("--links=400",), many=2_000),
        *(Point("kB a page", n, web=(f"--page-bytes={n * 1000}",)) for n in (3, 30)),
        Point("kB a page", 300, web=("--page-bytes=300000",), many=1_500),
        *(
            Point("requests at once", n, _MANY_HOSTS, settings=(("CONCURRENT_REQUESTS", str(n)),))
            for n in (16, 64, 250, 1_000)
        ),
        *(Point("latency, ms", n, web=(f"--latency-s={n / 1000}",)) for n in (0, 50, 300)),
    ]


def measured(point: Point) -> Cost:
    crawl = Ours(point.property, point.few, point.many, settings=point.settings)
    with web(point.hosts, *point.web) as port:
        runs = (one(crawl, port, pages, point.hosts) for pages in (point.few, point.many))
        return slope(*runs)


def table(costs: dict[Point, Cost]) -> str:
    lines = ["| | | CPU ms a page | pages/s | peak MB |", "| --- | --- | --- | --- | --- |"]
    for point, cost in costs.items():
        figures = f"{cost.cpu_ms_a_page:.2f} | {cost.pages_per_s:.0f} | {cost.peak_mb:.0f}"
        lines.append(f"| {point.property} | {point.value:,.0f} | {figures} |")
    return "\n".join(lines)


_WIDTH, _HEIGHT, _LEFT, _TOP = 250, 130, 40, 30
_COLUMNS: Final = 3


def picture(costs: dict[Point, Cost]) -> str:
    """An SVG with a panel for each property: CPU ms a page from 0 up, by the logarithm of the
    value."""
    panels: dict[str, list[tuple[float, float]]] = {}
    for point, cost in costs.items():
        panels.setdefault(point.property, []).append((point.value, cost.cpu_ms_a_page))
    rows = -(-len(panels) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _LEFT) + 20, rows * (_HEIGHT + 60)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="11" fill="#333">'
            '<rect width="100%" height="100%" fill="#fff"/>'
        )
    ]
    for number, (name, line) in enumerate(panels.items()):
        left = _LEFT + number % _COLUMNS * (_WIDTH + _LEFT)
        parts.append(_panel(name, line, left, _TOP + number // _COLUMNS * (_HEIGHT + 60)))
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, line: list[tuple[float, float]], left: int, top: int) -> str:
    most = max(cost for _, cost in line) * 1.15
    first, last = (log10(max(1, line[at][0])) for at in (0, -1))
    spots = [
        (
            left + 15 + (_WIDTH - 45) * (log10(max(1, value)) - first) / ((last - first) or 1),
            top + _HEIGHT * (1 - cost / most),
        )
        for value, cost in line
    ]
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in spots)
    marks = "".join(
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="#1b6ca8"/>'
        f'<text x="{x:.0f}" y="{y - 7:.0f}" text-anchor="middle">{cost:.2f}</text>'
        f'<text x="{x:.0f}" y="{top + _HEIGHT + 14}" text-anchor="middle">{value:,.0f}</text>'
        for (x, y), (value, cost) in zip(spots, line, strict=True)
    )
    return (
        f'<text x="{left}" y="{top - 12}" font-weight="bold">ms a page by {name}</text>'
        f'<path d="M{left} {top}V{top + _HEIGHT}H{left + _WIDTH - 15}" fill="none" stroke="#999"/>'
        f'<polyline points="{path}" fill="none" stroke="#1b6ca8" stroke-width="1.5"/>{marks}'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--only", help="the property to change")
    parser.add_argument("--picture", type=Path, help="an SVG to write")
    options = parser.parse_args()
    costs: dict[Point, Cost] = {}
    with web() as port:
        compile_first(port)
    for point in points(options.pages):
        if options.only in (None, point.property):
            costs[point] = measured(point)
            print(table({point: costs[point]}).splitlines()[-1], flush=True)
    print(table(costs))
    if options.picture:
        options.picture.write_text(picture(costs))


if __name__ == "__main__":
    main()
