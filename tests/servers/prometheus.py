"""A real prometheus on loopback, with the rules of monitoring/, its own folder and its own port.

Rule: it dies with the process that started it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.harness.commands import PATIENCE_S
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.redis_process import HOST, free_port

FOLDER: Final = PROJECT / "monitoring"


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{HOST}:{port}"

    def ask(self, path: str, **query: str) -> dict[str, Any]:
        """The data of the answer of its API, which must be a success."""
        url = f"{self._url}/api/v1/{path}?{urlencode(query)}"
        with urlopen(url, timeout=30) as answer:  # noqa: S310  # http, ours
            found = json.load(answer)
        assert found["status"] == "success", found
        data: dict[str, Any] = found["data"]
        return data

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series that *query* has now."""
        result = self.ask("query", query=query)["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=30) as answer:  # noqa: S310  # http, ours
                return bool(answer.status == 200)
        except URLError:  # it listens late
            return False


@contextmanager
def scraping(targets: Sequence[str], folder: Path, token: str = "") -> Iterator[Prometheus]:
    """Prometheus as monitoring/prometheus.yml has it, but for *targets*, which it scrapes once a
    second."""
    folder.mkdir()
    shutil.copy(FOLDER / "alerts.yml", folder)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": list(targets)}]
    if token:
        job["authorization"] = {"credentials": token}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("ab") as log:
        setpriv = shutil.which("setpriv")
        process = subprocess.Popen(
            [
                *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
                *("prometheus", f"--config.file={folder}/prometheus.yml"),
                *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address={HOST}:{port}"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(port)
        wait_until(prometheus.is_ready, PATIENCE_S, log=(folder / "log").read_text)
        yield prometheus
    finally:
        process.kill()
        process.wait(PATIENCE_S)
