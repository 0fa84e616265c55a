"""Errors of a fetch, as exceptions and as the error words of an `Answer`.

Rule: an error of the network or of a library becomes one of Scrapy's own exceptions, or a subclass
of one that is defined here, so that users' errbacks and middlewares can handle it. Only `error_of`
turns exceptions into words, and only `exception_of` words into exceptions.
"""

from __future__ import annotations

from typing import Final

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)
from twisted.internet.error import ConnectionRefusedError as TwistedRefusedError
from twisted.internet.error import DNSLookupError
from twisted.internet.error import TimeoutError as TwistedTimeoutError


class LeaseEnded(IgnoreRequest):
    """The lease ended before the request was sent. Says nothing about the host or the URL."""

    def __init__(self) -> None:
        super().__init__("its lease has ended")


# Users' errbacks check for Twisted's exceptions, too, which Scrapy's own handlers raised for years.


class NameNotFound(CannotResolveHostError, DNSLookupError):
    """The name of the host has no address."""

    __str__ = Exception.__str__  # Twisted's class puts words around the text


class ConnectionFailed(DownloadConnectionRefusedError, TwistedRefusedError):
    """The host cannot be connected to."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)  # Twisted's class takes other arguments
        self.osError = None

    __str__ = Exception.__str__


class FetchTimedOut(DownloadTimeoutError, TwistedTimeoutError, TimeoutError):
    """There was no connection, or no answer, in time."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.osError = None

    __str__ = Exception.__str__


class ClosedWhileIdle(DownloadCancelledError):
    """The request met an idle connection that the server had closed. Its URL is put back, at no
    cost, and the host rests as after an answer."""


class NoFileLeft(DownloadCancelledError):
    """This process has too many open files. Its URL is put back, at no cost."""


class ConnectionDropped(DownloadFailedError):
    """The connection was dropped before the end of the answer's headers."""


class TlsFailed(DownloadFailedError):
    """No trustworthy TLS connection: a wrong certificate, or no common version."""


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
"""The error word of each type of exception; the first match counts."""


def error_of(exception: BaseException) -> str:
    """Return one of the words of `Answer.error`, or "" if the host did not cause *exception*."""
    return next((word for kind, word in _ERRORS if isinstance(exception, kind)), "")


_EXCEPTIONS: Final[dict[str, type[Exception]]] = {
    "timeout": FetchTimedOut,
    "dns": NameNotFound,
    "connect": ConnectionFailed,
    "disconnect": ConnectionDropped,
    "tls": TlsFailed,
    "protocol": DownloadFailedError,
}


def exception_of(reason: str) -> Exception:
    """Return the exception for a URL that is not fetched for *reason*: if its host is down, which
    one of the words of `Answer.error` in *reason* says, what its own fetch would have raised."""
    kinds = (_EXCEPTIONS.get(word) for word in reason.split(": "))
    return next(filter(None, kinds), IgnoreRequest)(reason)
