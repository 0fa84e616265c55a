"""`scrapy archive`, as a user types it, on archives that are whole, damaged or being written."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from hashlib import sha1
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import duckdb
import pytest
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from crawler.archive.capture import Capture
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.export import html_metadata
from crawler.archive.purge import DELETIONS
from crawler.archive.recovery import recover
from crawler.archive.warc_file import OPEN_SUFFIX, companion_path, open_name
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import read_config
from crawler.content.crawl_archive import companions
from crawler.data.data_dir import DataDir, locked
from crawler.model.types import Claim, ConfigError
from crawler.operate.archive import recover_and_rebuild
from crawler.view.archive import COLUMNS_MISSING, ArchivePlace
from tests.harness.archive_command import archive, packed, warc_of
from tests.harness.archive_judges import (
    judged_archive,
    judged_by_programs,
    judged_index,
    judged_package,
    read_folder,
    read_rows,
)
from tests.harness.crawling import crawl
from tests.harness.fork_server import SCRAPY, run
from tests.servers.loopback import Reply, Routes, Site, page, site
from tests.servers.redis import RedisServer

PACKED: Final = gzip.compress(b"<p>packed</p>")
ROUTES: Routes = {
    "/": page("/a", "/b", "/packed", "/moved", "/none", text="Start"),
    "/a": page(text="the same words"),
    "/b": page(text="the same words"),
    "/packed": Reply(PACKED, headers=(("Content-Encoding", "gzip"),)),
    "/moved": Reply("moved", 302, headers=(("Location", "/a"),)),
    "/long": page(text="silk " * 5_000),
}


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    with site("127.0.74.1", ROUTES) as served:
        yield served


@pytest.fixture(scope="module")
def crawled(web: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("crawled") / "data"
    seeds = ",".join(map(web.url, ("/", "/long")))
    crawl(data, settings={"CRAWLER_HTML_MAX_BYTES": 10_000}, seeds=seeds)
    return data


@pytest.fixture
def data(crawled: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(crawled, tmp_path / "data")
    return tmp_path / "data"


def test_list(crawled: Path) -> None:
    result = archive(crawled, "list")
    assert result.code == 0
    head, row, total = result.text.splitlines()
    assert head.split()[:4] == ["file", "state", "captures", "revisits"]
    assert row.split()[:4] == [warc_of(crawled).name, "finished", "7", "1"]
    assert row.endswith("index columns")
    assert total.startswith("1 file, 7 captures, ")
    (entry,) = json.loads(archive(crawled, "list", "--json").text)
    assert (entry["captures"], entry["revisits"]) == (7, 1)


@pytest.mark.parametrize(
    ("path", "options", "body", "note"),
    [
        pytest.param("/a", [], b"the same words", "text/html", id="a page"),
        pytest.param("/b", [], b"the same words", "repeats", id="a revisit is its original"),
        pytest.param("/packed", [], b"<p>packed</p>", "text/html", id="unpacked"),
        pytest.param("/packed", ["--raw"], PACKED, "text/html", id="or as it came"),
        pytest.param("/moved", [], b"moved", "302", id="a redirect"),
        pytest.param("/none", [], b"not here", "404", id="an error page"),
        pytest.param("/long", [], b"silk silk", "cut when it was fetched (length)", id="cut"),
        pytest.param("/a", ["--at", "20"], b"the same words", "", id="of a time"),
    ],
)
def test_get(
    crawled: Path, web: Site, path: str, options: Sequence[str], body: bytes, note: str
) -> None:
    result = archive(crawled, "get", web.url(path), *options)
    assert (result.code, body in result.out) == (0, True)
    assert note in result.err


def test_get_into_a_file(crawled: Path, web: Site, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    result = archive(crawled, "get", web.url("/a"), "-o", str(out))
    assert (result.code, result.out) == (0, b"")
    assert b"the same words" in out.read_bytes()
    assert archive(crawled, "get", web.url("/a"), "-o", str(tmp_path)).code == 1


def test_get_all(crawled: Path, web: Site) -> None:
    result = archive(crawled, "get", web.url("/b"), "--all")
    assert result.code == 0
    assert "warc/revisit" in result.text
    (entry,) = json.loads(archive(crawled, "get", web.url("/b"), "--all", "--json").text)
    assert entry["url"] == web.url("/b") and ":" in entry["record"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(["get", "http://example.com/x"], 1, "is not in the archive", id="not there"),
        pytest.param(["get", "ftp:/x"], 1, "cannot be read as", id="no URL"),
        pytest.param(["get"], 2, "takes one URL", id="no URL at all"),
        pytest.param([], 2, "say what", id="nothing"),
        pytest.param(["dig"], 2, "say what", id="something else"),
        pytest.param(["list", "x"], 2, "takes nothing more", id="too much"),
        pytest.param(["check", "--raw"], 2, "takes no --raw", id="an option of another"),
    ],
)
def test_impossible_requests_are_reported(
    crawled: Path, words: Sequence[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = archive(crawled, *words)
    assert result.code == code
    assert message in result.err + result.text


def test_a_time_of_which_there_is_nothing(crawled: Path, web: Site) -> None:
    result = archive(crawled, "get", web.url("/a"), "--at", "1999")
    assert (result.code, "--all lists them" in result.err) == (1, True)


def test_there_must_be_an_archive(tmp_path: Path) -> None:
    result = archive(tmp_path / "none", "list")
    assert (result.code, "holds no archive" in result.err) == (1, True)


def test_delivered_files_are_reported(crawled: Path) -> None:
    result = archive(crawled, "list", CRAWLER_ARCHIVE_URL="s3://bucket/folder")
    assert (result.code, "s3://bucket/folder" in result.err) == (0, True)


def test_a_good_archive_checks(crawled: Path) -> None:
    result = archive(crawled, "check")
    assert (result.code, result.err) == (0, "")
    assert result.text == f"{warc_of(crawled).name}  22 records, 7 captures  good\n"


def records_of(warc: Path) -> list[int]:
    """Where they begin, but for the first."""
    offsets = [
        json.loads(line.split(" ", 2)[2])["offset"] for line in judged_index(warc).split("\n")[:-1]
    ]
    return sorted(map(int, offsets))


def rewritten(warc: Path, old: bytes, new: bytes) -> None:
    """Change a record and pack it again, so that gzip has nothing to say."""
    begins = [0, *records_of(warc), warc.stat().st_size]
    content = warc.read_bytes()
    parts = [content[a:b] for a, b in pairwise(begins)]
    made = []
    for part in parts:
        plain = gzip.decompress(part)
        made.append(gzip.compress(plain.replace(old, new)) if old in plain else part)
    warc.write_bytes(b"".join(made))


@pytest.mark.parametrize(
    ("message", "damage"),
    [
        pytest.param(
            "is no gzip",
            lambda warc: warc.write_bytes(
                warc.read_bytes()[:600] + b"\0" * 40 + warc.read_bytes()[640:]
            ),
            id="bytes that were lost",
        ),
        pytest.param(
            "is cut off",
            lambda warc: warc.write_bytes(warc.read_bytes()[:-9]),
            id="an end that was lost",
        ),
        pytest.param(
            "has no index",
            lambda warc: companion_path(warc, ".cdxj").unlink(),
            id="an index that was lost",
        ),
        pytest.param(
            "does not match",
            lambda warc: companion_path(warc, ".cdxj").write_text("x\n"),
            id="an index that is wrong",
        ),
        pytest.param(
            "names another file",
            lambda warc: warc.rename(warc.with_name("other.warc.gz")),
            id="another name",
        ),
        pytest.param(
            "left unfinished",
            lambda warc: warc.rename(warc.with_name(warc.name + OPEN_SUFFIX)),
            id="a file of a dead process",
        ),
    ],
)
def test_damage_is_named(data: Path, message: str, damage: Any) -> None:
    damage(warc_of(data))
    result = archive(data, "check")
    assert result.code == 1
    assert message in result.text, result.text
    found = json.loads(archive(data, "check", "--json").text)
    assert any(message in fault["what"] for each in found for fault in each["faults"])


def written(data: Path, captures: Sequence[Capture], name: str = "h-1") -> Path:
    warcs = WarcWriter(WarcSettings(folder=data / "warc", origin=name), [CdxjCompanion()])
    for capture in captures:
        warcs.append(capture)
    warcs.close()
    return warc_of(data)


FIRST: Final = Capture(
    url="http://example.com/1",
    fetched_at=1767323045.5,
    head=b"HTTP/1.1 200 OK\r\n\r\n",
    body=b"hello world",
)
CLAIM: Final = Claim(sha1(FIRST.body).digest(), FIRST.url, "x.warc.gz:1", FIRST.fetched_at)
COPY: Final = replace(FIRST, url="http://example.com/2", duplicate_of=CLAIM)


@pytest.mark.parametrize(
    ("digest", "change"),
    [
        pytest.param("WARC-Payload-Digest", (b"hello", b"HELLO"), id="of the payload"),
        pytest.param("WARC-Block-Digest", (b"200 OK", b"200 ok"), id="of all of it"),
    ],
)
def test_a_digest_that_is_wrong(tmp_path: Path, digest: str, change: tuple[bytes, bytes]) -> None:
    warc = written(tmp_path, [FIRST])
    rewritten(warc, *change)
    result = archive(tmp_path, "check")
    assert (result.code, f"its {digest} is sha1:" in result.text) == (1, True)


def of_another_tool(path: Path, *, gzipped: bool) -> None:
    """As others may write: URLs in brackets, digests in base 16, resources."""
    body = b"hello world"
    head = StatusAndHeaders("200 OK", [("Content-Type", "text/plain")], protocol="HTTP/1.1")
    digest = {"WARC-Payload-Digest": f"sha1:{sha1(body).hexdigest()}"}
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=gzipped, warc_version="1.0")
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "other"}))
        for url, kind, http in (
            ("http://example.com/1", "response", head),
            ("http://example.com/2", "resource", None),
        ):
            record = writer.create_warc_record(
                f"<{url}>",
                kind,
                payload=io.BytesIO(body),
                length=len(body),
                http_headers=http,
                warc_content_type="text/css" if http is None else "",
                warc_headers_dict=digest,
            )
            writer.write_record(record)


@pytest.mark.parametrize("name", ["other.warc", "other.warc.gz"])
def test_an_archive_of_another_tool(tmp_path: Path, name: str) -> None:
    path = tmp_path / "warc" / name
    path.parent.mkdir()
    of_another_tool(path, gzipped=name.endswith(".gz"))
    with path.open("rb") as file:
        judged = [record.rec_type for record in ArchiveIterator(file)]
    assert judged == ["warcinfo", "response", "resource"]
    assert b"<http://example.com/2>" in (path.read_bytes() if name == "other.warc" else
                                         gzip.decompress(path.read_bytes()))  # fmt: skip
    result = archive(tmp_path, "check")
    assert result.text.splitlines()[0] == f"{name}  3 records, 2 captures  1 fault", result
    assert "has no index" in result.text.splitlines()[1]
    assert archive(tmp_path, "index").code == 0
    assert archive(tmp_path, "check").text == f"{name}  3 records, 2 captures  good\n"
    for url in ("http://example.com/1", "http://example.com/2"):
        assert archive(tmp_path, "get", url).out == b"hello world"
    cut = path.read_bytes()[:-9]
    path.write_bytes(cut)
    assert archive(tmp_path, "check").code == 1
    path.write_bytes(b"WARC/1.0\r\n" + b"x" * 200_000)
    assert "is no WARC record" in archive(tmp_path, "check").text


def test_a_folder_without_any_file_to_check(tmp_path: Path) -> None:
    (tmp_path / "warc").mkdir()
    (tmp_path / "warc" / "notes.txt").write_text("none")
    result = archive(tmp_path, "check")
    assert (result.code, result.text) == (1, "")
    assert "has no WARC file (.warc.gz, .warc)" in result.err


def test_a_revisit_of_nothing(tmp_path: Path) -> None:
    warc = written(tmp_path, [COPY])
    result = archive(tmp_path, "check")
    assert result.code == 1
    assert f"{warc.name}:" in result.text and "whose original is in no file here" in result.text
    elsewhere = archive(tmp_path, "check", CRAWLER_ARCHIVE_URL="s3://bucket/folder")
    assert (elsewhere.code, "1 revisit of what is elsewhere" in elsewhere.text) == (0, True)
    got = archive(tmp_path, "get", COPY.url)
    assert (got.code, "whose record is not here" in got.err) == (1, True)


def test_originals_may_be_in_the_file_of_another_worker(tmp_path: Path) -> None:
    written(tmp_path / "workers" / "1", [FIRST])
    written(tmp_path / "workers" / "2", [COPY])
    assert archive(tmp_path, "check").code == 0
    assert archive(tmp_path, "get", COPY.url).out == FIRST.body


def test_a_crawl_at_work_is_no_fault(tmp_path: Path) -> None:
    home = DataDir(tmp_path)
    warcs = WarcWriter(WarcSettings(folder=home.warc, origin="h-1"), [CdxjCompanion()])
    for capture in (FIRST, COPY):
        warcs.append(capture)
    (open_file,) = home.warc.glob("*.open")
    with open_file.open("ab") as file:
        file.write(b"\x1f\x8b")  # the beginning of a third
    assert "being written" in archive(tmp_path, "list").text
    assert archive(tmp_path, "get", COPY.url).out == FIRST.body
    result = archive(tmp_path, "check")
    assert (result.code, "3 records, 2 captures  good  being written" in result.text) == (0, True)
    home.close()
    assert archive(tmp_path, "check").code == 1
    assert "unfinished" in archive(tmp_path, "list").text


def test_indexes_and_columns_are_made_again(data: Path) -> None:
    warc = warc_of(data)
    index, columns = companion_path(warc, ".cdxj"), companion_path(warc, ".parquet")
    before = index.read_bytes()
    index.write_bytes(b"")
    columns.unlink()
    assert archive(data, "index").text == f"{index.name}\n"
    assert index.read_bytes() == before and not columns.exists()
    index.unlink()
    assert archive(data, "parse").code == 0
    assert index.read_bytes() == before and columns.exists()
    assert archive(data, "parse", CRAWLER_COLUMNS="0").code == 1


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    bad, good = tmp_path / "warc" / "a.warc.gz", written(tmp_path, [FIRST])
    bad.write_bytes(b"no gzip")
    companion_path(good, ".cdxj").unlink()
    result = archive(tmp_path, "index")
    assert (result.code, "a.warc.gz" in result.text) == (1, True)
    assert companion_path(good, ".cdxj").exists()
    assert not list((tmp_path / "warc").glob("*.open"))


def test_a_package_is_valid(crawled: Path, web: Site, tmp_path: Path) -> None:
    out = tmp_path / "crawl.wacz"
    labels = ("--title", "Our site", "--description", "As of its last day")
    result = archive(crawled, "pack", str(out), *labels)
    assert result.code == 0, result.err
    assert "1 file, 5 pages" in result.text
    judged_package(out)
    with ZipFile(out) as package:
        described = json.loads(package.read("datapackage.json"))
        head, *pages = map(json.loads, package.read("pages/pages.jsonl").splitlines())
    assert (described["title"], described["description"]) == labels[1::2]
    assert described["mainPageUrl"] == web.url("/")
    assert head["hasText"]
    assert {each["url"] for each in pages if each.get("seed")} == {web.url("/"), web.url("/long")}
    assert any(each.get("text") for each in pages)
    assert archive(crawled, "pack", str(out)).code == 1
    assert list(tmp_path.glob("*")) == [out]


def test_without_columns_the_pages_are_those_of_the_index(data: Path, tmp_path: Path) -> None:
    companion_path(warc_of(data), ".parquet").unlink()
    out = tmp_path / "crawl.wacz"
    assert "pages" in archive(data, "pack", str(out)).text
    judged_package(out)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda warc: companion_path(warc, ".cdxj").unlink(), id="a file without an index"
        ),
        pytest.param(lambda warc: warc.unlink(), id="no file"),
        pytest.param(
            lambda warc: companion_path(warc, ".parquet").write_bytes(b"x"), id="bad columns"
        ),
    ],
)
def test_a_failed_package_leaves_no_file(data: Path, tmp_path: Path, spoil: Any) -> None:
    spoil(warc_of(data))
    result = archive(data, "pack", str(tmp_path / "out.wacz"))
    assert (result.code, result.err.startswith("gossamer: error: ")) == (1, True)
    assert not list(tmp_path.glob("out*"))


def test_files_of_a_dead_process_are_repaired_at_the_next_start(data: Path) -> None:
    """All but the columns, which are missing; both commands report it, and parse makes them."""
    warc = warc_of(data)
    index = companion_path(warc, ".cdxj").read_bytes()
    for suffix in (".cdxj", ".parquet"):
        companion_path(warc, suffix).rename(companion_path(warc, suffix + OPEN_SUFFIX))
    warc.rename(warc.with_name(warc.name + OPEN_SUFFIX))
    recover(data / "warc", companions(read_config({})))
    assert companion_path(warc, ".cdxj").read_bytes() == index
    assert json.loads(archive(data, "list", "--json").text)[0]["beside"] == [
        "index",
        COLUMNS_MISSING,
    ]
    checked = archive(data, "check")
    assert (checked.code, "columns still to be made" in checked.text) == (0, True)
    assert archive(data, "parse").code == 0
    assert sorted(path.suffix for path in warc.parent.iterdir()) == [".cdxj", ".gz", ".parquet"]
    assert archive(data, "check").code == 0


def test_the_archive_of_an_abandoned_crawl_is_repaired(data: Path) -> None:
    warc = warc_of(data)
    index, content = companion_path(warc, ".cdxj").read_bytes(), warc.read_bytes()
    warc.with_name(warc.name + OPEN_SUFFIX).write_bytes(content + b"\x1f\x8b")
    for path in (warc, companion_path(warc, ".cdxj"), companion_path(warc, ".parquet")):
        path.unlink()
    assert "unfinished" in archive(data, "list").text
    result = archive(data, "index")
    assert (result.code, "was unfinished, is whole now" in result.text) == (0, True)
    assert (warc.read_bytes(), companion_path(warc, ".cdxj").read_bytes()) == (content, index)
    assert json.loads(archive(data, "list", "--json").text)[0]["beside"] == [
        "index",
        COLUMNS_MISSING,
    ]
    assert archive(data, "parse").code == 0
    assert archive(data, "check").code == 0
    assert sorted(path.suffix for path in warc.parent.iterdir()) == [".cdxj", ".gz", ".parquet"]


class Counts(CdxjCompanion):
    def __init__(self) -> None:
        super().__init__()
        self.rebuilt: list[str] = []

    def rebuild(self, warc: Path, content: Path) -> None:
        self.rebuilt.append(warc.name)
        super().rebuild(warc, content)


def test_a_repaired_file_is_not_read_twice(tmp_path: Path) -> None:
    """Missing companions are built."""
    whole = written(tmp_path, [FIRST])
    left = whole.with_name("z.warc.gz")
    open_name(left).write_bytes(whole.read_bytes())
    index, place = Counts(), ArchivePlace(tmp_path, (tmp_path / "warc",), "", is_shared=False)
    rebuilt = [done.file for done in recover_and_rebuild(place, [index], [index])]
    assert (rebuilt, index.rebuilt) == ([left.name, whole.name], [whole.name])
    left.rename(open_name(left))
    columns = companions(read_config({}))[1]
    rebuilt = [done.file for done in recover_and_rebuild(place, [index, columns], [index, columns])]
    assert rebuilt == [left.name, whole.name, left.name]
    assert index.rebuilt == [whole.name] * 2 and companion_path(left, ".parquet").exists()


def test_an_irreparable_file_is_a_fault_and_the_others_are_repaired(tmp_path: Path) -> None:
    bad = written(tmp_path, [FIRST])
    content = bad.read_bytes()
    open_name(bad).write_bytes(content)
    good = bad.with_name("z.warc.gz")
    open_name(good).write_bytes(content)
    result = archive(tmp_path, "index")
    assert (result.code, f"{bad.name} is there already" in result.text) == (1, True)
    assert good.exists() and companion_path(good, ".cdxj").exists() and open_name(bad).exists()
    assert bad.read_bytes() == content


def test_files_of_a_running_crawl_are_not_touched(tmp_path: Path) -> None:
    warcs = WarcWriter(WarcSettings(folder=tmp_path / "warc", origin="h-1"), [CdxjCompanion()])
    warcs.append(FIRST)
    there = sorted((tmp_path / "warc").iterdir())
    assert archive(tmp_path, "index").text == ""
    assert sorted((tmp_path / "warc").iterdir()) == there
    warcs.append(COPY)
    warcs.close()
    assert archive(tmp_path, "check").code == 0


def test_purge(data: Path, web: Site, tmp_path: Path) -> None:
    lines = archive(data, "purge", "--list", web.url("/a")).text.splitlines()
    listed = [json.loads(line) for line in lines]
    assert [(each["url"], each["type"], each["deleted"]) for each in listed] == [
        *((web.url("/a"), kind, True) for kind in ("response", "request", "metadata")),
        (web.url("/b"), "revisit", False),
    ]
    assert archive(data, "check").text.endswith("22 records, 7 captures  good\n"), "as before"
    result = archive(data, "purge", web.url("/a"))
    assert (result.code, result.err) == (0, "")
    assert "3 records deleted, 1 revisit left of them" in result.text
    assert [json.loads(line) for line in (data / DELETIONS).read_text().splitlines()] == listed
    assert "is not in the archive" in archive(data, "get", web.url("/a")).err
    assert "whose record is not here" in archive(data, "get", web.url("/b")).err
    assert archive(data, "get", web.url("/packed")).out == b"<p>packed</p>"
    checked = archive(data, "check")
    assert (checked.code, "1 revisit of what was deleted on request" in checked.text) == (0, True)
    assert "20 records, 6 captures  good" in checked.text
    judged_package(packed(data, tmp_path / "crawl.wacz"))
    again = archive(data, "purge", web.url("/a"))
    assert (again.code, "0 records deleted" in again.text) == (0, True)


def test_what_is_kept_of_a_page_marked_noindex(tmp_path: Path) -> None:
    """Its links, in a record that others' software can read, and that goes with the page."""
    hidden = Reply(
        '<title>secret</title><a href="/next" rel="&#xD800;">x</a>',
        headers=(("X-Robots-Tag", "noindex"),),
    )
    with site("127.0.74.2", {"/": page("/hidden"), "/hidden": hidden, "/next": page()}) as web:
        data = tmp_path / "data"
        crawl(data, seeds=web.url("/"))
        url = web.url("/hidden")
    kept = gzip.decompress(warc_of(data).read_bytes())
    assert (f"urn:pageinfo:{url}".encode() in kept, b"secret" in kept) == (True, False)
    judged_archive(data / "warc")
    judged_package(packed(data, tmp_path / "crawl.wacz"))
    assert "is not in the archive" in archive(data, "get", url).err
    assert archive(data, "purge", url).code == 0
    assert f"urn:pageinfo:{url}".encode() not in gzip.decompress(warc_of(data).read_bytes())
    judged_archive(data / "warc")


def test_purge_names_packages(data: Path, web: Site) -> None:
    packed(data, data / "warc" / "crawl.wacz")
    result = archive(data, "purge", web.url("/a"))
    assert (result.code, "may hold what was deleted" in result.text) == (1, True)


def test_purge_of_what_a_dead_process_left(data: Path, web: Site) -> None:
    warc = warc_of(data)
    companion_path(warc, ".cdxj").unlink()
    warc.rename(open_name(warc))
    result = archive(data, "purge", "127.0.74.1")
    assert (result.code, "was unfinished" in result.text) == (0, True)
    assert "0 captures" in archive(data, "check").text


def test_purge_beside_a_crawl_is_refused(data: Path, web: Site) -> None:
    before = warc_of(data).read_bytes()
    with locked(data):
        result = archive(data, "purge", web.url("/a"))
        assert len(archive(data, "purge", "--list", web.url("/a")).text.splitlines()) == 4
    assert (result.code, "in use by another crawl" in result.err) == (1, True)
    assert warc_of(data).read_bytes() == before and not (data / DELETIONS).exists()


def test_purge_in_an_object_store_too(data: Path, web: Site, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(data / "warc", store / "warc")
    here = warc_of(data)
    for path in (data / "warc").iterdir():
        path.unlink()
    url = f"file://{store}"
    assert "means all URLs" in archive(data, "purge", "*", CRAWLER_ARCHIVE_URL=url).err
    result = archive(data, "purge", web.url("/packed"), CRAWLER_ARCHIVE_URL=url)
    assert (result.code, result.err, "3 records deleted" in result.text) == (0, "", True)
    assert gzip.decompress((store / "warc" / here.name).read_bytes()).count(b"/packed HTTP") == 0


def test_graph(tmp_path: Path) -> None:
    """What it writes is what a crawl reads as CRAWLER_RANKS."""
    elsewhere = ("https://www.example.org/", "http://example.org/a", "https://www.example.org/b")
    routes = {"/": page("/a", *elsewhere), "/a": page("https://example.com/", text="a")}
    data, graph = tmp_path / "data", tmp_path / "new" / "graph"
    with site("127.0.74.2", routes) as web:
        crawl(data, seeds=web.url("/"), scope="host")
        result = archive(data, "graph", str(graph))
        assert (result.code, result.err) == (0, "")
        lines = result.text.splitlines()
        assert lines[0] == f"{warc_of(data).name}  2 pages"
        assert lines[1] == f"{graph}/host-ranks.txt.gz  4 hosts, 3 edges"
        assert lines[2] == f"{graph}/domain-ranks.txt.gz  3 domains, 2 edges"
        ranks = "domain-ranks.txt.gz"
        read = f"SELECT * FROM read_csv('{graph / ranks}', delim='\t') ORDER BY ALL"
        # example.com and example.org have the same centralities.
        assert [
            (row[0], row[1], row[4], row[5], row[6]) for row in duckdb.sql(read).fetchall()
        ] == [
            (1, 1.0, "com.example", 1, 1),
            (2, 1.0, "org.example", 2, 1),
            (3, 0.0, "127.0.74.2", 1, 0),
        ]
        again = crawl(
            tmp_path / "again", settings={"CRAWLER_RANKS": str(graph / ranks)}, seeds=web.url("/a")
        )
        assert again.reason == "finished"
        (tmp_path / "mine.txt").write_text("example.org 1\nexample.com one\n")
        with pytest.raises(
            ConfigError, match=r"mine\.txt: 1 of 2 lines .* is line 2, 'example.com"
        ):
            crawl(
                tmp_path / "none",
                settings={"CRAWLER_RANKS": str(tmp_path / "mine.txt")},
                seeds=web.url("/"),
            )
    with pytest.raises(ConfigError, match="CRAWLER_RANKS: /nowhere cannot be read: No such file"):
        crawl(tmp_path / "none", settings={"CRAWLER_RANKS": "/nowhere"}, seeds=web.url("/"))


def test_graph_of_an_archive_without_columns(data: Path, tmp_path: Path) -> None:
    companion_path(warc_of(data), ".parquet").unlink()
    result = archive(data, "graph", str(tmp_path / "graph"))
    assert (result.code, "scrapy archive parse makes them" in result.text) == (1, True)
    assert "has no columns with pages" in result.err and not (tmp_path / "graph").exists()


def test_a_link_to_a_ranked_host_counts_for_more(tmp_path: Path) -> None:
    ranked, other = "http://127.0.74.5:9/x", "http://127.0.74.6:9/x"
    routes = {"/": page(ranked, other, *(f"/{number}" for number in range(510)))}
    (tmp_path / "mine.txt").write_text("127.0.74.5 8\n127.0.74.3 4\n")
    settings = {"CRAWLER_RANKS": str(tmp_path / "mine.txt")}
    data = tmp_path / "data"
    with site("127.0.74.3", routes) as web:
        crawl(data, settings=settings, seeds=web.url("/"), max_pages=1)
    for url, part in ((ranked, "1/256"), (other, "1/512"), (web.url("/7"), "1/512")):
        why = run([*SCRAPY, "frontier", "why", url, "-s", f"CRAWLER_DATA_DIR={data}"])
        assert f"its importance is {part} of a seed's" in why.stdout, why


WORDS: Final = " ".join(f"word{number} of a sentence about {number * 7}" for number in range(200))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The data directories of two crawls of a site, which changes between them."""
    home = tmp_path_factory.mktemp("two")
    names = ("same", "near", "other", "gone", "left", "item/1", "item/2")
    routes: Routes = {f"/{name}": page(text=f"{name} {WORDS}") for name in names}
    routes["/"] = page(*(f"/{name}" for name in names))
    with site("127.0.74.9", routes) as served:
        crawl(home / "old", seeds=served.url("/"))
        left = [f"/{name}" for name in names if name not in ("left", "item/1")]
        routes["/"] = page(*left, "/item/3", "/item/4")
        routes["/near"] = page(text=f"near {WORDS} indeed")
        routes["/other"] = page(text=f"nothing of it {WORDS[::-1]}")
        routes["/item/3"] = routes["/item/4"] = page(text=f"items {WORDS}")
        del routes["/gone"]
        crawl(home / "new", seeds=served.url("/"))
        return home / "old", home / "new", served.root


def test_two_archives_are_compared(two: tuple[Path, Path, str], tmp_path: Path) -> None:
    old, new, root = two
    lines = tmp_path / "pages.jsonl"
    result = archive(tmp_path, "compare", str(old), str(new), "--json", "-o", str(lines))
    assert result.code == 0, result.err
    found, host = json.loads(result.text), root.partition("//")[2]
    pages = {each["url"].removeprefix(root): each for each in map(json.loads, open_lines(lines))}
    assert {path: each["kind"] for path, each in pages.items()} == {
        **dict.fromkeys(("/item/3", "/item/4"), "new"),
        **dict.fromkeys(("/", "/near", "/other"), "changed"),
        **dict.fromkeys(("/gone", "/left", "/item/1"), "gone"),
    }
    assert (pages["/gone"]["status"], pages["/left"].get("status")) == (404, None)
    assert pages["/near"]["bits"] <= 3 < pages["/other"]["bits"]
    assert (found["old_pages"], found["new_pages"], found["same"]) == (8, 7, 2)
    assert (found["nearly"], found["not_fetched"]) == (1, 2)
    patterns = {each["pattern"]: each for each in found["patterns"]}
    items = patterns[f"{host}/item/#"]
    assert (items["new"], items["changed"], items["gone"]) == (2, 0, 1)
    (there := tmp_path / "there.html").write_text("kept")
    assert archive(tmp_path, "compare", str(old), str(new), "-o", str(there)).code == 1
    assert there.read_text() == "kept"
    assert archive(tmp_path, "compare", str(old), str(new), "-o", str(lines)).code == 1, (
        "it is there"
    )


def open_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_comparison_is_shown(two: tuple[Path, Path, str], tmp_path: Path) -> None:
    old, new, root = two
    result = archive(tmp_path, "compare", str(old), str(new), "-o", str(tmp_path / "x.html"))
    assert "8 pages before, 7 now, 2 the same, 2 new, 3 changed" in result.text
    shown = (tmp_path / "x.html").read_text()
    assert f"{root}/item/3" in shown and "answered 404" in shown and "<script" not in shown
    same = archive(tmp_path, "compare", str(new), str(new))
    assert "7 the same, 0 new, 0 changed" in same.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["compare", "x"], "takes the data directory of the older", id="one"),
        pytest.param(["compare", "none", "none"], "holds no archive", id="no archive"),
    ],
)
def test_impossible_comparisons_are_reported(tmp_path: Path, words: list[str], said: str) -> None:
    result = archive(tmp_path, *words)
    assert result.code and said in result.text + result.err


def test_a_comparison_names_what_it_cannot_read(
    two: tuple[Path, Path, str], tmp_path: Path
) -> None:
    old, new, _ = two
    shutil.copytree(old, tmp_path / "old")
    companion_path(warc_of(tmp_path / "old"), ".parquet").unlink()
    lines = tmp_path / "pages.jsonl"
    result = archive(tmp_path, "compare", str(tmp_path / "old"), str(new), "-o", str(lines))
    assert not lines.exists()
    assert (result.code, "scrapy archive parse" in result.err) == (1, True)
    assert archive(tmp_path, "compare", str(old), str(new), "-o", "x.csv").code == 1


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "over Redis"])
def test_what_an_earlier_crawl_has_is_not_stored_again(
    crawled: Path, web: Site, tmp_path: Path, is_shared: bool
) -> None:
    data = tmp_path / "later"
    with RedisServer() if is_shared else nullcontext() as server:
        settings = {"CRAWLER_FRONTIER_URL": server.url} if server is not None else {}
        crawl(data, settings=settings, seeds=web.url("/"), known=str(crawled))
        again = crawl(data, settings=settings)
        assert again.spider.arguments.known == str(crawled), "kept for the next start"
    warc = data / "warc"
    records = [each for each in read_folder(warc).values() if each.kind in ("response", "revisit")]
    kinds = {each.url.removeprefix(web.url("")): each.kind for each in records}
    paths = ("/", "/a", "/b", "/packed", "/moved", "/none")
    assert kinds == dict.fromkeys(paths, "revisit")
    assert len(records) == 6, "links of a page with known bytes are followed, each once"
    for each in records:
        of = each.fields["WARC-Refers-To-Target-URI"]
        assert of.startswith(web.url("/")), "a record of the earlier crawl"
    rows = [row for file in sorted(warc.glob("*.parquet")) for row in read_rows(file)]
    texts = {row["url"].removeprefix(web.url("")): row["text"] for row in rows}
    assert texts["/"].startswith("Start") and texts["/packed"] == "packed"
    assert archive(data, "check").code == 0, "their originals are known"
    got = archive(data, "get", web.url("/packed"))
    assert (got.code, got.out) == (0, b"<p>packed</p>")
    assert archive(data, "parse").code == 0
    parsed = [row for file in sorted(warc.glob("*.parquet")) for row in read_rows(file)]
    assert parsed == rows, "their bodies are read from the earlier archive"


def test_texts_and_metadata_as_common_crawl_has_them(
    crawled: Path, web: Site, tmp_path: Path
) -> None:
    warc = crawled / "warc"
    (source,) = warc.glob("*.warc.gz")
    before = read_folder(warc)
    assert archive(crawled, "wet", str(tmp_path / "wet")).code == 0
    assert archive(crawled, "wat", str(tmp_path / "wat")).code == 0
    for kind in ("wet", "wat"):
        stem = source.name.removesuffix(".warc.gz")
        (tmp_path / kind / f"{stem}.warc.{kind}.gz").rename(tmp_path / kind / "x.warc.gz")
        judged_by_programs(tmp_path / kind)
    wet = list(read_folder(tmp_path / "wet").values())
    assert [each.kind for each in wet[:2]] == ["warcinfo", "conversion"]
    texts = {each.url.removeprefix(web.url("")): each.block.decode() for each in wet[1:]}
    rows = [row for file in warc.glob("*.parquet") for row in read_rows(file)]
    said_something = [row["url"] for row in rows if row["text"] or row["title"]]
    assert texts.keys() == {url.removeprefix(web.url("")) for url in said_something}
    assert texts["/packed"] == "packed\n" and "/b" not in texts, "a copy has its original's text"
    ids = {each.fields["WARC-Record-ID"]: each for each in before.values()}
    for each in wet[1:]:
        original = ids[each.fields["WARC-Refers-To"]]
        assert (original.kind, original.url) == ("response", each.url)
        assert original.fields["WARC-Date"] == each.fields["WARC-Date"]
        assert each.fields["Content-Type"] == "text/plain"
    wat = list(read_folder(tmp_path / "wat").values())
    assert len(wat) == len(before) + 1, "one for each record, whatever its type"
    said = {each.fields["WARC-Refers-To"]: json.loads(each.block) for each in wat[1:]}
    assert said.keys() == ids.keys()
    for name, each in said.items():
        record, envelope = ids[name], each["Envelope"]
        assert envelope["WARC-Header-Metadata"] == record.fields
        payload = envelope["Payload-Metadata"]
        assert payload["Actual-Content-Length"] == record.fields["Content-Length"]
        assert payload["Block-Digest"] == record.fields["WARC-Block-Digest"]
        container = each["Container"]
        with source.open("rb") as file:
            file.seek(int(container["Offset"]))
            member = file.read(int(container["Gzip-Metadata"]["Deflate-Length"]))
        assert len(gzip.decompress(member)) == int(container["Gzip-Metadata"]["Inflated-Length"])
    by_url = {
        (ids[name].kind, ids[name].fields.get("WARC-Target-URI", "")): each["Envelope"]
        for name, each in said.items()
    }
    http = by_url["response", web.url("/")]["Payload-Metadata"]["HTTP-Response-Metadata"]
    assert http["Response-Message"] == {"Version": "HTTP/1.1", "Status": "200", "Reason": "OK"}
    links = http["HTML-Metadata"]["Links"]
    assert {name: links[0][name] for name in ("path", "url")} == {"path": "A@/href", "url": "/a"}
    asked = by_url["request", web.url("/")]["Payload-Metadata"]["HTTP-Request-Metadata"]
    assert asked["Request-Message"]["Method"] == "GET"
    noted = by_url["metadata", web.url("/")]["Payload-Metadata"]["WARC-Metadata-Metadata"]
    assert noted["Metadata-Records"][0]["Name"] == "fetchTimeMs"


def test_the_html_metadata_of_a_page() -> None:
    page = (
        '<html><head><title> A </title><base href="/x/"><meta name=description content=words>'
        '<meta property="og:title" content=B><link rel=canonical href=/c><script src=s.js></script>'
        '</head><body><a href="u" rel=nofollow title=t>to <b>\u00fc</b></a><img src=i alt=k>'
        "<form action=/go method=post></form></body></html>"
    )
    for encoding in ("utf-8", "windows-1252"):
        assert html_metadata(page.encode(encoding), encoding) == {
            "Head": {
                "Title": "A",
                "Base": "/x/",
                "Metas": [
                    {"name": "description", "content": "words"},
                    {"property": "og:title", "content": "B"},
                ],
                "Link": [{"path": "LINK@/href", "url": "/c", "rel": "canonical"}],
                "Scripts": [{"path": "SCRIPT@/src", "url": "s.js"}],
            },
            "Links": [
                {
                    "path": "A@/href",
                    "url": "u",
                    "title": "t",
                    "rel": "nofollow",
                    "text": "to \u00fc",
                },
                {"path": "IMG@/src", "url": "i", "alt": "k"},
                {"path": "FORM@/action", "url": "/go", "method": "post"},
            ],
        }
    assert html_metadata(b"", None) == {} == html_metadata(b"", "no-such-charset")
