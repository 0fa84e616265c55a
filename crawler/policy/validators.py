"""Validators of an answer (RFC 9110, 8.8 and 13.1): by what a server is asked whether a page has
changed, and whether it is worth to ask.

Rule: pure. What a server says is not believed for ever: of the visits of a page each eighth asks
for the page itself, and what that finds is counted for its host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from crawler.model.types import ConditionalVisits, PageHistory, VisitCheck

MAX_BYTES: Final = 128
"""Of an ETag that is kept: longer ones are as long as what they are for."""
_is_etag = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]+"').fullmatch
# Apache ends ETags so when it compresses an answer, and compares what it is asked by with the ETag
# of the file (bugs 39727 and 45023, in 2.4.68 still): without that it never answers 304.
_is_packed = re.compile(r'((?:W/)?"[^"]+)-(?:gzip|br|zstd)"').fullmatch
_is_printable = re.compile(rb"[\x20-\x7e]{1,64}").fullmatch
_FUTURE_S: Final = 60.0  # by which the clock of a server may be ahead
_OLDEST: Final = 631_152_000.0
"""1990, before the web. Files of reproducible images are dated 1970 or 1980, whatever is in
them."""

AUDIT_EVERY: Final = 8
"""Visits of a page, of which one asks for the page itself. Guess: an eighth of what 304s save."""
# Changes that must have been denied, and how much more often than those that were found by asking.
# Of 2,000 honest hosts without dates, at 1 to 60 changes in 100 visits, 2 were taken for ones that
# deny in 5,000 visits; with 4 and 4 it were 35. Those that deny all were found after 70 to 2,300.
_DENIED: Final = 8
_TIMES: Final = 4
_REPEATED: Final = 8  # pages sent again, at least, and for each 304
_MOST: Final = 1_000  # visits that are counted; then the older ones count half


class ConditionFault(StrEnum):
    """How the answers of a host to conditional requests are false or useless."""

    NONE = ""
    DENIES = "denies"  # it says of pages that have changed that they have not: it is not asked
    REPEATS = "repeats"  # it sends pages that have not changed; it is still asked, at no cost

    @property
    def words(self) -> str:
        """What stands behind the name of the host in a message: the fault, and its effect."""
        return _WORDS[self]


_WORDS: Final = {
    ConditionFault.NONE: "",
    ConditionFault.DENIES: "says of pages that have changed that they have not: it is not asked",
    ConditionFault.REPEATS: "sends pages again that have not changed: to ask it saves nothing yet",
}


def validators_of(headers: Iterable[tuple[bytes, bytes]], at: float) -> str | None:
    """Return the validators of an answer with *headers*, fetched *at* that time, or None. None are
    an ETag that is wrongly quoted, empty or long, and a date in the future or before the web; nor
    several that differ, as caches take one and servers another."""
    etags: set[bytes] = set()
    dates: set[bytes] = set()
    for name, value in headers:
        match name.lower():
            case b"etag":
                etags.add(value)
            case b"last-modified":
                dates.add(value)
    etag = etags.pop() if len(etags) == 1 else b""
    modified = dates.pop() if len(dates) == 1 else b""
    if len(etag) > MAX_BYTES or not _is_etag(etag):
        etag = b""
    changed_at = _date(modified)
    if changed_at is None or not _OLDEST <= changed_at <= at + _FUTURE_S:
        modified = b""
    if not etag and not modified:
        return None
    return f"{etag.decode('latin-1')}\n{modified.decode('latin-1')}"


def conditions(validators: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request that asks for the page only if it has changed."""
    etag, _, modified = validators.partition("\n")
    if (packed := _is_packed(etag)) is not None:
        etag = f'{etag}, {packed[1]}"'
    asked = ((b"If-None-Match", etag), (b"If-Modified-Since", modified))
    return [(name, value.encode("latin-1")) for name, value in asked if value]


def modified_at(validators: str | None) -> float | None:
    """Return the Last-Modified in *validators*, in epoch seconds, or None."""
    return _date((validators or "").partition("\n")[2].encode("latin-1"))


def _date(value: bytes) -> float | None:
    if not _is_printable(value):
        return None
    try:
        date = parsedate_to_datetime(value.decode("ascii"))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def validators_to_send(
    history: PageHistory | None, key: int, visits: ConditionalVisits
) -> str | None:
    """Return the validators with which the page with that *history* and URL *key* is asked for, or
    None if the page itself is. *visits*: of its host."""
    if history is None or history.validators is None:
        return None
    is_audit = (history.visits + key) % AUDIT_EVERY == 0
    is_denied = fault_of(visits) is ConditionFault.DENIES
    return None if is_audit or is_denied else history.validators


def fault_of(visits: ConditionalVisits) -> ConditionFault:
    """Return what is wrong with how a host answers whether pages have changed.

    That an audit finds a change which the last 304 denied proves little where the server gives no
    date: the page may have changed since. But then visits that ask find as many."""
    asked = visits.unmodified + visits.changed + visits.repeated
    if visits.denied >= _DENIED:
        # Both shares with one more than was seen, as few visits say little.
        found = (visits.changed + 1) / (asked + 1)
        if visits.denied > _TIMES * found * visits.audits:
            return ConditionFault.DENIES
    if visits.repeated >= _REPEATED * max(visits.unmodified, 1):
        return ConditionFault.REPEATS
    return ConditionFault.NONE


def check_of(
    before: PageHistory,
    visits: ConditionalVisits,
    *,
    is_asked: bool,
    is_changed: bool | None,
    is_same: bool,
    validators: str | None,
) -> VisitCheck:
    """Return what a visit in which the page itself came says of its host. *before*: the history of
    the page; *is_asked*: whether the visit asked if it has changed; *is_same*: whether the very
    bytes came again; *validators*: of the answer."""
    if is_changed is None:
        return VisitCheck.NONE
    if is_asked and is_changed:
        return VisitCheck.CHANGED
    if is_asked:
        # Other bytes with the same text had to be sent: a date in a footer, a site that was built
        # anew. Of five real documentations nearly all pages were so after an update.
        is_repeat = is_same or validators == before.validators
        return VisitCheck.REPEATED if is_repeat else VisitCheck.NONE
    was_said_unmodified = before.visited_at > before.changed_at and before.validators is not None
    if not was_said_unmodified or fault_of(visits) is ConditionFault.DENIES:
        return VisitCheck.NONE
    changed_at = modified_at(validators)
    is_denied = is_changed and (changed_at is None or changed_at <= before.visited_at)
    return VisitCheck.DENIED if is_denied else VisitCheck.AUDITED


def noted(visits: ConditionalVisits, check: VisitCheck) -> ConditionalVisits:
    """Return *visits* of a host with one more."""
    match check:
        case VisitCheck.NONE:
            return visits
        case VisitCheck.UNMODIFIED:
            visits = replace(visits, unmodified=visits.unmodified + 1)
        case VisitCheck.CHANGED:
            visits = replace(visits, changed=visits.changed + 1)
        case VisitCheck.REPEATED:
            visits = replace(visits, repeated=visits.repeated + 1)
        case VisitCheck.AUDITED:
            visits = replace(visits, audits=visits.audits + 1)
        case VisitCheck.DENIED:
            visits = replace(visits, audits=visits.audits + 1, denied=visits.denied + 1)
    counts = (visits.unmodified, visits.changed, visits.repeated, visits.audits, visits.denied)
    if sum(counts) <= _MOST:
        return visits
    return ConditionalVisits(*(count // 2 for count in counts))
