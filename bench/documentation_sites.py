"""What it costs to find the pages that have changed when documentation is published anew: Debian's
packages of HTML, the oldest and the newest version that apt knows. `make documentation-sites`; it
downloads 150 MB once, and takes some 30 minutes of one core.

Rule: an nginx with its ETags serves the first version, with the dates that the files have in their
package, to a crawl that keeps pages fresh; then the second version at the same address, to a run
with `only=changed`, then `only=new`; then to `only=changed` once more, when nothing has changed.
Bytes are those of the server's access log, heads among them, as shares of those of a first crawl of
the second version. What was found is what the change feed says. A page has changed much if `diff`
of both files removes and adds more than six lines. Ends with 1 where a bar is missed.

Three columns are no runs, but say what could be reached: the bytes of the pages that differ in any
byte (with ETags made of contents), of those that changed much (had we known), and what HEAD would
tell by sizes: a page whose size has changed by something else than most have.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from bench.crawls import PROJECT, WITHOUT_DELAYS
from bench.debian_packages import download, versions
from bench.measure import run
from tests.servers.files import nginx

SITES: Final = {
    "linux-doc-6.1": "usr/share/doc/linux-doc-*/html",
    "openjdk-17-doc": "usr/share/doc/openjdk-*-jre-headless/api",
    "python3.11-doc": "usr/share/doc/python3.*/html",
    "postgresql-doc-15": "usr/share/doc/postgresql-doc-*/html",
    "apache2-doc": "usr/share/doc/apache2-doc/manual",
}
"""Packages, and the folder in them that a server of this documentation has as its root."""

FEW_LINES: Final = 6
MOST_BYTES: Final = 1 / 3  # of those of a full crawl
HOST: Final = "127.0.35.1"
NOT_MODIFIED: Final = 304
HEAD_BYTES: Final = 240  # that nginx answers to HEAD
SHOWN: Final = 20  # pages that were not found


class Served(NamedTuple):
    """A line of the server's access log."""

    status: int
    sent_bytes: int
    path: str  # unquoted, without its first slash


@dataclass(frozen=True, slots=True)
class Pass:
    """What a server has sent in one run or more."""

    served: list[Served]

    @property
    def sent_bytes(self) -> int:
        return sum(each.sent_bytes for each in self.served)

    def count(self, status: int) -> int:
        return sum(each.status == status for each in self.served)

    def share_of(self, full: Pass) -> float:
        """Return its bytes as a share of those of a *full* crawl."""
        return self.sent_bytes / full.sent_bytes

    def of(self, paths: Container[str]) -> Pass:
        return Pass([each for each in self.served if each.path in paths])


@dataclass(frozen=True, slots=True)
class Difference:
    """Two versions of a page."""

    lines: int  # removed and added
    more_bytes: int  # than the older one has


class Site:
    """A documentation of which two versions are served at one address, one after the other."""

    def __init__(self, roots: tuple[Path, Path], home: Path, *, gzip: bool) -> None:
        self._roots = roots
        self._home = home
        self._gzip = gzip
        self._port = 0
        self._passes = 0

    def crawl(self, version: int, data: str, *runs: Mapping[str, str]) -> Pass:
        """Crawl a *version*, 0 or 1, into the data directory named *data*, in *runs* with these
        arguments of the spider, and return what was served."""
        self._passes += 1
        log = self._home / f"{self._passes}.served"
        with nginx(self._roots[version], HOST, port=self._port, log=log, gzip=self._gzip) as url:
            self._port = urlsplit(url).port or 0
            for arguments in runs:
                command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={url}"]
                for name, value in {"scope": "host", **arguments}.items():
                    command += ["-a", f"{name}={value}"]
                for name, value in self._settings(data).items():
                    command += ["-s", f"{name}={value}"]
                run([command], self._home / f"{self._passes}.log", lambda: len(_served(log)))
        return Pass(_served(log))

    def changes(self, data: str, first: int = 1) -> list[dict[str, object]]:
        """Return the entries of the change feed of a data directory from number *first* on."""
        command = [sys.executable, "-m", "scrapy", "frontier", "changes", "--from", str(first)]
        for name, value in self._settings(data).items():
            command += ["-s", f"{name}={value}"]
        printed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in printed.stdout.splitlines()]

    def _settings(self, data: str) -> dict[str, str]:
        return {
            **WITHOUT_DELAYS,
            "CRAWLER_PACED_MIN_DELAY_S": "0",
            "CRAWLER_PACED_SHARE": "0.99",
            "CRAWLER_PROGRESS": "off",
            "CRAWLER_DATA_DIR": str(self._home / data),
            "CRAWLER_REVISIT": "adaptive",
            "CRAWLER_CHANGES": "true",
        }

    def differences(self, paths: set[str]) -> dict[str, Difference]:
        """Return those of the pages at *paths* that differ."""
        found = {}
        for path in paths:
            old, new = (self._file(root, path) for root in self._roots)
            if old.is_file() and new.is_file() and old.read_bytes() != new.read_bytes():
                more_bytes = new.stat().st_size - old.stat().st_size
                found[path] = Difference(changed_lines(old, new), more_bytes)
        return found

    @staticmethod
    def _file(root: Path, path: str) -> Path:
        return root / path / "index.html" if (root / path).is_dir() else root / path


def changed_lines(old: Path, new: Path) -> int:
    """Return how many lines `diff` removes from *old* and adds to have *new*."""
    output = subprocess.run(["diff", "--text", old, new], capture_output=True, check=False).stdout
    return sum(line[:2] in (b"< ", b"> ") for line in output.splitlines())


def _served(log: Path) -> list[Served]:
    if not log.exists():
        return []
    rows = (line.split(" ", 2) for line in log.read_text().splitlines())
    return [Served(int(status), int(sent), _path(uri)) for status, sent, uri in rows]


def _path(url: str) -> str:
    return unquote(urlsplit(url).path).lstrip("/")


COLUMNS: Final = (
    *("site", "pages", "differ", "much", "found", "missed", "announced", "gone"),
    *("bytes", "304s", "bytes again", "304s again"),
    *("differing", "changed much", "by size", "found by size"),
)


def measure(name: str, site: Site) -> tuple[list[str], bool]:
    """Return the row of a site, and whether its bar is met."""
    first = {"only": "new"}  # as all pages are new, and then it ends
    site.crawl(0, "kept", first)
    known = site.changes("kept")
    second = site.crawl(1, "kept", {"only": "changed"}, {"only": "new"})
    told = site.changes("kept", len(known) + 1)
    third = site.crawl(1, "kept", {"only": "changed"})
    full = site.crawl(1, "full", first)

    pages = _paths(known)
    differences = site.differences(pages)
    much = {path for path, each in differences.items() if each.lines > FEW_LINES}
    found = much & _paths(told)
    for path in sorted(much - found)[:SHOWN]:
        print(f"{name}: not announced: {path}, {differences[path].lines} lines", flush=True)
    kinds = Counter(str(entry["kind"]) for entry in told)
    grown = Counter(each.more_bytes for each in differences.values())
    usual = grown.most_common(1)[0][0] if grown else 0
    by_size = {path for path, each in differences.items() if each.more_bytes not in (0, usual)}
    figures = [
        *(len(pages), len(differences), len(much), len(found), len(much - found)),
        *(kinds["changed"] + kinds["new"], kinds["gone"]),
        *(second.share_of(full), second.count(NOT_MODIFIED)),
        *(third.share_of(full), third.count(NOT_MODIFIED)),
        *(full.of(differences).share_of(full), full.of(much).share_of(full)),
        (full.of(by_size).sent_bytes + HEAD_BYTES * len(pages)) / full.sent_bytes,
        len(by_size & much),
    ]
    row = [f"{each:.3f}" if isinstance(each, float) else f"{each:,}" for each in figures]
    return [name, *row], found == much and second.share_of(full) <= MOST_BYTES


def _paths(entries: list[dict[str, object]]) -> set[str]:
    return {_path(str(entry["url"])) for entry in entries}


def roots(folder: Path, package: str) -> tuple[Path, Path]:
    """Fetch the oldest and the newest version of *package* that apt knows; return their roots."""
    newest, *_, oldest = versions(package)
    both = [f"{package}={version}" for version in (oldest, newest)]
    download(folder, both)
    old, new = (next((folder / each).glob(SITES[package])) for each in both)
    return old, new


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.documentation_sites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, required=True, help="of the packages; kept")
    parser.add_argument("--site", choices=SITES, nargs="*", default=list(SITES))
    parser.add_argument("--gzip", action="store_true", help="the server compresses HTML")
    options = parser.parse_args()
    folder, are_met = options.folder.resolve(), True
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for name in options.site:
        home = folder / "crawls" / name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        row, is_met = measure(name, Site(roots(folder, name), home, gzip=options.gzip))
        are_met &= is_met
        print(f"| {' | '.join(row)} |", flush=True)
    return int(not are_met)


if __name__ == "__main__":
    sys.exit(main())
