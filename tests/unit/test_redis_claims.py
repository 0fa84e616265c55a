"""A claim as Redis holds it: short, exact, and refused where it is none of ours."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.model.types import Claim
from crawler.shared.codec import (
    pack_claim,
    read_claim,
    read_filed,
)

SHA1 = bytes(range(20))
URL = "https://www.example.com/" + "x" * 66
RECORD = "crawl-20260101000000-00001-worker1.warc.gz:123456789"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


@given(
    digest=st.binary(min_size=1, max_size=32),
    url=TEXTS,
    record=TEXTS | st.integers(0).map(lambda offset: f"file:{offset}"),
    at=st.floats(allow_nan=False),
    wire_sha1=st.binary(max_size=32),
    status=st.integers(100, 599),
)
@example(SHA1, URL, "", 0.0, b"", 200)
@example(SHA1, URL, "0", 0.0, b"", 404)
@example(SHA1, URL, "file:007", 0.0, SHA1, 200)
@example(SHA1, URL, "file:٣", 0.0, SHA1, 503)
def test_what_was_claimed_is_read_back(digest, url, record, at, wire_sha1, status):
    claim = Claim(digest, url, record, at, wire_sha1, status)
    file, packed = pack_claim(claim)
    assert read_claim(packed, file.encode()) == claim


def test_its_fingerprint_stands_elsewhere():
    claim = Claim(SHA1, URL, RECORD, 1.8e9, SHA1, 200, 2**64 - 1)
    file, packed = pack_claim(claim)
    assert read_claim(packed, file.encode()) == msgspec.structs.replace(claim, simhash=None)


def test_a_claim_of_an_older_version_is_that_of_a_page():
    packed = msgspec.msgpack.encode((SHA1, URL, 1.8e9, 17, None))
    assert read_claim(packed, b"f") == Claim(SHA1, URL, "f:17", 1.8e9, SHA1, 200)


@given(digest=st.binary(min_size=1, max_size=255), url=TEXTS, status=st.sampled_from([200, 404]))
def test_the_scripts_find_the_digest_where_they_look(digest, url, status):
    _, packed = pack_claim(Claim(digest, url, status=status))
    assert packed[1:3] == bytes([0xC4, len(digest)])
    assert packed[3 : 3 + len(digest)] == digest


@pytest.mark.parametrize(
    ("wire_sha1", "most"),
    [
        pytest.param(SHA1, 133, id="stored as it came: its two digests are one"),
        pytest.param(SHA1[::-1], 154, id="compressed on the wire"),
    ],
)
def test_a_claim_on_a_url_of_90_characters_is_short(wire_sha1, most):
    file, packed = pack_claim(Claim(SHA1, URL, RECORD, 1.8e9, wire_sha1))
    assert file == RECORD.partition(":")[0]
    assert len(packed) <= most - 3


def test_a_claim_in_its_bucket_names_its_file_by_number():
    claim = Claim(SHA1, URL, RECORD, 1.8e9, SHA1)
    file, packed = pack_claim(claim)
    assert read_filed(b"\x02\x01\x00" + packed, {b"<258": file.encode()}) == claim


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x95\xc4\x01d\xa1u", id="cut off"),
        pytest.param(msgspec.msgpack.encode(("d", "u", 0.0, 0, None)), id="a text for a digest"),
        pytest.param(msgspec.msgpack.encode((b"d", "u", 0.0)), id="too short"),
        pytest.param(msgspec.msgpack.encode({"url": "u"}), id="of another form"),
    ],
)
def test_what_is_no_claim_is_refused(packed):
    with pytest.raises(msgspec.MsgspecError):
        read_claim(packed, b"file")
