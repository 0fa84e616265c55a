"""What is packed for Redis: claims, rows of fingerprints, and how much one call carries."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.duplicates.quarters import QUARTERS
from crawler.frontier import records as keys
from crawler.frontier.budgets import Votes
from crawler.model.types import Candidate, Claim, HostKey, PageHistory, Purpose
from crawler.policy.priority import NO_CASH
from crawler.shared.codec import (
    MAX_BATCH_BYTES,
    bucket_cell,
    bucket_mark,
    can_mark,
    near_in,
    pack_candidate,
    pack_claim,
    pack_vote,
    read_claim,
    read_filed,
    rows_of,
    split_links,
    unpack_candidate,
    unpack_vote,
)
from crawler.shared.contents import shard_of_digest
from crawler.shared.owned.inbox import ENTRY_LINKS
from crawler.shared.owned.mirror import pack_chunk, unpack_chunk
from tests.harness.frontiers import candidate

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
def test_a_packed_claim_is_read_back(digest, url, record, at, wire_sha1, status):
    claim = Claim(digest, url, record, at, wire_sha1, status)
    file, packed = pack_claim(claim)
    assert read_claim(packed, file.encode()) == claim


OF_QUEUE = {"host", "level", "not_before"}  # have defaults, and are known from where a URL waits


@pytest.mark.parametrize("name", [*Candidate.__struct_fields__, ""])
@pytest.mark.parametrize("start", ["https://a.example/", "http://a.example/", "https://b.example/"])
def test_a_packed_url_is_read_back_whichever_field_is_not_the_default(start: str, name: str):
    url = Candidate(f"{start}x", 7, HostKey("a.example"), "a.example", 2, 1)
    changes: dict[str, object] = {
        "purpose": Purpose.ROBOTS,
        "needs_seen_test": False,
        "chain": (3, 2**64 - 1),
        "request": b"r",
        "history": PageHistory(1, 2, 3, rate=4, validators='"e"\n'),
        "domain": "other.example",
    }
    beside = {"authority": {"purpose": Purpose.ROBOTS}, "index_hops": {"is_sitemap": True}}
    if name not in ("", "url", *OF_QUEUE):
        value = changes[name] if name in changes else type(getattr(url, name))(9)
        url = replace(url, **{name: value, **beside.get(name, {})})
    assert unpack_candidate(pack_candidate(url), "a.example", 1) == url


def test_a_mirrored_chunk_of_links_is_short_and_keeps_their_cash():
    host = HostKey("a.example")
    urls = [
        Candidate(f"https://{host}/{n}", n, host, host, 1, 2, cash=NO_CASH + n) for n in range(64)
    ]
    name = keys.name_of_record(keys.chunk(keys.ONE_SHARD, host, 2, 63))
    packed = pack_chunk(name, keys.encode(urls))
    assert unpack_chunk(name, packed) == (64, keys.encode(urls))
    assert len(packed) < 64 * 16


def test_the_fingerprint_is_stored_elsewhere():
    claim = Claim(SHA1, URL, RECORD, 1.8e9, SHA1, 200, 2**64 - 1)
    file, packed = pack_claim(claim)
    assert read_claim(packed, file.encode()) == msgspec.structs.replace(claim, simhash=None)


@given(digest=st.binary(min_size=1, max_size=255), url=TEXTS, status=st.sampled_from([200, 404]))
def test_the_scripts_read_the_digest_at_its_offset(digest, url, status):
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
def test_bytes_that_are_no_claim_are_refused(packed):
    with pytest.raises(msgspec.MsgspecError):
        read_claim(packed, b"file")


PRINTS = st.integers(0, 2**64 - 1)
FLIPS = st.sets(st.integers(0, 63), max_size=3)
DIGEST = bytes(range(20))


def rows_by_bucket(simhash, digest=DIGEST, shards=64):
    """Buckets by shard, table and quarter, as the servers keep them."""
    return {
        (shard, table, quarter): row
        for shard, (table, quarter, row) in rows_of(simhash, digest, shards)
    }


def flipped(simhash, bits):
    return simhash ^ sum(1 << bit for bit in bits)


@given(simhash=PRINTS, flips=FLIPS, shards=st.sampled_from([1, 3, 64, 1024]))
def test_near_ones_are_found_in_one_bucket_at_least(simhash, flips, shards):
    other, found = flipped(simhash, flips), []
    for table in range(QUARTERS):
        bucket = rows_by_bucket(simhash, shards=shards).get(
            tuple(bucket_cell(other, table, shards)), b""
        )
        found += near_in(bucket, table, other, 3)
    assert {(row.bits, row.simhash) for row in found} == {(len(flips), simhash)}


@given(simhash=PRINTS, others=st.lists(PRINTS, max_size=30), most_bits=st.integers(0, 3))
def test_a_bucket_is_read_as_it_was_written(simhash, others, most_bits):
    for table in range(QUARTERS):
        rows = [list(rows_of(one, DIGEST, 8))[table][1][2] for one in (*others, simhash)]
        found = [row.simhash for row in near_in(b"".join(rows), table, simhash, most_bits)]
        near = [one for one in others if (one ^ simhash).bit_count() <= most_bits]
        assert found == [*near, simhash]


def test_only_rows_of_the_first_table_have_a_mark():
    for (_, table, _), row in rows_by_bucket(77).items():
        (found,) = near_in(row, table, 77, 0)
        assert found.mark == (b"" if table else bucket_mark(DIGEST))


@given(digest=st.binary(min_size=12, max_size=64))
def test_a_mark_leads_to_the_shard_of_its_digest(digest):
    assert can_mark(digest)
    assert shard_of_digest(bucket_mark(digest), 64) == shard_of_digest(digest, 64)
    assert bucket_mark(bucket_mark(digest)) == bucket_mark(digest)


@pytest.mark.parametrize("table", range(QUARTERS))
@given(bucket=st.binary(max_size=100))
def test_any_bytes_are_read_as_rows(table, bucket):
    width = 8 if table else 20
    assert len(list(near_in(bucket, table, 0, 64))) == len(bucket) // width


def test_quarters_are_spread_over_all_shards():
    random = Random(5)
    cells = [
        bucket_cell(random.getrandbits(64), table, 64) for table in (0, 3) for _ in range(4000)
    ]
    assert {each.shard for each in cells} == set(range(64))


THIRD = MAX_BATCH_BYTES // 3


def found(*sizes: int) -> list[Candidate]:
    """Each of its own host, with a request of so many bytes."""
    hosts = (f"h{at}.example" for at in range(len(sizes)))
    return [
        replace(candidate("x", host=host), request=bytes(size))
        for host, size in zip(hosts, sizes, strict=True)
    ]


@pytest.mark.parametrize(
    ("sizes", "expect"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([0] * ENTRY_LINKS, [ENTRY_LINKS], id="plain links: as many as an entry"),
        pytest.param([0] * (ENTRY_LINKS + 1), [ENTRY_LINKS, 1], id="one more"),
        pytest.param([THIRD] * 3, [3], id="requests that just fit"),
        pytest.param([THIRD] * 4, [3, 1], id="one too many"),
        pytest.param([THIRD * 3, THIRD, 0, 0], [1, 3], id="plain links fit behind it"),
        pytest.param([0, MAX_BATCH_BYTES * 3, 0], [1, 2], id="one that alone is too much"),
        pytest.param(
            [THIRD] + [0] * ENTRY_LINKS + [THIRD], [ENTRY_LINKS, 2], id="both bounds count"
        ),
    ],
)
def test_a_part_is_bounded_by_number_and_by_bytes(sizes: Sequence[int], expect: list[int]) -> None:
    given = found(*sizes)
    parts = list(split_links(given, ENTRY_LINKS))
    assert [len(part) for part in parts] == expect
    assert [each for part in parts for each in part] == given


def test_a_vote_comes_to_the_worker_of_its_domain_as_it_was() -> None:
    voter, domain = b"\x00\x01\xfe\xff", "xn--bcher-kva.example"
    link = pack_vote(voter, domain)
    assert link.domain == domain
    sent = unpack_candidate(pack_candidate(link), link.host, link.level)
    assert sent.purpose is Purpose.VOTE
    assert unpack_vote(sent) == Votes(voter, (domain,))
