"""Where the time of a crawl goes: `python -m bench.profile flame.svg` crawls the synthetic web at
default settings but for delays and draws a flame graph of it, by py-spy. `--calls` prints which
functions of Python are called most in the event loop's thread, and how often a page.

Rule: calls are counted, not timed: how many a page makes is the same on every machine.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.crawls import PROJECT, Ours, Start
from bench.race import HOSTS, web
from bench.web import addresses

PAGES: Final = 5_000
_SHOWN: Final = 40
Calls = Counter[tuple[str, str]]
"""How often functions were called, by the end of their file's path and their name."""


def crawl(before: Sequence[str], pages: int) -> None:
    """Crawl *pages* of the synthetic web, with the words *before* in front of `-m scrapy`."""
    with web() as port, tempfile.TemporaryDirectory() as folder:
        seeds = Path(folder, "seeds.txt")
        seeds.write_text("".join(f"http://{host}:{port}/\n" for host in addresses(HOSTS)))
        (command,) = Ours("", few=0, many=0).commands(Start(seeds, pages, Path(folder)))
        command[:1] = before
        with Path(folder, "log").open("w+") as log:
            done = subprocess.run(command, cwd=PROJECT, stdout=log, stderr=log, check=False)
            if done.returncode:
                log.seek(0)
                sys.exit(log.read()[-2000:])


def draw(picture: Path, pages: int) -> None:
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    words = ["record", "--nonblocking", "--threads", "--rate", "200", "-o", str(picture.resolve())]
    crawl([py_spy, *words, "--", sys.executable], pages)


def calls(pages: int) -> Calls:
    """Count the calls of a crawl of *pages*, its start with them."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile")
        crawl([sys.executable, "-m", "bench.profile", "--record", str(profile)], pages)
        stats = pstats.Stats(str(profile)).stats  # type: ignore[attr-defined]  # not in the stubs
    return Counter({(path[-40:], name): row[1] for (path, _, name), row in stats.items()})


def record(profile: Path, arguments: Sequence[str]) -> None:
    """Run `-m MODULE ...` in this process and write how often what was called."""
    sys.argv = [arguments[1], *arguments[2:]]
    profiler = cProfile.Profile()
    try:
        profiler.runcall(runpy.run_module, arguments[1], run_name="__main__", alter_sys=True)
    finally:
        profiler.dump_stats(profile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=Path("flame.svg"))
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--calls", action="store_true")
    options = parser.parse_args()
    if options.calls:
        counted = calls(options.pages)
        print(f"{counted.total() / options.pages:.0f} calls a page, the start with them")
        for (path, name), count in counted.most_common(_SHOWN):
            print(f"{count / options.pages:8.1f} {name} {path}")
    else:
        draw(options.picture, options.pages)
        print(f"The flame graph of {options.pages} pages is in {options.picture}")


if __name__ == "__main__":
    if "--record" in sys.argv[1:2]:
        record(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
