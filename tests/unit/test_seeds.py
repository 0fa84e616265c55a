"""Read seeds: a list of them, or what was pushed as a URL or in scrapy-redis' JSON form."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.arguments import SeedTerms
from crawler.engine.seeds import (
    LoggedProgress,
    SeedList,
    batches,
    list_url,
    open_seeds,
    survey_seeds,
)
from crawler.model.choices import ScopeChoice
from crawler.model.types import SeedsError
from crawler.model.url import fetch_form
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.seeds import (
    BadLine,
    seed_url,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd
import pickle

from crawler.policy.seeds import PushedRequest, read_pushed


def list_of(text: str, name: str = "seeds.txt") -> SeedList:
    return SeedList(io.BytesIO(text.encode()), name, name)


def good(seeds: SeedList) -> tuple[str, ...]:
    return tuple(line for line in seeds.read() if isinstance(line, str))


def bad(seeds: SeedList) -> tuple[BadLine, ...]:
    return tuple(line for line in seeds.read() if isinstance(line, BadLine))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("https://example.com/a", "https://example.com/a", id="a URL"),
        pytest.param("HTTP://Example.COM", "http://example.com/", id="in capitals"),
        pytest.param("https://example.com/#top", "https://example.com/", id="with a fragment"),
        pytest.param("example.com", "https://example.com/", id="a bare name is https"),
        pytest.param("example.com/x?y=1", "https://example.com/x?y=1", id="with a path"),
        pytest.param("//example.com/x", "https://example.com/x", id="without its scheme"),
        pytest.param("bücher.example", "https://xn--bcher-kva.example/", id="in German"),
        pytest.param("example.com:8080/x", "http://example.com:8080/x", id="a port is http"),
        pytest.param("example.com:443", "https://example.com/", id="but for that of https"),
        pytest.param("localhost:8000", "http://localhost:8000/", id="localhost is http"),
        pytest.param("a.localhost", "http://a.localhost/", id="and all below it"),
        pytest.param("127.0.0.1/x", "http://127.0.0.1/x", id="an address is http"),
        pytest.param("[::1]:8000/", "http://[::1]:8000/", id="an IPv6 address is http"),
        pytest.param("http://intranet/", "http://intranet/", id="any name with a scheme"),
    ],
)
def test_good_seed(text: str, want: str) -> None:
    assert seed_url(text) == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("ftp://example.com/", "the scheme is ftp", id="another scheme"),
        pytest.param("mailto:me@example.com", "the scheme is mailto", id="a mail link"),
        pytest.param("me@example.com", "neither a URL nor", id="a mail address"),
        pytest.param("hello", "neither a URL nor", id="a word"),
        pytest.param("/etc/passwd", "neither a URL nor", id="a path"),
        pytest.param("?x=1", "neither a URL nor", id="a query"),
        pytest.param("two words.example", "white space", id="two words"),
        pytest.param("http://[::1", "not a URL", id="an open bracket"),
        pytest.param("http://999.1.1.1", "not a URL", id="an address out of range"),
        pytest.param("example.com:99999", "not a URL", id="a port out of range"),
        pytest.param("https://", "not a URL", id="no host"),
        pytest.param("https://me:word@example.com/", "user name or password", id="credentials"),
    ],
)
def test_bad_seed(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        seed_url(text)


def test_a_list_keeps_its_order_and_names_its_bad_lines() -> None:
    text = (
        "\ufeff# my seeds\r\n"
        "https://example.com/b\r\n"
        "\r\n"
        "   https://example.com/a  # the older one\r\n"
        "not a seed\r"
        "\t#example.org\n"
        "https://example.com/#part\n"
        "ftp://example.com/\n"
    )
    seeds = list_of(text)
    assert good(seeds) == (
        "https://example.com/b",
        "https://example.com/a",
        "https://example.com/",
    )
    assert bad(seeds) == (
        BadLine(5, "not a seed", "white space in the URL"),
        BadLine(8, "ftp://example.com/", "the scheme is ftp, only http and https are fetched"),
    )


def test_a_bad_line_shows_only_its_beginning() -> None:
    (line,) = bad(list_of("\x00" * 1_000_000))
    assert len(line.text) <= 120


TRANCO = "1,example.com\r\n2,www.w3.org\r\n3,example.org\r\n"
SITES = ("https://example.com/", "https://www.w3.org/", "https://example.org/")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(TRANCO, SITES, id="rank and domain, no heading"),
        pytest.param("rank,domain\n" + TRANCO, SITES, id="rank and domain, with a heading"),
        pytest.param("\ufeff\"Rank\";\"Domain\"\n1;example.com\n2;www.w3.org\n3;example.org",
                     SITES, id="semicolons, quotes and a byte order mark"),
        pytest.param("origin,rank\nhttps://example.com,1000\nhttps://www.w3.org,1000\n"
                     "https://example.org,1000\n", SITES, id="origins"),
        pytest.param("GlobalRank,TldRank,Domain,TLD,RefSubNets,IDN_Domain\n"
                     "1,1,example.com,com,9,example.com\n2,1,www.w3.org,org,8,www.w3.org\n"
                     "3,2,example.org,org,7,example.org\n", SITES, id="many columns"),
        pytest.param("example.com,https://example.com/a\n", ("https://example.com/",),
                     id="no heading, two columns of seeds: the first"),
        pytest.param("domain,title,url\nexample.com,\"A, b\nc\",https://example.com/a\n",
                     ("https://example.com/a",), id="a URL rather than its host, behind quotes"),
        pytest.param("url\nhttps://example.com/\nwww.w3.org\nhttps://example.org/\n", SITES,
                     id="one column with a heading"),
        pytest.param("https://example.com/\nwww.w3.org\nhttps://example.org/\n", SITES,
                     id="one column without"),
        pytest.param("example.com\t1.5\nwww.w3.org\t2.5\nexample.org\t1e3\n", SITES,
                     id="tabs, and numbers that could be addresses"),
        pytest.param("# a list, of ours\n\n" + TRANCO, SITES, id="a comment"),
        pytest.param("#,site\n" + TRANCO, SITES, id="a heading that begins with #"),
        pytest.param('"https://example.com/a,b",1\n', ("https://example.com/a,b",),
                     id="a comma in quotes"),
        pytest.param("", (), id="nothing"),
    ],
)  # fmt: skip
def test_a_table_gives_the_column_of_its_urls_or_hosts(text: str, want: tuple[str, ...]) -> None:
    seeds = list_of(text, "a.csv")
    assert (good(seeds), bad(seeds)) == (want, ())


def test_bad_rows_of_a_table_are_named() -> None:
    seeds = list_of(
        f'rank,domain\n1,example.com\n2\n3,two words\n4,{"x" * 200_000}\n5,"a.b\n6,c.d', "a.csv"
    )
    assert good(seeds) == ("https://example.com/",)
    assert [(each.number, each.text.strip()[:12], each.reason[:25]) for each in bad(seeds)] == [
        (3, "2", "nothing in column 2"),
        (4, "3,two words", "white space in the URL"),
        (5, "not CSV: fie", "nothing in column 2"),
        (7, "5,a.b\n6,c.d", "white space in the URL"),
    ]


@given(st.text())
def test_no_table_raises_and_all_seeds_are_fetch_forms(text: str) -> None:
    assert all(fetch_form(url) == url for url in good(list_of(text, "a.csv")))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["", "gz", "zst"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("top.csv", TRANCO),
        ("TOP.CSV", TRANCO),
        ("list.txt", "example.com\nwww.w3.org\nexample.org"),
    ],
)
def test_a_list_may_be_packed(
    tmp_path: Path, name: str, content: str, pack: Callable[[bytes], bytes]
) -> None:
    suffix = {gzip.compress: ".gz", zstd.compress: ".zst"}.get(pack, "")
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(pack(content.encode()))
    assert good(open_seeds(str(path))) == SITES
    url = f"https://example.com/{path.name}?v=1"
    assert list_url(url) == list_url(f"{url} scope=host max_pages=3") == url
    assert list_url(f"{url}\n") is None, "the page of a crawl.toml"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(gzip.compress(TRANCO.encode())[:-9], "cannot be unpacked", id="gzip, cut"),
        pytest.param(zstd.compress(TRANCO.encode())[:-5], "cannot be unpacked", id="zstd, cut"),
        pytest.param(b"\x28\xb5\x2f\xfd nonsense", "cannot be unpacked", id="zstd, broken"),
        pytest.param(b"PK\x03\x04...", "is a zip archive: unpack it", id="zip"),
    ],
)
def test_a_packed_list_that_is_damaged_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "top.csv.gz"
    path.write_bytes(content)
    with pytest.raises(SeedsError, match=message):
        survey_seeds(open_seeds(str(path)))


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_a_list_that_is_too_long_when_unpacked_is_refused(
    compress: Callable[[bytes], bytes],
) -> None:
    bomb = compress(b"example.com\n" * (1 << 20))
    with pytest.raises(SeedsError, match="x is over 4 MB when unpacked"):
        good(SeedList(io.BytesIO(bomb), "x", "x", max_bytes=4 << 20))


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("example.com", ("https://example.com/",)),
        ("example.com/a?b", ("https://example.com/a?b",)),
        ("localhost:8000", ("http://localhost:8000/",)),
        ("example.com,www.w3.org,example.org", SITES),
        (",".join(SITES[:1] * 99), SITES[:1] * 99),
        (",".join(["example.com"] * 99), SITES[:1] * 99),
    ],
)
def test_a_seed_of_the_command_line_may_lack_its_scheme(given: str, want: tuple[str, ...]) -> None:
    assert good(open_seeds(given)) == want


@pytest.mark.parametrize(
    "given", ["seeds.txt", "top.csv.gz", "./example.com", "/example.com", "seeds", "a/b.example"]
)
def test_a_list_that_is_missing_is_no_seed(given: str) -> None:
    with pytest.raises(SeedsError, match="does not exist"):
        open_seeds(given)


def test_a_file_counts_before_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "example.com").write_text("www.w3.org\n")
    monkeypatch.chdir(tmp_path)
    assert good(open_seeds("example.com")) == ("https://www.w3.org/",)


@given(st.text())
def test_no_text_raises_and_all_seeds_are_fetch_forms(text: str) -> None:
    assert all(fetch_form(url) == url for url in good(list_of(text)))


def test_a_long_list_is_read_as_a_whole_one_again_and_again() -> None:
    urls = tuple(f"https://site{number}.example/{'x' * (number % 99)}" for number in range(9000))
    seeds = list_of("\r\n".join(urls))
    assert good(seeds) == good(seeds) == urls
    assert seeds.progress() == "9,000 lines of seeds.txt (100%)"


def test_a_list_that_is_not_utf8_names_the_line_far_down() -> None:
    content = b"https://example.com/\n" * 20_000 + b"https://ex\xe4mple.com/\n"
    with pytest.raises(SeedsError, match=r"a.txt is not UTF-8 \(line 20001\)"):
        good(SeedList(io.BytesIO(content), "a.txt", "a.txt"))


def test_a_list_may_come_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("example.com\nwww.w3.org\n",))
    writer.start()
    seeds = open_seeds(str(path))
    writer.join()
    assert good(seeds) == good(seeds) == ("https://example.com/", "https://www.w3.org/")


@pytest.mark.parametrize("scope", ScopeChoice)
def test_a_long_list_takes_no_memory_but_for_the_scope(tmp_path: Path, scope: ScopeChoice) -> None:
    def peak(lines: int) -> int:
        path = tmp_path / "seeds.txt"
        with path.open("w") as file:
            file.writelines(f"https://www.site{number}.example/\n" for number in range(lines))
        terms = SeedTerms(scope=scope, allow=(re.compile("/"),))
        seeds = open_seeds(str(path), TermsOfSeeds(terms))
        tracemalloc.start()
        assert sum(map(len, batches(seeds.read(), 500))) == lines
        survey_seeds(seeds).scope()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = peak(20_000), peak(40_000)  # caches are full at 16,384
    bytes_a_line = (many - few) / 20_000
    # A scope keeps a hash of 8 bytes, and sorts a copy of all.
    assert bytes_a_line < (5 if scope is ScopeChoice.ANY else 70)


def test_one_line_without_an_end_takes_bounded_memory() -> None:
    def peak(chars: int) -> int:
        content = io.BytesIO(b"x" * chars + b"\nexample.com")
        tracemalloc.start()
        assert good(SeedList(content, "a.txt", "a.txt")) == ("https://example.com/",)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(32 << 20) < peak(2 << 20) + (1 << 20)


def test_bad_lines_are_counted_and_the_first_named(caplog: pytest.LogCaptureFixture) -> None:
    seeds = list_of("two words\n" * 70 + "example.com\n")
    survey_seeds(seeds)
    named = [line for line in caplog.messages if "skipped (white space in the URL)" in line]
    assert len(named) == 20 and "seeds.txt line 1 skipped" in named[0]
    assert caplog.messages[-1] == "seeds.txt: 50 more bad lines skipped"


def test_progress_is_logged_every_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    seeds, now = list_of("https://example.com/\n" * 100_000), 100.0
    progress = LoggedProgress(seeds, lambda: now)
    with caplog.at_level("INFO"):
        for _ in batches(seeds.read(), 500):
            now += 0.11
            progress.note(", 7 new")
    assert len(caplog.messages) == 4
    assert re.fullmatch(r"Read 23,000 lines of seeds.txt \(2\d%\), 7 new", caplog.messages[0])


URL = "https://example.com/a"


@pytest.mark.parametrize(
    ("item", "want"),
    [
        pytest.param(b"https://example.com/a", PushedRequest(URL), id="a URL alone"),
        pytest.param(b" example.com/a\n", PushedRequest(URL), id="as people type it"),
        pytest.param(b'{"url": "https://example.com/a"}', PushedRequest(URL), id="a JSON object"),
        pytest.param(
            b'\xef\xbb\xbf{"url": "example.com/a"}', PushedRequest(URL), id="behind a BOM"
        ),
        pytest.param(
            b'{"url": "example.com/a", "meta": null}', PushedRequest(URL), id="without meta"
        ),
        pytest.param(
            b'{"url": "https://example.com/a", "meta": {"job-id": "123xsd", "n": [1, {}]}}',
            PushedRequest(URL, meta={"job-id": "123xsd", "n": [1, {}]}),
            id="with meta",
        ),
        pytest.param(
            b'{"url": "https://example.com/a", "method": "post", "key": "x", "list": ["y", "z"]}',
            PushedRequest(URL, "POST", form={"key": "x", "list": ["y", "z"]}),
            id="every other field is form data",
        ),
        pytest.param(
            "https://bücher.example/".encode(),
            PushedRequest("https://xn--bcher-kva.example/"),
            id="UTF-8",
        ),
    ],
)
def test_readable_pushed_items(item: bytes, want: PushedRequest) -> None:
    assert read_pushed(item) == want


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(b"https://example.com/\xff", "not UTF-8", id="Latin-1"),
        pytest.param(b"{", "not JSON", id="half an object"),
        pytest.param(b'{"url": "https://a.b/"} {}', "not JSON", id="two objects"),
        pytest.param(b'{"link": "https://a.b/"}', "no URL in it", id="no URL"),
        pytest.param(b'{"url": ["https://a.b/"]}', "no URL in it", id="a list of URLs"),
        pytest.param(b'["https://a.b/"]', "not|host", id="a list"),
        pytest.param(b'{"url": "ftp://a.b/"}', "the scheme is ftp", id="another scheme"),
        pytest.param(b'{"url": "https://u:p@a.b/"}', "user name", id="a password"),
        pytest.param(b'{"url": "a.b", "meta": "x"}', "meta is no object", id="meta as text"),
        pytest.param(b'{"url": "a.b", "method": 1}', "method", id="a method that is none"),
        pytest.param(b'{"url": "a.b", "method": "A B"}', "method", id="a method with a blank"),
        pytest.param(
            b'{"url": "a.b", "priority": 5}', "'priority' is not form data", id="a number"
        ),
        pytest.param(b'{"url": "a.b", "x": {"y": "z"}}', "'x' is not form data", id="an object"),
        pytest.param(b'{"url": ' + b"[" * 30_000, "not JSON", id="nested without end"),
        pytest.param(pickle.dumps({"url": URL}), "not UTF-8", id="a pickle"),
    ],
)
def test_a_refusal_gives_its_reason(item: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_pushed(item)


@given(st.binary() | st.text().map(str.encode))
def test_every_line_is_read_or_refused(item: bytes) -> None:
    try:
        pushed = read_pushed(item)
    except ValueError:
        return
    assert pushed.url.startswith(("http://", "https://"))
