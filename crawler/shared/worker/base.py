"""What all parts of one worker need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Self

from crawler.data.disk_room import DiskRoom
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.contents import ContentCalls
from crawler.shared.owned.side_calls import SideQueue
from crawler.shared.worker.batcher import ShardClient
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import FullServers, Listener, StatusLog, WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBase:
    """It is built before all parts."""

    nodes: Nodes
    contents: ContentCalls
    settings: WorkerSettings
    outbox: Outbox
    listener: Listener
    status_log: StatusLog
    disk: DiskRoom
    side_queue: SideQueue
    full_servers: FullServers
    make_record: Callable[[], WorkerRecord]
    now: Callable[[], float]
    steady: Callable[[], float]  # seconds that pass, whatever is done to the machine's clock

    @classmethod
    def of(
        cls,
        *,
        nodes: Nodes,
        settings: WorkerSettings,
        outbox: Outbox,
        listener: Listener,
        make_record: Callable[[], WorkerRecord],
        now: Callable[[], float],
        steady: Callable[[], float] = monotonic,
    ) -> Self:
        status_log = StatusLog(listener, settings.name, steady)
        return cls(
            nodes=nodes,
            contents=ContentCalls(make_record().session, settings.shards),
            settings=settings,
            outbox=outbox,
            listener=listener,
            status_log=status_log,
            disk=DiskRoom(
                status_log.wait_warnings,
                "this worker's disk",
                lambda: status_log.is_hopeless,
                steady,
            ),
            side_queue=SideQueue(listener.count),
            full_servers=FullServers(nodes, settings.full_bytes),
            make_record=make_record,
            now=now,
            steady=steady,
        )

    def shard_client(self) -> ShardClient:
        return ShardClient(
            contents=self.contents,
            run=self.nodes.run,
            send_later=self.side_queue.send_later,
            is_full=self.full_servers.is_full,
            count=self.listener.count,
        )
