"""Parses manifests of apps (W3C Web Application Manifest): their icons and other pictures.

Rule: any other JSON has no links and no text; what of a manifest is of another type than it should
be is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from crawler.content.parsers.loading import MAX_LINKS
from crawler.model.page import Link, LinkKind, Parsed, Source
from crawler.page.encodings import read_text
from crawler.page.media_type import MANIFEST_TYPES


class ManifestParser:
    """Implements crawler.model.page.Parser."""

    name: Final = "manifest"
    types: Final = MANIFEST_TYPES
    inline_max_bytes: Final = 128 * 1024  # 1 ms

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type, marked_up=False)
        try:
            read = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return Parsed(parser=self.name)
        urls = dict.fromkeys(islice(_pictures(read), MAX_LINKS))
        links = tuple(Link(url, LinkKind.IMAGE) for url in urls)
        return Parsed(parser=self.name, links=links, charset=charset)


def _pictures(manifest: object) -> Iterator[str]:
    shortcuts = _members(manifest, "shortcuts")
    for picture in chain(
        _members(manifest, "icons"),
        _members(manifest, "screenshots"),
        chain.from_iterable(_members(each, "icons") for each in shortcuts),
    ):
        src = picture.get("src") if isinstance(picture, dict) else None
        if isinstance(src, str) and src:
            yield src


def _members(value: object, name: str) -> list[object]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
