"""Every error we raise, grouped by what the caller must do about it.

Rule: an expected result of a fetch (404, robots says no) is a value, never an
exception. Exceptions are for broken promises.
"""

from __future__ import annotations


class CrawlerError(Exception):
    """Root of every error this package raises on purpose. Its text is for the user:
    what is wrong, where, and what to do."""


class ConfigError(CrawlerError):
    """The configuration or an argument cannot be right. Caller: stop before the first request."""


class SeedsError(CrawlerError):
    """The seeds cannot be read at all. Caller: stop before the first request."""


class DataDirError(CrawlerError):
    """The data directory is not writable, in use, newer than we are, or damaged.
    Caller: stop; nothing was changed."""


class StoreUnavailable(CrawlerError):
    """A store refused a read or a write (disk full, device gone).
    Caller: stop cleanly; what was acknowledged is safe."""


class StoreFull(StoreUnavailable):
    """Its disk has no room. Caller: as above, or wait: it writes again when there is room."""


class UnstorableRequest(CrawlerError):
    """A request holds something that cannot be written down. Caller: refuse it, with the reason."""


class IncompatibleScrapy(CrawlerError):
    """A private Scrapy name we stand on is not there. Caller: stop before the first request."""
