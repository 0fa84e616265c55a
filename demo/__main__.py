"""`make demo`: a small web on loopback, crawled before your eyes, and what happened and why.

Rule: the crawl is started as a user would start it, and writes to the terminal itself.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Final

from demo.story import BARREN_PAGES, DATA_DIR, Chapter, story
from demo.summary import read_summary
from demo.web import HOSTS, RULES, SQUARE, SmallWeb
from tests.servers.judge import Gap, Violations, judge
from tests.servers.loopback import LoopbackWeb

PROJECT: Final = Path(__file__).parents[1]
MIN_DELAY_S: Final = 0.2
DELAY_FACTOR: Final = 10.0
ARGUMENTS: Final = {"max_pages": "300"}  # should anything have no end after all
SETTINGS: Final = {
    "CRAWLER_MIN_DELAY_S": str(MIN_DELAY_S),
    "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # its hosts link to each other
    "CRAWLER_PATTERN_BARREN_PAGES": str(BARREN_PAGES),  # of 100: nobody wants to wait so long
    "CRAWLER_DATA_DIR": DATA_DIR,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="only serve, to look around oneself")
    options = parser.parse_args()
    with LoopbackWeb(SmallWeb(), list(HOSTS)) as web:
        print(greeting(web))
        if options.serve:
            return serve()
        code = crawl(web.url(SQUARE))
    chapters = list(story(web.visits, read_summary(PROJECT / DATA_DIR)))
    verdict = judge(web.visits, RULES, Gap(MIN_DELAY_S, DELAY_FACTOR))
    print(ending(chapters, verdict))
    return code or int(bool(verdict.found) or not all(chapter.well for chapter in chapters))


def greeting(web: LoopbackWeb) -> str:
    houses = "\n".join(f"  {web.url(host)}  {name}" for host, name in HOSTS.items())
    return f"A small web of {len(HOSTS)} hosts, each trying a crawler in its own way:\n{houses}\n"


def serve() -> int:
    print("Ctrl-C ends it.")
    try:
        while True:
            time.sleep(3_600)
    except KeyboardInterrupt:
        return 0


def crawl(seed: str) -> int:
    """Run the crawl in this terminal; its exit status."""
    shutil.rmtree(PROJECT / DATA_DIR, ignore_errors=True)
    command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={seed}"]
    for name, value in ARGUMENTS.items():
        command += ["-a", f"{name}={value}"]
    for name, value in SETTINGS.items():
        command += ["-s", f"{name}={value}"]
    print("$", " ".join(["scrapy", *command[3:]]), "\n", flush=True)
    with subprocess.Popen(command, cwd=PROJECT) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the crawl got it as well: let it put its things away
            return process.wait()


def ending(chapters: list[Chapter], verdict: Violations) -> str:
    lines = ["", "What happened, and why", ""]
    for chapter in chapters:
        mark = "ok " if chapter.well else "NO "
        lines += [f"{mark} {chapter.laid}", *paragraph(chapter.told), ""]
    lines += ["Politeness, judged by the small web from its own books:"]
    lines += [f"    {line}" for line in str(verdict).splitlines()]
    lines += ["", f"Everything that was fetched is in {DATA_DIR}/."]
    return "\n".join(lines)


def paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, width=88, initial_indent="    ", subsequent_indent="    ")


if __name__ == "__main__":
    sys.exit(main())
