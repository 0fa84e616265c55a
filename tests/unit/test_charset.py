"""By which encoding a page is read: as it says, unless that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.policy.charset import read_text

GERMAN = "Stra\xdfen, \xdcbung, sch\xf6n, gr\xfc\xdfen, M\xe4dchen, K\xf6nig, T\xfcr \u20ac"
RUSSIAN = "\u0417\u0430\u0433\u043b\u0430\u0432\u043d\u0430\u044f " * 3
JAPANESE = "\u65e5\u672c\u8a9e\u306e\u30da\u30fc\u30b8" * 3
CHINESE = "\u4e2d\u6587\u7f51\u9875\u5185\u5bb9" * 3


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
        pytest.param("", "\xe9!".encode(), "utf-8", id="none told, and it is UTF-8"),
        pytest.param("", b"\xe9!", "windows-1252", id="none told, and it is not"),
        pytest.param("text/html; charset=utf-8", b"\xe9!", "windows-1252", id="told wrongly"),
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
        pytest.param("<meta charset=gb2312>", "gb18030", CHINESE, "gb18030", id="its successor"),
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


def test_a_header_that_is_wrong_gives_way_to_the_page() -> None:
    page = "<meta charset=windows-1251>" + RUSSIAN
    read = read_text(page.encode("cp1251"), "text/html; charset=utf-8")
    assert read == (page, "windows-1251")


def test_plain_text_declares_nothing() -> None:
    page = "<meta charset=windows-1251>" + GERMAN
    assert read_text(page.encode("cp1252"), "text/plain", marked_up=False)[0] == page


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("\u65e5\u672c".encode()[:-1], id="cut in the middle of a letter"),
        pytest.param("\xe9".encode()[:-1], id="of the only one"),
        pytest.param(GERMAN.encode() + b"\xff", id="one broken letter of many"),
    ],
)
def test_what_is_broken_in_few_places_stays_utf_8(body: bytes) -> None:
    text, name = read_text(body, "text/html; charset=utf-8")
    assert name == "utf-8" and text.count("\ufffd") == 1


@given(st.binary(max_size=200), st.sampled_from(["", "text/html; charset=shift_jis", "x;charset="]))
def test_any_bytes_are_text(body: bytes, content_type: str) -> None:
    text, name = read_text(body, content_type)
    text.encode()
    assert name
