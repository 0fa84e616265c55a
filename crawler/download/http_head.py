"""Collect the head of an answer, limit its size, and repair it where a parser would reject it.

Rule: no I/O. The archive gets the head as sent, the parser the repaired one. Only what browsers
accept is repaired; what they refuse (RFC 9112 6.3: lengths that disagree) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

MAX_INTERIM: Final = 16  # guess: 100, 102 and 103 answers before the real one
MAX_DIGITS: Final = 18  # of a length: 64 bits hold as many
MAX_LINES: Final = 1_000  # guess: sites with hundreds of Set-Cookie lines exist
SWITCHING: Final = b"101"
PROTOCOL: Final = b"HTTP/"

_LINE_END: Final = re.compile(rb"\r?\n")
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")  # obsolete line folding, RFC 9112 5.2
_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+([1-9]\d\d)(?:[ \t]+(.*))?", re.S)
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~\w-]+")
_FRAMING: Final = re.compile(rb"\n(?:content-length|transfer-encoding):[ \t]*([^\r\n]*)", re.I)
_PLAIN_FRAMING: Final = re.compile(rb"(?:\d{1,18}|chunked)[ \t]*", re.I)
_CLEAN: Final = re.compile(
    rb"HTTP/1\.[01] [1-9]\d\d(?: [^\r\n\0]*+)?\r\n(?:[!#$%&'*+.^_`|~\w-]++:[^\r\n\0]*+\r\n)*+\r\n"
)
_CONNECTION: Final = re.compile(rb"\n(?i:connection):[ \t]*([^\r\n]*)")
_LENGTH: Final = b"content-length"
_TRANSFER: Final = b"transfer-encoding"
_CHUNKED: Final = b"chunked"

Field = tuple[bytes, bytes]


class BadHead(ValueError):
    """The head is malformed in a way that browsers refuse too, or over a limit."""


class AnswerHead(NamedTuple):
    """The head of an answer."""

    raw: bytes  # as sent
    clean: bytes  # as a parser may see it
    status: int
    taken_bytes: int  # of it, and of the empty lines and interim answers before it

    @property
    def framing(self) -> bytes:
        """How a body that follows this head ends: `chunked`, its length in digits, or, if empty,
        with the connection."""
        found = _FRAMING.search(self.clean)
        return found[1].strip(b" \t").lower() if found else b""

    @property
    def is_surely_framed(self) -> bool:
        """Whether all readers of this head find the same end of its body. If not, the connection is
        not used again: the head had to be mended, as one with chunks beside a length or twice, or
        has a Transfer-Encoding of HTTP/1.0 (RFC 9112, 6.1), or a body where none is (RFC 9110, 8.6:
        only a 304 may have a length)."""
        if self.clean != self.raw:
            return False
        if self.status == 204:
            return self.framing in (b"", b"0")
        is_odd = self.status == 304 or self.raw.startswith(b"HTTP/1.0")
        return not (is_odd and self.framing == _CHUNKED)

    @property
    def keeps_connection(self) -> bool:
        """Whether the server says that the connection may be used again."""
        options = b",".join(_CONNECTION.findall(self.clean)).lower()
        if b"close" in options:
            return False
        return b"keep-alive" in options or not self.clean.startswith(b"HTTP/1.0")


class HeadGate:
    """Collects the bytes before the body of one answer. Each is searched once and copied twice; at
    most *max_bytes* are held."""

    __slots__ = ("_held", "_interim", "_max_bytes", "_taken", "head")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._interim = 0
        self._taken = 0  # bytes: empty lines, interim answers and the head itself
        self.head: AnswerHead | None = None  # once it is whole

    @property
    def is_untouched(self) -> bool:
        """Whether no byte has come."""
        return not (self._held or self._taken)

    def feed(self, data: bytes) -> bytes:
        """Take bytes, and return those after the head, if that is whole."""
        held = self._held
        start = max(0, len(held) - 2)  # an end may straddle two reads
        held += data
        while self.head is None:
            self._refuse_other_protocols()
            end = _end_of_head(held, start)
            self._refuse_too_long(end or len(held))
            if not end:
                return b""
            self._take(bytes(held[:end]))
            del held[:end]
            start = 0
        body = bytes(held)
        held.clear()  # the gate lives as long as its answer, and the first read may be 256 KB
        return body

    def _refuse_other_protocols(self) -> None:
        held = self._held
        if held.startswith((b"\r", b"\n")):  # empty lines before an answer: RFC 9112 2.2
            rest = held.lstrip(b"\r\n")
            self._taken += len(held) - len(rest)
            held[:] = rest
        if held[: len(PROTOCOL)] != PROTOCOL[: len(held)]:
            raise BadHead(f"begins with {bytes(held[:16])!r}")

    def _refuse_too_long(self, head_bytes: int) -> None:
        if self._taken + head_bytes > self._max_bytes:
            raise BadHead(f"longer than {self._max_bytes} bytes")

    def _take(self, raw: bytes) -> None:
        self._taken += len(raw)
        clean = repair_head(raw)
        status = clean[9:12]
        if status == SWITCHING:
            raise BadHead("switches protocols unasked")
        if not status.startswith(b"1"):
            self.head = AnswerHead(raw, clean, int(status), self._taken)
        elif self._interim == MAX_INTERIM:
            raise BadHead(f"more than {MAX_INTERIM} interim answers")
        else:
            self._interim += 1


def repair_head(raw: bytes) -> bytes:
    """Return *raw* if it is well-formed, otherwise the repaired head. Raises BadHead."""
    if raw.count(b"\n") > MAX_LINES:
        raise BadHead(f"more than {MAX_LINES} lines")
    if _CLEAN.fullmatch(raw) and _is_plainly_framed(raw):
        return raw
    first, *others = _LINE_END.split(_FOLD.sub(b" ", raw))
    fields = _reframed(list(_mended_fields(others)))
    return b"\r\n".join((_mended_status(first), *(b"%s: %s" % each for each in fields), b"", b""))


def _end_of_head(held: bytearray, start: int) -> int:
    """Return where the body begins, or 0 if the head is not whole. Lines may end in bare LF."""
    crlf = held.find(b"\n\r\n", start)
    bare = held.find(b"\n\n", start, len(held) if crlf < 0 else crlf + 1)
    if bare >= 0:
        return bare + 2
    return 0 if crlf < 0 else crlf + 3


def _is_plainly_framed(raw: bytes) -> bool:
    framing = _FRAMING.findall(raw)
    return not framing or (len(framing) == 1 and bool(_PLAIN_FRAMING.fullmatch(framing[0])))


def _mended_status(line: bytes) -> bytes:
    match = _STATUS.fullmatch(line)
    if not match:
        raise BadHead(f"status line {line[:80]!r}")
    code, reason = match.groups(b"")
    # HTTP/1.0 keeps its meaning (close when done); a claim of 2 or 3 cannot be true here.
    version = b"1.0" if line.startswith(b"HTTP/1.0") else b"1.1"
    return b"HTTP/%s %s %s" % (version, code, _one_line(reason))


def _mended_fields(lines: Iterable[bytes]) -> Iterator[Field]:
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        if colon and _TOKEN.fullmatch(name):
            yield name, _one_line(value.strip(b" \t"))


def _one_line(value: bytes) -> bytes:
    """Replace CR and NUL by a space. RFC 9110 5.5: refuse them within a value, or do this."""
    return value.replace(b"\0", b" ").replace(b"\r", b" ")


def _reframed(fields: list[Field]) -> list[Field]:
    """Leave one field at most that frames the body; without one it ends with the connection."""
    others = [field for field in fields if field[0].lower() not in (_LENGTH, _TRANSFER)]
    codings = _listed(value.lower() for name, value in fields if name.lower() == _TRANSFER)
    codings = [coding for coding in codings if coding not in (b"", b"identity")]
    if codings:  # they override a length: RFC 9112 6.3
        return [*others, (b"Transfer-Encoding", _CHUNKED)] if codings[-1] == _CHUNKED else others
    length = _agreed_length(_listed(value for name, value in fields if name.lower() == _LENGTH))
    return others if length is None else [*others, (b"Content-Length", b"%d" % length)]


def _listed(values: Iterable[bytes]) -> list[bytes]:
    """Return the members of the lists *values*. White space is no more than a space or a tab: what
    bytes.strip() takes for it, other readers do not."""
    return [member.strip(b" \t") for value in values for member in value.split(b",")]


def _agreed_length(numbers: Sequence[bytes]) -> int | None:
    """Return the length that all *numbers* are, or None if one of them is no length. Raises
    BadHead."""
    lengths = {number.lstrip(b"0") or b"0" for number in numbers if number.isdigit()}
    if len(lengths) > 1:
        raise BadHead(f"lengths that disagree: {b', '.join(numbers)[:80]!r}")
    if not lengths or not all(map(bytes.isdigit, numbers)):
        return None
    length = lengths.pop()
    return int(length) if len(length) <= MAX_DIGITS else None
