"""docker-compose.yml and what it starts, as far as it can be tried without containers.

Rule: the scripts that containers would run are run, with their paths put into a folder.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis
import yaml

from crawler.config.settings import settings_table
from crawler.shared.address import Address
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until

COMPOSE: Final[Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
SERVICES: Final[Mapping[str, Any]] = COMPOSE["services"]
UNSPOKEN: Final = "0123abcd"
PATIENCE_S: Final = 60.0


@pytest.mark.parametrize("file", ["docker-compose.yml", "Dockerfile", "docker/worker.sh"])
def test_every_setting_exists(file: str) -> None:
    names = {row.name for rows in settings_table().values() for row in rows}
    assert set(re.findall(r"CRAWLER_[A-Z_]+", (PROJECT / file).read_text())) <= names


def test_names_in_the_services_exist() -> None:
    for service in SERVICES.values():
        assert {*service.get("secrets", [])} <= COMPOSE["secrets"].keys()
        assert {each["source"] for each in service.get("configs", [])} <= {*COMPOSE["configs"]}
        assert {each.split(":")[0] for each in service["volumes"]} <= COMPOSE["volumes"].keys()
        assert "ports" not in service, "it is not open to the outside"
    assert SERVICES["worker"]["depends_on"]["redis"]["condition"] == "service_healthy"
    assert "container_name" not in SERVICES["worker"], "it could not be scaled"


def test_the_sources_of_the_image_are_not_ignored() -> None:
    copied = re.findall(r"(?m)^COPY (?:--\S+ )?(\S+)", (PROJECT / "Dockerfile").read_text())
    let_in = set(re.findall(r"(?m)^!(\S+)", (PROJECT / ".dockerignore").read_text()))
    assert copied
    for name in copied:
        assert (PROJECT / name).exists() and name.split("/")[0] in let_in


def test_the_redis_of_the_file_is_durable_and_shut(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    programs(
        tmp_path,
        {
            "chown": "exit 0",
            "docker-entrypoint.sh": f'exec "$@" --port 0 --unixsocket {socket}',
        },
    )
    for folder in ("redis", "secrets", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secrets" / "redis-password").write_text(f"{UNSPOKEN}\n")
    (script,) = SERVICES["redis"]["command"]
    script = script.replace("$$", "$").replace("/run/", f"{tmp_path}/")
    script = script.replace("/data", f"{tmp_path}/data")
    with started([*SERVICES["redis"]["entrypoint"], script], tmp_path, {}):
        wait_until(socket.exists, PATIENCE_S)
        client = redis.Redis(unix_socket_path=str(socket))
        with pytest.raises(redis.AuthenticationError):
            client.ping()
        client = redis.Redis(unix_socket_path=str(socket), password=UNSPOKEN)
        config = client.config_get("appendonly", "appendfsync", "maxmemory-policy", "maxmemory")
        client.close()
    assert config.pop("maxmemory") not in ("0", b"0")
    assert config == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    assert stat.S_IMODE((tmp_path / "redis" / "redis.conf").stat().st_mode) == 0o600


def test_each_worker_has_a_folder_of_its_own_and_finds_it_again(tmp_path: Path) -> None:
    programs(tmp_path, {"scrapy": f'echo "$@" >"{tmp_path}/$$"; exec sleep 60'})
    (tmp_path / "password").write_text(f"{UNSPOKEN}\n")
    given = {"DATA": str(tmp_path), "PASSWORD_FILE": str(tmp_path / "password")}
    command = [str(PROJECT / "docker" / "worker.sh"), "-a", "seeds=x"]
    with started(command, tmp_path, given) as first, started(command, tmp_path, given) as second:
        # `exec`: the number of the process is the one that the container starts.
        commands = [written(tmp_path / str(one.pid)) for one in (first, second)]
        folders = [re.findall(r"CRAWLER_DATA_DIR=(\S+)", each)[0] for each in commands]
        assert sorted(folders) == [f"{tmp_path}/workers/1", f"{tmp_path}/workers/2"]
        first.kill()
        first.wait(PATIENCE_S)
        with started(command, tmp_path, given) as third:
            again = written(tmp_path / str(third.pid))
    assert f"CRAWLER_DATA_DIR={folders[0]} " in again
    assert again.endswith("-a seeds=x\n")
    url = re.findall(r"CRAWLER_FRONTIER_URL=(\S+)", again)[0]
    address = Address.parse(url)  # which refuses a file that others may read
    assert (str(address), address.password) == ("redis:6379", UNSPOKEN)
    assert UNSPOKEN not in again
    for each in (*commands, again):
        Path(re.findall(r"FRONTIER_URL=file:(\S+)", each)[0]).unlink()


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param(["frontier", "counts"], "CRAWLER_FRONTIER_URL=file:", id="the shared crawl"),
        pytest.param(["archive", "list"], "CRAWLER_DATA_DIR={data}\n", id="all folders here"),
    ],
)
def test_the_image_answers_questions(tmp_path: Path, asked: list[str], names: str) -> None:
    programs(tmp_path, {"scrapy": 'echo "$@"'})
    (tmp_path / "password").write_text(f"{UNSPOKEN}\n")
    given = {
        "DATA": str(tmp_path / "data"),
        "PASSWORD_FILE": str(tmp_path / "password"),
        "TMPDIR": str(tmp_path),
    }
    output = subprocess.run(
        [PROJECT / "docker" / "worker.sh", *asked],
        env=environment(tmp_path, given),
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert output.startswith(" ".join([*asked, "-s", names.format(data=tmp_path / "data")]))
    assert UNSPOKEN not in output


def test_without_a_password_no_worker_starts(tmp_path: Path) -> None:
    programs(tmp_path, {"scrapy": "echo started"})
    given = {"DATA": str(tmp_path), "PASSWORD_FILE": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [PROJECT / "docker" / "worker.sh"],
        env=environment(tmp_path, given),
        capture_output=True,
        check=False,
    )
    assert (done.returncode != 0, done.stdout) == (True, b"")


def programs(folder: Path, texts: Mapping[str, str]) -> None:
    (folder / "bin").mkdir()
    for name, text in texts.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)


def environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **given, "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}"}


def written(file: Path) -> str:
    """What *file* holds, once it holds something."""
    return wait_until(
        lambda: file.read_text() if file.exists() else "", PATIENCE_S, f"{file} is written"
    )


@contextmanager
def started(
    command: list[str], folder: Path, given: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment(folder, given), cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
