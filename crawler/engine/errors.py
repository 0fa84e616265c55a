"""Errors of a fetch, as exceptions and as the error words of an `Answer`.

Rule: an error of the network or of a library becomes one of Scrapy's own exceptions, or a subclass
of one that is defined here, so that users' errbacks and middlewares can handle it. Only `error_of`
turns exceptions into words, and only `exception_of` words into exceptions.
"""

from __future__ import annotations

import logging
import traceback
from typing import Final

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotSupported,
)
from twisted.internet.error import ConnectionRefusedError as TwistedRefusedError
from twisted.internet.error import DNSLookupError
from twisted.internet.error import TimeoutError as TwistedTimeoutError

from crawler.loop.outcome import FAULT

logger = logging.getLogger(__name__)


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


class AddressFound(DownloadCancelledError):
    """The name of the host had no address when its turn came, and has one now, from which another
    host may be fetched. Its URL is put back, at no cost, and goes when that address is free."""


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
)
"""The error word of each type of exception; the first match counts."""

_ERRORS_OF_HANDLERS: Final[tuple[tuple[type[Exception], str], ...]] = (
    *_ERRORS,
    (TimeoutError, "timeout"),
    (OSError, "connect"),
)


def error_of(exception: BaseException, *, is_of_handler: bool) -> str:
    """Return one of the words of `Answer.error`, or "" if the host did not cause *exception*.
    *is_of_handler*: a download handler was called. Else a file that is missing, or a time-out, is
    the business of a middleware."""
    errors = _ERRORS_OF_HANDLERS if is_of_handler else _ERRORS
    return next((word for kind, word in errors if isinstance(exception, kind)), "")


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


_MAX_FAULTS: Final = 1000
_MAX_WORDS: Final = 500  # characters of an exception, of which each outcome has some


def fault_words(exception: BaseException) -> str:
    """Return *exception*, of code on our side, in words."""
    return f"{FAULT}{type(exception).__name__}: {exception}"[:_MAX_WORDS]


class CodeFaults:
    """Errors of a user's middlewares and handlers: each is logged once with its traceback, and kept
    for the errbacks of URLs that are not fetched because of it. Bound: _MAX_FAULTS."""

    def __init__(self) -> None:
        self._by_words: dict[str, Exception] = {}
        # With file and line that raised it.
        self._logged: set[tuple[type[BaseException], str, int]] = set()

    def keep(self, exception: Exception, url: str) -> str:
        """Keep and log *exception*, which ended the fetch of a robots.txt at *url*. Returns its
        words, which find it."""
        self.log(exception, url, ", and so nothing of its host")
        words = fault_words(exception)
        if len(self._by_words) >= _MAX_FAULTS:
            del self._by_words[next(iter(self._by_words))]
        self._by_words[words] = exception
        return words

    def find(self, reason: str) -> Exception | None:
        """Return the exception whose words end *reason*, or None."""
        fault = self._by_words.get(reason[reason.find(FAULT) :]) if FAULT in reason else None
        return fault.with_traceback(None) if fault else None

    def log(self, exception: BaseException, url: str, effect: str = "") -> None:
        """Log *exception*, which the fetch of *url* met, with its traceback, once for the line of
        code that raised it. *effect*: of it on other URLs."""
        if isinstance(exception, IgnoreRequest | NotSupported):
            return  # a middleware's decision; the downloader says which handler did not load
        frames = traceback.extract_tb(exception.__traceback__)
        file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if (type(exception), file, line) in self._logged or len(self._logged) >= _MAX_FAULTS:
            return
        self._logged.add((type(exception), file, line))
        logger.error(
            "%s cannot be fetched because of an %s%s",
            url,
            FAULT.rstrip(": "),
            effect,
            exc_info=exception,
        )
