"""Character encodings of a page, and content codings: whole, cut, damaged, nested, and bombs;
checked against the standard packers."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webencodings.labels import LABELS  # type: ignore[import-untyped]  # it ships no types

from crawler.model.page import Flag
from crawler.page.encodings import (
    NOT_CODED,
    DecodedBody,
    _guess,
    codings_of,
    encode_query,
    read_text,
    undo_codings,
)
from tests.harness.measuring import cpu_seconds
from tests.servers.hostile_kit import brotli_bomb, gzip_bomb, gzipped, zstd_bomb

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


GERMAN = "Stra\xdfen, \xdcbung, sch\xf6n, gr\xfc\xdfen, M\xe4dchen, K\xf6nig, T\xfcr \u20ac"
RUSSIAN = "\u0417\u0430\u0433\u043b\u0430\u0432\u043d\u0430\u044f " * 3
JAPANESE = "\u65e5\u672c\u8a9e\u306e\u30da\u30fc\u30b8" * 3
CHINESE = "\u4e2d\u6587\u7f51\u9875\u5185\u5bb9" * 3

_WITHOUT_QUERIES: Final = {"replacement", "x-user-defined", "utf-8", "utf-16le", "utf-16be"}
# Letters that encodings of Japan do not tell apart.
_ALIKE: Final = str.maketrans("\xa5\u203e\u2212\u301c\u2016\xa2\xa3\xac",
                             "\\~\uff0d\uff5e\u2225\uffe0\uffe1\uffe2")  # fmt: skip


@pytest.mark.parametrize(
    ("content_type", "body", "name"),
    [
        pytest.param("text/html; charset=utf-8", "\xe9!".encode(), "utf-8", id="UTF-8"),
        pytest.param("text/html; charset=latin1", b"\xe9!", "windows-1252", id="as declared"),
        pytest.param("text/html; charset=latin1", b"\xef\xbb\xbf\xc3\xa9!", "utf-8",
                     id="a BOM first"),
        pytest.param("text/html; charset=utf-8", "\ufeff\xe9!".encode("utf-16-be"), "utf-16be",
                     id="a BOM of UTF-16"),
        pytest.param("text/html; charset=utf-16", "\xe9!".encode("utf-16-le"), "utf-16le",
                     id="UTF-16 without one is little-endian"),
        pytest.param("text/html; charset=no-such", "\xe9!".encode(), "utf-8",
                     id="an unknown one does not count"),
        pytest.param("text/html; charset=zip", "\xe9!".encode(), "utf-8", id="nor one of no text"),
        pytest.param("text/html; charset=idna", "\xe9!".encode(), "utf-8", id="nor that of hosts"),
        pytest.param("text/html; charset=utf-7", "\xe9!".encode(), "utf-8",
                     id="nor one left behind"),
        pytest.param("", "\xe9!".encode(), "utf-8", id="none declared, and it is UTF-8"),
        pytest.param("", b"\xe9!", "windows-1252", id="none declared, and it is not"),
        pytest.param("text/html; charset=utf-8", b"\xe9!", "windows-1252", id="declared wrongly"),
    ],
)  # fmt: skip
def test_text_is_read_by_its_charset(content_type: str, body: bytes, name: str) -> None:
    assert read_text(body, content_type) == ("\xe9!", name)


@pytest.mark.parametrize(
    ("head", "encoding", "text", "name"),
    [
        pytest.param("<meta charset=macintosh>", "mac-roman", GERMAN, "macintosh", id="a meta"),
        pytest.param("<meta http-equiv=content-type content='text/html; charset=koi8-r'>",
                     "koi8-r", RUSSIAN, "koi8-r", id="an older one"),
        pytest.param("<?xml version='1.0' encoding='Shift_JIS'?>", "cp932", JAPANESE, "shift_jis",
                     id="as in XML"),
        pytest.param("<meta charset=gb2312>", "gb18030", CHINESE, "gbk", id="its successor"),
        pytest.param("<meta charset=iso-2022-jp>", "iso2022_jp", JAPANESE, "iso-2022-jp",
                     id="in seven bits"),
        pytest.param("<meta charset=utf-16>", "utf-8", GERMAN, "utf-8",
                     id="UTF-16, which could not have been read so far"),
        pytest.param("<meta charset=iso-8859-1>", "utf-8", GERMAN, "utf-8", id="wrong: UTF-8"),
        pytest.param("<meta charset=gbk>", "utf-8", JAPANESE, "utf-8", id="wrong again"),
        pytest.param("<meta charset=utf-8>", "cp1252", GERMAN, "windows-1252",
                     id="wrong: not UTF-8"),
    ],
)  # fmt: skip
def test_a_page_may_declare_its_charset(head: str, encoding: str, text: str, name: str) -> None:
    body = head.encode() + text.encode(encoding)
    assert read_text(body, "text/html") == (head + text, name)


NO_TEXT = {"replacement", "x-user-defined"}


@pytest.mark.parametrize(
    ("label", "name"), [pair for pair in LABELS.items() if pair[1] not in NO_TEXT]
)
def test_all_labels_of_the_standard_are_known(label: str, name: str) -> None:
    ours = {"iso-8859-8-i": "iso-8859-8"}.get(name, name)
    body = b"<p>\xe4" if "16" not in name.partition("-")[2][:2] else b"<\0p\0"
    if name.startswith("utf"):
        assert read_text("\xe4".encode(ours), f"text/html; charset={label}")[1] == ours
        return
    assert read_text(body, f"text/html; charset={label}")[1] == ours
    assert read_text(body, f'text/html; x=y; Charset="{label.upper()}"')[1] == ours
    for head in (
        f"<meta charset={label}>",
        f"<!-- <meta charset=big5> --><META content='x; charset={label}' http-equiv=Content-Type>",
        f"<?xml version='1.0' encoding='{label}'?>",
    ):
        assert read_text(head.encode() + body, "text/html")[1] == ours


@pytest.mark.parametrize(
    "head",
    [
        "<body><meta charset=big5>",
        "<meta content='text/html; charset=big5'>",
        "<meta name=charset content=big5>",
        "<!-- <meta charset=big5>",
        "<metal charset=big5>",
        " " * 5000 + "<meta charset=big5>",
    ],
)
def test_pages_without_a_declared_charset(head: str) -> None:
    assert read_text(head.encode() + GERMAN.encode("cp1252"), "text/html")[1] == "windows-1252"


@pytest.mark.parametrize("name", ["utf-16le", "utf-16be"])
@pytest.mark.parametrize(
    "text",
    ["<?xml version='1.0' encoding='utf-16'?><rss>\u4e2d</rss>", "\r\n <!doctype html><p>\xe9"],
)
def test_markup_in_utf_16_needs_no_mark(text: str, name: str) -> None:
    assert read_text(text.encode(name), "application/rss+xml") == (text, name)


DECLARED = {
    ("windows-1252", "iso-8859-1"): "Alle Menschen sind frei und gleich an W\xfcrde geboren; sie"
    " sollen einander im Geiste der Br\xfcderlichkeit begegnen, k\xf6nnen w\xe4hlen und m\xfcssen"
    " nicht hei\xdfen, wie es anderen gef\xe4llt.",
    ("windows-1252",): "Tous les \xeatres humains naissent libres et \xe9gaux en dignit\xe9 et en"
    " droits. Ils sont dou\xe9s de raison et de conscience et doivent agir les uns envers les"
    " autres dans un esprit de fraternit\xe9.",
    ("windows-1251", "koi8-r", "ibm866"): "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438"
    " \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f"
    " \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438 \u0438"
    " \u0440\u0430\u0432\u043d\u044b\u043c\u0438 \u0432 \u0441\u0432\u043e\u0435\u043c"
    " \u0434\u043e\u0441\u0442\u043e\u0438\u043d\u0441\u0442\u0432\u0435 \u0438"
    " \u043f\u0440\u0430\u0432\u0430\u0445.",
    ("windows-1250", "iso-8859-2"): "V\u0161ichni lid\xe9 rod\xed se svobodn\xed a sob\u011b"
    " rovn\xed co do d\u016fstojnosti a pr\xe1v. Jsou nad\xe1ni rozumem a sv\u011bdom\xedm a"
    " maj\xed spolu jednat v duchu bratrstv\xed.",
    ("windows-1253", "iso-8859-7"): "\u038c\u03bb\u03bf\u03b9 \u03bf\u03b9"
    " \u03ac\u03bd\u03b8\u03c1\u03c9\u03c0\u03bf\u03b9"
    " \u03b3\u03b5\u03bd\u03bd\u03b9\u03bf\u03cd\u03bd\u03c4\u03b1\u03b9"
    " \u03b5\u03bb\u03b5\u03cd\u03b8\u03b5\u03c1\u03bf\u03b9 \u03ba\u03b1\u03b9"
    " \u03af\u03c3\u03bf\u03b9 \u03c3\u03c4\u03b7\u03bd"
    " \u03b1\u03be\u03b9\u03bf\u03c0\u03c1\u03ad\u03c0\u03b5\u03b9\u03b1.",
    ("windows-1254",): "B\xfct\xfcn insanlar h\xfcr, haysiyet ve haklar bak\u0131m\u0131ndan"
    " e\u015fit do\u011farlar. Ak\u0131l ve vicdana sahiptirler ve birbirlerine kar\u015f\u0131"
    " karde\u015flik zihniyeti ile hareket etmelidirler.",
    ("shift_jis", "euc-jp", "iso-2022-jp"): "\u3059\u3079\u3066\u306e\u4eba\u9593\u306f\u3001"
    "\u751f\u307e\u308c\u306a\u304c\u3089\u306b\u3057\u3066\u81ea\u7531\u3067\u3042\u308a"
    "\u3001\u304b\u3064\u3001\u5c0a\u53b3\u3068\u6a29\u5229\u3068\u306b\u3064\u3044\u3066"
    "\u5e73\u7b49\u3067\u3042\u308b\u3002",
    ("gb18030",): "\u4eba\u4eba\u751f\u800c\u81ea\u7531\uff0c\u5728\u5c0a\u4e25\u548c"
    "\u6743\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49\u3002\u4ed6\u4eec\u8d4b\u6709\u7406\u6027"
    "\u548c\u826f\u5fc3\u3002",
    ("big5",): "\u4eba\u4eba\u751f\u800c\u81ea\u7531\uff0c\u5728\u5c0a\u56b4\u548c"
    "\u6b0a\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49\u3002\u4ed6\u5011\u8ce6\u6709\u7406\u6027"
    "\u548c\u826f\u5fc3\u3002",
    ("euc-kr",): "\ubaa8\ub4e0 \uc778\uac04\uc740 \ud0dc\uc5b4\ub0a0 \ub54c\ubd80\ud130"
    " \uc790\uc720\ub85c\uc6b0\uba70 \uadf8 \uc874\uc5c4\uacfc \uad8c\ub9ac\uc5d0"
    " \uc788\uc5b4 \ub3d9\ub4f1\ud558\ub2e4.",
}
"""The first article of the Declaration of Human Rights, and what it may be written in."""


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        pytest.param(each, text, id=each)
        for encodings, text in DECLARED.items()
        for each in encodings
    ],
)
@pytest.mark.parametrize("before", ["<p>", "<p>" + "x = 1; " * 20_000], ids=["", "behind a script"])
def test_an_undeclared_charset_is_guessed(before: str, encoding: str, text: str) -> None:
    page = before + text
    assert read_text(page.encode(encoding), "text/html")[0] == page
    assert read_text(page.encode(), "text/html") == (page, "utf-8")


def test_a_guess_costs_no_more_for_a_longer_page() -> None:
    few, many = (
        min(guess_s(RUSSIAN.encode("cp1251") * count) for _ in range(5))
        for count in (2_000, 64_000)
    )
    assert many < 8 * few


def guess_s(body: bytes) -> float:
    begun = process_time()
    assert _guess(body) == "cp1251"
    return process_time() - begun


def test_the_price_of_a_declaration_is_linear() -> None:
    """Within the 4,096 bytes that are searched: a name that never ends is read once."""
    few, many = (cpu_seconds(partial(read_text, b"<meta " + b"a" * n, "")) for n in (500, 4_000))
    assert many < 24 * few + 0.002


def test_a_header_that_is_wrong_gives_way_to_the_page() -> None:
    page = "<meta charset=windows-1251>" + RUSSIAN
    read = read_text(page.encode("cp1251"), "text/html; charset=utf-8")
    assert read == (page, "windows-1251")


def test_plain_text_declares_nothing() -> None:
    page = "<meta charset=windows-1251>" + GERMAN
    assert read_text(page.encode("cp1252"), "text/plain", marked_up=False)[0] == page


@pytest.mark.parametrize(
    ("charset", "query", "sent"),
    [
        # The web platform's own cases (percent-encoding.json), as servers read them.
        pytest.param("big5", "\u2020", "%26%238224%3B", id="no letter of Big5"),
        pytest.param("euc-kr", "\u2020", "%A2%D3", id="Korean"),
        pytest.param("windows-1252", "\u2020", "%86", id="one byte"),
        pytest.param("iso-2022-jp", "\u203e\\", "%1B(J~%1B(B\\", id="the second set of three"),
        pytest.param("gb18030", "\ue5e5", "%26%2358853%3B", id="decoded, but never encoded"),
        pytest.param("shift_jis", "\u2212", "%81%7C", id="a minus"),
        pytest.param("iso-8859-2", "\xa2", "%26%23162%3B", id="no letter of Latin-2"),
        # Others.
        pytest.param("windows-1251", "\u041f\u0440", "%CF%F0", id="Russian"),
        pytest.param("koi8-r", "\u041f", "%F0", id="Russian, another"),
        pytest.param("shift_jis", "\u8868\u793a", "%95%5C%8E%A6", id="a backslash in a letter"),
        pytest.param("shift_jis", "\uff71\xa5\ue000", "%B1%5C%26%2357344%3B", id="half width"),
        pytest.param("euc-jp", "\u65e5\u2460\uff71\uff5e", "%C6%FC%AD%A1%8E%B1%A1%C1", id="EUC"),
        pytest.param("iso-2022-jp", "a\u65e5\u672cb", "a%1B$BF%7CK%5C%1B(Bb", id="in escapes"),
        pytest.param("iso-2022-jp", "\uff71\uff9e\u20ac\u65e5",
                     "%1B$B%25%22!+%1B(B%26%238364%3B%1B$BF%7C%1B(B", id="in escapes, half width"),
        pytest.param("gbk", "\u6d2a1\u20ac", "%BA%E91%80", id="Chinese"),
        pytest.param("gbk", "\U0001f600", "%26%23128512%3B", id="no letter of GBK"),
        pytest.param("gb18030", "\U0001f600\u20ac", "%949%FC6%A2%E3", id="four bytes"),
        pytest.param("big5", "\u5341\u43f0", "%A4Q%26%2317392%3B", id="Hong Kong's are only read"),
        pytest.param("windows-1252", "\ud83d", "%26%2365533%3B", id="half of a pair"),
        pytest.param("utf-8", "\xe9", "\xe9", id="UTF-8"),
        pytest.param("utf-16le", "\xe9", "\xe9", id="UTF-16 is never sent"),
        pytest.param("no-such", "\xe9", "\xe9", id="a user's parser"),
    ],
)  # fmt: skip
def test_a_query_is_sent_in_the_encoding_of_its_page(charset: str, query: str, sent: str) -> None:
    assert encode_query(f"/\xe9?q={query}#\xe9", charset) == f"/\xe9?q={sent}#\xe9"
    assert encode_query(f"/\xe9#?{query}", charset) == f"/\xe9#?{query}"


@pytest.mark.parametrize("name", sorted(set(LABELS.values()) - _WITHOUT_QUERIES))
@given(letter=st.characters(min_codepoint=0xA0, exclude_categories=["Cs"]))
def test_a_server_reads_what_a_query_said(name: str, letter: str) -> None:
    sent = encode_query(f"?{letter}", name)[1:]
    read, _ = read_text(unquote_to_bytes(sent), f"text/html; charset={name}", marked_up=False)
    assert sent.isascii()
    if read != f"&#{ord(letter)};":
        assert normalize("NFKC", read.translate(_ALIKE)) == normalize(
            "NFKC", letter.translate(_ALIKE)
        )


_JIS: Final = b'F|K\\8l!A!]!B!q!r"L!='  # of two bytes each, read differently by codecs


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("iso-2022-jp", b"\x1b$B" + _JIS + b"\x1b(B"),
        ("euc-jp", bytes(each | 0x80 for each in _JIS)),
        ("shift_jis", "\u65e5\u672c\u8a9e\uff5e\uff0d\u2225\uffe0\uffe1\uffe2".encode("cp932")),
    ],
)  # fmt: skip
def test_what_a_page_of_japan_says_is_sent(name: str, body: bytes) -> None:
    read, _ = read_text(body, f"text/html; charset={name}")
    assert unquote_to_bytes(encode_query(f"?{read}", name)[1:]) == body


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("\u65e5\u672c".encode()[:-1], id="cut in the middle of a letter"),
        pytest.param("\xe9".encode()[:-1], id="of the only one"),
        pytest.param(GERMAN.encode() + b"\xff", id="one broken letter of many"),
    ],
)
def test_utf_8_with_few_errors_stays_utf_8(body: bytes) -> None:
    text, name = read_text(body, "text/html; charset=utf-8")
    assert name == "utf-8" and text.count("\ufffd") == 1


@given(st.binary(max_size=200), st.sampled_from(["", "text/html; charset=shift_jis", "x;charset="]))
def test_any_bytes_are_text(body: bytes, content_type: str) -> None:
    text, name = read_text(body, content_type)
    text.encode()
    assert name


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
def test_packed_bodies_are_unpacked(body: bytes, codings: list[bytes]) -> None:
    packed = body
    for name in codings:
        packed = PACKERS[name](packed)
    assert undo_codings(packed, codings, ROOM) == DecodedBody(body)


@pytest.mark.parametrize("name", sorted(PACKERS))
@pytest.mark.parametrize("room", [0, 1, 100, len(BODY) - 1])
def test_a_body_is_cut_where_its_room_ends(name: bytes, room: int) -> None:
    cut = undo_codings(PACKED[name], [name], room)
    assert cut == DecodedBody(BODY[:room], frozenset({Flag.DECODED_LENGTH}))


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_a_body_that_just_fits_is_whole(name: bytes) -> None:
    assert undo_codings(PACKED[name], [name], len(BODY)) == DecodedBody(BODY)


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_a_truncated_stream_is_decoded_as_far_as_it_came(name: bytes) -> None:
    packed = PACKED[name]
    short = undo_codings(packed[: len(packed) * 3 // 4], [name], ROOM)
    assert short.flags == {Flag.DECODED_CUT}
    assert BODY.startswith(short.body)
    # zstd gives out whole blocks of up to 128 KiB, and this body is one of them.
    assert len(short.body) > len(BODY) // 2 or name == b"zstd"


def test_little_is_lost_before_a_damaged_place() -> None:
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
        pytest.param(b"", [b"gzip"], DecodedBody(b""), id="nothing, packed or not, is nothing"),
        pytest.param(
            gzipped(b"a") + gzipped(b"b"), [b"gzip"], DecodedBody(b"ab"), id="streams in a row"
        ),
        pytest.param(
            gzipped(b"a") + b"junk", [b"gzip"], DecodedBody(b"a"), id="junk after the end"
        ),
        pytest.param(
            zlib.compress(BODY), [b"deflate"], DecodedBody(BODY), id="deflate with zlib's two bytes"
        ),
        pytest.param(
            b"<p>plain</p>",
            [b"gzip"],
            DecodedBody(b"<p>plain</p>", frozenset({Flag.DECODED_BROKEN})),
            id="a text that never was packed stays",
        ),
        pytest.param(
            b"\x1f\x8b\x08\0garbage",
            [b"gzip"],
            DecodedBody(b"", frozenset({Flag.DECODED_CUT})),
            id="garbage that says it is gzip does not become a page",
        ),
        pytest.param(
            b"x",
            [b"compress"],
            DecodedBody(b"x", frozenset({Flag.UNDECODED})),
            id="a coding we do not know",
        ),
        pytest.param(
            b"x",
            [b"gzip"] * 4,
            DecodedBody(b"x", frozenset({Flag.UNDECODED})),
            id="more codings than a server has a reason for",
        ),
        pytest.param(
            zstd_bomb(1, window=b"\x88"),
            [b"zstd"],
            DecodedBody(b"", frozenset({Flag.DECODED_BROKEN})),
            id="a zstd window over 8 MB",
        ),
        pytest.param(
            gzipped(b"a") * 100,
            [b"gzip"],
            DecodedBody(b"a" * 65, frozenset({Flag.DECODED_BROKEN})),
            id="streams in a row, but not for ever",
        ),
    ],
)
def test_odd_bodies(body: bytes, codings: list[bytes], expect: DecodedBody) -> None:
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
from crawler.page.encodings import undo_codings
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
