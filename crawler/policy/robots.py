"""The rules of one robots.txt (RFC 9309): whether a URL may be fetched.

Rule: the longest matching pattern wins, Allow wins ties (2.2.2). A path ends in "$" here and has no
other, so "$" in a pattern is a letter.

Plain patterns cost a dictionary look-up for each length that occurs; those with a "*" are tried
longest first, by find, never by a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from crawler.model.url import authority_of

# Reading a robots.txt for one crawler, as leniently as the parsers that site owners test with
# (missing colons, the usual misspellings): a Disallow that is ignored is worse than one too many.
# Time is linear in the bytes. Paths are compared in one spelling (`canonical`): RFC 9309, 2.2.2.

BOM: Final = b"\xef\xbb\xbf"


class RobotsField(Enum):
    """The kinds of lines."""

    AGENT = auto()
    ALLOW = auto()
    DISALLOW = auto()
    CRAWL_DELAY = auto()
    SITEMAP = auto()
    HOST = auto()
    USAGE = auto()  # Content-Usage (draft-ietf-aipref-attach)
    SIGNAL = auto()  # Content-Signal (draft-romm-aipref-contentsignals)
    LICENCE = auto()  # of RSL


# The misspellings are those of Google's parser: frequent enough on the web to matter.
FIELDS: Final = {
    **dict.fromkeys((b"user-agent", b"useragent", b"user agent"), RobotsField.AGENT),
    b"allow": RobotsField.ALLOW,
    **dict.fromkeys(
        (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"),
        RobotsField.DISALLOW,
    ),
    **dict.fromkeys((b"crawl-delay", b"crawl delay"), RobotsField.CRAWL_DELAY),
    **dict.fromkeys((b"sitemap", b"site-map"), RobotsField.SITEMAP),
    b"host": RobotsField.HOST,
    b"content-usage": RobotsField.USAGE,
    b"content-signal": RobotsField.SIGNAL,
    b"license": RobotsField.LICENCE,
}
FILE_FIELDS: Final = frozenset(
    {RobotsField.SITEMAP, RobotsField.HOST, RobotsField.LICENCE}
)  # belong to the file, not to a group
# guess: more than any honest file has; a URL is compared with all of them
MAX_USE_RULES: Final = 1_000
MAX_LICENCES: Final = 10  # guess: each is fetched

# RFC 3986 unreserved, and the reserved characters that WHATWG leaves alone in a path and in a
# query. Not among them: "'", which WHATWG encodes in queries only, and "*" and "$", which are
# spelled %2A and %24 in a URL so that they are free for the patterns.
_LITERAL: Final = rb"A-Za-z0-9\-._~/?:@!&()+,;=\[\]"
_is_canonical = re.compile(rb"[%b]*" % _LITERAL).fullmatch
_odd = re.compile(rb"%%[0-9A-Fa-f]{2}|[^%b]" % _LITERAL)
_is_unreserved = re.compile(rb"[A-Za-z0-9\-._~]").fullmatch

_token = re.compile(rb"[A-Za-z_-]*")
_is_delay = re.compile(rb"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})").fullmatch


class RobotsLine(NamedTuple):
    """One Allow or Disallow that applies to us."""

    number: int  # from 1
    allow: bool
    pattern: bytes  # canonical, "*" and a final "$" as written


class RobotsUsage(NamedTuple):
    """What a Content-Usage or Content-Signal that applies to us says of the paths it is for."""

    pattern: bytes  # as that of a `RobotsLine`; "/" where the line names no path
    value: bytes  # as written


@dataclass(slots=True, eq=False)  # groups in a set differ by identity, not by value
class RobotsGroup:
    """The lines of all groups that name one agent, as if they were one (2.2.1)."""

    named: bool = False
    lines: list[RobotsLine] = field(default_factory=list)
    crawl_delay_s: float = 0.0
    usages: list[RobotsUsage] = field(default_factory=list)
    signals: list[RobotsUsage] = field(default_factory=list)

    def add_rule(self, line: RobotsLine) -> None:
        if line.pattern:  # "Disallow:" alone forbids nothing
            self.lines.append(line)

    def add_delay(self, value: bytes) -> None:
        asked_s = float(value) if _is_delay(value) else 0.0
        self.crawl_delay_s = max(self.crawl_delay_s, asked_s)

    def add_use(self, what: RobotsField, value: bytes) -> None:
        kept = self.usages if what is RobotsField.USAGE else self.signals
        path, said = b"/", value
        if value[:1] == b"/":
            path, _, said = value.replace(b"\t", b" ").partition(b" ")
        if len(kept) < MAX_USE_RULES:
            kept.append(RobotsUsage(canonical_pattern(path), said.strip()))


@dataclass(slots=True)
class RobotsText:
    """A file as read for one agent."""

    ours: RobotsGroup = field(default_factory=RobotsGroup)
    for_all: RobotsGroup = field(default_factory=RobotsGroup)
    sitemaps: list[str] = field(default_factory=list)
    preferred_host: str = ""
    licences: list[str] = field(default_factory=list)

    @property
    def group(self) -> RobotsGroup:
        """Our group if any line names us, even if it is empty; else the group for all."""
        return self.ours if self.ours.named else self.for_all


def read_robots(body: bytes, agent: str) -> RobotsText:
    """Return the parts of *body* that are for *agent*, a product token."""
    found = RobotsText()
    token = product_token(agent)
    ruled: set[RobotsGroup] = set()  # the groups that an Allow or Disallow here applies to
    delayed: set[RobotsGroup] = set()  # the same for a Crawl-delay
    used: set[RobotsGroup] = set()  # and for a Content-Usage or Content-Signal
    # Only rules end a run of User-agent lines; other records "MUST NOT interfere" (RFC 9309, 2.2.1
    # and 2.2.4). The RFC has no Crawl-delay: one ends the run for other Crawl-delays alone, as in
    # every parser that reads it, so that each agent may have its own. A Content-Usage or
    # Content-Signal ends it for others of these two alone: no verdict changes by them.
    rules_ended = delays_ended = uses_ended = True
    for number, line in enumerate(body.removeprefix(BOM).splitlines(), start=1):
        field_kind, value = split_line(line)
        if field_kind is None:
            continue
        if field_kind in FILE_FIELDS:
            _record(found, field_kind, value)
        elif field_kind is RobotsField.AGENT:
            ruled = set() if rules_ended else ruled
            delayed = set() if delays_ended else delayed
            used = set() if uses_ended else used
            rules_ended = delays_ended = uses_ended = False
            if group := _named_group(found, value, token):
                group.named = True
                ruled.add(group)
                delayed.add(group)
                used.add(group)
        elif field_kind is RobotsField.CRAWL_DELAY:
            delays_ended = True
            for group in delayed:
                group.add_delay(value)
        elif field_kind is RobotsField.USAGE or field_kind is RobotsField.SIGNAL:
            uses_ended = True
            for group in used:
                group.add_use(field_kind, value)
        else:
            rules_ended = delays_ended = uses_ended = True
            for group in ruled:
                group.add_rule(
                    RobotsLine(number, field_kind is RobotsField.ALLOW, canonical_pattern(value))
                )
    return found


def _named_group(found: RobotsText, value: bytes, token: bytes) -> RobotsGroup | None:
    if value[:1] == b"*" and not value[1:2].strip():
        return found.for_all
    return found.ours if token and _leading_token(value) == token else None


def _record(found: RobotsText, what: RobotsField, value: bytes) -> None:
    text = value.decode("utf-8", "replace")
    if what is RobotsField.HOST:
        found.preferred_host = text
    elif what is RobotsField.LICENCE:
        if text and len(found.licences) < MAX_LICENCES:
            found.licences.append(text)
    elif text:
        found.sitemaps.append(text)


def split_line(line: bytes) -> tuple[RobotsField | None, bytes]:
    """Return field and value of a line. The colon may be missing if the value is one word."""
    text = line.partition(b"#")[0].strip()
    name, colon, value = text.partition(b":")
    if not colon:
        words = text.split(None, 2)
        if len(words) != 2:
            return None, b""
        name, value = words
    return FIELDS.get(name.strip().lower()), value.strip()


def product_token(agent: str) -> bytes:
    """Return what a User-agent line must contain to name *agent*: the name without its version."""
    return agent.partition("/")[0].strip().lower().encode("utf-8", "replace")


def _leading_token(value: bytes) -> bytes:
    # Up to the first character no product token may have: "FooBot/2.1" and "FooBot*" mean FooBot.
    token = _token.match(value)
    return token[0].lower() if token else b""


def canonical(text: bytes) -> bytes:
    """Return a path or a piece of a pattern in the one spelling that is compared: escapes of
    unreserved characters decoded, all that is neither reserved nor unreserved escaped."""
    return text if _is_canonical(text) else _odd.sub(_respell, text)


def _respell(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    if len(odd) == 3:
        plain = bytes((int(odd[1:], 16),))
        return plain if _is_unreserved(plain) else odd.upper()
    return odd if odd == b"%" else b"%%%02X" % odd[0]


def canonical_pattern(value: bytes) -> bytes:
    """Return a pattern in this spelling: "*" stays, and so does "$", but only at its end."""
    if _is_canonical(value):
        return value
    text = value.removesuffix(b"$")
    end = value[len(text) :]
    if b"**" in text:
        text = re.sub(rb"\*+", b"*", text)
    return b"*".join(canonical(piece) for piece in text.split(b"*")) + end


MIN_BODY_BYTES: Final = 500 * 1024
"""At least so much of a robots.txt is read (RFC 9309, 2.5)."""

WORK_LIMIT: Final = 1 << 27
"""Byte comparisons one URL may cost: 0.15 s at worst. Of 4,231 real files (Protego's test data) the
one with most has 25 KB in patterns with "*": 2.6 times less for a URL of 2,048 bytes."""

TOO_COSTLY: Final = "its robots.txt takes too long to decide"
OWN_PATH: Final = b"/robots.txt$"


class Ruling(msgspec.Struct, frozen=True):
    """The decision, and the line that it follows from. An empty rule: no line matches the URL."""

    allowed: bool
    rule: str = ""


class RuleStrength(NamedTuple):
    """The strength and meaning of a pattern. The greater one wins."""

    octets: int
    allow: bool
    line: int


class Glob(NamedTuple):
    """A pattern with "*", in pieces: the path begins with the first, the others follow in order."""

    strength: RuleStrength
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """The rules of one robots.txt for us. Without arguments everything is allowed."""

    plain: Mapping[bytes, RuleStrength] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()  # of the plain patterns, longest first, each once
    globs: tuple[Glob, ...] = ()  # the strongest first
    crawl_delay_s: float = 0.0  # 0: it asks for none
    sitemaps: tuple[str, ...] = ()  # as written, some of them relative
    preferred_host: str = ""
    usages: tuple[RobotsUsage, ...] = ()  # of Content-Usage lines, the longest patterns first
    signals: tuple[RobotsUsage, ...] = ()  # the same of Content-Signal lines
    licences: tuple[str, ...] = ()  # URLs of RSL documents, as written

    @classmethod
    def parse(cls, body: bytes, agent: str, max_body_bytes: int = MIN_BODY_BYTES) -> RobotsRules:
        """Return the rules of *body* for *agent*, a product token such as "Gossamer"."""
        text = read_robots(cut_body(body, max_body_bytes), agent)
        plain: dict[bytes, RuleStrength] = {}
        globs: list[Glob] = []
        for line in text.group.lines:
            _add_pattern(line, plain, globs)
        return cls(
            plain,
            tuple(sorted({len(pattern) for pattern in plain}, reverse=True)),
            tuple(sorted(globs, reverse=True)),
            text.group.crawl_delay_s,
            tuple(text.sitemaps),
            text.preferred_host,
            _longest_first(text.group.usages),
            _longest_first(text.group.signals),
            tuple(text.licences),
        )

    def allowed(self, url: str) -> bool:
        """Return whether *url* may be fetched."""
        return self.ruling(url).allowed

    def ruling(self, url: str) -> Ruling:
        """Return whether *url* (a fetch form) may be fetched, and the line that decides."""
        path = path_of(url)
        if path == OWN_PATH:
            return Ruling(True)  # "implicitly allowed" (2.2.2), whatever a pattern says
        found = self._strongest_plain(path)
        spent = 0
        for glob in self.globs:
            if found and glob.strength < found[0]:
                break
            if not path.startswith(glob.pieces[0]):
                continue
            spent += glob.strength.octets * len(path)
            if spent > WORK_LIMIT:
                return Ruling(False, TOO_COSTLY)  # when in doubt, stay away
            if _matches(path, glob.pieces):
                found = glob.strength, b"*".join(glob.pieces)
                break
        return _ruling(*found) if found else Ruling(True)

    def _strongest_plain(self, path: bytes) -> tuple[RuleStrength, bytes] | None:
        for length in self.lengths:
            mark = self.plain.get(path[:length])
            if mark:
                return mark, path[:length]
        return None

    def size_bytes(self) -> int:
        """Return about how much memory it takes: within a quarter, measured with tracemalloc."""
        plain = sum(160 + len(pattern) for pattern in self.plain)
        globs = sum(180 + 40 * len(glob.pieces) + glob.strength.octets for glob in self.globs)
        sitemaps = sum(60 + len(sitemap) for sitemap in self.sitemaps)
        uses = sum(150 + len(use.pattern) + len(use.value) for use in (*self.usages, *self.signals))
        licences = sum(60 + len(licence) for licence in self.licences)
        return 400 + plain + globs + sitemaps + uses + licences


ALLOW_ALL: Final = RobotsRules()


def cut_body(body: bytes, max_bytes: int) -> bytes:
    """Return at most *max_bytes*, without the line that was cut: half an Allow allows more."""
    if len(body) < max_bytes:
        return body
    head = body[:max_bytes]
    end = max(head.rfind(b"\n"), head.rfind(b"\r"))
    return head[: end + 1]


def path_of(url: str) -> bytes:
    """Return what patterns are compared with: canonical path and query, and "$"."""
    return canonical(url[len(authority_of(url)) :].encode()) + b"$"


def _add_pattern(line: RobotsLine, plain: dict[bytes, RuleStrength], globs: list[Glob]) -> None:
    strength = RuleStrength(len(line.pattern), line.allow, line.number)
    if b"*" in line.pattern:
        globs.append(Glob(strength, tuple(line.pattern.split(b"*"))))
    else:
        plain[line.pattern] = max(strength, plain.get(line.pattern, strength))


def _longest_first(uses: list[RobotsUsage]) -> tuple[RobotsUsage, ...]:
    return tuple(sorted(uses, key=lambda use: -len(use.pattern)))


def pattern_matches(pattern: bytes, path: bytes) -> bool:
    """Return whether a `canonical_pattern` matches *path*, which is of `path_of`."""
    pieces = tuple(pattern.split(b"*"))
    return path.startswith(pieces[0]) and _matches(path, pieces)


def _matches(path: bytes, pieces: tuple[bytes, ...]) -> bool:
    # The leftmost match is always right: a later one leaves less of the path for the other pieces.
    at = len(pieces[0])
    for piece in pieces[1:]:
        at = path.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def _ruling(strength: RuleStrength, pattern: bytes) -> Ruling:
    word = "Allow" if strength.allow else "Disallow"
    return Ruling(strength.allow, f"line {strength.line}: {word}: {pattern.decode()}")
