"""The errors for bad input: one sentence that names it, status 1, and nothing overwritten.

Each row runs the real command.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crawler.data.data_dir import FORMAT
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.comparing import file_digests
from tests.harness.crawling import crawl
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Reply, Site, page, site


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    routes = {"/": page("/a"), "/a": page(), "/slow": Reply(hang=True)}
    with site("127.0.0.81", routes) as served:
        yield served


@pytest.fixture(scope="module")
def begun(web: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a crawl in it."""
    data = tmp_path_factory.mktemp("begun") / "data"
    assert crawl(data, seeds=web.url("/")).reason == "finished"
    return data


@pytest.fixture
def data(begun: Path, tmp_path: Path) -> Path:
    shutil.copytree(begun, tmp_path / "data")
    return tmp_path / "data"


def error_of(command: list[str], folder: Path) -> str:
    """Return the error of the refused command, after checking that *folder* is unchanged."""
    before = file_digests(folder)
    done = run(command)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert file_digests(folder) == before
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gossamer: error: ")
    return last.removeprefix("gossamer: error: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "does not exist (looked in ", id="missing"),
        pytest.param(b"", "gives no seed: it is empty", id="empty"),
        pytest.param(b"# only\n\n# words\n", "gives no seed: it is empty", id="comments only"),
        pytest.param(b"two words\n", "no good line among the bad ones", id="bad lines only"),
        pytest.param("http://a.de/\nhttp://ä.de/\n".encode("latin-1"), "(line 2)", id="not UTF-8"),
        pytest.param("directory", "is a directory: give a file in it", id="a directory"),
    ],
)
def test_a_seeds_file(tmp_path: Path, content: bytes | str | None, message: str) -> None:
    seeds = tmp_path / "seeds.txt"
    if isinstance(content, bytes):
        seeds.write_bytes(content)
    elif content:
        seeds.mkdir()
    error = error_of(crawl_command(tmp_path / "data", seeds=seeds), tmp_path)
    assert str(seeds) in error
    assert message in error
    assert not (tmp_path / "data").exists()


def test_a_bad_line_is_skipped_and_named(web: Site, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f"# mine\n{web.url('/')}\n\nftp://example.com/\nword\n")
    done = run(crawl_command(tmp_path / "data", seeds=seeds))
    assert done.returncode == 0, done.stderr
    assert f"{seeds} line 4 skipped (the scheme is ftp" in done.stderr
    assert f"{seeds} line 5 skipped (" in done.stderr
    assert "Seeds: 1," in done.stderr
    assert "/a" in web.asked


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        pytest.param(
            {"seeds": "http://127.0.0.1/", "sope": "host"},
            {},
            "unknown argument sope; did you mean scope?",
            id="an unknown argument",
        ),
        pytest.param({}, {}, "no seeds: say where to start", id="no seeds"),
        pytest.param(
            {"seeds": "http://127.0.0.1/", "max_pages": "many"},
            {},
            "max_pages is 'many'",
            id="a word",
        ),
        pytest.param(
            {"seeds": "http://127.0.0.1/", "deny": "("}, {}, "'(' does not compile", id="no pattern"
        ),
        pytest.param(
            {"seeds": "http://127.0.0.1/"},
            {"CRAWLER_MIN_DELAYS": 1},
            "unknown setting CRAWLER_MIN_DELAYS; did you mean CRAWLER_MIN_DELAY_S?",
            id="an unknown setting",
        ),
        pytest.param(
            {"seeds": "http://127.0.0.1/"},
            {"CRAWLER_MIN_DELAY_S": -1},
            "CRAWLER_MIN_DELAY_S is '-1'; want a number of seconds, 0 or more",
            id="an impossible one",
        ),
        pytest.param(
            {"seeds": "https://www.example.com/"},
            {},
            "add -s CRAWLER_CONTACT=ADDRESS (make crawl: CONTACT=ADDRESS), or set it",
            id="a public host without a contact",
        ),
        pytest.param(
            {"seeds": "https://www.example.com/"},
            {"CRAWLER_CONTACT": "https://example.com/"},
            "example.com is a placeholder",
            id="a contact that reaches no person",
        ),
    ],
)
def test_settings_and_arguments(
    tmp_path: Path, given: dict[str, str], settings: dict[str, object], message: str
) -> None:
    error = error_of(crawl_command(tmp_path / "data", settings, **given), tmp_path)
    assert message in error
    assert list(tmp_path.iterdir()) == [], "refused before anything is made"


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    settings = {"CRAWLER_PRIORITIZER": "no.Where"}
    command = crawl_command(tmp_path / "data", settings, seeds="http://127.0.0.1/")
    done = run(command)
    assert done.returncode == 1
    assert "gossamer: error: CRAWLER_PRIORITIZER is 'no.Where': No module named" in done.stderr


def test_an_argument_given_twice(tmp_path: Path) -> None:
    command = crawl_command(tmp_path / "data", seeds="http://127.0.0.1/", scope="any")
    assert error_of([*command, "-a", "scope=host"], tmp_path) == "argument scope is given twice"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param("file", "cannot be written: File exists", id="it is a file"),
        pytest.param("file/data", "cannot be written: Not a directory", id="under a file"),
        pytest.param(
            "/proc/data", "/proc/data cannot be written: ", id="a folder that is read-only for all"
        ),
    ],
)
def test_a_data_directory_that_cannot_be_written(
    web: Site, tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "file").write_text("mine")
    error = error_of(crawl_command(tmp_path / place, seeds=web.url("/")), tmp_path)
    assert message in error
    assert "CRAWLER_DATA_DIR" in error


def _garbled(data: Path) -> None:
    (data / "format.json").write_text("{")


def _headless(data: Path) -> None:
    (data / "format.json").unlink()


def _scribbled(data: Path) -> None:
    (manifest,) = (data / "frontier").glob("MANIFEST-*")
    manifest.write_bytes(b"X" * 200)


def _bitten(data: Path) -> None:
    (data / "frontier" / "CURRENT").write_text("nothing")


def _beheaded(data: Path) -> None:
    (data / "frontier" / "CURRENT").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(_garbled, "format.json cannot be read", id="its format is garbled"),
        pytest.param(
            _headless, "is damaged: it holds a frontier, but no format.json", id="headless"
        ),
        pytest.param(
            _scribbled, "frontier cannot be opened: Corruption", id="a scribbled manifest"
        ),
        pytest.param(_bitten, "frontier cannot be opened: Corruption", id="a bitten pointer"),
        pytest.param(
            _beheaded, "its file CURRENT is missing", id="no pointer: RocksDB starts anew"
        ),
    ],
)
def test_a_data_directory_that_cannot_be_used(
    web: Site, data: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(data)
    command = crawl_command(data, seeds=web.url("/"))
    assert message in error_of(command, data)
    assert message in error_of(command, data), "the second look finds what the first one found"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param({"format": 2, "key_seed": 7}, ["crawl", "web"], id="an earlier one"),
        pytest.param({"format": 99, "colour": "blue"}, ["crawl", "web"], id="a later one"),
        pytest.param({"format": 2, "key_seed": 7}, ["frontier", "pause"], id="a verb"),
        pytest.param({"format": 2, "key_seed": 7}, ["frontier", "check", "--repair"], id="repair"),
    ],
)
def test_another_format_is_refused_in_one_sentence_and_left_as_it_is(
    web: Site, data: Path, written: dict[str, object], words: list[str]
) -> None:
    (data / "format.json").write_text(json.dumps(written))
    command = crawl_command(data, seeds=web.url("/"))
    if words[0] != "crawl":
        command = [*command[:3], *words, "-s", f"CRAWLER_DATA_DIR={data}"]
    before = {file: file.stat().st_mtime_ns for file in sorted(data.rglob("*"))}
    assert error_of(command, data) == (
        f"{data} is of format {written['format']}, and this version reads {FORMAT}: use the version"
        " that wrote it, or another data directory (CRAWLER_DATA_DIR)"
    )
    assert {file: file.stat().st_mtime_ns for file in sorted(data.rglob("*"))} == before


def test_other_rules_of_identity(web: Site, data: Path) -> None:
    command = crawl_command(data, {"CRAWLER_MERGE_WWW": True}, seeds=web.url("/"))
    assert "was begun with other rules of which URLs are the same" in error_of(command, data)


def test_a_data_directory_in_use(web: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(crawl_command(data, seeds=web.url("/slow")), tmp_path / "log") as first:
        wait_until(lambda: "/slow" in web.asked, PATIENCE_S)
        done = run(crawl_command(data, seeds=web.url("/")))
        assert first.poll() is None, "the first one has not noticed"
    assert done.returncode == 1
    assert f"{data} is in use by another crawl (process {first.pid})" in done.stderr
