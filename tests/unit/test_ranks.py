"""Ranks of hosts and domains: every form of list that is read, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.types import ConfigError
from crawler.policy.ranks import Ranks, read_ranks

HEADER = "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev\t#n_hosts\n"
COMMON_CRAWL = (
    "1\t2.4993276E7\t2\t0.0125\torg.example\t7348\n"
    "2\t2.4671056E7\t1\t0.05\tcom.example.www\t1904\n"
    "3\t0.0\t3\t4.48E-9\tde.xn--mller-kva\t1\n"
)


def read(written: str | bytes) -> Ranks:
    return read_ranks(
        [written.encode() if isinstance(written, str) else written], "CRAWLER_RANKS: a.txt"
    )


@pytest.mark.parametrize(
    ("written", "ranks"),
    [
        pytest.param(
            HEADER + COMMON_CRAWL,
            {"example.org": 1, "www.example.com": 2, "xn--mller-kva.de": 3, "org.example": None},
            id="Common Crawl's",
        ),
        pytest.param(COMMON_CRAWL, {"example.org": 1, "www.example.com": 2}, id="without its head"),
        pytest.param(
            "#host_rev\t#harmonicc_val\t#harmonicc_pos\norg.example\t1.0\t7\ncom.example\t2\t3\n",
            {"example.com": 1, "example.org": 2},
            id="columns are known by their names, ranks are places in the file",
        ),
        pytest.param(
            "#harmonicc_pos\t#harmonicc_val\t#host_rev\t#host_rev\n1\t2\torg.b\torg.a\n",
            {"b.org": 1, "a.org": None},
            id="of a column that comes twice the first",
        ),
        pytest.param(
            HEADER + "1\t9.0\t1\t0.5\t192.0.2.7\t1\n", {"192.0.2.7": 1}, id="an address is as it is"
        ),
        pytest.param("1,example.org\r\n2,example.com\r\n", {"example.com": 2}, id="Tranco's"),
        pytest.param("2\ta.org\n1\tb.org\n", {"a.org": 2, "b.org": 1}, id="by position"),
        pytest.param(
            "a.org 1\nb.org 2.5\nc.org .5\nd.org 2.5e0",
            {"b.org": 1, "d.org": 2, "a.org": 3, "c.org": 4},
            id="by weight, equal ones in their order",
        ),
        pytest.param("a.org;3\nb.org, 4\n", {"b.org": 1, "a.org": 2}, id="any separator"),
        pytest.param("b.org\na.org\n", {"b.org": 1, "a.org": 2}, id="names, the best first"),
        pytest.param("\ufeffb.org\na.org", {"b.org": 1, "a.org": 2}, id="a byte order mark"),
        pytest.param("domain,weight\na.org,1\n", {"a.org": 1, "domain": None}, id="a head"),
        pytest.param("# mine\n\nB.ORG\n\n# bad ones\na.org", {"b.org": 1, "a.org": 2}, id="gaps"),
        pytest.param("müller.de 2\n", {"xn--mller-kva.de": 1}, id="a name not as in the DNS"),
        pytest.param(
            "a.org 1\nb.org 2\na.org 3\nc.org .5", {"a.org": 1, "b.org": 2, "c.org": 3}, id="twice"
        ),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_forms(written: str, ranks: dict[str, int | None], is_packed: bool) -> None:
    found = read(gzip.compress(written.encode()) if is_packed else written)
    assert {name: found.of_host(name) for name in ranks} == ranks


def test_www_is_left_out_by_some_lists() -> None:
    of_hosts, of_domains = read("www.example.org\n"), read("example.org\n")
    assert (of_hosts.of_domain("example.org"), of_hosts.of_host("example.org")) == (1, None)
    assert of_domains.of_host("www.example.org") == of_domains.of_domain("example.org") == 1
    assert of_domains.of_host("shop.example.org") is None


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        pytest.param(HEADER + COMMON_CRAWL, {"www.example.com": 1.0, "example.org": 0.25}, id="pr"),
        pytest.param("a.org 8\nb.org 4\nc.org 0", {"a.org": 1, "b.org": 0.5, "c.org": 0}, id="own"),
        pytest.param("a.org 0\n", {"a.org": 0}, id="none"),
        pytest.param("a.org\nb.org\n", {"a.org": 1, "b.org": 0.5, "www.a.org": 1}, id="by rank"),
        pytest.param("a.org 9e99\nb.org 9e98\n", {"a.org": 1, "b.org": 1}, id="as much as fits"),
    ],
)
def test_weights(written: str, weights: dict[str, float]) -> None:
    found = read(written)
    assert {name: found.weight_of(name) for name in weights} == pytest.approx(weights)


def endless(line: bytes) -> Iterable[bytes]:
    """A packed file of any length: gzip unpacks members one after the other."""
    return repeat(gzip.compress(line * 100_000))


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        pytest.param([b""], "has no names; want Common Crawl's ranks", id="empty"),
        pytest.param([HEADER.encode()], "has no names", id="a head only"),
        pytest.param([b"# a\n\n"], "has no names", id="comments only"),
        pytest.param([b"#pr_pos\t#host_rev\n"], "has no column harmonicc_pos, harm", id="columns"),
        pytest.param([b"\n<html>\n"], "line 2 is '<html>'; want Common Crawl's", id="a page"),
        pytest.param([b"10 20\n"], "line 1 is '10 20'", id="numbers"),
        pytest.param([b"a.org -1\n"], "line 1 is 'a.org -1'", id="negative"),
        pytest.param([b"a.org nan\n"], "line 1", id="not a number"),
        pytest.param(
            [b"a.org 1\nb.org inf\n"], "line 2, 'b.org inf'; want one such", id="infinite"
        ),
        pytest.param([b"a.org 1\nb.org 1e999\n"], "line 2", id="beyond all numbers"),
        pytest.param([b"a.org 1\nb.org\n"], "1 of 2 lines cannot be read", id="two forms"),
        pytest.param([b"\xff\xfe\x00a\n"], "line 1", id="not UTF-8"),
        pytest.param([b"a.org\n\xe9.org\n"], "line 2, '\ufffd.org'", id="a name not UTF-8"),
        pytest.param([bytes(1 << 20)] * 2, "a line of over 65,536 bytes", id="zeros"),
        pytest.param([gzip.compress(b"a.org\n")[:-4]], "damaged or cut off", id="cut off"),
        pytest.param(
            [gzip.compress(b"a.org\n") + b"rubbish"], "damaged or cut off", id="with a tail"
        ),
        pytest.param([b"\x1f\x8b" + bytes(100)], "damaged or cut off", id="only the mark of gzip"),
        pytest.param(endless(bytes(100)), "a line of over", id="a bomb of one line"),
        pytest.param(endless(b"?\n"), "line 1 is '?'", id="a bomb of rubbish"),
        pytest.param(endless(b"\n"), "has no names", id="a bomb of empty lines"),
    ],
)
def test_refused(chunks: Iterable[bytes], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_ranks(chunks, "a.txt", most_lines=1_000_000)
    assert str(refused.value).startswith("a.txt") and said in str(refused.value)


def test_a_list_without_an_end_is_cut_off() -> None:
    found = read_ranks(endless(b"a.org\n"), "a.txt", most_lines=1_000_000)
    assert (len(found), found.of_domain("a.org")) == (1, 1)
    assert found.notes[0] == "a.txt: only the first 1,000,000 lines were read"


def test_a_few_bad_lines_of_many_are_left_out_and_said() -> None:
    lines = [f"a{number}.org 1" for number in range(5_000)]
    lines[41] = "two words 1"
    found = read("\n".join(lines))
    assert (len(found), found.of_domain("a42.org")) == (4_999, 42)
    (note,) = found.notes
    assert "1 of 5,000 lines cannot be read" in note and "line 42, 'two words 1'" in note


LINES = st.lists(
    st.sampled_from([b"a.org 1", b"a.org", b"1,a.org", HEADER[:-1].encode(), b"\xff", b"", b"# b"])
    | st.binary(max_size=20)
)


@given(LINES, st.booleans(), st.integers(0, 200), st.integers(1, 50))
def test_whatever_a_file_holds_it_is_read_or_refused(
    lines: list[bytes], is_packed: bool, damaged: int, chunk_bytes: int
) -> None:
    written = b"\n".join(lines)
    if is_packed:
        packed = bytearray(gzip.compress(written, mtime=0))
        if damaged < len(packed):
            packed[damaged] ^= 1
        written = bytes(packed)
    chunks = (written[at : at + chunk_bytes] for at in range(0, len(written), chunk_bytes))
    try:
        found = read_ranks(chunks, "a.txt")
    except ConfigError:
        return
    assert len(found) > 0 and sorted(found.ranks.tolist()) == list(range(1, len(found) + 1))
    assert found.weights.min() >= 0 and found.weights.max() <= 1
