"""A frontier whose URLs are in a URL Frontier: what it has in common with the others, and what it
does beside them. The server here is called without gRPC."""

from __future__ import annotations

from base64 import b64encode
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from crawler.frontier.records import NEVER, encode
from crawler.model.types import (
    Again,
    Claim,
    Dead,
    Done,
    HostKey,
    Moved,
    PageHistory,
    Purpose,
    PutBack,
    RetryAt,
    StoreUnavailable,
    UnstorableRequest,
)
from crawler.urlfrontier.port import PutItem
from tests.harness.frontiers import Refusing, WebServer, candidate, rest
from tests.harness.remote_world import EPOCH, RemoteWorld

LEASE_S = 40.0  # the longest fetch of TIGHT, and 30 s


def put(remote, url, metadata=None, *, key="a", date=None):
    """Put *url* as another crawler does."""
    remote.crawl.put([PutItem(url, key, msgspec.msgpack.encode(metadata or {}), date)], remote.now)


def kept(remote, url, key="a"):
    """Return the date and the metadata of *url* at the server."""
    found = remote.crawl.status(url, key, remote.now)
    return found.refetch_at, msgspec.msgpack.decode(found.metadata)


def lease_one(frontier, now):
    (lease,) = frontier.lease(now, 4)
    return lease


def test_what_another_crawler_has_put_is_judged_as_a_link_and_keeps_its_metadata(remote):
    frontier = remote.reopen(0.0)
    put(remote, "http://a/x#top", {"depth": ["3"]})
    lease = lease_one(frontier, 0.0)
    assert (lease.candidate.url, lease.candidate.seed_url) == ("http://a/x#top", "")
    frontier.release(lease, rest(0), 1.0)
    frontier.finish(lease, RetryAt(5.0), 1.0)
    date, metadata = kept(remote, "http://a/x#top")
    assert (date, metadata["depth"]) == (EPOCH + 5, ["3"])
    again = lease_one(frontier, 6.0)
    assert again.candidate.url == "http://a/x#top", "a fetch form has no fragment, so it is no g"
    frontier.finish(again, Done(), 7.0)
    assert kept(remote, "http://a/x#top") == (0, {"depth": ["3"]})


@pytest.mark.parametrize("url", ["http://127.0.0.1/admin", "ftp://a/x", "file:///etc/passwd"])
def test_what_may_not_be_fetched_is_not_leased_and_done(remote, url):
    frontier = remote.reopen(0.0)
    put(remote, url, {"depth": ["3"]})
    assert frontier.lease(0.0, 4) == []
    assert remote.counted == ["refused/denied"]
    date, metadata = kept(remote, url)
    assert (date, metadata["depth"]) == (0, ["3"])
    assert "by the test" in metadata["refused"][0]
    frontier.lease(1.0, 4)
    assert frontier.is_over()


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"url": "http://a/other"}, id="another URL"),
        pytest.param({"host": HostKey("b")}, id="another host"),
        pytest.param({"domain": "b"}, id="another domain"),
        pytest.param(None, id="no candidate at all"),
    ],
)
def test_a_candidate_that_does_not_fit_its_url_is_not_believed(remote, forged):
    frontier, true = remote.reopen(0.0), candidate("x", depth=9)
    packed = b"junk" if forged is None else encode(replace(true, **forged))
    put(remote, true.url, {"g": [b64encode(packed).decode()]})
    lease = lease_one(frontier, 0.0)
    assert (lease.candidate.url, lease.candidate.host, lease.candidate.depth) == (true.url, "a", 1)


def test_a_page_is_done_after_its_links_and_the_rest_of_its_host_are_acknowledged(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x")], 0.0)
    lease = lease_one(stepped, 0.0)
    frontier, now = stepped.frontier, remote.set(1.0)
    remote.server.calls.clear()
    frontier.release(lease, rest(5), now)
    frontier.add([candidate("y")], now)
    frontier.finish(lease, Moved(candidate("z", host="b")), now)
    remote.run(frontier.send_round())
    assert remote.server.calls == ["discovered", "block", "known"]
    assert remote.crawl.stats("b", remote.now).size == 1


def test_what_has_become_of_a_page_is_logged_when_the_server_knows(remote):
    frontier = remote.reopen(0.0).frontier
    frontier.append("an outcome")
    assert not remote.outcomes
    remote.run(frontier.send_round())
    assert remote.outcomes == ["an outcome"]


def test_a_result_after_the_end_of_the_lease_changes_nothing(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    lease = lease_one(frontier, 0.0)
    frontier.release(lease, rest(1), 30.0)
    assert not frontier.may_begin(lease)
    assert not frontier.finish(lease, Done(), LEASE_S)
    assert "leases/late" in remote.counted
    assert lease_one(frontier, LEASE_S + 1).candidate == lease.candidate


def test_a_result_that_the_server_could_not_take_in_time_is_not_sent_later(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x")], 0.0)
    lease = lease_one(stepped, 0.0)
    assert stepped.frontier.finish(lease, Done(), remote.set(10.0)), "it is in time here"
    remote.set(LEASE_S)
    remote.server.calls.clear()
    remote.run(stepped.frontier.send_round())
    assert remote.server.calls == ["block"]
    assert lease_one(stepped, LEASE_S + 1).candidate == lease.candidate


def test_no_fetch_begins_that_would_outlast_its_lease(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    lease = lease_one(frontier, 0.0)
    remote.set(13.0)
    assert frontier.may_begin(lease)
    remote.set(15.0)
    assert not frontier.may_begin(lease)


def test_a_lease_that_is_not_used_in_time_is_put_back(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x")], 0.0)
    remote.run(stepped.frontier.fill_once())
    assert stepped.lease(20.0, 4) == []
    assert lease_one(stepped, 20.0).candidate.url == "http://a/x"


def test_the_urls_of_a_process_that_died_come_again_when_its_leases_end(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    lease = lease_one(frontier, 0.0)
    frontier = remote.reopen(1.0)
    assert not frontier.finish(lease, Done(), 1.0)
    assert frontier.lease(LEASE_S - 1, 4) == []
    again = lease_one(frontier, LEASE_S + 1)
    assert again.candidate == lease.candidate
    assert again.id > lease.id, "no number is used twice"


def test_a_server_that_has_forgotten_a_rest_is_told_again_before_it_is_asked(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    lease = lease_one(frontier, 0.0)
    frontier.release(lease, rest(300), 0.0)
    frontier.finish(lease, Done(), 0.0)
    remote.crawl.block("a", 0, remote.now)
    remote.server.connections += 1
    remote.server.calls.clear()
    assert frontier.lease(1.0, 4) == []
    assert remote.server.calls[:2] == ["block", "get"]
    remote.crawl.block("a", 0, remote.now)
    assert remote.reopen(2.0).lease(2.0, 4) == [], "a start tells it, too"
    assert lease_one(frontier, 301.0).candidate.url == "http://a/y"


def test_a_block_that_is_sent_again_does_not_undo_a_newer_one(remote, monkeypatch):
    monkeypatch.setattr("crawler.urlfrontier.remote_frontier._AGAIN_S", 0.0)
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    lease, sent = lease_one(frontier, 0.0), []

    async def block(_, until):
        sent.append(until - EPOCH)
        if len(sent) == 1:
            frontier.frontier.release(lease, rest(300), remote.now)
            raise StoreUnavailable("the connection is lost")

    remote.server.block = block
    frontier.note_trouble(lease, rest(5), 0.0)
    remote.run(frontier.send_round())
    assert sent == [5, 300]


def test_a_host_that_the_server_serves_too_early_is_not_asked(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    lease = lease_one(frontier, 0.0)
    frontier.release(lease, rest(5), 0.0)
    frontier.finish(lease, Done(), 0.0)
    remote.crawl.block("a", 0, remote.now)
    assert frontier.lease(1.0, 4) == []
    assert frontier.wake_at() == 5.0
    assert lease_one(frontier, 5.0).candidate.url == "http://a/y"


def test_what_is_served_again_while_it_is_fetched_is_not_fetched_twice(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    lease = lease_one(frontier, 0.0)
    put(remote, "http://a/x", date=1)  # as if the server had lost the lease
    assert frontier.lease(30.0, 4) == []
    assert frontier.finish(lease, Done(), LEASE_S + 20.0), "and that was another lease of ours"
    assert kept(remote, "http://a/x") == (0, {})


def test_what_is_served_again_before_its_end_is_acknowledged_is_not_lost(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x")], 0.0)
    lease = lease_one(stepped, 0.0)
    frontier, now = stepped.frontier, remote.set(1.0)
    frontier.release(lease, rest(0), now)
    frontier.finish(lease, PutBack(), now)
    put(remote, "http://a/x", date=1)  # our message has arrived, but no acknowledgement has
    remote.run(frontier.fill_once())
    remote.run(frontier.send_round())
    assert frontier.lease(now, 4), "else it would wait for the end of its lease"


def test_while_the_server_is_away_nothing_is_lost_and_the_crawl_waits(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x"), candidate("z", host="b")], 0.0)
    leases = stepped.lease(0.0, 4)
    frontier, now = stepped.frontier, remote.set(1.0)
    remote.server.is_away = True
    frontier.add([candidate("y")], now)
    for lease in leases:
        frontier.release(lease, rest(1), now)
        frontier.finish(lease, Done(), now)
    assert not frontier.is_over()
    assert frontier.counts().undecided == 1
    remote.server.is_away = False
    assert lease_one(stepped, 3.0).candidate.url == "http://a/y"


def test_the_end_is_asked_for_when_it_looks_near_and_seldom_else(remote):
    frontier = remote.reopen(0.0)
    put(remote, "http://b/y", key="b", date=int(EPOCH) + 15)
    frontier.add([candidate("x")], 0.0)
    lease = lease_one(frontier, 0.0)
    frontier.finish(lease, Done(), 1.0)
    remote.server.calls.clear()
    for now in range(2, 14):
        frontier.lease(float(now), 4)
        assert not frontier.is_over(), "another crawler's URL is left"
    assert remote.server.calls.count("stats") == 2
    frontier.finish(lease_one(frontier, 16.0), Done(), 16.0)
    frontier.lease(17.0, 4)
    assert frontier.is_over()
    frontier.add([candidate("new")], 18.0)
    assert not frontier.is_over()


def test_what_rules_refuse_when_it_is_leased_is_done_with_the_reason(remote):
    rules = Refusing(lambda url: url.endswith("no"))
    frontier = remote.reopen(0.0, rules)
    frontier.add([candidate("no"), candidate("yes", host="b")], 0.0)
    frontier.finish(lease_one(frontier, 0.0), Done(), 1.0)
    assert rules.refused == [("http://a/no", "denied")]
    date, metadata = kept(remote, "http://a/no")
    assert (date, "by the test" in metadata["refused"][0], "g" in metadata) == (0, True, True)
    frontier.lease(2.0, 4)
    assert frontier.is_over()
    assert frontier.counts().refused == 1


def test_updates_count_whatever_was_known_but_of_what_is_leased_here(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("waits"), candidate("leased", host="b")], 0.0)
    leases = {each.candidate.host: each for each in stepped.lease(0.0, 4)}
    stepped.finish(leases["a"], Done(), 1.0)
    names = [("waits", "a", EPOCH + 9), ("leased", "b", NEVER), ("new", "c", NEVER)]
    found = [candidate(name, host=host, not_before=at) for name, host, at in names]
    assert stepped.update(found, remote.set(2.0)) == 1
    remote.run(stepped.frontier.send_round())
    assert lease_one(stepped, 9.5).candidate.url == "http://a/waits"
    assert stepped.finish(leases["b"], Done(), 10.0)
    assert stepped.add([candidate("new", host="c")], 10.0).seen == 1


def test_a_date_is_waited_for(remote):
    frontier = remote.reopen(0.0)
    later = candidate("x", not_before=EPOCH + 100)
    frontier.add([later], 0.0)
    assert frontier.lease(99.0, 4) == []
    assert lease_one(frontier, 101.0).candidate == later


def test_a_page_without_a_date_is_visited_again_as_often_as_it_changes(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    frontier.finish(lease_one(frontier, 0.0), Done(again=Again(PageHistory(0, 0, 0))), 1.0)
    date, _ = kept(remote, "http://a/x")
    assert date == 30 * 86_400, "the guess before it was visited again"


def test_requests_with_one_url_are_told_apart_and_large_ones_are_refused(remote):
    frontier = remote.reopen(0.0)
    form = [candidate("form", request=b"post", level=0) for _ in range(2)]
    other = replace(form[0], key=form[0].key + 1)
    assert frontier.add([*form, other, candidate("form")], 0.0).new == 3
    check = candidate("form", purpose=Purpose.CHECK)
    assert frontier.add([check], 0.0).new == 1
    with pytest.raises(UnstorableRequest, match="at most"):
        frontier.add([candidate("x", request=bytes(50_000))], 0.0)


def test_batches_are_no_larger_than_a_server_takes(remote):
    stepped = remote.reopen(0.0)
    large = [candidate(str(n), request=bytes(40_000)) for n in range(30)]
    small = [candidate(str(n), host="b") for n in range(401)]
    assert stepped.add(large, 0.0).new == 30
    assert remote.server.calls.count("discovered") == 2
    assert stepped.add(small, 0.0).new == 401
    assert remote.server.calls.count("discovered") == 5


def test_large_metadata_of_another_crawler_are_kept_and_ours_left_out(remote):
    frontier = remote.reopen(0.0)
    put(remote, "http://a/x", {"theirs": ["x" * 59_990]})
    frontier.finish(lease_one(frontier, 0.0), RetryAt(5.0), 1.0)
    assert list(kept(remote, "http://a/x")[1]) == ["theirs"]


def test_a_dead_letter_keeps_its_reason_and_its_candidate(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    frontier.finish(lease_one(frontier, 0.0), Dead("timeout"), 1.0)
    date, metadata = kept(remote, "http://a/x")
    assert (date, metadata["dead"], "g" in metadata) == (0, ["timeout"], True)
    assert frontier.counts().dead == 1


def test_what_is_kept_here_of_purged_urls_is_forgotten(remote):
    frontier = remote.reopen(0.0)
    frontier.add([candidate("marker"), candidate("kept", host="b")], 0.0)
    for lease, digest in zip(frontier.lease(0.0, 4), (b"1" * 20, b"2" * 20), strict=True):
        frontier.finish(lease, Done(Claim(digest, lease.candidate.url)), 0.5)
    for _ in frontier.frontier.forget_kept(lambda url: "marker" in url):
        pass
    left = [remote.claim(digest) for digest in (b"1" * 20, b"2" * 20)]
    assert sorted(claim.url if claim else "" for claim in left) == ["", "http://b/kept"]


def test_a_stop_puts_back_what_is_not_used(remote):
    stepped = remote.reopen(0.0)
    stepped.add([candidate("x")], 0.0)
    remote.run(stepped.frontier.fill_once())
    remote.run(stepped.frontier.close())
    assert remote.crawl.stats("", remote.now).in_process == 1, "no task runs here"
    remote.run(stepped.frontier.send_round())
    assert remote.crawl.stats("", remote.now).in_process == 0


@pytest.mark.parametrize("seed", range(12))
def test_two_crawlers_on_one_url_frontier_are_polite_and_lose_nothing(tmp_path, seed):
    """Random lives: fetches, retries, deaths of a crawler."""
    random, web = Random(seed), WebServer()
    first = RemoteWorld(tmp_path / "1")
    worlds = [first, RemoteWorld(tmp_path / "2", crawl=first.crawl)]
    frontiers = [remote.reopen(0.0) for remote in worlds]
    found = [candidate(str(n), host=f"h{n % 7}") for n in range(60)]
    frontiers[0].add(found[:30], 0.0)
    frontiers[1].add(found[20:], 0.0)
    under_way = [[], []]
    fetched, now = [], 0.0
    while first.crawl.stats("", now + EPOCH).size and now < 5_000:
        now += random.random() * 2
        which = random.randrange(2)
        frontier, mine = frontiers[which], under_way[which]
        for lease in frontier.lease(now, 1):
            web.visited(lease.candidate.host, now)
            mine.append((lease, now + random.random() * 9))
        for lease, ends in list(mine):
            if ends > now:
                continue
            mine.remove((lease, ends))
            host, pause_s = lease.candidate.host, random.choice([0.5, 1, 7])
            web.left(host, now + pause_s)
            frontier.release(lease, rest(pause_s), now)
            if random.random() < 0.2:
                frontier.finish(lease, RetryAt(now + random.random() * 20), now)
            elif frontier.finish(lease, Done(), now):
                fetched.append(lease.candidate.url)
        if random.random() < 0.02:
            for lease, _ in mine:  # what it had sent is answered, to nobody
                web.left(lease.candidate.host, now)
            mine.clear()
            frontiers[which] = worlds[which].reopen(now)
    assert sorted(set(fetched)) == sorted(each.url for each in found)
    assert len(fetched) == len(set(fetched)), "nobody was late"
    for remote in worlds:
        remote.close()
