"""Serves the sites, each on its address, and keeps their books.

Rule: what a host does is in its `Site`: robots.txt, a Crawl-delay, a first answer of 429. The other
hosts have scripts and styles under `/lib/`, and the data of every site under its name. The server
and its books are the tests' own.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from bench.script_sites.build import PORT_MARK
from bench.script_sites.sites import OTHER_HOSTS, TRACKER, Site
from tests.servers.judge import ROBOTS, Rules
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

RETRY_AFTER_S: Final = 2
FORBIDDING: Final = OTHER_HOSTS[6]
"""The host whose robots.txt forbids its scripts."""
SLOW: Final = OTHER_HOSTS[8]
"""The host that has a Crawl-delay."""
BUSY: Final = OTHER_HOSTS[2]
"""The host whose first answer for a script is 429."""
_OF_OTHERS: Final = {
    FORBIDDING: Rules(disallow=("/lib/",)),
    SLOW: Rules(crawl_delay_s=1.0),
}
_SHARED: Final = (("Access-Control-Allow-Origin", "*"),)
_PART_SCRIPT: Final = (
    "window.parts = (window.parts || 0) + 1;\n"
    + "// a library's comment, as they have them\n" * 200
)
_PART_STYLE: Final = "".join(f".part-{n} {{ margin: {n}px; }}\n" for n in range(200))
_TYPES: Final = {".js": "text/javascript", ".json": "application/json", ".html": "text/html"}


class SiteServer:
    """All sites of a build, and the hosts that they load from, on one port."""

    def __init__(self, folder: Path, sites: Sequence[Site]) -> None:
        self.sites = tuple(sites)
        self._homes = {site.address: folder / "sites" / site.name for site in sites}
        self._by_address = {site.address: site for site in sites}
        self._all = folder / "sites"
        self._web = LoopbackWeb(self.answer, [*self._by_address, *OTHER_HOSTS])
        self._read: dict[Path, bytes | None] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._web)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def seeds(self) -> list[str]:
        """The home page of each site."""
        return [self._web.url(site.address) for site in self.sites]

    @property
    def visits(self) -> list[Visit]:
        """The books: each request, with its times."""
        self._web.settle()
        return self._web.visits

    def forget(self) -> None:
        """Begin new books. Nothing may be under way."""
        self._web.settle()
        self._web.visits.clear()
        self._web.requests.clear()

    def rules(self, host: str) -> Rules:
        """Return what the robots.txt of *host* says."""
        site = self._by_address.get(host)
        if site is None:
            return _OF_OTHERS.get(host, Rules())
        return Rules(crawl_delay_s=site.crawl_delay_s, disallow=site.disallow)

    def answer(self, ask: Ask) -> Reply:
        """Answer a request to any of the hosts."""
        path = unquote(urlsplit(ask.path).path)
        site = self._by_address.get(ask.host)
        if path == ROBOTS:
            return Reply(self.rules(ask.host).text(), content_type="text/plain")
        return self._other(ask, path) if site is None else self._of_site(site, ask, path)

    def _other(self, ask: Ask, path: str) -> Reply:
        """Answer for one of the hosts that pages load from."""
        if path.startswith("/lib/"):
            if ask.host == BUSY and ask.turn == 0:
                return _busy()
            if path.endswith(".css"):
                return Reply(_PART_STYLE, content_type="text/css", headers=_SHARED)
            return Reply(_PART_SCRIPT, content_type="text/javascript", headers=_SHARED)
        name, _, rest = path.lstrip("/").partition("/")
        body = self._file(self._all / name, rest)
        if body is None:
            return Reply("not here", 404, content_type="text/plain", headers=_SHARED)
        return Reply(body, content_type="application/json", headers=_SHARED)

    def _of_site(self, site: Site, ask: Ask, path: str) -> Reply:
        if path in site.busy and ask.turn == 0:
            return _busy()
        if path == TRACKER:
            return Reply("{}", content_type="application/json")
        home = self._homes[site.address]
        if path.startswith("/data/"):
            body = self._file(home, path[1:])
            kind = "application/json"
            return Reply("{}", 404, kind) if body is None else Reply(body, content_type=kind)
        www = home / "www"
        names = [path[1:] + "index.html"] if path.endswith("/") else [path[1:], f"{path[1:]}.html"]
        if site.is_by_scripts and "." not in path.rpartition("/")[2]:
            names.append("index.html")
        for name in names:
            body = self._file(www, name)
            if body is not None:
                return Reply(self._with_port(name, body), content_type=_type(name))
        if (www / path[1:] / "index.html").exists():
            return Reply(status=301, headers=(("Location", f"{path}/"),))
        missing = self._file(www, "404.html")
        return Reply("not here" if missing is None else self._with_port("404.html", missing), 404)

    def _with_port(self, name: str, body: bytes) -> bytes:
        if not name.endswith(".html"):
            return body
        return body.replace(PORT_MARK.encode(), str(self._web.port).encode())

    def _file(self, root: Path, name: str) -> bytes | None:
        """Return what is in a file under *root*, or None."""
        file = root / name
        if file not in self._read:
            is_inside = file.is_file() and file.resolve().is_relative_to(root.resolve())
            self._read[file] = file.read_bytes() if is_inside else None
        return self._read[file]


def _busy() -> Reply:
    return Reply("busy", 429, headers=(("Retry-After", str(RETRY_AFTER_S)), *_SHARED))


def _type(name: str) -> str:
    suffix = Path(name).suffix
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
