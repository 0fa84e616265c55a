"""Builds the sites: thirty with five frameworks from npm, the others with generators of
documentation from PyPI.

Rule: everything is in the folder of the build. `work/` has what the package managers installed,
`sites/` what is served: `www/` of each site, and `data/`, which other hosts have, too. A site that
is there is not built again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from bench.script_sites.sites import OTHER_HOSTS, Site, by_scripts, ordinary, write_list
from bench.script_sites.texts import Text, linked, texts

TEMPLATES: Final = Path(__file__).parent / "templates"
PORT_MARK: Final = "__PORT__"  # in what is served: the server's port stands there
PYTHON_PACKAGES: Final = (
    *("mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "sphinx>=8,<10", "furo>=2025.1"),
    *("sphinx-rtd-theme>=3,<4", "pdoc>=15", "scrapy-playwright>=0.0.43"),
)
_OUTPUT: Final = {"angular": "dist", "next": "out"}  # the others: dist, too
_HOST_OF: Final = """
export const slugOf = (path) => path.split("?")[0].split("/").filter(Boolean).at(-1) ?? "home";
const hosts = %s;
const numberOf = (name) => [...name].reduce((sum, each) => sum + each.charCodeAt(0), 0);
const hostOf = (name) => hosts[numberOf(name) %% hosts.length];
const originOf = (name) =>
  hosts.length ? `${location.protocol}//${hostOf(name)}:${location.port}/%s` : "";
"""
_FETCHED: Final = """
export async function load(name) {
  %s
  const answer = await fetch(`${originOf(name)}/data/${name}.json`);
  return answer.ok ? answer.json() : undefined;
}
"""
_TRACKED: Final = 'fetch("%s").catch(() => 0);'


class BuildFailed(Exception):
    """A site could not be built. What its generator said is in the message."""


def build(folder: Path, names: Sequence[str] = ()) -> list[Site]:
    """Build the sites into *folder*, or those of *names*, and return all that are listed there."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise BuildFailed(f"{program} is not on the PATH; install Node.js 20.19 or newer")
    folder.mkdir(parents=True, exist_ok=True)
    sites = [*by_scripts(), *ordinary()]
    for made_with, each in groupby(sites, lambda site: site.made_with):
        for site in each:
            home = folder / "sites" / site.name
            if home.exists() or (names and site.name not in names):
                continue
            print(f"building {site.name}", file=sys.stderr, flush=True)
            part = home.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            _BUILDERS.get(made_with, _of_framework)(site, folder / "work", part)
            part.rename(home)
    found = [site for site in sites if (folder / "sites" / site.name).exists()]
    write_list(folder, found)
    return found


def texts_of(site: Site) -> list[Text]:
    """Return what the pages of a site say."""
    return texts(site.name, site.pages, is_numbered=site.is_numbered)


def paths(site: Site, pages: Sequence[Text]) -> list[str]:
    """Return the path of each page in the router of a site that is made by scripts."""
    made = [
        f"/{page.section}/part-{number % 4}/{page.slug}"
        if site.routes == "nested"
        else f"/pages/{page.slug}"
        for number, page in enumerate(pages)
    ]
    return ["/", *made[1:]]


# With frameworks.


def _of_framework(site: Site, work: Path, home: Path) -> None:
    folder = work / site.made_with
    shutil.copytree(TEMPLATES / site.made_with, folder, dirs_exist_ok=True)
    if not (folder / "node_modules").exists():
        _run(["npm", "install", "--no-audit", "--no-fund"], folder)
    source = folder / "src" / "site"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    contents = _contents(site)
    _write_content(site, contents, source, home / "data")
    output = folder / _OUTPUT.get(site.made_with, "dist")
    shutil.rmtree(output, ignore_errors=True)
    _run(["npm", "run", "build"], folder)
    shutil.copytree(output, home / "www")
    for page in (home / "www").rglob("*.html"):
        page.write_text(page.read_text().replace("</head>", f"{_libraries(site)}</head>", 1))


def _contents(site: Site) -> dict[str, dict[str, Any]]:
    """Return what a page of the site can load, by name."""
    pages = texts_of(site)
    all_links = [
        {"path": path, "title": page.title}
        for path, page in zip(paths(site, pages), pages, strict=True)
    ]
    found: dict[str, dict[str, Any]] = {"index": {"links": all_links}}
    for page, targets in zip(pages, linked(site.pages), strict=True):
        links = [all_links[each] for each in targets]
        text = {"slug": page.slug, "title": page.title, "paragraphs": page.paragraphs}
        if site.links == "late":
            found[f"{page.slug}-links"] = {"links": links}
            found[page.slug] = text
        else:
            found[page.slug] = {**text, "links": links}
    return found


def _write_content(
    site: Site, contents: dict[str, dict[str, Any]], source: Path, data: Path
) -> None:
    config = {
        "name": site.name,
        "routes": site.routes,
        "links": site.links,
        "styles": site.styles,
        "late": site.has_late_part,
    }
    (source / "config.json").write_text(json.dumps(config))
    data.mkdir()
    if site.data == "bundle":
        # Next writes pages from it, and the others have it in their scripts.
        pages = {name: each for name, each in contents.items() if name != "index"}
        (source / "all.json").write_text(json.dumps(pages))
        script = _split(contents, source) if site.is_split else _BUNDLED
        hosts: Sequence[str] = ()
    else:
        tracked = _TRACKED % (*site.disallow, *site.busy)[0] if site.disallow or site.busy else ""
        script = _FETCHED % tracked
        hosts = {"other host": OTHER_HOSTS[:1], "fifty hosts": OTHER_HOSTS}.get(site.data, ())
        for name, each in contents.items():
            (data / f"{name}.json").write_text(json.dumps(each))
    if site.has_late_part:
        links = contents["index"]["links"]
        comments = texts(f"comments of {site.name}", site.pages)
        for at, (page, comment) in enumerate(zip(texts_of(site), comments, strict=True)):
            late = {"paragraphs": comment.paragraphs[:3], "links": [links[at - 2], links[at - 5]]}
            (data / f"{page.slug}.json").write_text(json.dumps(late))
    (source / "content.js").write_text(_HOST_OF % (json.dumps(hosts), site.name) + script)


_BUNDLED: Final = """
import all from "./all.json";
export const load = async (name) => all[name];
"""


def _split(contents: dict[str, dict[str, Any]], source: Path) -> str:
    """Write each content into a file of its own, which becomes a script of its own."""
    (source / "pages").mkdir()
    rows = []
    for name, each in contents.items():
        (source / "pages" / f"{name}.json").write_text(json.dumps(each))
        rows.append(f'  "{name}": () => import("./pages/{name}.json"),')
    table = "\n".join(rows)
    load = "async (name) => (table[name] ? (await table[name]()).default : undefined)"
    return f"const table = {{\n{table}\n}};\nexport const load = {load};\n"


def _libraries(site: Site) -> str:
    """Return the tags of what a page loads from other hosts."""
    hosts = OTHER_HOSTS[: site.libraries]
    tags = [
        f'<script defer src="http://{each}:{PORT_MARK}/lib/part.js"></script>' for each in hosts
    ]
    if hosts:
        sheet = f"http://{hosts[0]}:{PORT_MARK}/lib/part.css"
        tags.append(f'<link rel="stylesheet" href="{sheet}">')
    return "".join(tags)


# With generators of documentation.

_WITHOUT_STRANGERS: Final = {"material": {"font": False}, "readthedocs": {"highlightjs": False}}
"""Options of themes by which they load nothing from hosts that are not there."""


def _sphinx(theme: str, package: str = "") -> Callable[[Site, Path, Path], None]:
    def make(site: Site, work: Path, home: Path) -> None:
        source = work / "source"
        pages = _written(site, source, ".rst", _rst)
        names = "\n".join(f"   {page.slug}" for page in pages[1:])
        with (source / "index.rst").open("a") as index:
            index.write(f"\n.. toctree::\n\n{names}\n")
        lines = [f'project = "{site.name}"', f'html_theme = "{theme}"', "html_copy_source = False"]
        if package:
            lines.append(f'extensions = ["{package}"]')
        (source / "conf.py").write_text("\n".join(lines) + "\n")
        python = str(_python(work))
        _run([python, "-m", "sphinx", "-q", "-b", "html", ".", str(home / "www")], source)
        shutil.rmtree(home / "www" / ".doctrees", ignore_errors=True)

    return make


def _mkdocs(theme: str) -> Callable[[Site, Path, Path], None]:
    def make(site: Site, work: Path, home: Path) -> None:
        source = work / "source"
        _written(site, source / "docs", ".md", _markdown)
        options = {"name": theme, **_WITHOUT_STRANGERS[theme]}
        # A mapping of JSON is one of YAML.
        config = {"site_name": site.name, "theme": options, "site_dir": str(home / "www")}
        (source / "mkdocs.yml").write_text(json.dumps(config))
        _run([str(_python(work)), "-m", "mkdocs", "build", "-q"], source)

    return make


def _pdoc(site: Site, work: Path, home: Path) -> None:
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    package = source / site.name.replace("-", "_")
    package.mkdir(parents=True)
    pages = texts_of(site)
    for page, targets in zip(pages, linked(site.pages), strict=True):
        first, *rest = page.paragraphs
        seen = ", ".join(f"`{package.name}.{_identifier(pages[each])}`" for each in targets if each)
        functions = "".join(
            f'\n\ndef {_identifier(page)}_{at}(value: int = {at}) -> str:\n    """{text}"""\n'
            for at, text in enumerate(rest)
        )
        name = _identifier(page) if page is not pages[0] else "__init__"
        code = f'"""{page.title}.\n\n{first}\n\nSee {seen}.\n"""\n{functions}'
        (package / f"{name}.py").write_text(code)
    _run([str(_python(work)), "-m", "pdoc", "-o", str(home / "www"), f"./{package.name}"], source)


def _identifier(page: Text) -> str:
    return page.slug.replace("-", "_")


def _written(
    site: Site, source: Path, suffix: str, write: Callable[[Text, list[Text]], str]
) -> list[Text]:
    """Write the sources of the pages of a site into a new folder."""
    shutil.rmtree(source.parent if source.name == "docs" else source, ignore_errors=True)
    source.mkdir(parents=True)
    pages = texts_of(site)
    for page, targets in zip(pages, linked(site.pages), strict=True):
        name = page.slug if page is not pages[0] else "index"
        (source / f"{name}{suffix}").write_text(
            write(page, [pages[each] for each in targets if each])
        )
    return pages


def _rst(page: Text, links: list[Text]) -> str:
    seen = "\n".join(f"* :doc:`{each.slug}`" for each in links)
    return "\n\n".join([f"{page.title}\n{'=' * len(page.title)}", *_blocks(page, "-"), seen]) + "\n"


def _markdown(page: Text, links: list[Text]) -> str:
    seen = "\n".join(f"* [{each.title}]({each.slug}.md)" for each in links)
    return "\n\n".join([f"# {page.title}", *_blocks(page, ""), seen]) + "\n"


def _blocks(page: Text, underline: str) -> Iterator[str]:
    """Yield the paragraphs, with a heading before each third, by *underline* or by #."""
    for at, paragraph in enumerate(page.paragraphs):
        if at % 3 == 2:
            heading = paragraph.split(".")[0][:40].strip()
            yield f"{heading}\n{underline * len(heading)}" if underline else f"## {heading}"
        yield paragraph


def _python(work: Path) -> Path:
    """Return the Python that has the generators."""
    home = work / "venv"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "-q", *PYTHON_PACKAGES], work)
        (home / "done").touch()
    return python


_BUILDERS: Final[dict[str, Callable[[Site, Path, Path], None]]] = {
    "alabaster": _sphinx("alabaster"),
    "furo": _sphinx("furo"),
    "rtd": _sphinx("sphinx_rtd_theme", "sphinx_rtd_theme"),
    "mkdocs": _mkdocs("readthedocs"),
    "material": _mkdocs("material"),
    "pdoc": _pdoc,
}


def _run(command: list[str], folder: Path) -> None:
    environment = {
        **os.environ,
        "NEXT_TELEMETRY_DISABLED": "1",
        "NG_CLI_ANALYTICS": "false",
        "CI": "1",
        "NO_MKDOCS_2_WARNING": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-3_000:]
        raise BuildFailed(f"{' '.join(command)} in {folder} ended with {done.returncode}:\n{said}")
