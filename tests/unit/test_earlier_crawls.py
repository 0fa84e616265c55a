"""The bodies of earlier crawls are found by their digests, whatever program wrote the index."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from random import Random

import pytest

from crawler.archive.earlier_crawls import EarlierCrawls, index_files, is_read, read_indexes
from crawler.archive.record_bytes import sha1_label
from crawler.model.types import ConfigError, DataDirError

TIME = "20260102030405"
AT = 1767323045.0
NOTHING = sha1(b"", usedforsecurity=False).digest()


def line(digest: str, **fields: str) -> str:
    facts = {"url": "http://e.org/a", "mime": "text/html", "status": "200", "digest": digest}
    facts |= {"length": "10", "offset": "7", "filename": "x.warc.gz"} | fields
    return f"org,e)/a {TIME} {json.dumps(facts)}\n"


def sha(number: int) -> bytes:
    return sha1(b"%d" % number, usedforsecurity=False).digest()


def test_each_body_is_found_and_no_other(tmp_path: Path) -> None:
    numbers = list(range(2000))
    Random(20261127).shuffle(numbers)
    lines = [line(sha1_label(sha(n)), url=f"http://e.org/{n}", offset=str(n)) for n in numbers]
    (tmp_path / "a.cdxj").write_text("".join(lines[:1000]))
    (tmp_path / "b.cdxj.gz").write_bytes(gzip.compress("".join(lines[1000:]).encode()))
    read_indexes(tmp_path / "known", index_files(tmp_path))
    with closing(EarlierCrawls(tmp_path / "known")) as earlier:
        for n in range(2000):
            found = earlier.original(sha(n))
            assert found is not None and found.url == f"http://e.org/{n}"
            assert (found.record, found.at, found.wire_sha1) == (f"x.warc.gz:{n}", AT, sha(n))
            assert earlier.has(sha(n), found.url, TIME) and not earlier.has(sha(n), "other", TIME)
        assert not any(map(earlier.original, map(sha, range(2000, 4000))))
        assert earlier.original(b"\0" * 20) is earlier.original(b"\xff" * 20) is None


@pytest.mark.parametrize(
    ("written", "is_found"),
    [
        (line(sha1_label(sha(1))), True),
        (line(sha1_label(sha(1)).removeprefix("sha1:")), True),  # pywb, Common Crawl
        (f"!meta 0 {{}}\n{line(sha1_label(sha(1)))}", True),  # ZipNum
        (line(sha1_label(sha(1)), mime="warc/revisit"), False),  # a reader would go in circles
        (line(sha1_label(sha(1)), status=""), False),  # a resource is no answer
        (line("sha256:" + "A" * 52), False),
        (line(sha1_label(sha(1))).replace(TIME, "20261301000000"), False),
        ("", False),
        (line(sha1_label(NOTHING)), False),
    ],
)
def test_what_may_be_an_original(tmp_path: Path, written: str, is_found: bool) -> None:
    index = tmp_path / "x.cdxj"
    index.write_text(written)
    read_indexes(tmp_path / "known", index_files(index))
    with closing(EarlierCrawls(tmp_path / "known")) as earlier:
        assert ((earlier.original(sha(1)) or earlier.original(NOTHING)) is not None) is is_found


def test_what_changes_is_read_again(tmp_path: Path) -> None:
    known, index = tmp_path / "known", tmp_path / "x.cdxj"
    index.write_text(line(sha1_label(sha(1))))
    assert not is_read(known, [index])
    read_indexes(known, [index])
    assert is_read(known, [index])
    index.write_text(line(sha1_label(sha(1))) * 2)
    assert not is_read(known, [index])
    index.write_text("no line\n")
    with pytest.raises(DataDirError, match=r"x\.cdxj, line 1"):
        read_indexes(known, [index])
    assert not is_read(known, [index]), "half of an index is none"
    with pytest.raises(ConfigError, match="holds none"):
        index_files(known)
