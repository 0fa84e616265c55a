"""Probes for soft 404s: how does a host answer a URL that cannot exist?

Rule: a page that looks like an error is put back, the next turn of its host goes to the probe, and
the page is fetched again and judged.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from crawler.config.settings import ContentSettings
from crawler.model.types import HostKey
from crawler.page.soft404 import (
    Soft404Record,
    is_soft_404,
    kind_of,
    probe_of,
    record_of,
    words_of,
)

MAX_PROBES: Final = 10_000


class Soft404Store(Protocol):
    def get(self, kind: str) -> Soft404Record | None:
        """Return what is known of this host, directory and extension."""

    def put(self, kind: str, record: Soft404Record) -> None:
        """Raises StoreUnavailable."""


class SoftErrorVerdict(Enum):
    PAGE = auto()
    SOFT_404 = auto()
    PROBE = auto()  # put the page back: a probe of its host goes first


class ProbeResult(NamedTuple):
    """The parts of an answer that are compared."""

    status: int | None  # None: no answer
    digest: bytes = b""
    title: str = ""
    text: str = ""


class Probe(NamedTuple):
    kind: str
    url: str


class Probes:
    """The probes that are sent next. In memory only, as after a crash the page is judged again.
    Bound: one for each host with a page put back, MAX_PROBES of them."""

    def __init__(
        self, store: Soft404Store, random_name: Callable[[], str], rules: ContentSettings
    ) -> None:
        self._store = store
        self._random_name = random_name
        self._rules = rules
        self._due: dict[HostKey, Probe] = {}

    def judge(self, url: str, host: HostKey, result: ProbeResult, now: float) -> SoftErrorVerdict:
        """Judge a page that looks like an error, by the probe of its kind of URL."""
        kind = kind_of(url) if self._rules.soft_404 else None
        if kind is None:
            return SoftErrorVerdict.PAGE
        record = self._store.get(kind)
        if record is None or record.until <= now:
            self._request_probe(host, Probe(kind, probe_of(url, self._random_name())))
            return SoftErrorVerdict.PROBE
        is_soft = is_soft_404(record, result.digest, words_of(url, result.title, result.text))
        return SoftErrorVerdict.SOFT_404 if is_soft else SoftErrorVerdict.PAGE

    def due_probe(self, host: HostKey) -> Probe | None:
        """Return the probe that the next turn of *host* is for, or None."""
        return self._due.get(host)

    def store_result(self, host: HostKey, kind: str, result: ProbeResult, now: float) -> None:
        """Record the result of the probe of *kind*. Raises StoreUnavailable."""
        probe = self._due.get(host)
        if probe is None or probe.kind != kind:
            return
        words = words_of(probe.url, result.title, result.text)
        self._store.put(kind, record_of(result.status, result.digest, words, now))
        del self._due[host]

    def _request_probe(self, host: HostKey, probe: Probe) -> None:
        if len(self._due) >= MAX_PROBES and host not in self._due:
            # The oldest is of a host whose turn came to another worker of a shared crawl.
            del self._due[next(iter(self._due))]
        self._due[host] = probe
