"""Soft 404 at work: what hosts were asked, and which are still to be asked.

Rule: a page in doubt is put back, the next turn of its host goes to the question, and the page is
fetched again and judged. What is to be asked is in memory only: after a crash the doubt comes back
with the page.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from crawler.core.content_settings import Content
from crawler.core.types import HostKey
from crawler.policy.soft404 import (
    Soft404Record,
    is_soft_404,
    kind_of,
    probe_of,
    record_of,
    words_of,
)


class Soft404Store(Protocol):
    def get(self, kind: str) -> Soft404Record | None:
        """What was learned of this host, directory and extension."""

    def put(self, kind: str, record: Soft404Record) -> None:
        """Raises StoreUnavailable."""


class Judgement(Enum):
    PAGE = auto()
    SOFT_404 = auto()
    ASK = auto()  # put it back: its host is asked first


class Probe(NamedTuple):
    kind: str
    url: str


class Probes:
    """Bound: one for each host with a page put back."""

    def __init__(self, store: Soft404Store, random_name: Callable[[], str], rules: Content) -> None:
        self._store = store
        self._random_name = random_name
        self._rules = rules
        self._wanted: dict[HostKey, Probe] = {}

    def judge(self, url: str, host: HostKey, digest: bytes, text: str, now: float) -> Judgement:
        """Of a page that looks like an error."""
        kind = kind_of(url) if self._rules.soft_404 else None
        if kind is None:
            return Judgement.PAGE
        record = self._store.get(kind)
        if record is None or record.until <= now:
            self._wanted[host] = Probe(kind, probe_of(url, self._random_name()))
            return Judgement.ASK
        is_soft = is_soft_404(record, digest, words_of(url, text))
        return Judgement.SOFT_404 if is_soft else Judgement.PAGE

    def wanted(self, host: HostKey) -> Probe | None:
        """What this turn of *host* is to be used for."""
        return self._wanted.get(host)

    def learn(
        self,
        host: HostKey,
        kind: str,
        status: int | None,
        digest: bytes,
        text: str,
        now: float,
    ) -> None:
        """What came of the probe of *kind*; *status* None: no answer. Raises StoreUnavailable."""
        probe = self._wanted.pop(host, None)
        words = words_of(probe.url, text) if probe else ()
        self._store.put(kind, record_of(status, digest, words, now))
