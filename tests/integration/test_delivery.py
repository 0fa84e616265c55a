"""Finished files on their way to a store that fails in every way a store can fail.

Running: a server that speaks S3 and, between it and us, a network that deals faults.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from crawler.archive.delivery import (
    LAST_TRIES,
    LAST_TRIES_DOWN,
    Delivery,
)
from crawler.archive.delivery_stores import ObjectStore, deliver_file, read_address
from crawler.model.types import StoreUnavailable
from tests.harness.delivery import (
    IN_PARTS_BYTES,
    PATIENCE_S,
    delivery,
    finish,
    is_empty,
    local,
    object_store,
    under,
)
from tests.harness.waiting import wait_until, wait_until_async
from tests.servers.redis_process import free_port
from tests.servers.s3 import BUCKET, UNSPOKEN, S3Server, environment
from tests.servers.troubled import Call, Fault, TroubledNetwork, no_fault

URL = f"s3://{BUCKET}/crawl"
LOGGER = "crawler.archive.delivery"


@dataclass(frozen=True)
class Running:
    """A client takes 0.3 s to make."""

    server: S3Server
    network: TroubledNetwork
    store: ObjectStore


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with (
        S3Server() as server,
        TroubledNetwork(server.port) as network,
        patch.dict(os.environ, environment(network.port)),
    ):
        yield Running(server, network, object_store(URL))


@pytest.fixture
def s3(running: Running) -> S3Server:
    running.server.empty()
    return running.server


@pytest.fixture
def network(running: Running) -> Iterator[TroubledNetwork]:
    yield running.network
    running.network.end_trouble()


@pytest.fixture
def store(running: Running, s3: S3Server, network: TroubledNetwork) -> ObjectStore:
    return running.store


def stored(s3: S3Server) -> dict[str, bytes]:
    return {name: s3.content(name) for name in s3.names()}


def deliver(data: Path, store: ObjectStore, **rules: float) -> tuple[Delivery, list[Path]]:
    """From its beginning to the end of the crawl."""
    made = delivery(data, store, **rules)
    return made, asyncio.run(made.close())


def for_the_first(times: int, fault: Fault) -> Callable[[Call], Fault]:
    return lambda call: fault if call.number < times else Fault.NONE


def once(fault: Fault, *, is_it: Callable[[Call], bool]) -> Callable[[Call], Fault]:
    dealt: list[Call] = []

    def deal(call: Call) -> Fault:
        if dealt or not is_it(call):
            return Fault.NONE
        dealt.append(call)
        return fault

    return deal


def is_put(call: Call) -> bool:
    return call.method == "PUT"


def test_finished_files_are_delivered_and_removed(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a") | finish(tmp_path, "b", IN_PARTS_BYTES)
    made, left = deliver(tmp_path, store)
    assert (stored(s3), local(tmp_path), left) == (under("crawl", files), {}, [])
    assert (made.figures.files, made.figures.bytes) == (6, sum(map(len, files.values())))
    assert (made.figures.failures, made.figures.waiting_bytes) == (0, 0)


def test_files_finished_meanwhile_are_delivered_too(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    made = delivery(tmp_path, store)
    files = finish(tmp_path, "a")
    wait_until(lambda: is_empty(tmp_path), PATIENCE_S, "all files are delivered")
    files |= finish(tmp_path, "b")
    wait_until(lambda: is_empty(tmp_path), PATIENCE_S, "all files are delivered")
    assert stored(s3) == under("crawl", files)
    asyncio.run(made.close())


def test_oldest_first_and_nothing_before_its_warc_file(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    for stem in ("crawl-2", "crawl-1"):
        finish(tmp_path, stem)
    deliver(tmp_path, store)
    puts = [call.path.rpartition("/")[2] for call in network.calls if is_put(call)]
    assert puts == [
        *("crawl-1.warc.gz", "crawl-1.parquet", "crawl-1.cdxj"),
        *("crawl-2.warc.gz", "crawl-2.parquet", "crawl-2.cdxj"),
    ]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.DOWN, id="503"),
        pytest.param(Fault.FORBIDDEN, id="credentials that are not valid yet, or no more"),
        pytest.param(Fault.CUT_BEFORE, id="it hangs up"),
        pytest.param(Fault.UNKNOWN, id="501"),
    ],
)
def test_a_store_that_is_down_is_waited_for(
    fault: Fault,
    s3: S3Server,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    files = finish(tmp_path, "a")
    network.deal = lambda call: fault
    made = delivery(tmp_path, store)
    wait_until(lambda: made.figures.failures >= 3, PATIENCE_S, "three failures")
    assert made.figures.is_down
    assert local(tmp_path) == files
    network.deal = no_fault
    wait_until(lambda: is_empty(tmp_path), PATIENCE_S, "all files are delivered")
    assert asyncio.run(made.close()) == []
    assert stored(s3) == under("crawl", files)
    messages = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len([line for line in messages if "accepts no files" in line]) == 1
    assert len([line for line in messages if "accepts files again" in line]) == 1


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.CUT_AFTER])
def test_a_fault_in_the_middle(
    fault: Fault,
    number: int,
    s3: S3Server,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
) -> None:
    """At any request: also where it was done, and only its answer was lost."""
    files = finish(tmp_path, "a", IN_PARTS_BYTES)
    network.deal = once(fault, is_it=lambda call: call.number == number)
    made, left = deliver(tmp_path, store)
    assert (stored(s3), local(tmp_path), left) == (under("crawl", files), {}, [])
    assert (made.figures.refused, s3.unfinished()) == (0, [])


def test_an_address_without_a_server_is_tried_until_it_is_started(tmp_path: Path) -> None:
    files = finish(tmp_path, "a")
    port = free_port()
    with patch.dict(os.environ, environment(port)):
        made = delivery(tmp_path, object_store(URL))
        wait_until(lambda: made.figures.failures >= 2, PATIENCE_S, "two failures")
        assert local(tmp_path) == files
        with S3Server(port) as s3:
            assert asyncio.run(made.close()) == []
            assert stored(s3) == under("crawl", files)


def test_other_credentials_are_taken_without_a_new_start(
    s3: S3Server, network: TroubledNetwork, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a")
    network.deal = lambda call: (
        Fault.NONE if "Credential=NEW/" in call.authorization else Fault.FORBIDDEN
    )
    made = delivery(tmp_path, ObjectStore(read_address(URL), attempts=1, renew_s=0))
    wait_until(lambda: made.figures.failures, PATIENCE_S, "a failure")
    with patch.dict(os.environ, {"AWS_ACCESS_KEY_ID": "NEW"}):
        assert asyncio.run(made.close()) == []
    assert stored(s3) == under("crawl", files)


def test_the_first_try_after_new_credentials_has_them(
    s3: S3Server, network: TroubledNetwork, tmp_path: Path
) -> None:
    """At the end of a crawl there may be no second."""
    finish(tmp_path, "a")
    file = tmp_path / "warc" / "a.cdxj"
    network.deal = lambda call: (
        Fault.NONE if "Credential=NEW/" in call.authorization else Fault.FORBIDDEN
    )
    store = ObjectStore(read_address(URL), attempts=1, renew_s=0)
    with pytest.raises(StoreUnavailable):
        deliver_file(store, file, "a.cdxj", lambda: None)
    with patch.dict(os.environ, {"AWS_ACCESS_KEY_ID": "NEW"}):
        deliver_file(store, file, "a.cdxj", lambda: None)
    assert stored(s3) == {"crawl/a.cdxj": file.read_bytes()}


def test_a_file_damaged_in_transit_is_sent_again(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a")
    network.deal = once(Fault.FLIPPED, is_it=is_put)
    made, left = deliver(tmp_path, store)
    assert (stored(s3), local(tmp_path), left) == (under("crawl", files), {}, [])
    assert made.figures.damaged == 1


def test_a_damaged_part_is_noticed_too(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a", IN_PARTS_BYTES)
    network.deal = once(Fault.FLIPPED, is_it=lambda call: "partNumber=2" in call.path)
    made, _ = deliver(tmp_path, store)
    assert (stored(s3), made.figures.damaged) == (under("crawl", files), 1)


@pytest.mark.parametrize("warc_bytes", [3000, IN_PARTS_BYTES])
def test_where_the_tag_is_no_digest_files_are_read_back(
    warc_bytes: int, s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a", warc_bytes)
    network.deal = lambda call: Fault.OPAQUE if call.method == "HEAD" else Fault.NONE
    made, _ = deliver(tmp_path, store)
    assert (stored(s3), made.figures.failures) == (under("crawl", files), 0)
    assert [call for call in network.calls if call.method == "GET" and ".warc.gz" in call.path]


def test_damage_is_noticed_where_files_are_read_back(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a")
    flipped = once(Fault.FLIPPED, is_it=is_put)
    network.deal = lambda call: Fault.OPAQUE if call.method == "HEAD" else flipped(call)
    made, _ = deliver(tmp_path, store)
    assert (stored(s3), made.figures.damaged) == (under("crawl", files), 1)


def test_a_store_that_knows_no_conditions(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a")
    network.deal = lambda call: Fault.UNKNOWN if call.is_conditional else Fault.NONE
    made, left = deliver(tmp_path, store)
    assert (stored(s3), left) == (under("crawl", files), [])
    assert made.figures.failures == 1


@pytest.mark.parametrize("suffix", [".warc.gz", ".cdxj"])
def test_a_different_file_of_that_name_is_kept_and_logged(
    suffix: str,
    s3: S3Server,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, others = finish(tmp_path, "a"), finish(tmp_path, "b")
    s3.put(f"crawl/warc/a{suffix}", b"other")
    made, left = deliver(tmp_path, store)
    assert s3.content(f"crawl/warc/a{suffix}") == b"other"
    assert local(tmp_path) == files
    assert len(left) == made.figures.refused == 3
    assert f"warc/a{suffix} is there already with other content" in caplog.text
    assert stored(s3).items() >= under("crawl", others).items()


def test_files_delivered_before_a_crash_are_removed(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    files = finish(tmp_path, "a", IN_PARTS_BYTES)
    for name, content in files.items():
        s3.put(f"crawl/{name}", content)  # in one piece: its tag is another
    _, left = deliver(tmp_path, store)
    assert (stored(s3), local(tmp_path), left) == (under("crawl", files), {}, [])
    assert not [call for call in network.calls if is_put(call)]


def test_parts_of_our_own_are_dropped_and_those_of_others_stay(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    finish(tmp_path, "a", IN_PARTS_BYTES)
    for name in ("a.warc.gz", "a.warc.gz2", "b.warc.gz"):
        s3.client.create_multipart_upload(Bucket=BUCKET, Key=f"crawl/warc/{name}")
    deliver(tmp_path, store)
    stay = [upload["Key"].rpartition("/")[2] for upload in s3.unfinished()]
    assert stay == ["a.warc.gz2", "b.warc.gz"]


def test_one_undeliverable_file_does_not_delay_the_others(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    finish(tmp_path, "a")
    others = finish(tmp_path, "b")
    network.deal = lambda call: Fault.DOWN if "/a.warc.gz" in call.path else Fault.NONE
    made = delivery(tmp_path, store)
    wait_until(lambda: made.figures.files == len(others), PATIENCE_S, "the others delivered")
    network.deal = no_fault
    assert asyncio.run(made.close()) == []


def test_fetching_waits_while_too_much_waits(
    s3: S3Server,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crawl() -> None:
        made = delivery(tmp_path, store, waiting_bytes=10_000)
        await asyncio.wait_for(made.wait_for_room(), 1)
        pages = 0
        while not made.is_congested():  # each of its files is as good as many pages
            finish(tmp_path, f"crawl-{pages}")
            pages += 1
            await asyncio.sleep(0.1)
        assert made.figures.waiting_bytes > 10_000
        waiting = asyncio.create_task(made.wait_for_room())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        network.deal = no_fault
        await asyncio.wait_for(waiting, 20)
        assert await made.close() == []

    network.deal = lambda call: Fault.DOWN
    asyncio.run(crawl())
    assert caplog.text.count("Fetching pauses") == 1


def test_the_last_pages_do_not_wait_for_a_store_that_is_down(
    network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    async def crawl() -> None:
        made = delivery(tmp_path, store, waiting_bytes=1, stall_timeout_s=0.3)
        await wait_until_async(made.is_congested, PATIENCE_S)
        waiting = asyncio.create_task(made.wait_for_room())
        made.stop_limiting()
        await asyncio.wait_for(waiting, 5)
        await made.close()

    finish(tmp_path, "a")
    network.deal = lambda call: Fault.DOWN
    asyncio.run(crawl())


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.HANG])
def test_the_end_does_not_wait_for_ever(
    fault: Fault,
    s3: S3Server,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What stays is named, and the next start brings it."""
    files = finish(tmp_path, "a")
    network.deal = lambda call: fault
    _, left = deliver(tmp_path, store, stall_timeout_s=0.3)
    assert sorted(f"warc/{file.name}" for file in left) == sorted(files)
    assert local(tmp_path) == files
    assert "3 files were not delivered to s3://archive/crawl" in caplog.text
    assert str(tmp_path) in caplog.text
    assert "a.warc.gz, a.parquet, a.cdxj" in caplog.text
    network.deal = no_fault
    _, left = deliver(tmp_path, store)
    assert (stored(s3), left) == (under("crawl", files), [])


def test_the_last_files_are_tried_a_few_times(
    s3: S3Server, network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    """And not again and again, even though each time pieces arrive: they are damaged."""
    finish(tmp_path, "a")
    is_the_end = threading.Event()

    def deal(call: Call) -> Fault:
        assert is_the_end.wait(PATIENCE_S)  # what fails before is not one of the last tries
        return Fault.FLIPPED if is_put(call) else Fault.NONE

    async def end() -> list[Path]:
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0)
        is_the_end.set()
        return await closing

    network.deal = deal
    made = delivery(tmp_path, store)
    left = asyncio.run(end())
    assert (len(left), made.figures.damaged) == (3, LAST_TRIES)


def test_at_the_end_a_store_that_was_down_before_is_tried_less(
    network: TroubledNetwork, store: ObjectStore, tmp_path: Path
) -> None:
    """The close of the crawl waits for it."""
    finish(tmp_path, "a")
    network.deal = lambda call: Fault.DOWN
    made = delivery(tmp_path, store, backoff_base_s=1000, backoff_max_s=1000)
    wait_until(lambda: made.figures.failures, PATIENCE_S, "a failure")
    assert len(asyncio.run(made.close())) == 3
    assert made.figures.failures == 1 + LAST_TRIES_DOWN


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.CUT_BEFORE, Fault.FLIPPED, Fault.NONE])
def test_no_secret_is_shown(
    fault: Fault,
    network: TroubledNetwork,
    store: ObjectStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    finish(tmp_path, "a", IN_PARTS_BYTES)
    network.deal = for_the_first(8, fault)
    deliver(tmp_path, store)
    assert "Delivering the last" in caplog.text
    assert not [word for word in UNSPOKEN.values() if word in caplog.text]
    assert "Authorization" not in caplog.text
