"""Writes the texts of an archive as WET files, and what its records say as WAT files, as Common
Crawl publishes both beside its WARC files.

Rule: a file is written for each finished WARC file, in one pass over its records, and appears when
it is whole. The words of WAT's JSON are those of ia-web-commons, and numbers are strings there.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from hashlib import sha1
from pathlib import Path
from typing import IO, Any, Final, Self

from lxml import etree, html  # type: ignore[import-untyped]  # it comes with Scrapy, untyped

from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.reader import DamagedFile, Record, records, values
from crawler.archive.record_bytes import (
    FIELDS_TYPE,
    INFO_TYPE,
    field_line,
    fields_block,
    new_record,
    record_id,
    sha1_label,
    warc_date,
)
from crawler.archive.warc_file import WARC_SUFFIX, companion_path, open_name
from crawler.model.page import DOM_TYPE, head_fields
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable
from crawler.page.encodings import codings_of, declared_charset, undo_codings
from crawler.page.media_type import HTML_TYPES

WET: Final = ".warc.wet.gz"
WAT: Final = ".warc.wat.gz"
MOST_BODY_BYTES: Final = 16 * 1024 * 1024
"""Of a body, of which the HTML metadata is taken; what is behind it is not looked at."""
_GZIP_HEAD_BYTES: Final = 10
_GZIP_FOOT_BYTES: Final = 8
_END: Final = b"\r\n\r\n"


def write_wet(warc: Path, folder: Path, now: float, software: str) -> int:
    """Write the text of each page of *warc* that has one into *folder* as a `conversion`, and
    return how many. The text is that of the columns, with the title as its first line. Raises
    DataDirError, StoreUnavailable, and FileNotFoundError if there are no columns."""
    from crawler.archive.columns import read_places  # noqa: PLC0415  # Arrow: 150 ms

    rows = read_places(companion_path(warc, COLUMNS))
    row = next(rows, None)
    count = 0
    with _Output(folder / _named(warc, WET)) as out, warc.open("rb") as file:
        out.add(_info(out.final.name, warc, now, software))
        for record in _whole(records(file), warc):
            while row is not None and row.offset < record.offset:
                row = next(rows, None)
            if row is None:
                break
            if row.offset != record.offset or not (row.text or row.title):
                continue
            text = "\n".join(part for part in (row.title, row.text) if part) + "\n"
            event = _about(record)
            if row.language:
                event += field_line("WARC-Identified-Content-Language", row.language)
            block = text.encode(errors="replace")
            out.add(new_record("conversion", record_id(os.urandom(16)), event, "text/plain", block))
            count += 1
    return count


def write_wat(warc: Path, folder: Path, now: float, software: str) -> int:
    """Write what each record of *warc* says into *folder* as a `metadata` record, and return how
    many. Raises DataDirError, StoreUnavailable."""
    count = 0
    with _Output(folder / _named(warc, WAT)) as out, warc.open("rb") as file:
        out.add(_info(out.final.name, warc, now, software))
        with warc.open("rb") as beside:
            for record in _whole(records(file), warc):
                said = _envelope(record)
                container = _container(record, warc, beside)
                block = json.dumps({"Container": container, "Envelope": said}).encode()
                name = record_id(os.urandom(16))
                out.add(new_record("metadata", name, _about(record), INFO_TYPE, block))
                count += 1
    return count


class _Output:
    """A file of gzip members, called `.open` until it is whole."""

    def __init__(self, final: Path) -> None:
        self.final = final
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.final.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_name(self.final).open("wb")
        except OSError as error:
            raise _unwritten(self.final, error) from error
        return self

    def add(self, record: bytes) -> None:
        assert self._file is not None, "used outside its `with`"
        try:
            self._file.write(gzip.compress(record, 6, mtime=0))
        except OSError as error:
            raise _unwritten(self.final, error) from error

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._file is not None
        self._file.close()
        if kind is None:
            open_name(self.final).replace(self.final)
        else:
            open_name(self.final).unlink(missing_ok=True)


def _unwritten(final: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {final}: {error.strerror or error}")


def _named(warc: Path, suffix: str) -> str:
    return warc.name.removesuffix(".gz").removesuffix(".warc") + suffix


def _whole(found: Iterator[Record], warc: Path) -> Iterator[Record]:
    try:
        yield from found
    except DamagedFile as damage:
        raise DataDirError(f"{warc}: {damage}. {PROGRAM} archive check shows more") from damage


def _info(name: str, warc: Path, now: float, software: str) -> bytes:
    about = [("Software-Info", software), ("Extracted-Date", warc_date(now)), ("source", warc.name)]
    event = f"WARC-Date: {warc_date(now)}\r\n{field_line('WARC-Filename', name)}"
    block = fields_block(about)
    return new_record("warcinfo", record_id(os.urandom(16)), event, FIELDS_TYPE, block)


def _about(record: Record) -> str:
    """Return the fields by which a record names the one that it is made of."""
    url = record.field("WARC-Target-URI") or record.field("WARC-Filename")
    event = field_line("WARC-Target-URI", url) if url else ""
    event += field_line("WARC-Date", record.field("WARC-Date"))
    return event + field_line("WARC-Refers-To", record.field("WARC-Record-ID"))


def _container(record: Record, warc: Path, beside: IO[bytes]) -> dict[str, Any]:
    length = record.finish()
    container: dict[str, Any] = {"Filename": warc.name, "Offset": str(record.offset)}
    is_gzip = warc.name.endswith(WARC_SUFFIX)
    container["Compressed"] = is_gzip
    if is_gzip:
        beside.seek(record.offset + length - _GZIP_FOOT_BYTES)
        foot = beside.read(_GZIP_FOOT_BYTES)
        container["Gzip-Metadata"] = {
            "Header-Length": str(_GZIP_HEAD_BYTES),
            "Footer-Length": str(_GZIP_FOOT_BYTES),
            "Deflate-Length": str(length),
            "Inflated-CRC": str(int.from_bytes(foot[:4], "little", signed=True)),
            "Inflated-Length": str(int.from_bytes(foot[4:], "little")),
        }
    return container


def _envelope(record: Record) -> dict[str, Any]:
    """Return what *record* says. Its block is read."""
    whole = record.read_all(MOST_BODY_BYTES)
    digest = sha1(whole, usedforsecurity=False)
    while piece := record.read():
        digest.update(piece)
    type_ = record.field("Content-Type")
    # Since August 2019 length and digest stand here, and no more beside it.
    payload: dict[str, Any] = {
        "Actual-Content-Type": type_,
        "Actual-Content-Length": str(record.size_bytes),
        "Block-Digest": sha1_label(digest.digest()),
        "Trailing-Slop-Length": "0" if type_ == FIELDS_TYPE else "4",
    }
    if type_.startswith("application/http"):
        is_request = record.kind == "request"
        name = "HTTP-Request-Metadata" if is_request else "HTTP-Response-Metadata"
        payload[name] = _http(whole, record.size_bytes, is_request=is_request)
    elif type_ == FIELDS_TYPE and record.kind == "warcinfo":
        payload["WARC-Info-Metadata"] = dict(_pairs(whole))
    elif type_ == FIELDS_TYPE:
        noted = [{"Name": name, "Value": value} for name, value in _pairs(whole)]
        payload["Actual-Content-Type"] = "application/metadata-fields"
        payload["WARC-Metadata-Metadata"] = {"Metadata-Records": noted}
    elif record.kind == "conversion" and type_ == DOM_TYPE:
        payload["HTML-Metadata"] = html_metadata(whole, "utf-8")
    return {
        "Format": "WARC",
        "WARC-Header-Length": str(record.head_bytes),
        "WARC-Header-Metadata": dict(record.fields),
        "Payload-Metadata": payload,
    }


def _http(block: bytes, size_bytes: int, *, is_request: bool) -> dict[str, Any]:
    head, end, body = block.partition(_END)
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    headers = dict(_parted(line) for line in lines if ":" in line)
    head_bytes = len(head) + len(end)
    said: dict[str, Any] = {
        "Headers": headers,
        "Headers-Length": str(head_bytes),
        "Entity-Length": str(size_bytes - head_bytes),
        "Entity-Digest": sha1_label(sha1(body, usedforsecurity=False).digest()),
        "Entity-Trailing-Slop-Length": "0",
    }
    words = [*first.split(" ", 2), "", ""]
    if is_request:
        message = dict(zip(("Method", "Path", "Version"), words, strict=False))
        return {"Request-Message": message, **said}
    message = dict(zip(("Version", "Status", "Reason"), words, strict=False))
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if body and kind.partition(";")[0].strip().lower() in HTML_TYPES:
        codings = codings_of(values(head_fields(head + end), b"content-encoding"))
        page = undo_codings(body, codings, MOST_BODY_BYTES).body if codings else body
        said["HTML-Metadata"] = html_metadata(page, declared_charset(kind) or None)
    return {"Response-Message": message, **said}


def _pairs(block: bytes) -> list[tuple[str, str]]:
    lines = block.decode("utf-8", "replace").split("\r\n")
    return [_parted(line) for line in lines if ":" in line]


def _parted(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


# Which attributes lead somewhere, and which say more of the link.
_LINKS: Final = {
    "a": ("href", ("title", "rel", "target", "hreflang")),
    "area": ("href", ("alt", "shape")),
    "img": ("src", ("alt", "title", "height", "width")),
    "iframe": ("src", ("name",)),
    "frame": ("src", ("name",)),
    "form": ("action", ("method", "target")),
    "embed": ("src", ()),
    "object": ("data", ()),
    "input": ("src", ("alt",)),
    "body": ("background", ()),
}
_METAS: Final = ("name", "property", "http-equiv", "content", "charset")
_HEAD_LINKS: Final = ("rel", "type", "media", "hreflang", "title")


def html_metadata(body: bytes, charset: str | None) -> dict[str, Any]:
    """Return what a page says in its head, and its links, as written. *charset*: as declared by
    HTTP."""
    try:
        parser = html.HTMLParser(encoding=charset, recover=True, huge_tree=False)
        root = html.document_fromstring(body, parser=parser)
    except (LookupError, ValueError, etree.LxmlError):  # an unknown charset, or nothing of HTML
        if charset is None:
            return {}
        return html_metadata(body, None)
    head: dict[str, Any] = {}
    metas, tags, scripts = [], [], []
    links: list[dict[str, str]] = []
    for element in root.iter():
        tag = element.tag
        if not isinstance(tag, str):
            continue
        if tag == "title" and "Title" not in head:
            head["Title"] = (element.text_content() or "").strip()
        elif tag == "base" and element.get("href"):
            head.setdefault("Base", element.get("href"))
        elif tag == "meta":
            metas.append(_said(element, _METAS))
        elif tag == "link" and element.get("href"):
            tags.append(_link(element, "href", _HEAD_LINKS))
        elif tag == "script" and element.get("src"):
            scripts.append(_link(element, "src", ("type",)))
        elif tag in _LINKS and element.get(_LINKS[tag][0]):
            link = _link(element, *_LINKS[tag])
            if tag == "a" and (text := " ".join(element.text_content().split())):
                link["text"] = text
            links.append(link)
    listed = {"Metas": metas, "Link": tags, "Scripts": scripts}
    head |= {name: found for name, found in listed.items() if found}
    return {"Head": head, "Links": links} if links else {"Head": head}


def _said(element: Any, names: Sequence[str]) -> dict[str, str]:
    return {name: element.get(name) for name in names if element.get(name)}


def _link(element: Any, attribute: str, more: Sequence[str]) -> dict[str, str]:
    path = f"{element.tag.upper()}@/{attribute}"
    return {"path": path, "url": element.get(attribute), **_said(element, more)}
