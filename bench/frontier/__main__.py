"""`python -m bench.frontier`: what a page costs in the embedded frontier, what it keeps in memory,
how long it takes to open, and how links are decided.

Rule: prints each figure beside its bar and beside Scrapy's, and ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from bench.figures import Figures
from bench.frontier import page, waiting

PAGE: Final = "page"
WAITING: Final = "waiting"
DECIDED: Final = "decided"
PARTS: Final = (PAGE, WAITING, DECIDED)


def sizes(text: str) -> list[int]:
    return sorted(int(float(each)) for each in text.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frontier", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pages", type=float, default=2e4)
    parser.add_argument("--hosts", type=float, default=1e4, help="compared with 10,000")
    parser.add_argument("--waiting", type=sizes, default=[100_000, 1_000_000], metavar="1e6,1e7")
    parser.add_argument("--seen", type=float, default=1e6, help="known when it is opened")
    parser.add_argument("--folder", type=Path, help="of the waiting URLs; it is kept")
    options = parser.parse_args()
    pages, hosts, seen = int(options.pages), int(options.hosts), int(options.seen)
    figures = Figures()
    if PAGE in options.only:
        page.measured(pages, hosts, figures)
    if DECIDED in options.only:
        page.decided(pages, hosts, figures)
    if WAITING in options.only:
        with ExitStack() as stack:
            folder = options.folder or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="frontier"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            needed, free = (
                waiting.bytes_needed(options.waiting, seen),
                shutil.disk_usage(folder).free,
            )
            print(f"\nneeds {needed / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} are free")
            if needed > free:
                return 2
            # As many as hosts, so that each has one and more.
            waiting.memory(folder, options.waiting, min(1_000_000, options.waiting[0]), figures)
            waiting.mark(folder, seen)
            waiting.reopen(folder, figures)
            waiting.scrapy_reopen(min(seen, waiting.MOST_SCRAPY), figures)
    return int(figures.missed)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
