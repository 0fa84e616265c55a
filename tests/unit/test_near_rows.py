"""Rows of fingerprints: whoever is at most three bits apart shares a bucket."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.shared.codec import (
    TABLES,
    bucket_mark,
    can_mark,
    cell,
    near_in,
    rows_of,
)
from crawler.shared.shard import shard_of_digest

PRINTS = st.integers(0, 2**64 - 1)
FLIPS = st.sets(st.integers(0, 63), max_size=3)
DIGEST = bytes(range(20))


def told(simhash, digest=DIGEST, shards=64):
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
    for table in range(TABLES):
        bucket = told(simhash, shards=shards).get(tuple(cell(other, table, shards)), b"")
        found += near_in(bucket, table, other, 3)
    assert {(row.bits, row.simhash) for row in found} == {(len(flips), simhash)}


@given(simhash=PRINTS, others=st.lists(PRINTS, max_size=30), most_bits=st.integers(0, 3))
def test_a_bucket_is_read_as_it_was_written(simhash, others, most_bits):
    for table in range(TABLES):
        rows = [list(rows_of(one, DIGEST, 8))[table][1][2] for one in (*others, simhash)]
        found = [row.simhash for row in near_in(b"".join(rows), table, simhash, most_bits)]
        near = [one for one in others if (one ^ simhash).bit_count() <= most_bits]
        assert found == [*near, simhash]


def test_the_first_table_says_whose_it_is():
    for (_, table, _), row in told(77).items():
        (found,) = near_in(row, table, 77, 0)
        assert found.mark == (b"" if table else bucket_mark(DIGEST))


@given(digest=st.binary(min_size=12, max_size=64))
def test_a_mark_leads_to_the_shard_of_its_digest(digest):
    assert can_mark(digest)
    assert shard_of_digest(bucket_mark(digest), 64) == shard_of_digest(digest, 64)
    assert bucket_mark(bucket_mark(digest)) == bucket_mark(digest)


@pytest.mark.parametrize("table", range(TABLES))
@given(bucket=st.binary(max_size=100))
def test_whatever_stands_there_is_read_as_rows(table, bucket):
    width = 8 if table else 20
    assert len(list(near_in(bucket, table, 0, 64))) == len(bucket) // width


def test_quarters_are_spread_over_all_shards():
    random = Random(5)
    cells = [cell(random.getrandbits(64), table, 64) for table in (0, 3) for _ in range(4000)]
    assert {each.shard for each in cells} == set(range(64))
