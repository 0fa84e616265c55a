"""Codings: whole, cut, damaged, nested, and bombs; the standard packers are the judges."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Final

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.page import Flag
from crawler.policy.encodings import (
    NOT_CODED,
    Decoded,
    codings_of,
    undo_codings,
)
from tests.servers.hostile_kit import brotli_bomb, gzip_bomb, gzipped, zstd_bomb

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROOM: Final = 100_000
BODY: Final = b"".join(b"<p>line %d of the page</p>\n" % n for n in range(2000))
PACKERS: Final[dict[bytes, Callable[[bytes], bytes]]] = {
    b"gzip": gzipped,
    b"deflate": lambda body: zlib.compress(body, 6, -15),
    b"br": lambda body: bytes(brotli.compress(body, quality=5)),
    b"zstd": zstd.compress,
}
PACKED: Final = {name: pack(BODY) for name, pack in PACKERS.items()}
CODINGS: Final = st.lists(st.sampled_from(sorted(PACKERS)), min_size=1, max_size=3)


@given(body=st.binary(max_size=2000), codings=CODINGS)
def test_what_was_packed_is_unpacked(body: bytes, codings: list[bytes]) -> None:
    packed = body
    for name in codings:
        packed = PACKERS[name](packed)
    assert undo_codings(packed, codings, ROOM) == Decoded(body)


@pytest.mark.parametrize("name", sorted(PACKERS))
@pytest.mark.parametrize("room", [0, 1, 100, len(BODY) - 1])
def test_a_body_is_cut_where_its_room_ends(name: bytes, room: int) -> None:
    cut = undo_codings(PACKED[name], [name], room)
    assert cut == Decoded(BODY[:room], frozenset({Flag.DECODED_LENGTH}))


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_a_body_that_just_fits_is_whole(name: bytes) -> None:
    assert undo_codings(PACKED[name], [name], len(BODY)) == Decoded(BODY)


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_a_stream_cut_short_gives_what_came(name: bytes) -> None:
    packed = PACKED[name]
    short = undo_codings(packed[: len(packed) * 3 // 4], [name], ROOM)
    assert short.flags == {Flag.DECODED_CUT}
    assert BODY.startswith(short.body)
    # zstd gives out whole blocks of up to 128 KiB, and this body is one of them.
    assert len(short.body) > len(BODY) // 2 or name == b"zstd"


def test_damage_costs_little_of_what_came_before_it() -> None:
    packed = PACKED[b"gzip"]
    damaged = undo_codings(packed[:4000] + b"\xff" * 100 + packed[4100:], [b"gzip"], ROOM)
    before = undo_codings(packed[:4000], [b"gzip"], ROOM)
    assert damaged.flags == {Flag.DECODED_BROKEN}
    assert damaged.body.startswith(before.body[:-1000])


@given(name=st.sampled_from(sorted(PACKERS)), junk=st.binary(min_size=1), at=st.integers(0, 3000))
def test_damage_raises_nothing(name: bytes, junk: bytes, at: int) -> None:
    packed = PACKED[name]
    result = undo_codings(packed[:at] + junk + packed[at + len(junk) :], [name], ROOM)
    assert len(result.body) <= ROOM


@pytest.mark.parametrize(
    ("body", "codings", "expect"),
    [
        pytest.param(b"", [b"gzip"], Decoded(b""), id="nothing, packed or not, is nothing"),
        pytest.param(
            gzipped(b"a") + gzipped(b"b"), [b"gzip"], Decoded(b"ab"), id="streams in a row"
        ),
        pytest.param(gzipped(b"a") + b"junk", [b"gzip"], Decoded(b"a"), id="junk after the end"),
        pytest.param(
            zlib.compress(BODY), [b"deflate"], Decoded(BODY), id="deflate with zlib's two bytes"
        ),
        pytest.param(
            b"<p>plain</p>",
            [b"gzip"],
            Decoded(b"<p>plain</p>", frozenset({Flag.DECODED_BROKEN})),
            id="a text that never was packed stays",
        ),
        pytest.param(
            b"\x1f\x8b\x08\0garbage",
            [b"gzip"],
            Decoded(b"", frozenset({Flag.DECODED_CUT})),
            id="garbage that says it is gzip does not become a page",
        ),
        pytest.param(
            b"x",
            [b"compress"],
            Decoded(b"x", frozenset({Flag.UNDECODED})),
            id="a coding we do not know",
        ),
        pytest.param(
            b"x",
            [b"gzip"] * 4,
            Decoded(b"x", frozenset({Flag.UNDECODED})),
            id="more codings than a server has a reason for",
        ),
        pytest.param(
            zstd_bomb(1, window=b"\x88"),
            [b"zstd"],
            Decoded(b"", frozenset({Flag.DECODED_BROKEN})),
            id="a zstd window over 8 MB",
        ),
        pytest.param(
            gzipped(b"a") * 100,
            [b"gzip"],
            Decoded(b"a" * 65, frozenset({Flag.DECODED_BROKEN})),
            id="streams in a row, but not for ever",
        ),
    ],
)
def test_odd_bodies(body: bytes, codings: list[bytes], expect: Decoded) -> None:
    assert undo_codings(body, codings, ROOM) == expect


@pytest.mark.parametrize(
    ("values", "codings"),
    [
        pytest.param([b"gzip"], [b"gzip"], id="one"),
        pytest.param([b"GZip , br"], [b"gzip", b"br"], id="a list, in the order applied"),
        pytest.param([b"br", b"gzip"], [b"br", b"gzip"], id="two lines"),
        pytest.param([b"identity", b"", b"UTF-8"], [], id="words that mean nothing"),
    ],
)
def test_codings_are_read_off_all_lines(values: list[bytes], codings: list[bytes]) -> None:
    assert codings_of(values) == codings
    assert not NOT_CODED & set(codings)


BOMBS: Final = """
import resource
from crawler.policy.encodings import undo_codings
from tests.servers.hostile_kit import brotli_bomb, gzip_bomb, zstd_bomb
room = 1 << 21
bombs = [(gzip_bomb(1000), b"gzip"), (brotli_bomb(10), b"br"), (zstd_bomb(10), b"zstd")]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for bomb, name in bombs:
    assert len(undo_codings(bomb, [name], room).body) == room
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_of_ten_gigabytes_needs_a_few_megabytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMBS], check=True, capture_output=True, text=True, timeout=60
    )
    # Twice the room: a decoder fills blocks, and joins them. And 8 MB of zstd's window.
    assert int(done.stdout) < 32 * 1024


@pytest.mark.parametrize(
    ("bomb", "name"),
    [(gzip_bomb(10), b"gzip"), (brotli_bomb(1), b"br"), (zstd_bomb(1), b"zstd")],
    ids=["gzip", "brotli", "zstd"],
)
def test_a_bomb_in_a_bomb_is_cut_at_each_step(bomb: bytes, name: bytes) -> None:
    result = undo_codings(PACKERS[name](bomb), [name, name], ROOM)
    assert result.body == bytes(ROOM)
    assert Flag.DECODED_LENGTH in result.flags
