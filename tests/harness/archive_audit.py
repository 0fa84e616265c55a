"""Check the archive of a crawl against its outcome log and the request logs of the web servers.

Rule: nothing of ours is trusted: records are read by other people's software, pages and texts are
what the web serves, and each sum is computed from what the servers logged.

"Once, or as a marked duplicate" means here: a URL that was served once has one record. One that was
served again, as a kill came before its finish, has at most as many records as it was served, and
one of these is no revisit and is not marked as a possible repeat. No two records hold the same
bytes; the others are revisits. Of two finished pages with nearly the same text, one names the other
as its original in the outcome log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from isal.igzip import decompress

from crawler.archive.columns_companion import SUFFIX
from crawler.model.types import Outcome
from tests.harness.archive_judges import Read, judged_archive, marked, read_folder, read_rows
from tests.servers.copied_web import ROBOTS, CopiedServer

ANSWERS: Final = ("response", "revisit")
SUFFIXES: Final = (".warc.gz", ".cdxj", SUFFIX)
NEAR_BITS: Final = 3

Place = tuple[str, int]


@dataclass(frozen=True)
class ArchiveAudit:
    """*folder*: all finished files of the crawl."""

    folder: Path
    outcomes: Sequence[Outcome]
    server: CopiedServer

    @cached_property
    def expected(self) -> Mapping[str, tuple[str, str]]:
        return self.server.expected()

    @cached_property
    def records(self) -> dict[Place, Read]:
        return read_folder(self.folder)

    @cached_property
    def answers(self) -> dict[Place, Read]:
        return {place: one for place, one in self.records.items() if one.kind in ANSWERS}

    @cached_property
    def rows(self) -> dict[Place, dict[str, Any]]:
        files = sorted(self.folder.glob(f"*{SUFFIX}"))
        rows = [row for file in files for row in read_rows(file)]
        return {(row["warc_file"], row["warc_offset"]): row for row in rows}

    @cached_property
    def named(self) -> dict[Place, Outcome]:
        """Records that the outcome log names."""
        return {_place(one.record): one for one in self.outcomes if one.record}

    def check(self, leases_of_the_dead: int, *, is_shared: bool = False) -> None:
        """*leases_of_the_dead*: how many leases were held at all deaths together. In a shared crawl
        another worker may get them before the dead worker restarts, a finish may be logged that did
        not reach Redis, and pages in flight at two workers are not compared."""
        twins = leases_of_the_dead if is_shared else 0
        self._files_are_in_order()
        self._what_is_finished_is_there(twins)
        self._nothing_is_there_more_often_than_it_was_served(leases_of_the_dead)
        self._what_is_there_twice_is_marked()
        self._originals_are_different(twins)
        if not is_shared:
            self._texts_are_different()
        self._contents_are_those_of_the_web()
        self._columns_agree_with_records()

    def _files_are_in_order(self) -> None:
        names = {path.name for path in self.folder.iterdir()}
        stems = {name.removesuffix(".warc.gz") for name in names if name.endswith(".warc.gz")}
        assert names == {stem + suffix for stem in stems for suffix in SUFFIXES}
        judged_archive(self.folder)

    def _what_is_finished_is_there(self, twins: int) -> None:
        for place, outcome in self.named.items():
            assert self.answers[place].url == outcome.url, outcome
        done = Counter(one.url for one in self.outcomes if one.fate in ("done", "moved"))
        assert sum(done.values()) - len(done) <= twins, "a URL is finished once"
        assert all(one.record for one in self.outcomes if one.fate in ("done", "moved"))
        assert {one.fate for one in self.outcomes} <= {"done", "moved", "retry"}
        there = {one.url for one in self.answers.values()}
        assert there == self.expected.keys(), sorted(self.expected.keys() ^ there)[:5]

    def _nothing_is_there_more_often_than_it_was_served(self, leases_of_the_dead: int) -> None:
        server, web = self.server, self.server.copied_web
        visits = [visit for visit in server.visits if visit.path != ROBOTS]
        served = Counter(server.url(v.host, v.path) for v in visits if v.status < 500)
        records = Counter(one.url for one in self.answers.values())
        assert all(1 <= records[url] <= times for url, times in served.items())
        asked = Counter((visit.host, visit.path) for visit in visits)
        again = sum(times - web.fetches(path) for (_, path), times in asked.items())
        assert again <= leases_of_the_dead
        assert len(self.answers) - len(records) <= again

    def _what_is_there_twice_is_marked(self) -> None:
        may_repeat = marked(self.records.values())
        full = (one for one in self.answers.values() if one.kind == "response")
        surely = Counter(one.url for one in full if one.fields["WARC-Record-ID"] not in may_repeat)
        assert set(surely.values()) == {1}, surely.most_common(3)

    def _originals_are_different(self, twins: int) -> None:
        """Check that at most *twins* records hold the same bytes as another."""
        answers = self.answers.values()
        digests = Counter(
            one.fields["WARC-Payload-Digest"] for one in answers if one.kind == "response"
        )
        assert sum(digests.values()) - len(digests) <= twins

    def _texts_are_different(self) -> None:
        """Check finished pages that are no copies."""
        own = {one.url for one in self.outcomes if one.fate == "done" and not one.reason}
        rows = (row for row in self.rows.values() if row["simhash"])
        prints = {row["url"]: int(row["simhash"], 16) for row in rows}
        for (url, one), (twin, other) in combinations(prints.items(), 2):
            alike = (one ^ other).bit_count() <= NEAR_BITS
            assert not (alike and url in own and twin in own), f"{url} and {twin}"

    def _contents_are_those_of_the_web(self) -> None:
        by_digest: dict[str, bytes] = {}
        for one in self.answers.values():
            digest = one.fields["WARC-Payload-Digest"]
            if one.kind == "response":
                assert by_digest.setdefault(digest, one.payload) == one.payload
        for one in self.answers.values():
            host, path = self.expected[one.url]
            reply = self.server.reply(host, path)
            assert by_digest[one.fields["WARC-Payload-Digest"]] == reply.body
            assert one.block.startswith(b"HTTP/1.1 %d " % reply.status)

    def _columns_agree_with_records(self) -> None:
        web, pages = self.server.copied_web, set()
        for place, one in self.answers.items():
            host, path = self.expected[one.url]
            if not web.is_page(path):
                continue
            pages.add(place)
            row, prose = self.rows[place], web.prose(host, path)
            is_copy = row["original"] is not None and row["bits"] is None
            assert (row["url"], is_copy) == (one.url, one.kind == "revisit")
            if is_copy:
                assert row["text"] is None
            elif prose:
                assert prose in " ".join(row["text"].split())
            self._one_row(row)
        assert self.rows.keys() == pages, "a row for each page, and for nothing else"

    def _one_row(self, row: Mapping[str, Any]) -> None:
        warc = self.folder / row["warc_file"]
        begin, length = row["warc_offset"], row["warc_length"]
        with warc.open("rb") as file:
            file.seek(begin)
            assert decompress(file.read(length)).startswith(b"WARC/1.1\r\n"), row["url"]
        assert row["original"] is None or row["original"] in self.expected
        assert row["bits"] is None or 0 <= row["bits"] <= NEAR_BITS


def _place(record: str) -> Place:
    file, _, offset = record.rpartition(":")
    return file, int(offset)
