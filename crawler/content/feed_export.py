"""Gives feed exports, and pipelines that use ItemAdapter, the fields of a Page as plain values.

Rule: a field has the name and meaning of its column (docs/columns.md), if there is one, and is
missing if its value is empty. No exporter of Scrapy fails on a page, whatever a server sent.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, KeysView, Mapping
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec
from itemadapter import ItemAdapter
from itemadapter.adapter import AdapterInterface

from crawler.archive.record_bytes import sha1_label
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    About,
    AnswerFacts,
    ColumnsRow,
    DetectedLanguage,
    Page,
    TextQuality,
)
from crawler.page.language import detect_language
from crawler.page.row import columns_row
from crawler.page.text_quality import text_quality

# Characters that XML 1.0 cannot hold, and halves of surrogate pairs, which UTF-8 cannot encode.
_UNWRITABLE: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


_DEFAULT: Final[Mapping[str, Callable[[Page, ColumnsRow], object]]] = {
    "url": lambda _, row: row.url,
    "host": lambda _, row: row.host,
    "fetched_at": lambda page, row: _time(row.fetched_at if page.exchange else None),
    "status": lambda _, row: row.status,
    "media_type": lambda _, row: row.media_type,
    "language": lambda _, row: row.language,
    "title": lambda _, row: row.title,
    "text": lambda _, row: row.text,
    "links": lambda _, row: row.links,
    "canonical": lambda _, row: row.canonical,
    "published": lambda _, row: _time(row.published),
    "modified": lambda _, row: _time(row.modified),
    "simhash": lambda _, row: "" if row.simhash is None else f"{row.simhash:016x}",
    "digest": lambda _, row: sha1_label(row.digest) if row.digest else "",
    "original": lambda _, row: row.original,
    "bits": lambda _, row: row.bits,
    "warc_file": lambda page, _: page.record.rpartition(":")[0],
    "warc_offset": lambda page, _: int(page.record.rpartition(":")[2]) if page.record else None,
    "depth": lambda page, _: page.depth,
}
# The columns that are made of what the others are made of.
_COLUMN_GROUPS: Final = {
    name: group
    for group, kind in (
        (ColumnGroup.ANSWER, AnswerFacts),
        (ColumnGroup.ABOUT, About),
        (ColumnGroup.LANGUAGE, DetectedLanguage),
        (ColumnGroup.QUALITY, TextQuality),
    )
    for name in kind.__struct_fields__
}


def _cell(group: ColumnGroup, name: str, page: Page) -> object:
    row = columns_row(page, 0.0, frozenset((group,)))
    facts: msgspec.Struct | None = row.answer or row.about
    if group is ColumnGroup.LANGUAGE and row.text:
        facts = detect_language(row.text)
    elif group is ColumnGroup.QUALITY and row.text:
        facts = text_quality(row.text, row.link_share)
    return None if facts is None else getattr(facts, name)


_ON_REQUEST: Final[Mapping[str, Callable[[Page], object]]] = {
    "content_type": lambda page: page.content_type,
    "flaw": lambda page: str(page.flaw),
    "flags": lambda page: list(page.flags),
    "may_repeat": lambda page: page.may_repeat or None,
    "noindex": lambda page: page.noindex or None,
    "visits": lambda page: page.visits.visits if page.visits else None,
    "changes": lambda page: page.visits.changes if page.visits else None,
    "changed_at": lambda page: _time(page.visits.changed_at if page.visits else None),
    "next_visit": lambda page: _time(page.visits.next_at if page.visits else None),
    "outlinks": lambda page: [
        {
            "url": link.url,
            "kind": str(link.kind),
            "rel": link.rel,
            **({"text": link.text} if link.text else {}),
            **({"language": link.language} if link.language else {}),
        }
        for link in page.outlinks
    ],
    "markdown": lambda page: page.parsed.markdown if page.parsed and not page.is_repeat else "",
    **{name: partial(_cell, group, name) for name, group in _COLUMN_GROUPS.items()},
    "rendered": lambda page: page.rendered is not None or None,
    "render_ms": lambda page: page.rendered.ms if page.rendered else None,
    "render_requests": lambda page: page.rendered.requests if page.rendered else None,
    "render_left_out": lambda page: page.rendered.left_out if page.rendered else None,
    "render_quiet": lambda page: page.rendered.is_quiet if page.rendered else None,
    "pref_train_ai": lambda page: page.preferences.train_ai.value,
    "pref_search": lambda page: page.preferences.search.value,
    "pref_sources": lambda page: list(page.preferences.sources),
    "seed": lambda page: page.seed,
    "body": lambda page: page.body,
}
FIELDS: Final = tuple(_DEFAULT)
ON_REQUEST: Final = tuple(_ON_REQUEST)
_EMPTY: Final[tuple[object, ...]] = (None, "", b"", [])


class PageAdapter(AdapterInterface):
    item: Page

    def __init__(self, item: Page) -> None:
        super().__init__(item)
        row = columns_row(item, item.exchange.at if item.exchange else 0.0)
        facts = {name: fact_of(item, row) for name, fact_of in _DEFAULT.items()}
        self._facts = {name: fact for name, fact in facts.items() if fact not in _EMPTY}

    @classmethod
    def is_item_class(cls, item_class: type) -> bool:
        return issubclass(item_class, Page)

    @classmethod
    def get_field_names_from_class(cls, item_class: type) -> list[str]:
        return list(FIELDS)

    @classmethod
    def get_field_meta_from_class(
        cls, item_class: type, field_name: str
    ) -> MappingProxyType[str, Any]:
        return MappingProxyType({"serializer": feed_fields})

    def field_names(self) -> KeysView[str]:
        return dict.fromkeys(FIELDS).keys()

    def __getitem__(self, field_name: str) -> object:
        if field_name not in _ON_REQUEST:
            return self._facts[field_name]
        value = _ON_REQUEST[field_name](self.item)
        if value in _EMPTY:
            raise KeyError(field_name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __setitem__(self, field_name: str, value: object) -> None:
        raise KeyError(f"{field_name}: a Page is not changed, dataclasses.replace makes another")

    def __delitem__(self, field_name: str) -> None:
        raise KeyError(f"{field_name}: a Page is not changed, dataclasses.replace makes another")


def feed_fields(value: object) -> object:
    """Return *value* as JSON, XML and CSV can hold it: bytes in base64, text without characters
    that cannot be written."""
    match value:
        case bytes():
            return b64encode(value).decode("ascii")
        case str():
            return _UNWRITABLE.sub(_replacement, value)
        case list():
            return [feed_fields(each) for each in value]
        case dict():
            return {name: feed_fields(each) for name, each in value.items()}
    return value


def _replacement(found: re.Match[str]) -> str:
    return " " if found[0] < " " else "\ufffd"


def _time(at: float | None) -> str | None:
    """Return the time in ISO 8601 and UTC, or None if it is outside the years 1 to 9999."""
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def make_pages_items() -> None:
    """Make ItemAdapter use PageAdapter for Page, in this process. Without this call, as in a user's
    own tests, ItemAdapter sees a dataclass with its body and nested objects."""
    others = ItemAdapter.ADAPTER_CLASSES
    if PageAdapter not in others:
        ItemAdapter.ADAPTER_CLASSES = deque([PageAdapter, *others])
