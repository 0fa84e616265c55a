"""What a robots.txt says to one crawler: its bytes, read line by line.

Rule: as lenient as the parsers site owners test with (missing colons, the usual misspellings),
because a Disallow that nobody obeys is worse than one too many. Time is linear in the bytes.
Paths are compared in one spelling (`canonical`): RFC 9309, 2.2.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

BOM: Final = b"\xef\xbb\xbf"


class Field(Enum):
    """What a line is about."""

    AGENT = auto()
    ALLOW = auto()
    DISALLOW = auto()
    CRAWL_DELAY = auto()
    SITEMAP = auto()
    HOST = auto()


# The misspellings are those of Google's parser: frequent enough on the web to matter.
FIELDS: Final = {
    **dict.fromkeys((b"user-agent", b"useragent", b"user agent"), Field.AGENT),
    b"allow": Field.ALLOW,
    **dict.fromkeys(
        (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"),
        Field.DISALLOW,
    ),
    **dict.fromkeys((b"crawl-delay", b"crawl delay"), Field.CRAWL_DELAY),
    **dict.fromkeys((b"sitemap", b"site-map"), Field.SITEMAP),
    b"host": Field.HOST,
}
FOR_ALL: Final = frozenset({Field.SITEMAP, Field.HOST})  # belong to the file, not to a group

# RFC 3986 unreserved, and the reserved characters that WHATWG leaves alone in a path and in a
# query. Not among them: "'", which WHATWG encodes in queries only, and "*" and "$", which are
# spelled %2A and %24 in a URL so that they are free for the patterns.
_LITERAL: Final = rb"A-Za-z0-9\-._~/?:@!&()+,;=\[\]"
_is_canonical = re.compile(rb"[%b]*" % _LITERAL).fullmatch
_odd = re.compile(rb"%%[0-9A-Fa-f]{2}|[^%b]" % _LITERAL)
_is_unreserved = re.compile(rb"[A-Za-z0-9\-._~]").fullmatch

_token = re.compile(rb"[A-Za-z_-]*")
_is_delay = re.compile(rb"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})").fullmatch


class Line(NamedTuple):
    """One Allow or Disallow that applies to us."""

    number: int  # from 1
    allow: bool
    pattern: bytes  # canonical, "*" and a final "$" as written


@dataclass(slots=True, eq=False)  # two groups are not the same for saying the same
class Group:
    """The lines of all groups that name one agent, as if they were one (2.2.1)."""

    named: bool = False
    lines: list[Line] = field(default_factory=list)
    crawl_delay_s: float = 0.0

    def add_rule(self, line: Line) -> None:
        if line.pattern:  # "Disallow:" alone forbids nothing
            self.lines.append(line)

    def add_delay(self, value: bytes) -> None:
        asked_s = float(value) if _is_delay(value) else 0.0
        self.crawl_delay_s = max(self.crawl_delay_s, asked_s)


@dataclass(slots=True)
class RobotsText:
    """A file as read for one agent."""

    ours: Group = field(default_factory=Group)
    everyone: Group = field(default_factory=Group)
    sitemaps: list[str] = field(default_factory=list)
    preferred_host: str = ""

    @property
    def group(self) -> Group:
        """Ours if any group names us, be it empty; else the one for everybody."""
        return self.ours if self.ours.named else self.everyone


def read(body: bytes, agent: str) -> RobotsText:
    """The parts of *body* that are for *agent*, a product token."""
    found = RobotsText()
    token = product_token(agent)
    ruled: set[Group] = set()  # the groups that an Allow or Disallow here applies to
    delayed: set[Group] = set()  # the same for a Crawl-delay
    # Only rules end a run of User-agent lines; other records "MUST NOT interfere" (RFC 9309, 2.2.1
    # and 2.2.4). The RFC has no Crawl-delay: one ends the run for other Crawl-delays alone, as in
    # every parser that reads it, so that each agent may have its own.
    rules_ended = delays_ended = True
    for number, line in enumerate(body.removeprefix(BOM).splitlines(), start=1):
        what, value = split_line(line)
        if what is None:
            continue
        if what in FOR_ALL:
            _note(found, what, value)
        elif what is Field.AGENT:
            ruled = set() if rules_ended else ruled
            delayed = set() if delays_ended else delayed
            rules_ended = delays_ended = False
            if group := _named_group(found, value, token):
                group.named = True
                ruled.add(group)
                delayed.add(group)
        elif what is Field.CRAWL_DELAY:
            delays_ended = True
            for group in delayed:
                group.add_delay(value)
        else:
            rules_ended = delays_ended = True
            for group in ruled:
                group.add_rule(Line(number, what is Field.ALLOW, canonical_pattern(value)))
    return found


def _named_group(found: RobotsText, value: bytes, token: bytes) -> Group | None:
    if value[:1] == b"*" and not value[1:2].strip():
        return found.everyone
    return found.ours if token and _leading_token(value) == token else None


def _note(found: RobotsText, what: Field, value: bytes) -> None:
    text = value.decode("utf-8", "replace")
    if what is Field.HOST:
        found.preferred_host = text
    elif text:
        found.sitemaps.append(text)


def split_line(line: bytes) -> tuple[Field | None, bytes]:
    """Field and value of a line. The colon may be missing if the value is one word."""
    text = line.partition(b"#")[0].strip()
    name, colon, value = text.partition(b":")
    if not colon:
        words = text.split(None, 2)
        if len(words) != 2:
            return None, b""
        name, value = words
    return FIELDS.get(name.strip().lower()), value.strip()


def product_token(agent: str) -> bytes:
    """What a User-agent line must say to mean *agent*: the name, without its version."""
    return agent.partition("/")[0].strip().lower().encode("utf-8", "replace")


def _leading_token(value: bytes) -> bytes:
    # Up to the first character no product token may have: "FooBot/2.1" and "FooBot*" mean FooBot.
    token = _token.match(value)
    return token[0].lower() if token else b""


def canonical(text: bytes) -> bytes:
    """A path or a piece of a pattern in the one spelling that is compared: escapes of
    unreserved characters decoded, all that is neither reserved nor unreserved escaped."""
    return text if _is_canonical(text) else _odd.sub(_respell, text)


def _respell(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    if len(odd) == 3:
        plain = bytes((int(odd[1:], 16),))
        return plain if _is_unreserved(plain) else odd.upper()
    return odd if odd == b"%" else b"%%%02X" % odd[0]


def canonical_pattern(value: bytes) -> bytes:
    """The same for a pattern: "*" stays, and so does "$", but only at its end."""
    if _is_canonical(value):
        return value
    text = value.removesuffix(b"$")
    end = value[len(text) :]
    if b"**" in text:
        text = re.sub(rb"\*+", b"*", text)
    return b"*".join(canonical(piece) for piece in text.split(b"*")) + end
