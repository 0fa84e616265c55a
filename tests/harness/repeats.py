"""A web of every kind of answer that may be archived twice, and a check of what was archived.

Rule: records are read by other people's software; a metadata record is about the answer that it
names.
"""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from crawler.archive.columns_companion import SUFFIX
from tests.harness.archive_judges import Read, marked, read_folder, read_rows
from tests.servers.loopback import Reply, Routes


def words(seed: str, count: int = 150) -> str:
    random = Random(seed)
    return " ".join(random.randbytes(3).hex() for _ in range(count))


def nearly(number: int, host: int) -> str:
    """The same text at each host, but for one word: mostly within 3 bits of one another."""
    text = words(f"near {number}", 400).split()
    text[7] = f"word{host}"
    return " ".join(text)


def pages(host: int) -> Routes:
    packed = gzip.compress(f"<title>P</title><p>{words(f'packed {host}')}".encode(), mtime=0)
    coded = (("Content-Encoding", "gzip"),)
    return {
        **{f"/{n}": Reply(f"<title>{n}</title><p>{words(f'{host} {n}')}") for n in range(2)},
        **{f"/near{n}": Reply(f"<title>N</title><p>{nearly(n, host)}") for n in range(5)},
        "/copy": Reply(f"<title>C</title><p>{words('copy')}"),
        "/packed": Reply(packed, content_type="text/html", headers=coded),
        "/short": Reply(f"{host}"),
        "/changes": lambda hit: Reply(f"<title>{hit}</title><p>{words(f'{host} at {hit}')}"),
    }


def no_pages(host: int) -> Routes:
    return {
        "/gone": Reply(f"<p>Not here, not at {host}", 404),
        "/moved": Reply("It has moved.", 301, headers=(("Location", "/0"),)),
        "/away": Reply(status=302, headers=(("Location", "/1"),)),
        "/empty": Reply(),
        "/nothing": Reply(status=204),
        "/same": Reply(status=304),
        "/missing": Reply(status=404),
    }


def routes(host: int) -> Routes:
    """Each host leads to them in another order."""
    found = {**pages(host), **no_pages(host)}
    paths = Random(host).sample(sorted(found), len(found))
    links = "".join(f"<a href={path}>x</a>" for path in paths)
    return {"/": Reply(f"<title>{host}</title><p>{words(str(host))}{links}"), **found}


@dataclass(frozen=True)
class RepeatsAudit:
    """*folder*: all finished files of a crawl."""

    folder: Path

    @cached_property
    def answers(self) -> list[Read]:
        return [one for one in self._records if one.kind in ("response", "revisit")]

    @cached_property
    def full(self) -> list[Read]:
        return [one for one in self.answers if one.kind == "response"]

    @cached_property
    def revisits(self) -> list[Read]:
        return [one for one in self.answers if one.kind == "revisit"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for file in sorted(self.folder.glob(f"*{SUFFIX}")) for row in read_rows(file)]

    def is_marked(self, one: Read) -> bool:
        """Return whether its metadata marks it as a possible repeat."""
        return one.fields["WARC-Record-ID"] in self._marked

    def check(self) -> None:
        """What is there twice is marked, and the original of each revisit is there."""
        unmarked = Counter(one.url for one in self.full if not self.is_marked(one))
        assert set(unmarked.values()) == {1}
        places = {(one.url, one.fields["WARC-Date"]): one for one in self.full}
        for one in self.revisits:
            place = one.fields["WARC-Refers-To-Target-URI"], one.fields["WARC-Refers-To-Date"]
            digest = places[place].fields["WARC-Payload-Digest"]
            assert one.fields["WARC-Payload-Digest"] == digest
        rows = self.rows
        texts = Counter(row["url"] for row in rows if row["text"] and not row["may_repeat"])
        assert set(texts.values()) == {1}
        written = {row["url"] for row in rows if row["text"]}
        copies = [row for row in rows if not row["text"]]
        assert {(row["bits"], row["original"] in written) for row in copies} == {(None, True)}

    @cached_property
    def _marked(self) -> set[str]:
        return marked(self._records)

    @cached_property
    def _records(self) -> list[Read]:
        return list(read_folder(self.folder).values())
