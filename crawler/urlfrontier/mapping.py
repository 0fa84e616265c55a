"""Messages of the URL Frontier protocol to values of the port, and back.

Rule: pure, and every bound on what a client may send is here. What is over one is refused with a
reason before anything is kept: an item of a stream is SKIPPED, a call is an InvalidRequest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from crawler.model.types import CrawlerError
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier.port import PutItem, QueuedUrl, QueueStats

DEFAULT_CRAWL: Final = "DEFAULT"
KEY_CHARS: Final = 255  # as the reference has it
CRAWL_BYTES: Final = (
    80  # each may be three characters of a folder's name; the reference has no bound
)
URL_CHARS: Final = 8_192  # of a URL; the reference has no bound
METADATA_BYTES: Final = 64 << 10  # of a URL, packed (guess): some hundred values
LAST_DATE: Final = 253_402_300_799  # the end of the year 9999
LEASE_S: Final = 30  # where a client leaves it to the server
PAGE: Final = 100  # of lists, where a client names no size

# A scheme, and no control characters: those are in no URL, and would break lines of logs and dumps.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x1f\x7f]+")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]*")
_END_OF_HOST: Final = re.compile(r"[:/?&]")


class InvalidRequest(CrawlerError):
    """A request cannot be served as it is. Caller: answer so; nothing was changed."""


def crawl_of(crawl_id: str) -> str:
    """Return *crawl_id*, or DEFAULT for a blank one. Raises InvalidRequest."""
    if len(crawl_id.encode()) > CRAWL_BYTES:
        raise InvalidRequest(f"the crawlID is longer than {CRAWL_BYTES} bytes")
    return _name("crawlID", crawl_id, CRAWL_BYTES) if crawl_id.strip() else DEFAULT_CRAWL


def checked_key(key: str) -> str:
    """Return the *key* of a queue, which may be empty. Raises InvalidRequest."""
    return _name("key", key, KEY_CHARS)


def _name(field: str, value: str, most: int) -> str:
    if len(value) > most or not _NAME.fullmatch(value):
        raise InvalidRequest(f"the {field} is longer than {most} or has control characters")
    return value


def checked_date(epoch_s: int) -> int:
    """Return the date of a block. Raises InvalidRequest."""
    if epoch_s > LAST_DATE:
        raise InvalidRequest(f"{epoch_s} is after the year 9999: want seconds since 1970")
    return epoch_s


def queue_of(url: str, key: str) -> str:
    """Return the key of the queue of *url*: *key*, or without one what follows `://` up to the
    first of : / ? &. Raises InvalidRequest if that is empty, or one of the two is malformed."""
    if len(url) > URL_CHARS or not _URL.fullmatch(url):
        raise InvalidRequest(f"want scheme:... without control characters, up to {URL_CHARS} long")
    if not key:
        begin = url.find("://")
        key = _END_OF_HOST.split(url if begin < 0 else url[begin + 3 :], 1)[0]
        if not key:
            raise InvalidRequest("the URL has no host name, and there is no key")
    return checked_key(key)


def put_item(info: pb.URLInfo, refetch_at: int | None) -> PutItem:
    """Return what a client puts. It takes *info* apart, which is not to be used again. Raises
    InvalidRequest: the item is SKIPPED."""
    url, key = info.url, queue_of(info.url, info.key)
    if refetch_at is not None:
        checked_date(refetch_at)
    info.ClearField("url")
    info.ClearField("key")
    info.ClearField("crawlID")
    metadata = info.SerializeToString()
    if len(metadata) > METADATA_BYTES:
        raise InvalidRequest(f"the metadata take more than {METADATA_BYTES} bytes")
    return PutItem(url, key, metadata, refetch_at)


def url_info(found: QueuedUrl, crawl_id: str) -> pb.URLInfo:
    info = pb.URLInfo(url=found.url, key=found.key, crawlID=crawl_id)
    if found.metadata:
        info.MergeFromString(found.metadata)
    return info


def url_item(found: QueuedUrl, crawl_id: str) -> pb.URLItem:
    """Return how a URL is listed: as known, also if it was only discovered."""
    known = pb.KnownURLItem(info=url_info(found, crawl_id), refetchable_from_date=found.refetch_at)
    return pb.URLItem(known=known, creation_date=found.created_at)


def metadata_of(packed: bytes) -> dict[str, list[str]]:
    """Read the metadata of a PutItem or QueuedUrl."""
    info = pb.URLInfo.FromString(packed)
    return {name: list(texts.values) for name, texts in info.metadata.items()}


def stats_message(stats: QueueStats, crawl_id: str) -> pb.Stats:
    return pb.Stats(
        size=stats.size,
        inProcess=min(stats.in_process, 0xFFFF_FFFF),
        counts={"completed": stats.completed, "active_queues": stats.active_queues},
        numberOfQueues=stats.queues,
        crawlID=crawl_id,
    )


def url_filter(request: pb.ListUrlParams | pb.CountUrlParams) -> Callable[[str], bool] | None:
    """Return which URLs a client wants: those that contain its filter. None: all."""
    part = request.filter
    if not part:
        return None
    if request.ignoreCase:
        folded = part.lower()
        return lambda url: folded in url.lower()
    return lambda url: part in url
