"""Pages that a dead process had archived under leases that it left open are claimed for them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from crawler.archive.capture import Capture, Dom
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.record_bytes import sha1_label
from crawler.archive.recovery import ReadingLimits, claim_unfinished, recover
from crawler.archive.warc_file import companion_path, open_name
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import FetchSettings
from crawler.data.local_stores import LocalClaims
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.frontier import records as keys
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import OpenRecord, decode_open, encode
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.staging import all_records
from crawler.model.page import Flaw
from crawler.model.types import (
    IN_NO_BODY,
    Candidate,
    Claim,
    HostKey,
    Purpose,
)
from crawler.policy.body_caps import cap_bytes
from tests.harness.archive_judges import judged_index, read_file

AT: Final = 1767323045.123456
URL: Final = "http://www.example.com/a?b"
BODY: Final = b"<p>words"
DIGEST: Final = sha1(BODY).digest()
PAGE: Final = Capture(url=URL, fetched_at=AT, status=200, body=BODY, metadata=[("x", "y")])
SHELL: Final = replace(PAGE, body=b"shell", metadata=[("rendered", "1 0 0 quiet")])
OF_SHELL: Final = Claim(sha1(b"shell").digest(), "http://b/", "x.warc.gz:1", AT)
DOM: Final = Dom(BODY, DIGEST)
PACKED: Final = gzip.compress(BODY, mtime=0)
CODED: Final = replace(PAGE, body=PACKED, headers=[(b"Content-Encoding", b"gzip")])
READING: Final = ReadingLimits(partial(cap_bytes, caps=FetchSettings()), 1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    with closing(RocksStore(tmp_path / "frontier")) as opened:
        yield opened


def leased(store: RocksStore, *urls: str, **changes: Any) -> None:
    for number, url in enumerate(urls):
        candidate = Candidate(url, number, HostKey("www.example.com"), "example.com", **changes)
        store.write({keys.numbered(keys.OPEN, number): encode(OpenRecord(candidate, AT - 1))})


def archived(folder: Path, *captures: Capture) -> None:
    writer = WarcWriter(WarcSettings(folder=folder, origin="h-1"), [CdxjCompanion()])
    for one in captures:
        writer.append(one)
    writer.close()


def claim(store: RocksStore, folder: Path) -> int:
    return claim_unfinished(store, folder, READING)


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        pytest.param(PAGE, Claim(DIGEST, URL, "", AT, DIGEST), id="a page"),
        pytest.param(
            replace(CODED, metadata=[("content-digest", sha1_label(DIGEST))]),
            Claim(DIGEST, URL, "", AT, sha1(PACKED).digest()),
            id="a page that came compressed",
        ),
        pytest.param(
            replace(CODED, metadata=()),
            Claim(DIGEST, URL, "", AT, sha1(PACKED).digest()),
            id="the same, cut off from its metadata",
        ),
        pytest.param(
            replace(PAGE, status=503), Claim(DIGEST, URL, "", AT, DIGEST, 503), id="an error"
        ),
        pytest.param(
            replace(PAGE, metadata=[("flaw", Flaw.SOFT_404)]),
            Claim(DIGEST, URL, "", AT, DIGEST, 404),
            id="an error with another name",
        ),
        pytest.param(
            replace(PAGE, metadata=[("flaw", Flaw.WRONG_TYPE)]),
            Claim(DIGEST, URL, "", AT, DIGEST, 0),
            id="what is no page",
        ),
        pytest.param(
            replace(PAGE, metadata=[("alias-of", "http://example.com/")]),
            Claim(DIGEST, URL, "", AT, DIGEST, 0),
            id="a page by another name",
        ),
        pytest.param(
            replace(PAGE, metadata=[("simhash", "00000000000000ff")]),
            Claim(DIGEST, URL, "", AT, DIGEST, 200, 255),
            id="a page others may be near to",
        ),
        pytest.param(
            replace(PAGE, metadata=[("flaw", Flaw.SOFT_404), ("simhash", "00000000000000ff")]),
            Claim(DIGEST, URL, "", AT, DIGEST, 404),
            id="what no page is near to",
        ),
        pytest.param(
            replace(PAGE, metadata=[("simhash", "-ff")]),
            Claim(DIGEST, URL, "", AT, DIGEST),
            id="a page with a fingerprint that is none",
        ),
        pytest.param(replace(PAGE, body=b""), None, id="nothing at all"),
        pytest.param(replace(PAGE, url=f"{URL}c"), None, id="another URL"),
        pytest.param(
            replace(PAGE, url="https://www.example.com/a?b"), None, id="one that is near to it"
        ),
        pytest.param(
            replace(PAGE, duplicate_of=Claim(DIGEST, "http://b/", "x.warc.gz:1", AT)),
            None,
            id="a revisit",
        ),
        pytest.param(
            replace(SHELL, dom=DOM), Claim(DIGEST, URL, "", AT, IN_NO_BODY), id="a rendered page"
        ),
        pytest.param(
            replace(SHELL, dom=DOM, duplicate_of=OF_SHELL),
            Claim(DIGEST, URL, "", AT, IN_NO_BODY),
            id="one whose shell is stored already",
        ),
        pytest.param(
            replace(SHELL, metadata=[*SHELL.metadata, ("content-digest", sha1_label(DIGEST))]),
            None,
            id="a copy of a rendered page",
        ),
        pytest.param(replace(PAGE, metadata=[("beside", "page")]), None, id="no page itself"),
    ],
)
def test_claims(store: RocksStore, tmp_path: Path, capture: Capture, expected: Claim) -> None:
    folder = tmp_path / "warc"
    archived(folder, replace(PAGE, url="http://before/", body=b"before"), capture)
    leased(store, URL, "http://never.archived/")
    assert claim(store, folder) == (expected is not None)
    found = LocalClaims(store).claim(DIGEST)
    if expected is None:
        assert found is None
    else:
        assert found is not None and found.record.endswith(tuple("0123456789"))
        assert found == Claim(DIGEST, URL, found.record, *_rest(expected))
    assert claim(store, folder) == 0, "it is done"


def _rest(claimed: Claim) -> tuple[float, bytes, int, int | None]:
    return claimed.at, claimed.wire_sha1, claimed.status, claimed.simhash


def test_a_dom_that_a_crash_has_cut_is_not_claimed(store: RocksStore, tmp_path: Path) -> None:
    """What comes before it is kept, and the page is fetched again."""
    folder = tmp_path / "warc"
    archived(folder, replace(PAGE, url="http://before/", body=b"before"), replace(SHELL, dom=DOM))
    (warc,) = folder.glob("*.warc.gz")
    whole = read_file(warc)
    open_name(warc).write_bytes(warc.read_bytes()[:-20])
    warc.unlink()
    companion_path(warc, ".cdxj").unlink()
    (recovered,) = recover(folder, [CdxjCompanion()])
    assert recovered.records == len(whole) - 1
    assert read_file(warc) == whole[:-1] and whole[-1].kind == "conversion"
    assert companion_path(warc, ".cdxj").read_text() == judged_index(warc)
    leased(store, URL)
    assert claim(store, folder) == 0 and LocalClaims(store).claim(DIGEST) is None
    ((_, lease),) = [(each, decode_open(each)) for _, each in all_records(store, keys.OPEN)]
    assert lease.candidate.may_be_archived


def test_near_duplicates_of_a_recovered_page_are_found(store: RocksStore, tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    archived(folder, replace(PAGE, metadata=[("simhash", "00000000000000ff")]))
    leased(store, URL)
    assert claim(store, folder) == 1
    with closing(FingerprintIndex(store, tmp_path)) as index:
        assert index.near(0xFE, 3) == [(1, 0xFF)]
        assert index.pages(0xFF, 9) == [DIGEST]


def test_a_claim_stays_with_its_first_holder(store: RocksStore, tmp_path: Path) -> None:
    folder, other = tmp_path / "warc", Claim(DIGEST, "http://b/", "x.warc.gz:1")
    archived(folder, PAGE)
    leased(store, URL)
    store.write({keys.DIGEST + DIGEST: encode(other)})
    assert claim(store, folder) == 0
    assert LocalClaims(store).claim(DIGEST) == other


def test_of_two_records_the_first_is_the_original(store: RocksStore, tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    archived(folder, replace(PAGE, fetched_at=AT + 1), PAGE)
    leased(store, URL)
    assert claim(store, folder) == 1
    found = LocalClaims(store).claim(DIGEST)
    assert found is not None and found.at == AT


def test_old_files_are_not_read(store: RocksStore, tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    archived(folder, PAGE)
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    leased(store, URL)
    assert claim(store, folder) == 0


def test_only_pages_are(store: RocksStore, tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    archived(folder, PAGE)
    leased(store, URL, purpose=Purpose.PROBE)
    assert claim(store, folder) == 0


@pytest.mark.parametrize(
    ("capture", "changes", "reading", "lost"),
    [
        pytest.param(PAGE, {}, READING, True, id="a page"),
        pytest.param(replace(PAGE, body=b""), {}, READING, True, id="an answer without a body"),
        pytest.param(replace(PAGE, url=f"{URL}c"), {}, READING, False, id="another URL"),
        pytest.param(
            replace(PAGE, duplicate_of=Claim(DIGEST, "http://b/", "x.warc.gz:1", AT)),
            {},
            READING,
            False,
            id="a revisit, which says so by itself",
        ),
        pytest.param(
            replace(PAGE, fetched_at=AT - 7200), {}, READING, False, id="an earlier visit"
        ),
        pytest.param(
            replace(PAGE, url=f"{URL}c"),
            {"request": b"packed"},
            READING,
            True,
            id="a request of a spider's own, archived under any URL",
        ),
        pytest.param(
            replace(PAGE, url=f"{URL}c"),
            {},
            ReadingLimits(READING.max_body_bytes, READING.max_bytes, is_complete=False),
            True,
            id="what may be in a file that was brought elsewhere",
        ),
        pytest.param(PAGE, {"purpose": Purpose.PROBE}, READING, False, id="no page at all"),
    ],
)
def test_leases_that_may_be_archived_are_marked(
    store: RocksStore,
    tmp_path: Path,
    capture: Capture,
    changes: dict[str, Any],
    reading: ReadingLimits,
    lost: bool,
) -> None:
    archived(tmp_path / "warc", capture)
    leased(store, URL, **changes)
    for _ in range(2):
        claim_unfinished(store, tmp_path / "warc", reading)
    frontier = open_frontier(tmp_path, FrontierLimits(), AT, store=store)
    (lease,) = frontier.lease(AT + 3600)
    assert lease.candidate.may_be_archived == lost


@pytest.mark.parametrize(("name", "lost"), [("b.warc.gz.open", True), ("b.cdxj.open", False)])
def test_files_that_another_process_recovers_may_hold_any_page(
    store: RocksStore, tmp_path: Path, name: str, lost: bool
) -> None:
    """`scrapy archive index` holds the lock: no other process can read the file."""
    archived(tmp_path / "warc", replace(PAGE, url=f"{URL}c"))
    (tmp_path / "warc" / name).write_bytes(b"")
    leased(store, URL)
    claim(store, tmp_path / "warc")
    frontier = open_frontier(tmp_path, FrontierLimits(), AT, store=store)
    (lease,) = frontier.lease(AT + 3600)
    assert lease.candidate.may_be_archived == lost
