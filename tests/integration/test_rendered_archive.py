"""The archive of a crawl whose pages a browser makes: one shell, and for each page a DOM."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.archive.columns_companion import SUFFIX, ColumnsCompanion
from crawler.archive.warc_file import companion_path
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_settings
from crawler.model.choices import ColumnGroup
from tests.harness.archive_command import archive, packed, warc_of
from tests.harness.archive_judges import (
    answers,
    judged_archive,
    judged_by_programs,
    judged_package,
    query,
    read_folder,
    read_rows,
)
from tests.harness.comparing import assert_same
from tests.harness.crawling import crawl
from tests.harness.fake_browser import PLACE, FakeBrowser
from tests.servers.loopback import Reply, Site, page, site

MARKER: Final = "marker-77aa"
SHELL: Final = b"<title>App</title><div id=root></div><script src=/bundle.js></script>"
PATHS: Final = [f"/app/{number}" for number in range(6)]
DOMS: Final = {
    path: (
        f"<html><head><title>Page {path}</title></head><body><p>"
        + " ".join(f"word{number * each}" for each in range(60))
        + f"</p><a href='{path}/more'>m</a></body></html>"
    ).encode()
    for number, path in enumerate(PATHS, 1)
}
DOMS["/app/0"] += f"<p>{MARKER}</p>".encode()
DOMS |= {"/copy": DOMS["/app/0"], "/hidden": b"<meta name=robots content=noindex><p>none"}
SETTINGS: Final = {
    "CRAWLER_COLUMN_GROUPS": ",".join(ColumnGroup),
    "DOWNLOADER_MIDDLEWARES": {FakeBrowser: PLACE},
    "TEST_DOMS": DOMS,
    # One after the other: the copies come after their originals.
    "CONCURRENT_REQUESTS": 1,
}


def routes() -> dict[str, Reply]:
    coded = Reply(gzip.compress(SHELL, mtime=1), headers=(("Content-Encoding", "gzip"),))
    return {
        "/": page(*PATHS, "/copy", "/plain", "/hidden", text="Start"),
        **dict.fromkeys(PATHS, Reply(SHELL, content_type="text/html;charset=iso-8859-1")),
        PATHS[5]: coded,
        "/copy": Reply(SHELL),
        "/hidden": Reply(SHELL),
        "/plain": Reply(DOMS["/app/1"]),  # it sends what a browser has made of another
        **{f"{path}/more": page(text=f"more of {path}") for path in PATHS},
    }


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Site]:
    with site("127.0.74.20", routes()) as served:
        data = tmp_path_factory.mktemp("rendered") / "data"
        crawl(data, settings=SETTINGS, seeds=served.url("/"), scope="host")
        return data, served


@pytest.fixture
def copied(crawled: tuple[Path, Site], tmp_path: Path) -> Path:
    return Path(shutil.copytree(crawled[0], tmp_path / "data"))


def rows_of(data: Path) -> dict[str, dict[str, Any]]:
    """By path."""
    rows = read_rows(companion_path(warc_of(data), SUFFIX))
    return {"/" + row["url"].split("/", 3)[3]: row for row in rows}


def test_each_row_is_of_the_dom_and_says_so(crawled: tuple[Path, Site]) -> None:
    rows = rows_of(crawled[0])
    for path in PATHS:
        row = rows[path]
        assert (row["title"], row["original"], row["links"]) == (f"Page {path}", None, 1)
        assert row["text"].startswith("word0 word")
        assert row["outlinks"][0]["url"] == crawled[1].url(f"{path}/more")
        how = [row[name] for name in ("rendered", "render_ms", "render_requests")]
        assert [*how, row["render_left_out"], row["render_quiet"]] == [True, 312, 1, 2, False]
        assert row["declared_charset"] == ("utf-8" if path == PATHS[5] else "iso-8859-1")
        assert rows[f"{path}/more"]["rendered"] is None, "its links are followed"
    copy, hidden = rows["/copy"], rows["/hidden"]
    assert (copy["original"], copy["text"], copy["rendered"]) == (
        *(crawled[1].url("/app/0"), None, True),
    )
    assert (copy["dom_offset"], hidden["dom_offset"]) == (None, None)
    assert (hidden["noindex"], hidden["rendered"], hidden["text"]) == (True, True, None)
    assert rows["/plain"]["original"] == crawled[1].url("/app/1")
    assert "/bundle.js" not in rows


def test_duckdb_finds_the_doms(crawled: tuple[Path, Site]) -> None:
    path = str(companion_path(warc_of(crawled[0]), SUFFIX))
    sql = "SELECT url, dom_offset FROM read_parquet($path) WHERE rendered AND dom_offset > 0"
    records = read_folder(crawled[0] / "warc")
    found = query(sql, path=path)
    assert len(found) == len(PATHS)
    for url, offset in found:
        dom = records[warc_of(crawled[0]).name, offset]
        assert (dom.kind, dom.url) == ("conversion", f"urn:dom:{url}")
        assert dom.block == DOMS["/" + url.split("/", 3)[3]]


def test_each_body_is_stored_once(crawled: tuple[Path, Site]) -> None:
    by_kind = kinds_of(crawled[0], crawled[1], *PATHS[:5], "/copy")
    assert (by_kind["response"], by_kind["revisit"], by_kind["conversion"]) == (1, 5, 5)
    by_kind = kinds_of(crawled[0], crawled[1], "/bundle.js")
    assert (by_kind["response"], by_kind["revisit"]) == (1, len(PATHS))
    # The bytes of another page's DOM are in no answer, so they are stored.
    assert kinds_of(crawled[0], crawled[1], "/plain")["response"] == 1


def kinds_of(data: Path, served: Site, *paths: str) -> Counter[str]:
    """How many records of each kind there are of pages, and of their DOMs."""
    urls = set(map(served.url, paths))
    records = [each for each in read_folder(data / "warc").values() if each.kind != "warcinfo"]
    return Counter(each.kind for each in records if each.url.removeprefix("urn:dom:") in urls)


def test_others_read_it(crawled: tuple[Path, Site], tmp_path: Path) -> None:
    judged_by_programs(crawled[0] / "warc")
    judged_archive(crawled[0] / "warc")
    judged_package(packed(crawled[0], tmp_path / "crawl.wacz"))
    checked = archive(crawled[0], "check")
    assert (checked.code, "good" in checked.text) == (0, True)


def test_rebuilt_columns_are_the_same(crawled: tuple[Path, Site], copied: Path) -> None:
    warc = warc_of(copied)
    companion_path(warc, SUFFIX).unlink()
    ColumnsCompanion(rebuild_settings(read_config(SETTINGS))).rebuild(warc, warc)
    assert rows_of(copied) == rows_of(crawled[0])


def test_get(crawled: tuple[Path, Site]) -> None:
    data, served = crawled
    for path in (*PATHS, "/copy"):
        url = served.url(path)
        assert archive(data, "get", url).out == SHELL
        for words in ((url, "--rendered"), (f"urn:dom:{url}",)):
            assert archive(data, "get", *words).out == DOMS[path]
    (listed,) = json.loads(archive(data, "list", "--json").text)
    records = read_folder(data / "warc").values()
    kinds = Counter(each.kind for each in records)
    assert listed["captures"] == sum(kinds[each] for each in ("response", "revisit", "resource"))
    none = archive(data, "get", "--rendered", served.url("/plain"))
    assert (none.code, "no browser has rendered" in none.err) == (1, True)


def test_texts_and_links_for_others_are_of_the_dom(
    crawled: tuple[Path, Site], tmp_path: Path
) -> None:
    for kind in ("wet", "wat"):
        assert archive(crawled[0], kind, str(tmp_path / kind)).code == 0
        (file,) = (tmp_path / kind).iterdir()
        file.rename(tmp_path / kind / "x.warc.gz")
    url = crawled[1].url("/app/2")
    wet = list(read_folder(tmp_path / "wet").values())[1:]
    (text,) = [each.payload for each in wet if each.url == url]
    assert text.startswith(b"Page /app/2\nword0 word3")
    wat = list(read_folder(tmp_path / "wat").values())[1:]
    said = [json.loads(each.block)["Envelope"] for each in wat]
    (dom,) = [
        each["Payload-Metadata"]["HTML-Metadata"]
        for each in said
        if each["WARC-Header-Metadata"].get("WARC-Target-URI") == f"urn:dom:{url}"
    ]
    assert dom["Links"] == [{"path": "A@/href", "url": "/app/2/more", "text": "m"}]


def test_a_deletion_takes_the_dom_too(crawled: tuple[Path, Site], copied: Path) -> None:
    """The copy of a DOM has none of its own."""
    for path in ("/copy", "/app/0"):
        assert archive(copied, "purge", crawled[1].url(path)).code == 0
    left = gzip.decompress(warc_of(copied).read_bytes())
    assert MARKER.encode() not in left and DOMS["/app/1"] in left
    assert MARKER not in str(rows_of(copied))
    judged_by_programs(copied / "warc")
    judged_archive_but_orphans(copied)


def judged_archive_but_orphans(data: Path) -> None:
    checked = archive(data, "check")
    assert (checked.code, "of what was deleted on request" in checked.text) == (0, True)


def test_a_replay_writes_the_same_archive(crawled: tuple[Path, Site], tmp_path: Path) -> None:
    data, served = crawled
    settings = {**SETTINGS, "CRAWLER_REPLAY": str(data)}
    crawl(tmp_path / "data", settings=settings, seeds=served.url("/"), scope="host")
    before = answers(data)
    del before["resource", f"urn:pageinfo:{served.url('/hidden')}"]  # its answer is not stored
    assert_same(answers(tmp_path / "data"), before)
