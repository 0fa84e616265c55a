"""The server of the URL Frontier protocol around its calls: who may call, what it promises where
the store is slow or full, what it counts; and our client where a server goes and comes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copy
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from prometheus_client.parser import text_string_to_metric_families

from bench.urlfrontier_dict import DictCrawl, DictCrawls
from crawler.data.data_dir import SERVED, DataDir
from crawler.model.types import ConfigError, StoreUnavailable
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier.client import (
    FAIL,
    OK,
    SKIPPED,
    FrontierClient,
    PutStream,
    discovered,
    known,
    url_info,
)
from crawler.urlfrontier.frontier_crawls import latest_time
from crawler.urlfrontier.remote_frontier import RemoteStats
from crawler.urlfrontier.remote_server import UrlFrontierAddress, UrlFrontierServer
from crawler.urlfrontier.server import FrontierServer, ServerAccess
from tests.harness.sources import PROJECT
from tests.harness.url_frontier import ServedFrontier, frontier_crawls, served_frontier
from tests.servers.certificates import write_certificate

PEM = serialization.Encoding.PEM
TOKENS = {"ci": "a-token-of-the-tests"}
URL = "http://example.com/"


@pytest.fixture
def served() -> Iterator[ServedFrontier]:
    with served_frontier(DictCrawls()) as made:
        yield made


class GatedCrawls(DictCrawls):
    """Its crawls are durable when `gate` is set, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.waits = asyncio.Event()
        self.full = False

    def open(self, crawl_id: str) -> DictCrawl:
        return self._crawls.setdefault(crawl_id, GatedCrawl(self))


class GatedCrawl(DictCrawl):
    def __init__(self, crawls: GatedCrawls) -> None:
        super().__init__()
        self._crawls = crawls

    async def wait_until_durable(self) -> None:
        self._crawls.waits.set()
        if self._crawls.full:
            raise StoreUnavailable("the disk is full")
        await self._crawls.gate.wait()


@pytest.fixture
def gated() -> Iterator[tuple[ServedFrontier, GatedCrawls]]:
    crawls = GatedCrawls()
    with served_frontier(crawls) as made:
        yield made, crawls


class TestAccess:
    @pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "frontier.example"])
    @pytest.mark.parametrize("tokens", [{}, TOKENS])
    def test_others_need_a_token_and_tls(self, host: str, tokens: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match=r"which others can reach.*127\.0\.0\.1"):
            ServerAccess(tokens).credentials(host)

    def test_a_certificate_that_is_none_is_named(self, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong.pem"
        wrong.write_text("no certificate")
        with pytest.raises(ConfigError, match=r"wrong\.pem"):
            ServerAccess(TOKENS, wrong).credentials("127.0.0.1")

    def test_a_key_with_a_password_is_refused(self, tmp_path: Path) -> None:
        """It would be asked for at a terminal that nobody is at."""
        certificate = write_certificate(tmp_path / "both.pem", "127.0.0.1")
        pem = certificate.read_bytes()
        own = serialization.load_pem_private_key(pem, None)
        key = tmp_path / "key.pem"
        locked = serialization.BestAvailableEncryption(b"secret")
        key.write_bytes(own.private_bytes(PEM, serialization.PrivateFormat.PKCS8, locked))
        with pytest.raises(ConfigError, match=r"key\.pem are no certificate.*has a password"):
            ServerAccess(TOKENS, certificate, key).credentials("127.0.0.1")

    def test_a_key_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        certificate = write_certificate(tmp_path / "both.pem", "127.0.0.1")
        certificate.chmod(0o644)
        with pytest.raises(ConfigError, match=r"others can read: chmod o= .*both\.pem"):
            ServerAccess(TOKENS, certificate).credentials("0.0.0.0")

    def test_a_port_in_use_is_named(self, served: ServedFrontier) -> None:
        second = FrontierServer(DictCrawls())
        with pytest.raises(ConfigError, match=f"127.0.0.1:{served.port} cannot be listened on"):
            served.run(second.start("127.0.0.1", served.port))

    @pytest.mark.parametrize("token", ["", "another-one-of-the-tests"])
    @pytest.mark.parametrize("name", ["GetStats", "GetURLs", "PutURLs"])
    def test_a_call_without_a_token_of_the_file_is_refused(
        self, served: ServedFrontier, token: str, name: str
    ) -> None:
        async def call() -> grpc.StatusCode:
            async with (
                serving(ServerAccess(TOKENS)) as port,
                FrontierClient(f"127.0.0.1:{port}", token=token) as client,
            ):
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "GetStats": client.stats,
                    "GetURLs": client.get_urls,
                    "PutURLs": lambda: client.put([discovered(URL)]),
                }
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await calls[name]()
                return refused.value.code()

        assert served.run(call()) == grpc.StatusCode.UNAUTHENTICATED

    def test_over_tls_with_a_token_all_is_well(
        self, served: ServedFrontier, tmp_path: Path
    ) -> None:
        certificate = write_certificate(tmp_path / "both.pem", "127.0.0.1")
        certificate.chmod(0o600)

        async def call() -> list[str]:
            async with (
                serving(ServerAccess(TOKENS, certificate)) as port,
                FrontierClient(
                    f"grpcs://127.0.0.1:{port}", token=TOKENS["ci"], certificate=certificate
                ) as client,
            ):
                assert await client.put_discovered([URL]) == [OK]
                return [info.url for info in await client.get_urls()]

        assert served.run(call()) == [URL]

    def test_a_client_sends_no_token_without_tls_to_another_machine(
        self, served: ServedFrontier
    ) -> None:
        async def make() -> None:
            FrontierClient("grpc://192.0.2.7:7071", token=TOKENS["ci"])

        with pytest.raises(ValueError, match="by grpcs:// only"):
            served.run(make())


@asynccontextmanager
async def serving(access: ServerAccess) -> AsyncIterator[int]:
    server = FrontierServer(DictCrawls(), access)
    yield await server.start("127.0.0.1", 0)
    await server.stop(0)


class TestDurable:
    """Nothing is acknowledged, and no URL sent, before it is durable."""

    @pytest.mark.parametrize("batched", [False, True])
    def test_acknowledgements(
        self, gated: tuple[ServedFrontier, GatedCrawls], batched: bool
    ) -> None:
        served, crawls = gated

        async def put() -> tuple[bool, list[Any]]:
            call = served.stub.PutDiscovered() if batched else served.stub.PutURLs()
            infos = [url_info(URL)]
            await call.write(pb.DiscoveredBatch(items=infos) if batched else discovered(infos[0]))
            await call.done_writing()
            first = asyncio.ensure_future(call.read())
            await crawls.waits.wait()
            early = first.done()
            crawls.gate.set()
            return early, [await first]

        early, acks = served.run(put())
        assert (early, len(acks)) == (False, 1)

    def test_urls_that_are_sent(self, gated: tuple[ServedFrontier, GatedCrawls]) -> None:
        served, crawls = gated
        crawls.gate.set()
        served.put(discovered(url_info(URL)))
        crawls.gate.clear()
        crawls.waits.clear()

        async def get() -> tuple[bool, str]:
            first = asyncio.ensure_future(served.stub.GetURLs(pb.GetParams()).read())
            await crawls.waits.wait()
            early = first.done()
            crawls.gate.set()
            return early, (await first).url

        assert served.run(get()) == (False, URL)

    def test_a_full_disk_fails_what_is_put_and_served(
        self, gated: tuple[ServedFrontier, GatedCrawls]
    ) -> None:
        served, crawls = gated
        crawls.gate.set()
        served.put(discovered(url_info(URL)))
        crawls.full = True
        assert served.put(known(URL), discovered(f"{URL}2")) == [FAIL, FAIL]
        assert served.refusal("GetURLs", pb.GetParams()) == grpc.StatusCode.UNAVAILABLE
        block = pb.BlockQueueParams(key="example.com", time=1)
        assert served.refusal("BlockQueueUntil", block) == grpc.StatusCode.UNAVAILABLE


def test_a_damaged_crawl_does_not_keep_others_from_being_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = DataDir(tmp_path)
    with served_frontier(frontier_crawls(data)) as served:
        for served.crawl in ("damaged", "whole"):
            assert served.discover(URL) == [OK]
    (current,) = (tmp_path / SERVED / "damaged").glob("*/CURRENT")
    current.write_text("nonsense\n")
    latest_time(data)
    with served_frontier(frontier_crawls(data)) as served:
        found = [served.call("GetURLs", pb.GetParams()) for _ in range(3)]
        assert [info.crawlID for infos in found for info in infos] == ["whole"]
        infos = [url_info(f"{URL}2", crawl_id=crawl) for crawl in ("damaged", "whole")]
        assert served.put(*map(discovered, infos)) == [FAIL, OK]
        asked = pb.GetParams(crawlID="damaged")
        assert served.refusal("GetURLs", asked) == grpc.StatusCode.UNAVAILABLE
    said = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert [text for text in said if text.startswith("The crawl damaged is not served")] == said[:1]


def test_of_very_many_calls_at_once_some_are_refused(
    served: ServedFrontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.urlfrontier.server._MOST_CALLS", 2)

    async def call() -> None:
        async with (
            serving(ServerAccess()) as port,
            FrontierClient(f"127.0.0.1:{port}") as client,
        ):
            streams = [client.begin("PutURLs") for _ in range(2)]
            for stream in streams:
                await stream.write(discovered(URL))
                await stream.read()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.stats()
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            await streams[0].done_writing()
            assert await streams[0].read() is grpc.aio.EOF
            assert (await client.stats()).size == 1

    served.run(call())


def test_metrics_have_the_names_of_the_reference(served: ServedFrontier) -> None:
    served.crawl = ""
    assert served.discover(URL, URL) == [OK, SKIPPED]
    served.update(URL)
    served.update(f"{URL}2", 1)
    served.put_batches(pb.DiscoveredBatch(items=[url_info(URL)]))
    served.get()
    text = served.server.metrics().decode()
    assert {
        f"{sample.name}{json.dumps(sample.labels) if sample.labels else ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("seconds_sum")
    } == {
        "frontier_getURLs_calls_total": 1,
        "frontier_getURLs_total": 1,
        "frontier_getURLs_latency_seconds_count": 1,
        "frontier_putURLs_calls_total": 3,
        "frontier_putDiscovered_calls_total": 1,
        "frontier_putURLs_total": 5,
        'frontier_putURLs_discovered_total{"discovered": "true"}': 3,
        'frontier_putURLs_discovered_total{"discovered": "false"}': 2,
        "frontier_putURLs_ignored_total": 2,
        "frontier_putURLs_completed_total": 1,
    }


class TestClient:
    """Where a server goes and comes."""

    def at(self, served: ServedFrontier, call: Callable[[FrontierClient], Any]) -> Any:
        async def made() -> Any:
            async with FrontierClient(f"grpc://127.0.0.1:{served.port}", crawl_id="c") as client:
                return await call(client)

        return served.run(made())

    def test_each_of_its_calls(self, served: ServedFrontier) -> None:
        async def calls(client: FrontierClient) -> None:
            metadata = {"depth": ["1"]}
            urls = [url_info(f"http://{host}/", metadata=metadata) for host in ("a.com", "b.com")]
            assert await client.put_discovered([*urls, URL, URL], batch=3) == [OK, OK, OK, SKIPPED]
            assert await client.queues() == ["a.com", "b.com", "example.com"]
            assert await client.crawls() == ["c"]
            await client.block_queue("b.com", served.now() + 60)
            await client.set_delay(60, "a.com")
            await client.set_limit("example.com", 1)
            assert await client.put([known(URL)]) == [OK]
            (info,) = await client.get_urls(queues=2, per_queue=1, lease_s=60)
            assert (info.url, list(info.metadata["depth"].values)) == ("http://a.com/", ["1"])
            assert await client.get_urls(any_crawl=True) == []
            assert (await client.stats()).inProcess == 1
            assert await client.count_urls() == 3
            assert [item.known.info.url async for item in client.list_urls(key="b.com")] == [
                "http://b.com/"
            ]
            found = await client.status(URL)
            assert found is not None and found.known.refetchable_from_date == 0
            assert await client.status("http://a.com/other") is None
            assert await client.delete_queue("a.com") == 1
            await client.set_active(False)
            assert await client.get_urls() == []
            assert await client.delete_crawl() == 2

        self.at(served, calls)

    def test_a_server_without_batches_gets_them_one_by_one(self, served: ServedFrontier) -> None:
        async def puts() -> tuple[list[int], list[int]]:
            old = grpc.aio.server()
            handlers = {"PutURLs": put_handler()}
            generic = grpc.method_handlers_generic_handler("urlfrontier.URLFrontier", handlers)
            old.add_generic_rpc_handlers((generic,))
            port = old.add_insecure_port("127.0.0.1:0")
            await old.start()
            async with FrontierClient(f"127.0.0.1:{port}") as client:
                both = [await client.put_discovered([URL]), await client.put_discovered([URL, URL])]
            await old.stop(0)
            return both[0], both[1]

        assert served.run(puts()) == ([OK], [SKIPPED, SKIPPED])

    def test_a_stream_goes_on_when_the_server_is_back(self, served: ServedFrontier) -> None:
        """What was not acknowledged is sent again: all is there once."""
        urls = [f"http://example.com/{number}" for number in range(300)]

        async def put(client: FrontierClient) -> list[int]:
            statuses = []
            async with PutStream(client) as stream:
                for number, url in enumerate(urls):
                    statuses.append(await stream.send(discovered(url)))
                    if number == 100:
                        await statuses[50]
                        await served.server.stop(0)
                        served.server = FrontierServer(served.crawls, clock=served.clock)
                        assert await served.server.start("127.0.0.1", served.port) == served.port
                return [await status for status in statuses]

        statuses = self.at(served, put)
        served.crawl = "c"
        assert len(statuses) == 300 and set(statuses) <= {OK, SKIPPED}
        assert sorted(served.listed(size=1_000)) == sorted(urls)

    def test_a_server_that_does_not_come_is_given_up(self, served: ServedFrontier) -> None:
        async def put() -> None:
            async with FrontierClient("127.0.0.1:1", patience_s=0.0) as client:
                with pytest.raises(grpc.aio.AioRpcError):
                    await client.stats()
                stream = PutStream(client)
                status = await stream.send(discovered(URL))
                with pytest.raises(grpc.aio.AioRpcError):
                    await status
                with pytest.raises(grpc.aio.AioRpcError):
                    await stream.send(discovered(URL))

        served.run(put())

    @pytest.mark.parametrize("address", ["localhost", "http://localhost:7071", ""])
    def test_an_address_that_is_none_is_refused(self, address: str) -> None:
        with pytest.raises(ValueError, match="want HOST:PORT"):
            FrontierClient(address)


def test_our_crawler_blocks_hosts_of_a_crawl_that_is_not_there(served: ServedFrontier) -> None:
    """It sends its rests before it asks for URLs, also where the crawl was deleted."""
    address = UrlFrontierAddress(url=f"grpc://127.0.0.1:{served.port}")

    async def calls() -> RemoteStats:
        server = UrlFrontierServer(address, "deleted")
        await server.block("example.com", served.now() + 60)
        stats = await server.stats()
        await server.close()
        return stats

    assert served.run(calls()).size == 0
    assert list(served.call("ListCrawls", pb.Local()).values) == []


@pytest.mark.parametrize("name", ["GetStats", "GetURLs", "SetActive", "DeleteCrawl"])
def test_a_request_that_cannot_be_read_is_refused(
    served: ServedFrontier, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async def call() -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            kind = channel.unary_stream if name == "GetURLs" else channel.unary_unary
            sent = kind(f"/urlfrontier.URLFrontier/{name}")(b"\xff\xff")
            return await sent.code()

    assert served.run(call()) is grpc.StatusCode.INVALID_ARGUMENT
    assert not caplog.records


class TestCommandLine:
    def test_lines_that_are_none_are_named(
        self, served: ServedFrontier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        address, lines = f"127.0.0.1:{served.port}", tmp_path / "urls.txt"
        lines.write_text(
            f'\ufeff{URL}\n\n{{"known": {{"info": {{"url": "{URL}2", "more": 1}}}}}}\n{{"no\n'
            '{"ID": "x"}\n[]\nhttp:///page\n'
            f'{{"known": {{"info": {{"url": "{URL}{"x" * 9_000}"}}}}}}\n'
        )
        assert served.command("load", address, str(lines)) == 1
        said = capsys.readouterr().err
        assert all(f"line {number} is left out" in said for number in (4, 5, 6, 7))
        assert "2 URLs" in said
        assert f"the server has not taken {URL}xxx" in said
        assert (
            served.command("stats", address, "--crawl", "") == served.command("get", address) == 0
        )
        stats, got = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        assert (stats["size"], stats["crawlID"], got["url"]) == ("1", "DEFAULT", URL)

    def test_a_file_is_never_overwritten(self, served: ServedFrontier, tmp_path: Path) -> None:
        dump = tmp_path / "dump.jsonl"
        dump.write_text("mine")
        assert served.command("dump", f"127.0.0.1:{served.port}", str(dump)) == 1
        assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]

    def test_the_client_works_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "crawler/urlfrontier"
        folder.mkdir(parents=True)
        for name in ("client", "urlfrontier_pb2", "urlfrontier_pb2_grpc"):
            copy(PROJECT / f"crawler/urlfrontier/{name}.py", folder)
        command = [sys.executable, "-m", "crawler.urlfrontier.client", "--help"]
        shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "Ask a server of the URL Frontier protocol." in shown.stdout


def put_handler() -> Any:
    """Return what a server has that knows PutURLs only."""
    seen = set()

    async def put(requests: AsyncIterator[pb.URLItem], _: object) -> AsyncIterator[pb.AckMessage]:
        async for item in requests:
            status = pb.AckMessage.SKIPPED if item.discovered.info.url in seen else pb.AckMessage.OK
            seen.add(item.discovered.info.url)
            yield pb.AckMessage(ID=item.ID, status=status)

    return grpc.stream_stream_rpc_method_handler(
        put, pb.URLItem.FromString, pb.AckMessage.SerializeToString
    )
