"""What went wrong with a fetch, in the words of politeness.

Rule: an error of the network or of a library becomes one of Scrapy's own exceptions at this
border, so that users' errbacks and middlewares know it; what Scrapy has no word for is a
subclass here. `error_of` is the only reader of their meaning.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)


class LeaseEnded(IgnoreRequest):
    """Its host was not asked: that is another's turn now, or soon. No word about either."""

    def __init__(self) -> None:
        super().__init__("its lease has ended")


class ConnectionDropped(DownloadFailedError):
    """Connected, and then dropped before or amid the head of an answer."""


class TlsFailed(DownloadFailedError):
    """No trustworthy TLS connection: a wrong certificate, or no common version."""


WORDS: Final = MappingProxyType(
    {
        "broken": "error in a callback or pipeline",
        "connect": "no connection",
        "disconnect": "left amid the answer",
        "dns": "name not found",
        "redirects": "redirects without an end",
        "robots_unreachable": "robots.txt unreachable",
        "tls": "no trustworthy TLS connection",
    }
)
"""Kinds of errors as a person reads them, where the kind itself says too little."""

_ERRORS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (DownloadTimeoutError, "timeout"),
    (CannotResolveHostError, "dns"),
    (DownloadConnectionRefusedError, "connect"),
    (ConnectionDropped, "disconnect"),
    (TlsFailed, "tls"),
    (DownloadFailedError, "protocol"),
    (DownloadCancelledError, "cancelled"),
    (TimeoutError, "timeout"),
    (OSError, "connect"),
)
"""First match counts."""


def error_of(exception: BaseException) -> str:
    """One of the words of `Answer.error`. Empty: the host has no part in it."""
    return next((word for kind, word in _ERRORS if isinstance(exception, kind)), "")


def words_of(kind: str) -> str:
    """A kind of error as a person reads it: `status_503` is "status 503"."""
    return WORDS.get(kind, kind.replace("_", " "))
