"""Sorts the links of a page and judges their URLs, compiled: each in one pass over all of them.

Rule: what is not plain beyond doubt is left to `fetch_form` and to the rules of admission, so the
answers are theirs. In *texts*, each text ends with a 0, which no other may hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_letters, digits
from typing import Any, Final

import numpy as np

from crawler.model.compiled import compiled, compiled_part, is_compiled

# Kinds of links, by what `fetch_form` makes of what precedes their "#".
OTHER: Final = 0
WHOLE: Final = 1  # nothing else, if what precedes its path is plain too
ROOTED: Final = 2  # it adds what precedes the path of the base
BELOW: Final = 3  # it adds the directory of the base; BELOW and n: that n levels up, for n "../"
WITH_FRAGMENT: Final = 128  # and one of the above but OTHER: it has a "#"

_MAX_AUTHORITY: Final = 300  # longer ones hold no host name

# The bits of a byte of a URL.
_KEPT: Final = 1  # ada leaves it as it is, in a path and in a query
_COMPARED: Final = 2  # in a path, so do the rules by which URLs are compared
_ALIKE: Final = ascii_letters + digits
_MARKS: Final = np.array(
    [
        (chr(code) in _ALIKE + "!$%&()*+,-.;=@_~") * _KEPT
        | (chr(code) in _ALIKE + "-._~!$&'()*+,;:@") * _COMPARED
        for code in range(256)
    ],
    np.int64,
)
_SLASH, _COLON, _DOT, _PERCENT, _QUESTION, _NUMBER_SIGN, _DASH = map(ord, "/:.%?#-")
_H, _T, _P, _S, _ZERO, _ONE, _TWO, _NINE = map(ord, "htps0129")
_HASH: Final = 4095


@compiled_part
def _scheme_end(texts, at):
    """Return the end of "http://" or "https://", or *at*."""
    if texts[at] != _H or texts[at + 1] != _T or texts[at + 2] != _T or texts[at + 3] != _P:
        return at
    end = at + 5 if texts[at + 4] == _S else at + 4
    if texts[end] != _COLON or texts[end + 1] != _SLASH or texts[end + 2] != _SLASH:
        return at
    return end + 3


@compiled_part
def _kind(texts, begin):
    """Return the kind of the link at *begin*, and a place up to which it is read."""
    at = _scheme_end(texts, begin)
    if at > begin:
        kind = WHOLE
        name = at
        while texts[at] != _SLASH and texts[at] != _NUMBER_SIGN and texts[at] != 0:
            at += 1
        if at == name or texts[at] != _SLASH or at - begin > _MAX_AUTHORITY:
            return OTHER, at
    elif texts[at] == _SLASH:
        kind = ROOTED
        if texts[at + 1] == _SLASH:
            return OTHER, at
    else:
        kind = BELOW
        while texts[at] == _DOT and texts[at + 1] == _DOT and texts[at + 2] == _SLASH:
            kind += 1
            at += 3
        if kind >= WITH_FRAGMENT or not _MARKS[texts[at]] & _KEPT:
            return OTHER, at
    begins_segment = kind >= BELOW
    may_be_scheme = kind >= BELOW  # what precedes a ":"
    in_query = False
    while texts[at] != 0 and texts[at] != _NUMBER_SIGN:
        code = texts[at]
        if _MARKS[code] & _KEPT:
            # A segment that begins with a dot, or with "%2e", may be a dot segment.
            if begins_segment and (code == _DOT or (code == _PERCENT and texts[at + 1] == _TWO)):
                return OTHER, at
            begins_segment = False
        elif code == _SLASH:
            begins_segment = not in_query
            may_be_scheme = False
        elif code == _QUESTION:
            in_query = True
            begins_segment = may_be_scheme = False
        elif code == _COLON and not may_be_scheme:
            begins_segment = False
        else:
            return OTHER, at
        at += 1
    return kind | WITH_FRAGMENT if texts[at] == _NUMBER_SIGN else kind, at


@compiled_part
def _next_text(texts, at):
    """Return where the text after that at *at* begins."""
    while texts[at] != 0:
        at += 1
    return at + 1


@compiled
def sort_links(texts, kinds):
    """Fill *kinds* with those of the links in *texts*, and return how many links there are. There
    may be more than have room."""
    at = count = 0
    while at < len(texts):
        kind, at = _kind(texts, at)
        if count < len(kinds):
            kinds[count] = kind
        count += 1
        at = _next_text(texts, at)
    return count


@compiled_part
def _is_year(texts, end):
    """Return whether there are a slash and a year of four digits before *end*."""
    return (
        texts[end - 5] == _SLASH
        and _ONE <= texts[end - 4] <= _TWO
        and _ZERO <= texts[end - 3] <= _NINE
        and _ZERO <= texts[end - 2] <= _NINE
        and _ZERO <= texts[end - 1] <= _NINE
    )


@compiled_part
def _is_plain(texts, begin, max_chars, max_segments, denied):
    """Return whether the URL at *begin* is plain, and a place up to which it is read."""
    at = _scheme_end(texts, begin)
    if at == begin:
        return False, at
    while texts[at] != _SLASH and texts[at] != _COLON and texts[at] != 0:
        at += 1
    if texts[at - 1] == _DOT:
        return False, at
    if texts[at] == _COLON:
        at += 1
        while _ZERO <= texts[at] <= _NINE:
            at += 1
    if texts[at] != _SLASH:
        return False, at
    path = at
    segments, file_type = 0, -1  # the hash of what follows the last dot of the last segment
    while texts[at] != 0:
        code = int(texts[at])
        # A year before "/" or "-" may be one of a calendar.
        if (code == _DASH or code == _SLASH) and at - path >= 5 and _is_year(texts, at):
            return False, at
        if code == _SLASH:
            segments += 1
            file_type = -1
        elif not _MARKS[code] & _COMPARED:
            return False, at
        elif code == _DOT:
            file_type = 0
        elif file_type >= 0:
            file_type = (file_type * 31 + (code | 32)) & _HASH
        at += 1
    is_short = at - begin <= max_chars and segments <= max_segments
    return is_short and not (file_type >= 0 and denied[file_type]), at


@compiled
def judge_urls(texts, max_chars, max_segments, denied, verdicts):
    """Fill *verdicts* with whether the URLs in *texts* are plain, and return how many URLs there
    are. There may be more than have room."""
    at = count = 0
    while at < len(texts):
        is_plain, at = _is_plain(texts, at, max_chars, max_segments, denied)
        if count < len(verdicts):
            verdicts[count] = is_plain
        count += 1
        at = _next_text(texts, at)
    return count


def kinds_of(links: Sequence[str]) -> bytes:
    """Return the kind of each of *links*, as written."""
    kinds = _zeros(len(links))
    # If a link holds a 0, it is not known which kind is whose.
    return bytes(kinds if sort_links(_in_one(links), kinds) == len(links) else len(links))


class PlainUrls:
    """The limits up to which URLs are plain: no rule but those about hosts can refuse them, and
    they are their own canonical forms."""

    def __init__(self, max_chars: int, max_segments: int, denied_types: Collection[str]) -> None:
        self._max_chars, self._max_segments = max_chars, max_segments
        self._denied = _zeros(_HASH + 1)
        for name in denied_types:
            slot = 0
            for code in name.encode():
                slot = (slot * 31 + (code | 32)) & _HASH
            self._denied[slot] = 1  # what else has this slot is left to the rules

    def verdicts(self, urls: Sequence[str]) -> bytes:
        """Return for each of *urls*, fetch forms, whether it is plain."""
        found = _zeros(len(urls))
        count = judge_urls(_in_one(urls), self._max_chars, self._max_segments, self._denied, found)
        return bytes(found if count == len(urls) else len(urls))


def _in_one(texts: Sequence[str]) -> Any:
    # A half of a surrogate pair becomes bytes that are in no plain URL.
    joined = "\0".join((*texts, "")).encode(errors="surrogatepass")
    return np.frombuffer(joined, np.uint8) if is_compiled else joined


def _zeros(size: int) -> Any:
    return np.zeros(size, np.uint8) if is_compiled else bytearray(size)
