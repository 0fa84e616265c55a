"""Serving a directory of real files on a loopback address, and walking it without our code.

Rule: nothing of the crawler is imported here; a walk that shared our URL rules would share
their faults. The walk is libxml2's parser, urllib.parse and http.client: they are wherever
Scrapy is, which wget is not, and wget reports its results only in a log for people. Compared
once with `wget --recursive --spider` over python3.11-doc, sqlite3-doc and debian-handbook
(en-US): the same 528, 758 and 128 URLs.
"""

from __future__ import annotations

import mimetypes
import os
import shutil
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

import lxml.html  # type: ignore[import-untyped]  # its types are a package that lags behind it

from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply

START_S: Final = 10.0
NGINX: Final = """\
daemon off; master_process off; pid {home}/pid; error_log stderr crit;
events {{ worker_connections 512; }}
http {{
  include {types}; default_type application/octet-stream; charset utf-8;
  log_format bytes '$status $bytes_sent $request_uri';
  access_log {log}; gzip {gzip}; sendfile on; keepalive_requests 100000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{ listen {host}:{port}; root {root}; index index.html; }}
}}
"""
TYPES: Final = Path("/etc/nginx/mime.types")


@contextmanager
def serve(root: Path, host: str) -> Iterator[str]:
    """The files under *root* at the URL it yields: by nginx where it is installed."""
    with nginx(root, host) if has_nginx() else plain(root, host) as url:
        yield url


def has_nginx() -> bool:
    return shutil.which("nginx", path=_path()) is not None and TYPES.exists()


@contextmanager
def nginx(
    root: Path, host: str, *, port: int = 0, log: Path | None = None, gzip: bool = False
) -> Iterator[str]:
    """Serve *root* by nginx, at any port if *port* is 0. To *log* it appends for each answer its
    status, its bytes with its head, and the path that was asked for. *gzip*: HTML is compressed
    for clients that accept it, as Debian's nginx does by default."""
    with tempfile.TemporaryDirectory(prefix="nginx-") as home:
        port = port or _free_port(host)
        conf = Path(home, "nginx.conf")
        conf.write_text(
            NGINX.format(
                home=home,
                types=TYPES,
                host=host,
                port=port,
                root=root,
                log=f"{log} bytes" if log else "off",
                gzip="on" if gzip else "off",
            )
        )
        command = [shutil.which("nginx", path=_path()) or "nginx", "-c", str(conf), "-p", home]
        process = subprocess.Popen([*command, "-e", "stderr"])
        try:
            _wait_for(host, port, process)
            yield f"http://{host}:{port}/"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def plain(root: Path, host: str) -> Iterator[str]:
    """The same without nginx: slower, but nothing to install."""
    with LoopbackWeb(Files(root), [host]) as web:
        yield web.url(host)


class Files:
    """A directory as a web: index.html for a folder, a redirect where the last slash is missing."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, ask: Ask) -> Reply:
        path = urlsplit(ask.path).path
        found = self._root / unquote(path).lstrip("/")
        if ".." in found.parts:
            return Reply(b"No.", 400)
        if found.is_dir():
            if not path.endswith("/"):
                return Reply(status=301, headers=(("Location", path + "/"),))
            found /= "index.html"
        if not found.is_file():
            return Reply(b"<title>Not found</title>", 404)
        return Reply(found.read_bytes(), content_type=_content_type(found))


def walk(root_url: str) -> set[str]:
    """Every URL of the same host and port that links reach and that answers 200."""
    origin = urlsplit(root_url)
    assert origin.hostname is not None
    connection = HTTPConnection(origin.hostname, origin.port)
    waiting, known, answered = deque([root_url]), {root_url}, set[str]()
    while waiting:
        url = waiting.popleft()
        connection.request("GET", urlsplit(url)._replace(scheme="", netloc="").geturl())
        response = connection.getresponse()
        body = response.read()
        if response.status == 200:
            answered.add(url)
        for link in _links(url, response, body):
            if urlsplit(link)[:2] == origin[:2] and link not in known:
                known.add(link)
                waiting.append(link)
    connection.close()
    return answered


def _links(url: str, response: HTTPResponse, body: bytes) -> Iterator[str]:
    if location := response.headers.get("Location"):
        yield _absolute(url, location)
    kind = response.headers.get_content_type()
    if response.status == 200 and kind in ("text/html", "application/xhtml+xml") and body.strip():
        tree = lxml.html.document_fromstring(body)
        base = urljoin(url, next(iter(tree.xpath("//base/@href")), ""))
        for href in tree.xpath("//a/@href | //area/@href | //frame/@src | //iframe/@src"):
            yield _absolute(base, href)


def _absolute(base: str, href: str) -> str:
    try:
        joined = urldefrag(urljoin(base, href.strip())).url
    except ValueError:  # such as "http://[", which nobody can follow
        return ""
    return quote(joined, safe="/:?#[]@!$&'()*+,;=%~|")


def _content_type(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _path() -> str:
    """Return PATH with sbin, where nginx is, and which many users do not have in it."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _wait_for(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    def is_open() -> bool:
        assert process.poll() is None, f"nginx did not start at {host}:{port}"
        with socket.socket() as connection:
            return connection.connect_ex((host, port)) == 0

    wait_until(is_open, START_S, f"nginx listens at {host}:{port}")
