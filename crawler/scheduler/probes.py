"""Soft 404 at work: what hosts were asked, and which are still to be asked.

Rule: a page in doubt is put back, the next turn of its host goes to the question, and the page is
fetched again and judged. What is to be asked is in memory only: after a crash the doubt comes back
with the page.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

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

MOST: Final = 10_000


class Soft404Store(Protocol):
    def get(self, kind: str) -> Soft404Record | None:
        """What was learned of this host, directory and extension."""

    def put(self, kind: str, record: Soft404Record) -> None:
        """Raises StoreUnavailable."""


class Judgement(Enum):
    PAGE = auto()
    SOFT_404 = auto()
    ASK = auto()  # put it back: its host is asked first


class Said(NamedTuple):
    """An answer, as far as it can be compared."""

    status: int | None  # None: there was none
    digest: bytes = b""
    title: str = ""
    text: str = ""


class Probe(NamedTuple):
    kind: str
    url: str


class Probes:
    """Bound: one for each host with a page put back, MOST of them."""

    def __init__(self, store: Soft404Store, random_name: Callable[[], str], rules: Content) -> None:
        self._store = store
        self._random_name = random_name
        self._rules = rules
        self._wanted: dict[HostKey, Probe] = {}

    def judge(self, url: str, host: HostKey, said: Said, now: float) -> Judgement:
        """Of a page that looks like an error."""
        kind = kind_of(url) if self._rules.soft_404 else None
        if kind is None:
            return Judgement.PAGE
        record = self._store.get(kind)
        if record is None or record.until <= now:
            self._want(host, Probe(kind, probe_of(url, self._random_name())))
            return Judgement.ASK
        is_soft = is_soft_404(record, said.digest, words_of(url, said.title, said.text))
        return Judgement.SOFT_404 if is_soft else Judgement.PAGE

    def wanted(self, host: HostKey) -> Probe | None:
        """What this turn of *host* is to be used for."""
        return self._wanted.get(host)

    def learn(self, host: HostKey, kind: str, said: Said, now: float) -> None:
        """What came of the probe of *kind*. Raises StoreUnavailable."""
        probe = self._wanted.get(host)
        if probe is None or probe.kind != kind:
            return
        words = words_of(probe.url, said.title, said.text)
        self._store.put(kind, record_of(said.status, said.digest, words, now))
        del self._wanted[host]

    def _want(self, host: HostKey, probe: Probe) -> None:
        if len(self._wanted) >= MOST and host not in self._wanted:
            # Of a shared crawl: hosts whose turn came to other workers.
            del self._wanted[next(iter(self._wanted))]
        self._wanted[host] = probe
