"""What a publisher says of the use of a page: reading it, from all sources, and combining it.

Rule: what is not said, or cannot be read, is unknown; of several statements about a use the most
restrictive counts. Nothing that is sent raises an error, and time is linear in it.

Of two uses: training of AI models, and search (the AIPREF vocabulary). What a source says of others
is ignored: `ai-input` of Content Signals and of RSL (a page as the input of a model when it
answers) is neither; `ai-index` is no search as AIPREF has it, which shows where a page is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

import http_sf
import msgspec

from crawler.model.choices import Preference, Use
from crawler.model.page import NO_PREFERENCES, Parsed, Preferences
from crawler.model.url import authority_of
from crawler.page.encodings import may_be_utf_16
from crawler.page.links import header_links
from crawler.page.media_type import RSL, media_type
from crawler.policy.robots import (
    RobotsRules,
    RobotsUsage,
    canonical_pattern,
    path_of,
    pattern_matches,
    product_token,
)

_ALLOW: Final = Preference.ALLOW
_DISALLOW: Final = Preference.DISALLOW
_UNKNOWN: Final = Preference.UNKNOWN

Said: TypeAlias = tuple[tuple[Use, Preference], ...]
"""The uses that something is said of, in the order of `Use`, each once; never UNKNOWN."""


# Where a statement stands, in the words of the column of sources.
ROBOTS_USAGE: Final = "robots.txt content-usage"
ROBOTS_SIGNAL: Final = "robots.txt content-signal"
USAGE_HEADER: Final = "content-usage"
SIGNAL_HEADER: Final = "content-signal"
RSL_LICENCE: Final = "rsl"
TDMREP_FILE: Final = "tdmrep.json"
TDM_HEADER: Final = "tdm-reservation"
TDM_META: Final = "meta tdm-reservation"
ROBOTS_HEADER: Final = "x-robots-tag"
ROBOTS_META: Final = "meta robots"


class Statement(NamedTuple):
    """What one source says of one use."""

    use: Use
    preference: Preference
    source: str


@lru_cache(maxsize=128)  # there are fewer that differ
def stated(said: Said, source: str) -> tuple[Statement, ...]:
    """Return *said* as statements of *source*."""
    return tuple(Statement(use, preference, source) for use, preference in said)


def combined(statements: Iterable[Statement]) -> Preferences:
    """Return what all *statements* say together: of a use that one disallows, that; else of one
    that is allowed, that (draft-ietf-aipref-attach)."""
    uses: dict[Use, Preference] = {}
    sources: dict[str, None] = {}
    for use, preference, source in statements:
        if preference is not _UNKNOWN:
            sources[source] = None
            uses[use] = _stricter(uses.get(use, _UNKNOWN), preference)
    if not uses:
        return NO_PREFERENCES
    train_ai, search = uses.get(Use.TRAIN_AI, _UNKNOWN), uses.get(Use.SEARCH, _UNKNOWN)
    return Preferences(train_ai, search, tuple(sources))


def _stricter(one: Preference, other: Preference) -> Preference:
    if _DISALLOW in (one, other):
        return _DISALLOW
    return _ALLOW if _ALLOW in (one, other) else _UNKNOWN


def _together(each: Iterable[tuple[Use, Preference]]) -> Said:
    uses = dict.fromkeys(Use, _UNKNOWN)
    for use, preference in each:
        uses[use] = _stricter(uses[use], preference)
    return tuple((use, said) for use, said in uses.items() if said is not _UNKNOWN)


# Content-Usage (draft-ietf-aipref-vocab-07, draft-ietf-aipref-attach) and Content-Signal.

# guess: a vocabulary of two words needs 22; a longer value costs more to parse than it can be worth
_MAX_VALUE_BYTES: Final = 2_048
_TOKENS: Final = {"y": _ALLOW, "n": _DISALLOW}
_WORDS: Final = {**_TOKENS, "yes": _ALLOW, "no": _DISALLOW}
_SIGNALS: Final = {"ai-train": Use.TRAIN_AI, "search": Use.SEARCH}
_signals = re.compile(
    r"(?<![\w-])(ai-train|search)\s*+=\s*+(yes|no|y|n)(?![\w-])", re.IGNORECASE | re.ASCII
).findall


@lru_cache(maxsize=2048)
def content_usage(value: str | bytes) -> Said:
    """Return what a Content-Usage says: a Dictionary of RFC 9651, in which only the tokens y and n
    count. A value that is none says nothing at all. Several header lines are to be joined with ", "
    first."""
    written = value.encode() if isinstance(value, str) else value
    if len(written) > _MAX_VALUE_BYTES:
        return ()
    try:
        parsed = http_sf.parse(written, tltype="dictionary")
    except ValueError:  # StructuredFieldError is one
        return ()
    members = cast("dict[str, tuple[object, object]]", parsed)  # a value, and its parameters
    return _together(
        (use, _TOKENS.get(str(member[0]), _UNKNOWN))
        for use in Use
        if (member := members.get(use.value)) and isinstance(member[0], http_sf.Token)
    )


@lru_cache(maxsize=2048)
def content_signal(value: str | bytes) -> Said:
    """Return what a Content-Signal says: `ai-train` and `search` with yes or no, wherever they
    stand, as no standard says what else may. `ai-input` is of neither use, and ignored."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    found = _signals(text[:_MAX_VALUE_BYTES])
    return _together((_SIGNALS[name.lower()], _WORDS[word.lower()]) for name, word in found)


def robots_usages(rules: RobotsRules, url: str) -> tuple[Statement, ...]:
    """Return what the robots.txt of *url* (a fetch form) says of its use, in the group that is for
    us. A URL that may not be fetched has none."""
    if not (rules.usages or rules.signals) or not rules.allowed(url):
        return ()
    path = path_of(url)
    usages = [content_usage(value) for value in _longest(rules.usages, path)]
    signals = [content_signal(value) for value in _longest(rules.signals, path)]
    return (*stated(_joined(usages), ROBOTS_USAGE), *stated(_joined(signals), ROBOTS_SIGNAL))


def _joined(each: list[Said]) -> Said:
    if len(each) <= 1:  # as of nearly every file
        return each[0] if each else ()
    return _together(pair for said in each for pair in said)


def _longest(uses: tuple[RobotsUsage, ...], path: bytes) -> Iterator[bytes]:
    """Yield the values of the longest patterns that match *path*."""
    length = 0
    for use in uses:  # the longest first
        if len(use.pattern) < length:
            return
        if pattern_matches(use.pattern, path):
            length = len(use.pattern)
            yield use.value


# Words for crawlers, in X-Robots-Tag headers and meta tags.

_NO_AI: Final = "noai"
# "name: value" is no word for the crawler of that name.
_WITH_VALUE: Final = frozenset(
    ("max-snippet", "max-image-preview", "max-video-preview", "unavailable_after")
)
_NO_TRAINING: Final[Said] = ((Use.TRAIN_AI, _DISALLOW),)


def robots_directives(values: Iterable[str], agent: str = "") -> Said:
    """Return what words for crawlers say to *agent*: `noai` (of DeviantArt) disallows training. A
    name before a word and those behind it means the crawler of that name, and no other.

    Not read: `noimageai` is about images; `noarchive` and `nocache`, by which Bing takes less of a
    page for its models, mean only that no copy is to be shown, on far more pages; `noindex` is what
    CRAWLER_RESPECT_NOINDEX and a column are for.
    """
    ours = product_token(agent).decode()
    for value in values:
        if _NO_AI not in value.lower():
            continue
        is_ours = True
        for written in value.lower().split(","):
            name, colon, word = written.partition(":")
            if not colon:
                word = name
            elif name.strip() not in _WITH_VALUE:
                named = product_token(name).decode()
                is_ours = named == "*" or (bool(ours) and named == ours)
            if is_ours and word.strip() == _NO_AI:
                return _NO_TRAINING
    return ()


# TDMRep (W3C Community Group, 2024): reservation of rights for text and data mining. The use that
# it is about here is training; finding pages is not what is reserved by it.

_MAX_TDMREP_BYTES: Final = 1_000_000
_MAX_TDMREP_RULES: Final = 1_000
MAX_STARS: Final = 10_000
"""Most "*" in the patterns of one file: 13 ms for one page; 500,000 take 0.6 s."""
_RESERVED: Final = {"1": _DISALLOW, "0": _ALLOW}


def tdm_reservation(value: str | bytes) -> Preference:
    """Return what a `tdm-reservation`, of a header or meta tag, says of training."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return _RESERVED.get(text.strip(), _UNKNOWN)


class TdmRule(NamedTuple):
    """One rule of a tdmrep.json: what it says of training on the pages at *location*."""

    location: str  # a path on the host, with the patterns of robots.txt, or a whole URL
    training: Preference


def read_tdmrep(body: bytes) -> tuple[TdmRule, ...]:
    """Return the rules of a /.well-known/tdmrep.json; what is none is left out. Rules that take
    too long to compare with a page say nothing."""
    given = _json(body, _MAX_TDMREP_BYTES)
    rules = tuple(
        TdmRule(rule["location"], _reserved(rule.get("tdm-reservation")))
        for rule in (given[:_MAX_TDMREP_RULES] if isinstance(given, list) else ())
        if isinstance(rule, dict) and isinstance(rule.get("location"), str)
    )
    return rules if sum(rule.location.count("*") for rule in rules) <= MAX_STARS else ()


def _reserved(given: object) -> Preference:
    is_word = isinstance(given, str) or type(given) is int  # True is another int
    return _RESERVED.get(str(given), _UNKNOWN) if is_word else _UNKNOWN


def tdmrep(rules: Iterable[TdmRule], url: str) -> Preference:
    """Return what the rules of a tdmrep.json say of training on the page at *url*: the first that
    matches, with patterns as in a robots.txt. The spec calls it the most specific one."""
    path = path_of(url)
    for rule in rules:
        pattern = _pattern(rule.location, url)
        if pattern is not None and pattern_matches(pattern, path):
            return rule.training
    return _UNKNOWN


def _json(body: bytes, most_bytes: int) -> object:
    if len(body) > most_bytes:
        return None
    try:
        found: object = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found


def _pattern(written: str, url: str) -> bytes | None:
    """Return the pattern of paths on the host of *url* that *written* is: a path, or a whole URL.
    None: it is for another host, or no pattern."""
    if not written.startswith(("/", "*")):
        authority = authority_of(url)
        if written[: len(authority)].lower() != authority.lower():
            return None
        written = written[len(authority) :] or "/"
        if written[0] not in "/?*":
            return None
    return canonical_pattern(written.encode(errors="replace"))


# RSL 1.0 (rslstandard.org). Its documents are read by `crawler/content/rsl.py`.

FREE_PAYMENTS: Final = frozenset(("free", "attribution"))
# "train-ai" is what drafts called it, and what the standard's own templates still say.
_OF_RSL: Final = {
    "all": (Use.TRAIN_AI, Use.SEARCH),
    "ai-all": (Use.TRAIN_AI,),
    "ai-train": (Use.TRAIN_AI,),
    "train-ai": (Use.TRAIN_AI,),
    "search": (Use.SEARCH,),
}
RSL_USAGES: Final = frozenset((*_OF_RSL, "ai-input", "ai-index"))


class LicenceTerms(NamedTuple):
    """One <license> of an RSL document. Words are in lower case."""

    permits: frozenset[str] = frozenset()  # usages
    prohibits: frozenset[str] = frozenset()
    payments: frozenset[str] = frozenset()  # types; "free" where one has no type and no terms
    is_limited: bool = False  # to some users or countries


class LicensedContent(NamedTuple):
    """One <content> of an RSL document: what is licensed, and how."""

    url: str  # a path on the host, with the patterns of robots.txt, or a whole URL
    needs_server: bool = False  # a licence is to be obtained of a server first
    terms: tuple[LicenceTerms, ...] = ()


class Licence(NamedTuple):
    """An RSL document."""

    contents: tuple[LicensedContent, ...] = ()


def licensed(permits: Iterable[str], prohibits: Iterable[str]) -> Said:
    """Return what usages of RSL say, in the words of AIPREF. A usage that is neither permitted nor
    prohibited is unknown, as is `ai-input` and `ai-index`."""
    return _together(
        (use, preference)
        for usages, preference in ((permits, _ALLOW), (prohibits, _DISALLOW))
        for usage in usages
        for use in _OF_RSL.get(usage, ())
    )


def licence_says(licence: Licence, url: str) -> tuple[Statement, ...]:
    """Return what *licence* says of the page at *url*: the contents with the longest pattern that
    matches.

    A use that is permitted for a payment, or by a server that gives licences, is disallowed: a
    crawl has neither. Attribution is left to those who use the data. What only some users or
    countries may do is unknown, as nothing says which the user of the data will be.
    """
    path, length = path_of(url), 0
    best: list[LicensedContent] = []
    for content in licence.contents:
        pattern = _pattern(content.url, url)
        if pattern is None or len(pattern) < length or not pattern_matches(pattern, path):
            continue
        if len(pattern) > length:
            length, best = len(pattern), []
        best.append(content)
    said = _together(
        each for content in best for terms in content.terms for each in _terms(content, terms)
    )
    return stated(said, RSL_LICENCE)


def _terms(content: LicensedContent, terms: LicenceTerms) -> Said:
    is_free = not content.needs_server and terms.payments <= FREE_PAYMENTS
    if not is_free:
        return licensed((), terms.permits | terms.prohibits)
    return licensed(() if terms.is_limited else terms.permits, terms.prohibits)


# What an answer and a page say.

_HEADERS: Final = {
    b"content-usage": USAGE_HEADER,
    b"content-signal": SIGNAL_HEADER,
    b"tdm-reservation": TDM_HEADER,
    b"x-robots-tag": ROBOTS_HEADER,
}


def of_answer(headers: Sequence[tuple[bytes, bytes]], agent: str) -> tuple[Statement, ...]:
    """Return what the header lines of an answer say, in an order of their own, to *agent*, a
    product token. Without any: 1 us."""
    if _HEADERS.keys().isdisjoint([name.lower() for name, _ in headers]):
        return ()
    values: dict[str, list[bytes]] = {}
    for name, value in headers:
        if source := _HEADERS.get(name.lower()):
            values.setdefault(source, []).append(value)
    return tuple(
        statement
        for source in _HEADERS.values()
        if source in values
        for statement in stated(_header_says(source, values[source], agent), source)
    )


def _header_says(source: str, values: list[bytes], agent: str) -> Said:
    if source is ROBOTS_HEADER:
        return robots_directives((value.decode("latin-1") for value in values), agent)
    if source is TDM_HEADER:
        return _together((Use.TRAIN_AI, tdm_reservation(value)) for value in values)
    joined = b", ".join(values)
    return content_usage(joined) if source is USAGE_HEADER else content_signal(joined)


_in_page = re.compile(rb"noai|tdm-reservation|rsl\+xml", re.IGNORECASE).search


def may_state_preference(body: bytes) -> bool:
    """Return whether an HTML page may say something itself: it has one of the words, or is in
    UTF-16."""
    return may_be_utf_16(body) or _in_page(body) is not None


def of_page(parsed: Parsed) -> tuple[Statement, ...]:
    """Return what a page itself says. Its parser has left words for other crawlers out, but
    `Parsed.robots` must not have those of headers yet (`with_headers`)."""
    if not parsed.tdm and not parsed.robots:
        return ()
    reserved = _together([(Use.TRAIN_AI, tdm_reservation(parsed.tdm))])
    return (
        *stated(reserved, TDM_META),
        *stated(robots_directives(parsed.robots), ROBOTS_META),
    )


_MAX_LICENCE_LINKS: Final = 10  # guess: each is fetched


def licence_links(headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Return the URLs of RSL documents that Link headers name, as written, each once."""
    found: dict[str, None] = {}
    for name, value in headers:
        # Few Link headers name a licence.
        if name.lower() != b"link" or b"rsl+xml" not in value.lower():
            continue
        for target, parameters in header_links(value):
            is_licence = "license" in parameters.get("rel", "").lower().split()
            kind = media_type(parameters.get("type", "").encode("latin-1", "replace"))
            if target and is_licence and kind == RSL and "anchor" not in parameters:
                found[target] = None
    return tuple(found)[:_MAX_LICENCE_LINKS]


# The price of a page, of an answer with the status 402.

_MAX_PRICE_BODY_BYTES: Final = 64 * 1024  # an x402 body has some hundred bytes
_price = re.compile(rb"\s*([A-Za-z]{3,5})\s+([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*").fullmatch
_amount = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,18})?").fullmatch
_currency = re.compile(r"[\w.$-]{1,64}", re.ASCII).fullmatch


def price_asked(headers: Sequence[tuple[bytes, bytes]], body: bytes) -> str:
    """Return the price that a 402 names: "USD 0.01" of a `crawler-price` header (Cloudflare's pay
    per crawl), or the first offer of an x402 body, in the smallest unit of its asset: "10000 USDC
    (x402)". Returns "" where it names none that can be read."""
    for name, value in headers:
        if name.lower() == b"crawler-price" and (found := _price(value)):
            return f"{found[1].decode().upper()} {found[2].decode()}"
    asked = _json(body, _MAX_PRICE_BODY_BYTES)
    accepts = asked.get("accepts") if isinstance(asked, dict) else None
    offer = accepts[0] if isinstance(accepts, list) and accepts else None
    if not isinstance(offer, dict):
        return ""
    amount = _word(offer.get("maxAmountRequired", offer.get("amount")), _amount)
    extra = offer.get("extra")
    names = (
        offer.get("currency"),
        extra.get("name") if isinstance(extra, dict) else None,
        offer.get("asset"),
    )
    currency = next(filter(None, (_word(name, _currency) for name in names)), "")
    return f"{' '.join(filter(None, (amount, currency)))} (x402)" if amount else ""


def _word(given: object, matches: Callable[[str], re.Match[str] | None]) -> str:
    text = str(given) if isinstance(given, str) or type(given) is int else ""
    return text if matches(text) else ""
