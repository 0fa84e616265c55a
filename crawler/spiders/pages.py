"""Make a Page of a response for the pipelines to archive. Any spider may yield it, like `web`."""

from __future__ import annotations

from scrapy import Spider
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.model.page import Page, header_value


def page_of(response: Response, spider: Spider) -> Page | None:
    """Return the page, or None if the request had no lease: it was sent by
    `engine.download_async`, or outside a crawl."""
    if response.request is None:
        return None
    crawl = crawl_of(spider.crawler)
    life = crawl.loop.lives.of(response.request)
    if life is None:
        return None
    place = crawl.selection.allowed_origins.admission.place_of(life.candidate.url)
    content_type = header_value(response.headers, b"Content-Type") or b""
    return Page(
        url=response.url,
        status=response.status,
        content_type=content_type.decode("latin-1"),
        body=response.body,
        depth=life.candidate.depth,
        lease_id=life.lease.id,
        seed=place.name if place else "",
        round=life.lease.round,
        exchange=life.exchange,
        rendered=life.rendered,
        flags=tuple(response.flags),
    )
