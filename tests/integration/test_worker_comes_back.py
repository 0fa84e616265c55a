"""A worker that was killed while it started: it comes back under its name."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from crawler.shared import keys
from crawler.shared.codec import WorkerRecord
from crawler.shared.worker.worker_file import read_worker, write_worker
from tests.command import crawl_command
from tests.ready import run
from tests.servers.pages import page, site
from tests.servers.redis import RedisServer

SETTINGS = {"CRAWLER_FRONTIER_SHARDS": 2, "CRAWLER_WORKER_NAME": "same"}


def test_killed_before_anybody_heard_of_it_it_is_not_taken_for_another(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RedisServer(tmp_path / "redis") as server, site("127.0.0.77", {"/": page()}) as web:
        settings = {**SETTINGS, "CRAWLER_FRONTIER_URL": server.url}
        command = crawl_command(data, settings, seeds=web.url("/"))
        assert run(command).returncode == 0
        first = read_worker(data)
        assert first is not None
        # The next life wrote who it is; Redis knows the one before, and heard of it just now.
        unheard = msgspec.structs.replace(first, session="same.unheard", before=first.session)
        write_worker(data, unheard)
        said = WorkerRecord(
            name="same", session=first.session, state="working", host="h", pid=7, at=time.time()
        )
        server.client().hset(keys.workers("gossamer"), "same", msgspec.json.encode(said))
        again = run(command)
        last = read_worker(data)
    assert again.returncode == 0, again.stderr[-2000:]
    assert last is not None and last.before == first.session
