"""A web that repeats itself: exact copies, near-copies, errors and redirects that all say the same,
PDFs, and pages that only a sitemap knows; much of it does not shrink when it is packed.

Rule: the same numbers give the same web, every path is the answer to one fetch (two where the first
fails), and what is a page, and what its text, is defined here and nowhere else.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.harness.pdf_files import story
from tests.servers.loopback import Ask, LoopbackWeb, Reply

ROBOTS: Final = "/robots.txt"
MAP: Final = "/map.xml"
VOCABULARY: Final = tuple(f"w{number}" for number in range(3_000))
WORDS: Final = 1_500  # one of them is another: 3 of 1,500 shingles, about one bit of 64
EACH: Final[Mapping[str, int]] = {
    "own": 14,
    "copy": 6,
    "near": 6,
    "report": 4,
    "flaky": 2,
    "listed": 6,
    "gone": 3,
    "moved": 3,
}
"""How many there are of a kind, on every host."""

PAGES: Final = frozenset({"own", "copy", "near", "report", "flaky", "listed"})


@dataclass(frozen=True, slots=True)
class CopiedWeb:
    """*hosts* hosts at 127.0.64.1 and up."""

    hosts: int = 12
    filler_bytes: int = 150_000  # of a page, that no packer makes smaller

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.64.{number}" for number in range(1, self.hosts + 1)]

    def paths(self) -> list[str]:
        """All but robots.txt."""
        numbered = [
            f"/{kind}/{n}{_end(kind)}" for kind, count in EACH.items() for n in range(count)
        ]
        return ["/", MAP, *numbered]

    def fetches(self, path: str) -> int:
        """Return how often it is fetched when no worker dies."""
        return 2 if _kind(path) == "flaky" else 1

    def is_page(self, path: str) -> bool:
        return path in ("/", MAP) or _kind(path) in PAGES

    def prose(self, host: str, path: str) -> str:
        """What a reader finds on a page of this kind; empty: a list of links."""
        if path in ("/", MAP):
            return ""
        words = _words(path if _is_shared(path) else f"{host}{path}")
        if _kind(path) == "near":
            words[700] = f"by{host.rpartition('.')[2]}"
        return " ".join(words[: 40 if _kind(path) == "report" else None])

    def __call__(self, ask: Ask) -> Reply:
        kind = _kind(ask.path)
        if ask.path == ROBOTS:
            return Reply(f"Sitemap: {MAP}\n".encode(), content_type="text/plain")
        if ask.path not in self.paths() or kind == "gone":
            return Reply(b"<title>Gone</title> There is nothing here.", 404)
        if kind == "moved":
            to = ask.path.replace("moved", "own")
            return Reply(b"It has moved.", 301, headers=(("Location", to),))
        if kind == "flaky" and ask.turn == 0:
            return Reply(b"Come again.", 503)
        return self._page(ask, kind)

    def _page(self, ask: Ask, kind: str) -> Reply:
        if ask.path == "/":
            links = "".join(f'<a href="{path}">{path}</a>\n' for path in self._linked())
            return Reply(f"<title>All of {ask.host}</title>{links}".encode())
        if ask.path == MAP:
            return Reply(self._map(ask), content_type="application/xml")
        text = self.prose(ask.host, ask.path)
        if kind == "report":
            return Reply(story(_lines(text)), content_type="application/pdf")
        filler = _filler(ask.path if _is_shared(ask.path) else f"{ask.host}{ask.path}", self)
        return Reply(f"<!doctype html><!--{filler}--><title>{kind}</title><p>{text}".encode())

    def _linked(self) -> list[str]:
        return [path for path in self.paths() if _kind(path) not in ("", "listed")]

    def _map(self, ask: Ask) -> bytes:
        root = f"http://{ask.host}:{ask.port}"
        listed = "".join(
            f"<url><loc>{root}{path}</loc></url>"
            for path in self.paths()
            if _kind(path) == "listed"
        )
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return f'<urlset xmlns="{space}">{listed}</urlset>'.encode()


class CopiedServer(LoopbackWeb):
    def __init__(self, web: CopiedWeb) -> None:
        super().__init__(web, web.addresses)
        self.copied_web = web

    def seeds(self) -> list[str]:
        return [self.url(host) for host in self.hosts]

    def expected(self) -> dict[str, tuple[str, str]]:
        """Every URL that is answered, robots.txt apart, with its host and path."""
        paths = self.copied_web.paths()
        return {self.url(host, path): (host, path) for host in self.hosts for path in paths}

    def reply(self, host: str, path: str) -> Reply:
        """What a URL is answered in the end."""
        return self.web(Ask(host, path, turn=1, port=self.port))


def _kind(path: str) -> str:
    kind, slash, _ = path[1:].partition("/")
    return kind if slash else ""


def _end(kind: str) -> str:
    return ".pdf" if kind == "report" else ".html"


def _number(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


def _is_shared(path: str) -> bool:
    """Its words are those of the same path on the other hosts."""
    kind = _kind(path)
    return kind in ("copy", "near") or (kind == "report" and _number(path) % 2 == 0)


def _words(seed: str) -> list[str]:
    return random.Random(seed).choices(VOCABULARY, k=WORDS)


def _lines(text: str) -> str:
    """As many words in a line as a page of paper is wide."""
    words = text.split()
    return "\n".join(" ".join(words[at : at + 8]) for at in range(0, len(words), 8))


def _filler(seed: str, web: CopiedWeb) -> str:
    return base64.b64encode(random.Random(f"filler {seed}").randbytes(web.filler_bytes)).decode()
