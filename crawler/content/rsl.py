"""Reads RSL 1.0, the licences of Really Simple Licensing: an XML document, or a feed with such
elements.

Rule: what it declares is read, never what it refers to. Bytes, depth and elements are bounded; a
document with entities of its own, or with more than the bounds, is Unreadable as a whole: half a
licence may allow more.
"""

from __future__ import annotations

from typing import Final
from xml.parsers import expat

from crawler.content.parsers.sitemap import as_utf_8
from crawler.model.page import Unreadable
from crawler.page.encodings import UTF_8
from crawler.policy.preferences import (
    MAX_STARS,
    RSL_USAGES,
    Licence,
    LicenceTerms,
    LicensedContent,
)

MAX_LICENCE_BYTES: Final = 1_000_000
_MAX_DEPTH: Final = 30  # one in a feed has ten
_MAX_ELEMENTS: Final = 50_000
_MAX_PARTS: Final = 1_000  # contents and licences; guess: each page is compared with all of them
_NAMESPACE: Final = "https://rslstandard.org/rsl "
_MAX_PAYMENTS: Final = 10  # types that are kept; if only two are free, any more say the same
_FREE: Final = "free"  # the default type of a payment


def read_licence(body: bytes) -> Licence:
    """Return what an RSL document says. Raises Unreadable."""
    if len(body) > MAX_LICENCE_BYTES:
        raise Unreadable(f"a licence of more than {MAX_LICENCE_BYTES} bytes")
    reader = _LicenceReader()
    try:
        # The last argument says that no more follows; without it an open element is no error.
        reader.xml.Parse(b"".join(as_utf_8(iter((body,)))), True)
    except expat.ExpatError as error:
        raise Unreadable(f"a licence that is no XML: {error}") from error
    if not reader.is_rsl:
        raise Unreadable("no licence of RSL")
    return Licence(tuple(reader.contents))


class _LicenceReader:
    """The state of reading one document."""

    def __init__(self) -> None:
        self.contents: list[LicensedContent] = []
        self.is_rsl = False
        self._depth = self._elements = self._parts = self._stars = 0
        self._content: LicensedContent | None = None
        self._terms: list[LicenceTerms] = []  # of the open content
        self._permits: set[str] = set()  # of the open licence, as the next three
        self._prohibits: set[str] = set()
        self._payments: set[str] = set()
        self._is_limited = False
        self._kind = ""  # the type of the open element, if it has words or is a payment
        self._words: list[str] = []
        self.xml = expat.ParserCreate(UTF_8, " ")  # a name is "namespace name"
        self.xml.buffer_text = True
        self.xml.StartElementHandler = self._begin
        self.xml.EndElementHandler = self._end
        self.xml.CharacterDataHandler = self._words.append
        self.xml.EntityDeclHandler = self._refuse

    def _refuse(self, *_entity: object) -> None:
        raise Unreadable("a licence that declares entities")

    def _begin(self, written: str, given: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _MAX_DEPTH or self._elements > _MAX_ELEMENTS:
            raise Unreadable("a licence with too many elements, or too deep")
        self._words.clear()
        match written.removeprefix(_NAMESPACE):
            case _ if not written.startswith(_NAMESPACE):
                pass
            case "rsl":
                self.is_rsl = True
            case "content":
                self.is_rsl = True
                needs_server = bool(given.get("server", "").strip())
                self._content = LicensedContent(given.get("url", "").strip(), needs_server)
                self._stars += self._content.url.count("*")
                if self._stars > MAX_STARS:
                    raise Unreadable(f"a licence with more than {MAX_STARS} * in its patterns")
                self._terms = []
            case "license":
                self._permits, self._prohibits, self._payments = set(), set(), set()
                self._is_limited = False
            case "permits" | "prohibits" | "payment":
                self._kind = given.get("type", "").strip().lower()
            case "standard" | "custom" | "amount" as terms:
                self._kind = self._kind or terms  # a payment without a type, but not for nothing

    def _end(self, written: str) -> None:
        self._depth -= 1
        match written.removeprefix(_NAMESPACE):
            case _ if not written.startswith(_NAMESPACE):
                pass
            case "content" | "license" if self._parts == _MAX_PARTS:
                raise Unreadable(f"a licence of more than {_MAX_PARTS} contents and licences")
            case "content" if self._content is not None:
                self._parts += 1
                self.contents.append(self._content._replace(terms=tuple(self._terms)))
                self._content = None
            case "license":
                self._parts += 1
                self._terms.append(
                    LicenceTerms(
                        frozenset(self._permits),
                        frozenset(self._prohibits),
                        frozenset(self._payments),
                        self._is_limited,
                    )
                )
            case "permits":
                self._take(self._permits)
            case "prohibits":
                self._take(self._prohibits)
            case "payment" if len(self._payments) < _MAX_PAYMENTS:
                self._payments.add(self._kind or _FREE)
        self._words.clear()

    def _take(self, usages: set[str]) -> None:
        if self._kind in ("user", "geo"):
            self._is_limited = True
        elif self._kind in ("usage", ""):
            words = "".join(self._words).replace(",", " ").lower().split()
            usages.update(RSL_USAGES.intersection(words))
