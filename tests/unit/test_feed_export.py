"""A page as an item: the same names as in the columns, and no exporter that fails on it."""

from __future__ import annotations

import csv
import json
import re
from base64 import b64decode
from dataclasses import replace
from io import BytesIO, StringIO
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from itemadapter import ItemAdapter
from scrapy.exporters import (
    BaseItemExporter,
    CsvItemExporter,
    JsonItemExporter,
    JsonLinesItemExporter,
    MarshalItemExporter,
    PickleItemExporter,
    XmlItemExporter,
)
from scrapy.extensions.feedexport import ItemFilter

from crawler.archive.columns import COLUMNS
from crawler.content.feed_export import (
    FIELDS,
    ON_REQUEST,
    make_pages_items,
)
from crawler.model.page import (
    Exchange,
    Flaw,
    Link,
    LinkKind,
    NearDuplicate,
    Page,
    Parsed,
)
from crawler.model.types import Claim
from crawler.report.extensions import PageFilter, writes_stdout
from tests.harness.budget import examples
from tests.harness.sources import PROJECT

URL = "http://a.example/"
BODY = b"\xff\x00<p>"
AT = 1767323045.5
make_pages_items()


def page(**changes: Any) -> Page:
    exchange = Exchange(
        url=URL, at=AT, duration_s=0.1, request_head=b"", head=b"", body=BODY, ip="127.0.0.1"
    )
    plain = Page(
        url=URL,
        status=200,
        content_type="text/html",
        body=BODY,
        depth=1,
        lease_id=1,
        exchange=exchange,
        media_type="text/html",
        digest=b"\x01" * 20,
        title="a title",
        text="a text",
        simhash=255,
        parsed=Parsed(language="de", links=(Link("/a"),), canonical="/c", published=0.0),
        outlinks=(Link("http://a.example/a", LinkKind.A, "nofollow"),),
        record="crawl-0.warc.gz:120",
    )
    return replace(plain, **changes)


def exported(kind: type[BaseItemExporter], item: object, **chosen: Any) -> bytes:
    out = BytesIO()
    exporter = kind(out, **chosen)
    exporter.start_exporting()
    exporter.export_item(item)
    exporter.finish_exporting()
    return out.getvalue()


def test_the_fields_of_a_page_are_plain_values() -> None:
    assert ItemAdapter(page()).asdict() == {
        "url": URL,
        "host": "a.example",
        "fetched_at": "2026-01-02T03:04:05.500000+00:00",
        "status": 200,
        "media_type": "text/html",
        "language": "de",
        "title": "a title",
        "text": "a text",
        "links": 1,
        "canonical": "http://a.example/c",
        "published": "1970-01-01T00:00:00+00:00",
        "simhash": "00000000000000ff",
        "digest": "sha1:AEAQCAIBAEAQCAIBAEAQCAIBAEAQCAIB",
        "warc_file": "crawl-0.warc.gz",
        "warc_offset": 120,
        "depth": 1,
    }


COPIED = Claim(b"\x01" * 20, "http://a.example/first", "crawl-0.warc.gz:9", AT)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param(
            {"duplicate_of": COPIED},
            {"original": "http://a.example/first", "links": 0, "text": None, "bits": None},
            id="an exact copy has its text with its original",
        ),
        pytest.param(
            {"near": NearDuplicate(COPIED, 0)},
            {"original": "http://a.example/first", "bits": 0, "text": "a text"},
            id="a near-copy has its own",
        ),
        pytest.param({"flaw": Flaw.SOFT_404}, {"flaw": "soft_404", "url": URL}, id="a flaw"),
        pytest.param({"status": 404}, {"status": 404, "flaw": None}, id="an error"),
        pytest.param({"exchange": None}, {"fetched_at": None}, id="its fetch was not seen"),
        pytest.param({"record": ""}, {"warc_file": None, "warc_offset": None}, id="no archive"),
        pytest.param({"parsed": None}, {"links": 0, "language": None}, id="never read"),
        pytest.param(
            {"parsed": Parsed(published=1e300)}, {"published": None}, id="a date beyond all years"
        ),
        pytest.param({"flags": ("truncated_length",)}, {"flags": ["truncated_length"]}, id="cut"),
        pytest.param({"body": b""}, {"body": None}, id="no body"),
        pytest.param({}, {"body": BODY, "content_type": "text/html"}, id="a body, to pipelines"),
        pytest.param(
            {},
            {"outlinks": [{"url": "http://a.example/a", "kind": "a", "rel": "nofollow"}]},
            id="links",
        ),
    ],
)
def test_missing_values_are_no_fields(changes: dict[str, Any], fields: dict[str, object]) -> None:
    item = ItemAdapter(page(**changes))
    assert {name: item.get(name) for name in fields} == fields
    assert all((name in item) == (value is not None) for name, value in fields.items())


def test_names_are_those_of_the_columns() -> None:
    of_records = {"warc_length", "dom_offset", "dom_length"}
    columns = {column.name for column in COLUMNS} - of_records - {"crawl_id", "round"}
    assert {*FIELDS, *ON_REQUEST} == columns | {"depth", "content_type", "flaw", "flags", "body"}


def test_a_page_is_not_changed() -> None:
    item = ItemAdapter(page())
    for change in (lambda: item.update(title="b"), lambda: item.pop("title")):
        with pytest.raises(KeyError, match=r"dataclasses\.replace"):
            change()


def test_a_body_is_exported_only_if_asked_for() -> None:
    assert b"body" not in exported(JsonLinesItemExporter, page())
    asked = exported(JsonLinesItemExporter, page(), fields_to_export=["url", "body"])
    assert b64decode(json.loads(asked)["body"]) == BODY


def test_a_page_inside_an_item_is_exported_too() -> None:
    written = json.loads(exported(JsonLinesItemExporter, {"page": page()}))
    assert written["page"]["title"] == "a title"


WILD = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\0\x0b\x0c\x1f\ud800\ufffe&<]]>")
)


@settings(max_examples=examples(200))
@given(title=WILD, text=WILD, language=WILD, rel=WILD, body=st.binary())
def test_feeds_of_any_pages_can_be_read_again(
    title: str, text: str, language: str, rel: str, body: bytes
) -> None:
    item = page(
        title=title,
        text=text,
        parsed=Parsed(language=language),
        outlinks=(Link("http://a.example/a", rel=rel),),
        body=body,
    )
    chosen = {"fields_to_export": [*FIELDS, *ON_REQUEST], "encoding": "utf-8"}
    line = json.loads(exported(JsonLinesItemExporter, item, **chosen))
    assert json.loads(exported(JsonItemExporter, item, **chosen)) == [line]
    (found,) = ElementTree.fromstring(  # noqa: S314  # our own, and that it can be read is asked
        exported(XmlItemExporter, item, **chosen)
    )
    # A line break of another system is one of XML's own.
    assert re.sub("\r\n?", "\n", line.get("text", "")) == (found.findtext("text") or "")
    table = exported(CsvItemExporter, item, **chosen).decode()
    (row,) = csv.DictReader(StringIO(table, newline=""))
    assert row["text"] == line.get("text", "")
    assert b64decode(row["body"]) == body
    for kind in (PickleItemExporter, MarshalItemExporter):
        assert exported(kind, item)


@pytest.mark.parametrize(
    ("item", "is_in"),
    [
        pytest.param(page(), True, id="a page"),
        pytest.param(page(duplicate_of=COPIED), True, id="a copy"),
        pytest.param(page(status=404), False, id="an error"),
        pytest.param(page(flaw=Flaw.EMPTY), False, id="an empty answer"),
        pytest.param(page(archive=False), False, id="one marked noindex"),
        pytest.param({"any": "item"}, True, id="an item of a spider's own"),
    ],
)
def test_feeds_have_the_pages_that_the_columns_have(item: object, is_in: bool) -> None:
    assert PageFilter({}).accepts(item) is is_in
    assert ItemFilter({}).accepts(item), "Scrapy's own lets all pass"


def test_a_feed_may_choose_its_classes() -> None:
    only_pages = PageFilter({"item_classes": [Page]})
    assert only_pages.accepts(page())
    assert not only_pages.accepts({"any": "item"})


@pytest.mark.parametrize(
    ("feeds", "holds"),
    [
        pytest.param({}, False, id="none"),
        pytest.param({PROJECT / "pages.jsonl": {}}, False, id="a file"),
        pytest.param({"a.csv": {}, "stdout:": {}}, True, id="standard output among others"),
    ],
)
def test_a_feed_on_standard_output_is_known(feeds: dict[Any, Any], holds: bool) -> None:
    assert writes_stdout(feeds) is holds


def test_the_page_about_feeds_lists_each_field() -> None:
    text = (PROJECT / "docs" / "feeds.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`.*?`) \|", text)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [*FIELDS, *ON_REQUEST]
