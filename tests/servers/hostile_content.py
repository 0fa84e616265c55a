"""Answers that are well-formed HTTP, and whose content is made to hurt whoever reads it.

Rule: made while it is sent, where it is large. Between all of it stand ordinary pages.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from tests.harness import pdf_files
from tests.servers.hostile_kit import gzipped
from tests.servers.loopback import Ask, LoopbackWeb, Reply

MEGABYTE: Final = 1 << 20
BLOCK: Final = 1 << 16
XML: Final = "application/xml"
RSS: Final = "application/rss+xml"
PDF: Final = "application/pdf"
TEXT: Final = "text/plain"

HOSTILE: Final = "127.0.65.1"
MAPS: Final = "127.0.65.2"
FORGETFUL: Final = "127.0.65.3"
ELSEWHERE: Final = "127.0.65.4"
RING: Final = "127.0.65.5"
ALIASES: Final = "127.0.65.6"
HOSTS: Final = (HOSTILE, MAPS, FORGETFUL, ELSEWHERE, RING, ALIASES)
OUTSIDE: Final = "http://127.0.65.99/"
ENTITY: Final = "/what-an-entity-stands-for"

GOOD: Final = 15  # ordinary pages of each host
RING_PAGES: Final = 60
SITEMAPS: Final = 1_000
LISTED: Final = 100  # pages that these list
LARGE: Final = 50_000  # URLs of one sitemap
EVERY: Final = 500  # of them is in scope
LOST: Final = 30
ASTRAY: Final = 10
CHAIN: Final = 30
WORDS: Final = tuple(f"w{number}" for number in range(3_000))


def prose(seed: str, words: int = 300) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def html(*bodies: str) -> Reply:
    return Reply("".join(bodies).encode())


def endless(start: bytes, piece: bytes, kind: str) -> Reply:
    """A gigabyte."""
    block = piece * (BLOCK // len(piece))

    async def body() -> AsyncIterator[bytes]:
        yield start + block
        for _ in range((1 << 30) // BLOCK):
            yield block

    return Reply(body, content_type=kind)


def filled(
    piece: str, kind: str = "text/html", start: str = "<p>", end: str = ""
) -> Callable[[Ask], Reply]:
    """Two megabytes of it, less a little: as much as is read of a page."""
    size = 2 * MEGABYTE - 4096 - len(end)
    written = (start + piece * (size // len(piece.encode()) + 1)).encode()[:size]
    return lambda _: Reply(written + end.encode(), content_type=kind)


def bomb(start: bytes, piece: bytes, megabytes: int) -> bytes:
    """As gzip: *start*, then *piece* over and over. (After a full flush deflate remembers nothing,
    so one block can be repeated; the checksum at the end is never reached.)"""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(piece * (MEGABYTE // len(piece))) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + begin + block * megabytes


def once(reply: Reply) -> Callable[[Ask], Reply]:
    return lambda _: reply


def _feed(items: str, declared: str = "") -> str:
    channel = f"<channel><title>Feed</title>{items}</channel>"
    return f"<?xml version='1.0'?>{declared}<rss version='2.0'>{channel}</rss>"


_ENTRY: Final = b"<url><loc>" + OUTSIDE.encode() + b"</loc></url>"


def _twice_packed(start: bytes, piece: bytes, kind: str) -> Callable[[Ask], Reply]:
    """Ten gigabytes, in some hundred kilobytes; made when it is asked for."""
    headers = (("Content-Encoding", "gzip, gzip"),)
    return lambda _: Reply(gzipped(bomb(start, piece, 10_000)), content_type=kind, headers=headers)


def _long_base(ask: Ask) -> Reply:
    """A hundred kilobytes, which stand for 20 MB of links."""
    links = "".join(f"<a href=y{n}>" for n in range(10_000))
    return html(f"<base href='{OUTSIDE}{'x' * 1_900}/'>", links)


def _laughs() -> Reply:
    entities = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10 if n else 'ha'}'>" for n in range(12))
    items = "<item><title>&l11;</title><link>/good/0</link><description>&l11;</description></item>"
    return Reply(_feed(items, f"<!DOCTYPE rss [{entities}]>").encode(), content_type=RSS)


def _external(file: str, root: str) -> str:
    return (
        f"<!DOCTYPE rss SYSTEM '{root}{ENTITY}.dtd' [<!ENTITY f SYSTEM 'file://{file}'>"
        f"<!ENTITY h SYSTEM '{root}{ENTITY}'><!ENTITY % p SYSTEM '{root}{ENTITY}.ent'>%p;]>"
    )


def rows(file: str) -> Mapping[str, Callable[[Ask], Reply]]:
    """*file*: one of this machine, that none of them gets read."""

    def external(ask: Ask, kind: str, body: Callable[[str], str]) -> Reply:
        declared = _external(file, f"http://{ask.host}:{ask.port}")
        return Reply(body(declared).encode(), content_type=kind)

    item = "<item><title>&f;&h;</title><description>&f;</description></item>"
    return {
        "gigabyte.html": once(endless(b"<p>", b"a line of text that goes on\n", "text/html")),
        "gigabyte.txt": once(endless(b"", b"a line of text that goes on\n", TEXT)),
        "gigabyte-of-bytes": once(endless(b"", b"\xd0\xcf" * 32, "application/x-any")),
        "gigabyte.pdf": once(endless(b"%PDF-1.7\n", b"1 0 obj\n<< >>\nendobj\n", PDF)),
        "gigabyte.xml": once(endless(b"<urlset>", _ENTRY, XML)),
        "bomb.html": _twice_packed(b"<p>", b"a line of a bomb\n", "text/html"),
        "bomb.xml": _twice_packed(b"<urlset>", _ENTRY, XML),
        "nested": once(html("<div>" * 100_000, "deep", "</div>" * 100_000)),
        "nested-tables": filled("<table><tr><td>"),
        "nested-lists": filled("<ul><li><a href=/good/1>"),
        "nested-forms": filled("<b><form><a><p>"),
        "nested-svg": filled("<svg><desc><math><mi>"),
        "attributes": once(
            html("<p ", " ".join(f"a{n}='{n}'" for n in range(40_000)), "><a href=/good/1>a</a>")
        ),
        "one-line": filled(" ".join(WORDS) + " "),
        "one-word": filled("a"),
        "letters": filled("a b c d e f g "),
        "numbers": once(html("<p>", " ".join(map(str, range(280_000))))),
        "without-spaces": filled("字符很多而没有空格"),
        "title": filled("t ", start="<title>", end="</title>"),
        "entities": filled("&amp;&CounterClockwiseContourIntegral;&#x1F600;&#0;"),
        "half-tags": filled("<"),
        "half-anchors": filled("<a href=/good/1 "),
        "half-ends": filled("</a"),
        "half-comments": filled("<!-- -- >"),
        "half-quotes": filled("<p a=\"b' "),
        "half-scripts": filled("<script><!--<script>"),
        "half-cdata": filled("<svg><![CDATA["),
        "canonicals": filled("<link rel=canonical href=/good/1><base href=/x/>", start="<head>"),
        "metas": filled("<meta name=robots content='a, b'><meta name=date content='2024-05-06'>"),
        "anchors": filled("<a href=/good/1>a</a>"),
        "long-base": _long_base,
        "sources": filled("/i.png?,(( 1x, ", start="<img srcset='", end="'>"),
        "spaces": filled(" \n\t"),
        "blanks": filled("\u00a0\u200b\u2028"),
        "json": filled(
            '{"@type":"x","datePublished":',
            start="<script type=application/ld+json>",
            end="</script>",
        ),
        "urls.txt": filled("http://", TEXT, ""),
        "brackets.txt": filled("http://a/((((", TEXT, ""),
        "dots.txt": filled("www." + "a." * 500 + " ", TEXT, ""),
        "xml-nested": filled("<a>", XML, "<?xml version='1.0'?>"),
        "xml-attributes": once(
            Reply(
                b"<urlset " + b" ".join(b"a%d=''" % n for n in range(100_000)) + b"/>",
                content_type=XML,
            )
        ),
        "xml-external": lambda ask: external(ask, XML, lambda head: f"{head}<rss>&f;&h;</rss>"),
        "map-external": lambda ask: external(
            ask,
            XML,
            lambda head: (
                f"{head.replace(' rss ', ' urlset ')}<urlset><url><loc>&h;</loc></url></urlset>"
            ),
        ),
        "feed-external": lambda ask: external(ask, RSS, lambda head: _feed(item, head)),
        "feed-laughs": once(_laughs()),
        "feed-in-itself": once(
            Reply(
                _feed("<item><title>a</title><link>/row/feed-in-itself</link></item>" * 3).encode(),
                content_type=RSS,
            )
        ),
        "feed-entries": filled(
            "<item><title>a</title><description>&lt;p&gt;b</description></item>",
            RSS,
            "<rss version='2.0'><channel>",
        ),
        "tree.pdf": once(Reply(pdf_files.tree_in_itself(), content_type=PDF)),
        "form.pdf": once(Reply(pdf_files.form_in_itself(), content_type=PDF)),
        "outlines.pdf": once(Reply(pdf_files.outlines_in_themselves(), content_type=PDF)),
        "objects.pdf": once(Reply(pdf_files.objects_in_themselves(), content_type=PDF)),
        "bomb.pdf": once(Reply(pdf_files.bomb(500), content_type=PDF)),
        "pages.pdf": once(Reply(pdf_files.pages_text(100_000), content_type=PDF)),
        "for-ever.pdf": once(Reply(pdf_files.forms_for_ever(), content_type=PDF)),
    }


class HostileContent(LoopbackWeb):
    def __init__(self, file: str) -> None:
        super().__init__(self._reply, HOSTS)
        self.rows = rows(file)

    def seeds(self) -> list[str]:
        return [self.url(host) for host in self.hosts]

    def _reply(self, ask: Ask) -> Reply:
        path = ask.path.partition("?")[0]
        if path.startswith("/good/") and path[6:].isdecimal() and int(path[6:]) < GOOD:
            words = prose(f"{ask.host}{path}")
            return html(f"<title>{words[0]}</title><p>", " ".join(words))
        by_host: Mapping[str, Callable[[Ask, str], Reply]] = {
            HOSTILE: self._hostile,
            MAPS: self._maps,
            FORGETFUL: self._forgetful,
            ELSEWHERE: self._elsewhere,
            RING: self._ring,
            ALIASES: self._alias,
        }
        return by_host[ask.host](ask, path)

    def _hostile(self, ask: Ask, path: str) -> Reply:
        if path == "/":
            return _front(ask, [f"/row/{name}" for name in self.rows])
        row = self.rows.get(path.removeprefix("/row/"))
        return row(ask) if row else _missing()

    def _maps(self, ask: Ask, path: str) -> Reply:
        root = f"http://{ask.host}:{ask.port}"
        folder, _, name = path[1:].partition("/")
        if folder == "maps":
            number = int(name.partition(".")[0])
            return _sitemap(root, "url", [f"/listed/{number // 10}"], f"<!-- {number} -->")
        if folder in ("listed", "large"):
            return html(f"<title>{path}</title><p>", " ".join(prose(path)))
        made = {"/": self._map_front, "/robots.txt": _robots, "/index.xml": _index}
        made |= {"/itself.xml": _itself, "/sitemap-bomb.xml.gz": _packed, "/large.xml": _large}
        return made[path](ask, root) if path in made else _missing()

    def _map_front(self, ask: Ask, _: str) -> Reply:
        return _front(ask, [])

    def _forgetful(self, ask: Ask, path: str) -> Reply:
        """Status 200 to any name, and other words each time."""
        if path == "/":
            return _front(ask, [f"/lost/{n}.html" for n in range(LOST)])
        if path == "/robots.txt":
            return _missing()
        text = " ".join(prose(f"{path} {ask.turn}", 100))
        return html(f"<title>404</title><p>{path} was not found here. {text}")

    def _elsewhere(self, ask: Ask, path: str) -> Reply:
        """A name that nobody knows leads to another that nobody knows."""
        if path == "/":
            return _front(ask, ["/odd/page.html", *(f"/astray/{n}" for n in range(ASTRAY))])
        if path == "/robots.txt":
            return _missing()
        if path == "/odd/page.html":
            return html("<title>404</title><p>The page was not found. ", " ".join(prose("odd", 90)))
        to = f"{path}-{ask.turn}" if len(path) < 500 else "/astray/0"
        return Reply(b"Elsewhere.", 302, headers=(("Location", to),))

    def _ring(self, ask: Ask, path: str) -> Reply:
        """Each is nearly the same as the next, and the last as the first."""
        if path == "/":
            return _front(ask, ["/ring/0"])
        if not path.startswith("/ring/"):
            return _missing()
        number = int(path[6:])
        words = prose("ring", 1_000)
        for changed in range(min(number, RING_PAGES - number)):
            words[changed * 30] = f"other{changed}"
        after = (number + 1) % RING_PAGES
        link = f"<a href=/ring/{after}>next</a>"
        return html(f"<title>{number}</title>{link}<p>", " ".join(words))

    def _alias(self, ask: Ask, path: str) -> Reply:
        """They name another URL as their own."""
        others = {
            "/a": "/b",
            "/b": "/c",
            "/c": "/a",
            "/own": "/own#top",
            "/gone": "/nowhere",
            "/outside": OUTSIDE,
            "/script": "javascript:alert(1)",
            "/back": "/there",
            "/there": "/back",
            **{f"/chain/{n}": f"/chain/{n + 1}" for n in range(CHAIN)},
        }
        if path == "/":
            return _front(ask, [*others, f"/chain/{CHAIN}"])
        if path not in others and path != f"/chain/{CHAIN}":
            return _missing()
        named = others.get(path, path)
        return html(f"<link rel=canonical href='{named}'><p>", " ".join(prose(path)))


def _front(ask: Ask, paths: list[str]) -> Reply:
    """Ordinary pages among the others."""
    good = [f"/good/{n}" for n in range(GOOD)]
    step = max(1, len(paths) // GOOD)
    for number, path in enumerate(good):
        paths.insert(min(len(paths), number * (step + 1)), path)
    links = "".join(f"<a href='{path}'>{path}</a>\n" for path in paths)
    return html(f"<title>{ask.host}</title>", links)


def _missing() -> Reply:
    return Reply(b"Nothing.", 404)


def _sitemap(root: str, kind: str, paths: list[str], more: str = "") -> Reply:
    outer = "urlset" if kind == "url" else "sitemapindex"
    listed = "".join(f"<{kind}><loc>{root}{path}</loc></{kind}>" for path in paths)
    return Reply(f"<{outer}>{more}{listed}</{outer}>".encode(), content_type=XML)


def _robots(_: Ask, __: str) -> Reply:
    return Reply(b"Sitemap: /index.xml\nSitemap: /index.xml\n", content_type=TEXT)


def _index(_: Ask, root: str) -> Reply:
    """It lists itself, a thousand others, and what is in the way."""
    maps = ("/index.xml", *(f"/maps/{n}.xml" for n in range(SITEMAPS)))
    return _sitemap(root, "sitemap", [*maps, "/large.xml", "/sitemap-bomb.xml.gz", "/itself.xml"])


def _itself(_: Ask, root: str) -> Reply:
    return _sitemap(root, "sitemap", ["/itself.xml", "/index.xml"])


def _packed(_: Ask, __: str) -> Reply:
    return Reply(bomb(b"<urlset>", _ENTRY, 1_000), content_type="application/x-gzip")


def _large(_: Ask, root: str) -> Reply:
    def url(number: int) -> str:
        return f"{root}/large/{number}" if number % EVERY == 0 else f"{OUTSIDE}{number}"

    listed = "".join(f"<url><loc>{url(number)}</loc></url>" for number in range(LARGE))
    return Reply(f"<urlset>{listed}</urlset>".encode(), content_type=XML)
