"""May we fetch this URL? The rules of one robots.txt (RFC 9309), asked once a fetch.

Rule: the longest matching pattern wins, Allow wins ties (2.2.2). Plain patterns cost a dictionary
look-up for each length that occurs; those with a "*" are tried longest first, by find, never by a
regular expression. A path ends in "$" here, and has no other: so "$" in a pattern is a letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crawler.core.url import authority_of
from crawler.policy.robots_text import Line, canonical, read

MIN_BODY_BYTES: Final = 500 * 1024
"""As much of a robots.txt is read at least (RFC 9309, 2.5)."""

WORK_LIMIT: Final = 1 << 27
"""Byte comparisons one URL may cost: 0.15 s at worst. Of 4,231 real files (Protego's test data) the
one with most has 25 KB in patterns with "*": 2.6 times less for a URL of 2,048 bytes."""

TOO_COSTLY: Final = "its robots.txt takes too long to decide"
OWN_PATH: Final = b"/robots.txt$"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer, and the line that decided. No rule: nothing speaks about this URL."""

    allowed: bool
    rule: str = ""


class Mark(NamedTuple):
    """How strong a pattern is, and what it says. The greater mark wins."""

    octets: int
    allow: bool
    line: int


class Glob(NamedTuple):
    """A pattern with "*" in it, in pieces: the first begins the path, the others come after it."""

    mark: Mark
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What one robots.txt says to us. Without arguments: everything is allowed."""

    plain: Mapping[bytes, Mark] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()  # of the plain patterns, longest first, each once
    globs: tuple[Glob, ...] = ()  # the strongest first
    crawl_delay_s: float = 0.0  # 0: it asks for none
    sitemaps: tuple[str, ...] = ()  # as written, some of them relative
    preferred_host: str = ""

    @classmethod
    def parse(cls, body: bytes, agent: str, max_body_bytes: int = MIN_BODY_BYTES) -> Rules:
        """The rules of *body* for *agent*, a product token such as "Gossamer"."""
        text = read(capped(body, max_body_bytes), agent)
        plain: dict[bytes, Mark] = {}
        globs: list[Glob] = []
        for line in text.group.lines:
            _file(line, plain, globs)
        return cls(
            plain,
            tuple(sorted({len(pattern) for pattern in plain}, reverse=True)),
            tuple(sorted(globs, reverse=True)),
            text.group.crawl_delay_s,
            tuple(text.sitemaps),
            text.preferred_host,
        )

    def allowed(self, url: str) -> bool:
        """Whether *url* may be fetched."""
        return self.ruling(url).allowed

    def ruling(self, url: str) -> Ruling:
        """Whether *url* (a fetch form) may be fetched, and which line says so."""
        path = path_of(url)
        if path == OWN_PATH:
            return Ruling(True)  # "implicitly allowed" (2.2.2), whatever a pattern says
        found = self._strongest_plain(path)
        spent = 0
        for glob in self.globs:
            if found and glob.mark < found[0]:
                break
            if not path.startswith(glob.pieces[0]):
                continue
            spent += glob.mark.octets * len(path)
            if spent > WORK_LIMIT:
                return Ruling(False, TOO_COSTLY)  # when in doubt, stay away
            if _follow(path, glob.pieces):
                found = glob.mark, b"*".join(glob.pieces)
                break
        return _spoken(*found) if found else Ruling(True)

    def _strongest_plain(self, path: bytes) -> tuple[Mark, bytes] | None:
        for length in self.lengths:
            mark = self.plain.get(path[:length])
            if mark:
                return mark, path[:length]
        return None

    def size_bytes(self) -> int:
        """About what it holds in memory. Measured with tracemalloc: within a quarter."""
        plain = sum(160 + len(pattern) for pattern in self.plain)
        globs = sum(180 + 40 * len(glob.pieces) + glob.mark.octets for glob in self.globs)
        sitemaps = sum(60 + len(sitemap) for sitemap in self.sitemaps)
        return 400 + plain + globs + sitemaps


ALLOW_ALL: Final = Rules()


def capped(body: bytes, max_bytes: int) -> bytes:
    """At most *max_bytes*, without the line the cut went through: half an Allow allows more."""
    if len(body) < max_bytes:
        return body
    head = body[:max_bytes]
    end = max(head.rfind(b"\n"), head.rfind(b"\r"))
    return head[: end + 1]


def path_of(url: str) -> bytes:
    """What patterns are compared with: canonical path and query, and "$"."""
    return canonical(url[len(authority_of(url)) :].encode()) + b"$"


def _file(line: Line, plain: dict[bytes, Mark], globs: list[Glob]) -> None:
    mark = Mark(len(line.pattern), line.allow, line.number)
    if b"*" in line.pattern:
        globs.append(Glob(mark, tuple(line.pattern.split(b"*"))))
    else:
        plain[line.pattern] = max(mark, plain.get(line.pattern, mark))


def _follow(path: bytes, pieces: tuple[bytes, ...]) -> bool:
    # Leftmost is always right: a later find can only leave less of the path for the others.
    at = len(pieces[0])
    for piece in pieces[1:]:
        at = path.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def _spoken(mark: Mark, pattern: bytes) -> Ruling:
    word = "Allow" if mark.allow else "Disallow"
    return Ruling(mark.allow, f"line {mark.line}: {word}: {pattern.decode()}")
