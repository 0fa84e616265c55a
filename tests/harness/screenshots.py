"""`make screenshots`: crawl a small web on loopback, and write pictures of its console for docs/.

`python -m tests.harness.screenshots FOLDER` writes pictures of each view to FOLDER instead, at both
widths and colour schemes: to be looked at after a change.

Rule: Chromium takes them of the real page; nothing is drawn by hand.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

from tests.harness.commands import crawl_command, running
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.browser import Tab, open_tab
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page
from tests.servers.redis_process import free_port

IMAGES: Final = PROJECT / "docs" / "images"
HOSTS: Final = tuple(f"127.0.12.{number}" for number in range(1, 13))
FAILING, SLOW, GONE = HOSTS[3], HOSTS[5], HOSTS[7]
CRAWLED_S: Final = 90.0
WIDE: Final = (1180, 900)
PHONE: Final = (390, 760)
DESK: Final = (1280, 800)


def answer(ask: Ask) -> Reply:
    """A web without an end, in which one host fails, one is slow, and one has lost its pages."""
    if ask.path == "/robots.txt":
        return not_here(ask)
    if ask.host == FAILING and ask.turn % 3 == 0:
        return Reply("busy", status=503)
    number = int(ask.path[1:] or 0)
    if ask.host == GONE and number % 4 == 3:
        return not_here(ask)
    links = (f"/{number * 2 + ahead}" for ahead in range(1, 4))
    wait_s = 2.0 if ask.host == SLOW else 0.02
    return replace(page(*links, text=f"{ask.host} {ask.path} " * 200), wait_s=wait_s)


def take(tab: Tab, root: str) -> None:
    tab.resize(WIDE)
    tab.open(root)
    tab.wait("document.querySelectorAll('.plot canvas').length >= 4")
    tab.screenshot(IMAGES / "console.png")
    tab.resize(WIDE, "dark")
    tab.open(f"{root}#hosts")
    tab.wait("document.querySelectorAll('tbody tr').length >= 12")
    tab.screenshot(IMAGES / "console-hosts.png")
    tab.resize(PHONE)
    tab.screenshot(IMAGES / "console-phone.png")


def take_each(tab: Tab, root: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tab.open(root)
    tab.wait("!!latest")
    views = [*tab.run("Object.keys(VIEWS)"), f"hosts/{FAILING}"]
    for (width, height), scheme, view in product((DESK, PHONE), ("light", "dark"), views):
        tab.resize((width, height), scheme)
        tab.run(f"location.hash = {view!r}, true")
        tab.wait("!document.querySelector('main > div:empty, main > .plots > div:empty')")
        whole = min(tab.run("document.documentElement.scrollHeight"), 4 * height)
        tab.resize((width, whole), scheme)
        tab.screenshot(folder / f"{view.replace('/', '-')}-{width}-{scheme}.png")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    settings = {
        "CRAWLER_HTTP": f"127.0.0.1:{free_port()}",
        "CRAWLER_MIN_DELAY_S": 0.4,
        "CRAWLER_DELAY_FACTOR": 10,
        "CRAWLER_PACED_SHARE": 0.5,
        "CRAWLER_PACED_MIN_DELAY_S": 0.2,
        "CRAWLER_SOFT_404": False,
    }
    with (
        tempfile.TemporaryDirectory(prefix="gossamer-") as folder,
        LoopbackWeb(answer, HOSTS) as web,
    ):
        data, log = Path(folder) / "crawl-data", Path(folder) / "log"
        seeds = ",".join(web.url(host, "/0") for host in HOSTS)
        with running(crawl_command(data, settings, seeds=seeds, scope="host"), log):
            address = data / "control.address"
            wait_until(address.exists, 60, log=log.read_text)
            time.sleep(CRAWLED_S)
            with open_tab(Path(folder) / "browser") as tab:
                root = f"http://{address.read_text().strip()}/"
                if len(sys.argv) > 1:
                    take_each(tab, root, Path(sys.argv[1]))
                else:
                    take(tab, root)


if __name__ == "__main__":
    main()
