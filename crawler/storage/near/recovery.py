"""The index is opened: what it has yet to take is taken from the store of the frontier.

Rule: the commit that finishes a page notes its fingerprint (keys.NEAR) beside its claim, and the
note goes when a run on disk has the page. So after a crash the notes are what the index lacks,
but for some it has already; and without an index there are the claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from crawler.core.types import Claim
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore
from crawler.scheduler.records import decode_claim
from crawler.storage.near.folder import Folder, Manifest
from crawler.storage.near.index import NearIndex
from crawler.storage.near.limits import Limits
from crawler.storage.near.sources import DIGEST_BYTES

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SLICE: Final = 1000
# Deleted at a time: the thread that does it holds up the loop for a part of a millisecond.
_FORGOTTEN: Final = 100
# Claims sorted by age at a time when all is made again: 30 MB.
_SORTED: Final = 100_000


def open_index(path: Path, store: OrderedStore, limits: Limits | None = None) -> NearIndex:
    """Raises DataDirError: damaged."""
    folder = Folder(path)
    manifest = folder.load()
    if manifest is None or not manifest.whole:
        manifest = _made_again(folder, store, limits)
    index = NearIndex(folder, manifest, partial(_forget, store), limits)
    _take_noted(index, store)
    return index


def claim_of(store: OrderedStore, begin: bytes) -> Claim | None:
    """Of the digest that begins with these 12 bytes. None: a power cut took it."""
    stop = keys.DIGEST + begin + b"\xff" * DIGEST_BYTES
    found = store.scan(keys.DIGEST + begin, stop, 1)
    return decode_claim(found[0][1]) if found else None


def _take_noted(index: NearIndex, store: OrderedStore) -> None:
    for noted in _slices(_each(store, keys.NEAR)):
        by_print: dict[int, set[bytes]] = {}
        for key, packed in noted:
            by_print.setdefault(keys.number_of(packed), set()).add(key[1:])
        for fingerprint, digests in by_print.items():
            known = index.known(fingerprint, digests)
            _forget(store, known)
            for digest in digests - known:
                index.add(fingerprint, digest)
        if index.is_behind:
            index.flush()


def _made_again(folder: Folder, store: OrderedStore, limits: Limits | None) -> Manifest:
    """From the claims. Of equal pages the older ones go first, as far as they fit into memory."""
    beginning = Manifest(whole=False)
    folder.save(beginning)
    index = NearIndex(folder, beginning, lambda digests: None, limits)
    count = 0
    for claims in _slices(_claims(store), _SORTED):
        claims.sort(key=lambda claim: claim.at)
        for claim in claims:
            assert claim.simhash is not None, "sorted out before"
            index.add(claim.simhash, claim.digest)
        index.flush()
        count += len(claims)
    index.flush()
    index.made_whole()
    index.close()
    if count:
        logger.info("The index of near-duplicates was made again from %d pages", count)
    manifest = folder.load()
    assert manifest is not None, "just written"
    return manifest


def _claims(store: OrderedStore) -> Iterator[Claim]:
    for _, packed in _each(store, keys.DIGEST):
        claim = decode_claim(packed)
        if claim.simhash is not None:
            yield claim


def _each(store: OrderedStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    begin, stop = prefix, keys.after(prefix)
    while found := store.scan(begin, stop, _SLICE):
        yield from found
        begin = found[-1][0] + b"\0"


def _slices(every: Iterator[T], size: int = _SLICE) -> Iterator[list[T]]:
    while found := list(islice(every, size)):
        yield found


def _forget(store: OrderedStore, digests: Iterable[bytes]) -> None:
    for some in _slices(iter(digests), _FORGOTTEN):
        store.write({keys.NEAR + digest: None for digest in some})
