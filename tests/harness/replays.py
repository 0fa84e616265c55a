"""Whether archived sites look as they did: `python -m tests.harness.replays --folder DIR`, three
minutes. It downloads three documentation sites from Debian with apt-get, once; crawls some pages of
each with `-a requisites=yes`; and shows them in Chromium, live, and by pywb when the servers are
gone. Prints for each page how many pixels differ, and what the archive does not have.

With `--rendered DIR`, in which `python -m bench.script_sites --build DIR` has built them, the sites
are such that are made by scripts, and their pages are rendered.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from PIL import Image
from warcio.archiveiterator import ArchiveIterator

from bench.script_sites.serve import SiteServer
from bench.script_sites.sites import read_list
from tests.harness.commands import crawl_command, running
from tests.servers.browser import Tab, open_tab
from tests.servers.files import plain
from tests.servers.pywb import pywb

# The documents, and the packages that have their scripts and fonts.
PACKAGES: Final = (
    *("python3.11-doc", "debian-policy", "python-scrapy-doc", "sphinx-rtd-theme-common"),
    *("libjs-sphinxdoc", "libjs-jquery", "libjs-underscore", "libjs-modernizr"),
    *("fonts-lato", "fonts-font-awesome", "fonts-roboto-slab"),
)
SITES: Final = (
    "python3.11/html",
    "debian-policy/policy.html",
    "python-scrapy-doc/html",
)
PAGES: Final = 10  # of each site
WINDOW: Final = (1100, 2000)
CRAWLED_S: Final = 600.0
QUIET: Final = """new Promise((done) => {
  let asked = -1;
  const look = setInterval(() => {
    const now = performance.getEntriesByType("resource").length;
    if (now === asked) { clearInterval(look); done(now); }
    asked = now;
  }, 1000);
})"""
"""Is done when a page has asked for nothing for a second: its scripts have made it."""
SETTINGS: Final = {"CRAWLER_MIN_DELAY_S": 0, "CRAWLER_DELAY_FACTOR": 0}


class Shown(NamedTuple):
    pixels: np.ndarray
    errors: list[str]


def download(folder: Path) -> Path:
    """Return the folder in which the packages are unpacked."""
    root = folder / "root"
    if not root.exists():
        (folder / "debs").mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=folder / "debs", check=True)
        for deb in (folder / "debs").iterdir():
            subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    return root / "usr" / "share" / "doc"


def show(tab: Tab, url: str, file: Path) -> Shown:
    tab.errors.clear()
    tab.open(url)
    tab.wait(f"location.href === {url!r} && document.readyState === 'complete'")
    tab.run(QUIET)
    tab.run("document.fonts.ready.then(() => document.fonts.size)")
    with Image.open(tab.screenshot(file)) as image:
        return Shown(np.asarray(image.convert("RGB")).copy(), list(tab.errors))


def pages(archive: Path, root: str) -> Iterator[str]:
    """Yield the URLs of the archived pages below *root*."""
    for warc in sorted(archive.glob("*.warc.gz")):
        with warc.open("rb") as file:
            for record in ArchiveIterator(file):
                url = record.rec_headers.get_header("WARC-Target-URI") or ""
                is_answer = record.rec_type in ("response", "revisit")  # of one shell, many
                if is_answer and url.startswith(root):
                    kind = record.http_headers.get_header("Content-Type") or ""
                    if record.http_headers.get_statuscode() == "200" and "html" in kind:
                        yield url


def documentations(folder: Path, servers: ExitStack) -> list[str]:
    """Serve documentation sites, and return their URLs."""
    documents = download(folder)
    return [
        servers.enter_context(plain(documents / path, f"127.0.75.{number}"))
        for number, path in enumerate(SITES, 1)
    ]


def made_by_scripts(folder: Path, servers: ExitStack) -> list[str]:
    """Serve one site of each of five frameworks twice, and return their URLs."""
    listed = read_list(folder)
    chosen = [
        site
        for framework in ("react", "vue", "svelte", "angular", "next")
        for site in [each for each in listed if each.name.startswith(framework)][:2]
    ]
    return servers.enter_context(SiteServer(folder, chosen)).seeds


def crawl(home: Path, roots: list[str], settings: dict[str, object], most: int) -> dict[str, Shown]:
    """Crawl the sites, and return how *most* pages of each look, by URL."""
    with open_tab(home / "browser") as tab:
        arguments = {"seeds": ",".join(roots), "scope": "host", "max_depth": "1"}
        command = crawl_command(home / "data", settings, requisites="yes", **arguments)
        with running(command, home / "log") as process:
            process.wait(CRAWLED_S)
        tab.resize(WINDOW)
        return {
            url: show(tab, url, home / "live.png")
            for root in roots
            for url in list(pages(home / "data" / "warc", root))[:most]
        }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, help="of documentation; kept, and used again")
    options.add_argument("--rendered", type=Path, help="of sites that are made by scripts")
    given = options.parse_args()
    if (given.folder is None) == (given.rendered is None):
        options.error("give --folder or --rendered")
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        with ExitStack() as servers:
            if given.rendered is not None:
                roots = made_by_scripts(given.rendered, servers)
                live = crawl(home, roots, {**SETTINGS, "CRAWLER_RENDER": "always"}, 2)
            else:
                live = crawl(home, documentations(given.folder, servers), SETTINGS, PAGES)
        (home / "pywb").mkdir()
        archive, file = (home / "data" / "warc").glob("*.warc.gz"), home / "replayed.png"
        with (
            pywb(home / "pywb", archive, is_proxy=True) as serving,
            open_tab(home / "browser-of-archive", proxy=serving.root) as tab,
        ):
            tab.resize(WINDOW)
            same = sum(compare(url, before, show(tab, url, file)) for url, before in live.items())
    print(f"{same} of {len(live)} pages look as they did")


def compare(url: str, before: Shown, after: Shown) -> bool:
    differing = int((before.pixels != after.pixels).any(axis=2).sum())
    print(f"{differing:9,} pixels differ  {url}")
    for error in after.errors:
        if "404" in error:
            print(f"    {error[:200]}")
    return not differing


if __name__ == "__main__":
    main()
