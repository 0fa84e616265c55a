"""What the documents say is true: settings, targets, commands and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from scrapy.utils.misc import walk_modules_iter

from crawler import api, settings
from crawler.addon import REPLACED
from crawler.assembly.components import COMPONENTS
from crawler.config.arguments import Arguments
from crawler.config.readers import settings_of
from crawler.config.settings import read_config, settings_table
from crawler.model.types import ConfigError
from scripts import (
    write_api,
    write_lives,
    write_metrics,
    write_operating,
    write_queries,
    write_redis_keys,
    write_settings,
)
from scripts.write_settings import written
from tests.harness.sources import PROJECT

PAGES = [
    *sorted(PROJECT.glob("*.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
NAMES = {row.name for rows in settings_table().values() for row in rows}
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
HEADING = re.compile(r"(?m)^#+ (.*?) *$")


def ids(page: Path) -> str:
    return str(page.relative_to(PROJECT))


def ids_of_paths(given: object) -> str:
    return ids(given) if isinstance(given, Path) else ""


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        *write_settings.files().items(),
        *write_redis_keys.files().items(),
        *write_lives.files().items(),
        *write_operating.files().items(),
        *write_metrics.files().items(),
        *write_queries.files().items(),
        *write_api.files().items(),
    ],
    ids=ids_of_paths,
)
def test_generated_documents_equal_their_tables(path: Path, lines: Iterator[str]) -> None:
    old = path.read_text(encoding="utf-8")
    assert written(old, lines) == old, "run: make settings"


@pytest.mark.parametrize(("path", "text"), write_metrics.whole_files().items(), ids=ids_of_paths)
def test_generated_files_equal_their_tables(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run: make settings"


def test_the_commented_settings_of_the_settings_module_are_the_defaults() -> None:
    source = (PROJECT / "crawler" / "settings.py").read_text(encoding="utf-8")
    code = re.sub(r"(?m)^# (?=CRAWLER_)", "", source)
    module: dict[str, object] = {}
    exec(code, module)  # noqa: S102  # our own file, and the point is that it runs
    shown = {name: given for name, given in module.items() if name.startswith("CRAWLER_")}
    assert shown.keys() <= NAMES
    rows = {row.name: row for each in settings_table().values() for row in each}
    assert {name: rows[name].read(shown) for name in shown} == {
        name: rows[name].read({}) for name in shown
    }
    assert not NAMES & vars(settings).keys()


def test_each_line_of_meaning_is_one() -> None:
    for row in [row for rows in settings_table().values() for row in rows] + settings_of(Arguments):
        assert 10 < len(row.meaning) <= 90, row.name
        assert row.meaning.endswith("."), row.name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_setting_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("CRAWLER_MIN_DELAYS", "")  # the bad example
    is_history = page.name == "CHANGELOG.md" or page.parent.name == "decisions"
    removed = {"CRAWLER_HTTP_HANDLER", "CRAWLER_HEARTBEAT_S"}
    known = NAMES | removed if is_history else NAMES
    assert set(re.findall(r"\bCRAWLER_[A-Z_]+\b", text)) <= known


def test_the_index_of_decisions_names_each_by_its_title() -> None:
    folder = PROJECT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for page in folder.glob("0*.md"):
        number, _, title = page.read_text(encoding="utf-8").splitlines()[0].partition(". ")
        assert f"| [{number.removeprefix('# ')}]({page.name}) | {title} |" in index


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_no_contact_of_a_page_can_be_copied_by_mistake(page: Path) -> None:
    """ADDRESS is refused, with a sentence that names what to type."""
    given = re.findall(r"CONTACT ?= ?([^\s`]+)", page.read_text(encoding="utf-8"))
    assert set(given) <= {"ADDRESS", '""'}
    with pytest.raises(ConfigError, match="want a mail address that you read"):
        read_config({"CRAWLER_CONTACT": "ADDRESS"})


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        leads = (page.parent / target).resolve() if target else page
        assert leads.exists(), target
        assert not anchor or anchor[1:] in anchors(leads), f"{target}{anchor}"
        # A page of the site can name only what is on the site.
        assert PROJECT / "docs" not in page.parents or leads.is_relative_to(PROJECT / "docs")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Those of its headings, as GitHub makes them, and MkDocs by our setting of `toc`."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(text))
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def test_the_navigation_of_the_site_has_each_page_once() -> None:
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    site = yaml.load(text, Loader=_WithoutCode)
    named = list(files_of(site["nav"]))
    pages = {str(page.relative_to(PROJECT / "docs")) for page in (PROJECT / "docs").rglob("*.md")}
    assert set(named) == {page for page in pages if not page.startswith("decisions/0")}
    assert len(named) == len(set(named))


class _WithoutCode(yaml.SafeLoader):
    """Reads the function that mkdocs.yml names as nothing."""


_WithoutCode.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def files_of(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav if isinstance(nav, list) else dict(nav).values():
            yield from files_of(each)


def test_each_name_for_users_is_described() -> None:
    described = [name for names in write_api.CHAPTERS.values() for name in names]
    assert sorted(described) == sorted(api.__all__)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_path_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(
        re.findall(r"`((?:crawler|docs|tests|scripts|demo|bench|monitoring)/[\w/.]*)`", text)
    )
    assert [path for path in named if not (PROJECT / path).exists()] == []


def test_every_name_of_code_in_the_architecture_page_exists() -> None:
    """A class or function that was renamed is renamed here too."""
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("crawler", "tests")
        for suffix in ("py", "lua")
        for path in sorted((PROJECT / folder).rglob(f"*.{suffix}"))
    )
    words = set(re.findall(r"\w+", code)) | NAMES
    assert set(re.findall(r"`([A-Za-z]\w+)`", page)) - words == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_target_a_page_names_exists(page: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^([a-z-]+):", makefile))
    assert set(commands("make", page)) <= targets


@pytest.mark.parametrize("program", ["scrapy", "gossamer"])
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_a_page_names_exists(page: Path, program: str) -> None:
    ours = {module.__name__.rpartition(".")[2] for module in walk_modules_iter("crawler.commands")}
    assert set(commands(program, page)) <= ours | {"genspider", "startproject"}


def commands(program: str, page: Path) -> Iterator[str]:
    """The first words after *program* in code, whether in a block or in a line."""
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?m)^    .*|`[^`\n]+`", text):
        yield from re.findall(rf"(?:^|(?<!--only)[\s`$]){program} ([a-z][a-z-]*)", line)


def test_refused_settings_of_scrapy_are_listed() -> None:
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    listed = page.partition("## Scrapy's settings")[2].partition("With other defaults")[0]
    assert set(re.findall(r"`([A-Z_]+)`", listed)) == REPLACED.keys()


@pytest.mark.parametrize(
    "setting", ["DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "ITEM_PIPELINES"]
)
def test_our_numbers_are_as_the_page_has_them(setting: str) -> None:
    page = (PROJECT / "docs" / "settings.md").read_text(encoding="utf-8")
    row = page.partition("## Your own components")[2].partition(f"| `{setting}` |")[2]
    ours = [
        f"{path.rpartition('.')[2]} {order}"
        for path, order in COMPONENTS[setting].items()
        if order is not None
    ]
    assert row.partition("|")[0].strip() == ", ".join(ours)
