"""The pool of browsers: what a page is made of, and what ends a tab and a browser."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.model.types import ConfigError
from crawler.render.browser import (
    BrowserAnswer,
    BrowserOptions,
    BrowserRequest,
    NotRendered,
    find_browser,
    process_tree,
)
from tests.harness.rendering import URL, Answers, Browsing, an_answer, browsing
from tests.harness.waiting import wait_until_async

SHELL = '<!DOCTYPE html><html><body><div id="root"></div><script src="app.js"></script>'
APP = """
const root = document.getElementById("root");
fetch("data.json").then((answer) => answer.json()).then((data) => {
  setTimeout(() => root.append(data.text), 100);
  import("./more.js").then((more) => more.show(root));
});
"""
MORE = """export const show = (root) => requestIdleCallback(() => {
  const link = document.createElement("a");
  link.href = "/next"; link.append("next"); root.append(link); });"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browsing]:
    with browsing(BrowserOptions(page_s=5.0, quiet_s=0.2, user_agent="Tests/1 (+mail)")) as made:
        yield made


def test_a_page_is_made_by_its_scripts(browser: Browsing) -> None:
    answers = Answers({"app.js": APP, "more.js": MORE, "data.json": '{"text": "made"}'})
    page = browser.run(browser.pool.render("made", URL, an_answer(SHELL), answers))
    assert b'<a href="/next">next</a>' in page.dom and b"made" in page.dom
    assert page.dom.startswith(b"<!DOCTYPE html>") and page.is_quiet and not page.moved_to
    assert page.requests == 3
    assert [(each.url, each.method, each.kind) for each in answers.asked] == [
        ("http://site.test/a/app.js", "GET", "script"),
        ("http://site.test/a/data.json", "GET", "fetch"),
        ("http://site.test/a/more.js", "GET", "script"),
    ]
    assert {each.fields["user-agent"] for each in answers.asked} == {"Tests/1 (+mail)"}


def test_a_script_sees_that_it_is_in_an_automated_browser(browser: Browsing) -> None:
    said = "<p></p><script>document.querySelector('p').append(navigator.webdriver)</script>"
    assert b"<p>true</p>" in browser.render(said).dom


@pytest.mark.parametrize(
    ("document", "moved_to"),
    [
        pytest.param("<script>location = '/x'</script>", "http://site.test/x", id="a script"),
        pytest.param(
            '<meta http-equiv="refresh" content="0; url=http://other.test/">',
            "http://other.test/",
            id="a meta refresh",
        ),
        pytest.param("<script>location.reload()</script>", "", id="a reload is no move"),
        pytest.param("<script>location.hash = 'x'</script>", "", id="nor is a fragment"),
        pytest.param("<script>history.pushState(0, '', '/x')</script>", "", id="nor a state"),
        pytest.param(
            '<form method="post" action="/x"><input></form>'
            "<script>document.forms[0].submit()</script>",
            "",
            id="nor is what a form sends",
        ),
    ],
)
def test_where_a_page_wanted_to_go_is_noted_and_not_followed(
    browser: Browsing, document: str, moved_to: str
) -> None:
    page = browser.render(f"<p>kept</p>{document}")
    assert b"<p>kept</p>" in page.dom
    assert page.moved_to == moved_to


def test_what_is_left_out_fails_in_the_page(browser: Browsing) -> None:
    document = "<p></p><script>fetch('/x').catch(() => document.querySelector('p').append('no'))"
    assert b"<p>no</p>" in browser.render(f"{document}</script>").dom


ORIGINS = """<p></p><script>
const ask = (name, url, options) => fetch(url, options).then((got) => got.text())
  .then((text) => name + ":" + text, () => name + ":refused");
Promise.all([
  ask("shared", "http://other.test/shared"), ask("private", "http://other.test/private"),
  ask("own", "/own"), ask("blind", "http://other.test/private", {mode: "no-cors"}),
]).then((all) => document.querySelector("p").append(all.join(" ")));</script>"""


def test_a_page_reads_of_other_origins_only_what_they_share(browser: Browsing) -> None:
    async def answering(request: BrowserRequest) -> BrowserAnswer:
        name = request.url.rpartition("/")[2]
        shared = {"access_control_allow_origin": "*"} if name == "shared" else {}
        return an_answer(name, **shared)

    page = browser.run(browser.pool.render("origins", URL, an_answer(ORIGINS), answering))
    assert b"<p>shared:shared private:refused own:own blind:</p>" in page.dom


@pytest.mark.parametrize(
    ("script", "base"),
    [
        ("history.replaceState(0, '', '/')", b'<base href="http://site.test/">'),
        ("history.pushState(0, '', 'b/c?d')", b'<base href="http://site.test/a/b/c?d">'),
        ("history.pushState(0, '', '#here')", b""),
        ("document.write('<base href=/z/>'); history.pushState(0, '', '/y')", b""),
    ],
)
def test_links_are_meant_from_where_a_page_has_moved_itself(
    browser: Browsing, script: str, base: bytes
) -> None:
    dom = browser.render(f"<title>x</title><script>{script}</script><a href=one>1</a>").dom
    assert base in dom and dom.count(b'<base href="http') == bool(base)


def test_a_page_is_scrolled_only_as_long_as_there_is_more() -> None:
    grows = """<div style="height: 3000px"></div><script>
      let grown = 0;
      addEventListener("scroll", () => { if (grown++ < 2) {
        const more = document.createElement("div");
        more.style.height = "3000px"; more.append("part " + grown); document.body.append(more); }});
    </script>"""
    options = BrowserOptions(page_s=20.0, quiet_s=0.2, scrolls=100)
    with browsing(options) as browser:
        short, long = browser.render("<p>short"), browser.render(grows)
        assert short.is_quiet and long.is_quiet and b"part 2" in long.dom
        removed = "<script>onload = () => document.documentElement.remove()</script>"
        assert browser.render(removed).dom == b""


def test_scripts_see_the_language_that_is_asked_for() -> None:
    said = "<p></p><script>document.querySelector('p').append(navigator.languages)</script>"
    with browsing(BrowserOptions(quiet_s=0.1, language="de-AT")) as browser:
        assert b"<p>de-AT</p>" in browser.render(said).dom


def test_documents_of_frames_are_not_asked_for(browser: Browsing) -> None:
    answers = Answers({})
    document = an_answer('<p>kept</p><iframe src="/x"></iframe><img src="/y">')
    page = browser.run(browser.pool.render("frames", URL, document, answers))
    assert [each.kind for each in answers.asked] == ["image"]
    assert page.is_quiet and b"<p>kept</p>" in page.dom


def test_a_redirect_reaches_no_page(browser: Browsing) -> None:
    """What it leads to would be asked of nobody."""

    async def redirect(_: BrowserRequest) -> BrowserAnswer:
        return an_answer("", status=302, location="http://other.test/")

    document = "<p></p><script>fetch('/x').catch(() => document.querySelector('p').append('no'))"
    answer = an_answer(f"{document}</script>")
    page = browser.run(browser.pool.render("redirect", URL, answer, redirect))
    assert b"<p>no</p>" in page.dom


def test_cookies_are_those_of_the_context(browser: Browsing) -> None:
    document = "<p></p><script>document.querySelector('p').append(document.cookie)</script>"
    sets = an_answer(document, set_cookie="a=1; Path=/")
    assert b"<p>a=1</p>" in browser.run(browser.pool.render("one", URL, sets, Answers({}))).dom
    assert b"<p>a=1</p>" in browser.render(document, key="one").dom
    assert b"<p></p>" in browser.render(document, key="another").dom
    browser.run(browser.pool.end_turn("one"))
    assert b"<p></p>" in browser.render(document, key="one").dom


def test_an_error_of_who_answers_is_raised(browser: Browsing) -> None:
    async def fails(_: BrowserRequest) -> BrowserAnswer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        browser.run(browser.pool.render("error", URL, an_answer(SHELL), fails))


def test_what_is_cancelled_closes_its_tab(browser: Browsing) -> None:
    async def cancelled() -> int:
        asked = asyncio.Event()

        async def never(_: BrowserRequest) -> BrowserAnswer:
            asked.set()
            return await asyncio.get_running_loop().create_future()

        work = browser.pool.render("cancelled", URL, an_answer(SHELL), never)
        task = asyncio.create_task(work)
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return browser.pool.open

    assert browser.run(cancelled()) == 0
    assert browser.render("<p>next</p>", key="cancelled").is_quiet


def test_a_page_that_is_not_done_is_taken_at_its_bound() -> None:
    with browsing(BrowserOptions(page_s=1.0, quiet_s=0.2)) as browser:
        page = browser.render("<script>setInterval(() => document.body.append('x'), 20)</script>")
        assert not page.is_quiet and page.ms >= 1_000 and b"xx" in page.dom


def test_what_a_slow_script_has_put_off_is_waited_for(browser: Browsing) -> None:
    """It has kept the page from changing for longer than what counts as quiet."""
    script = """const until = performance.now() + 1500; while (performance.now() < until);
        setTimeout(() => document.body.append('made'), 100)"""

    async def late(_: BrowserRequest) -> BrowserAnswer:
        await asyncio.sleep(0.3)  # the page is watched by then
        return an_answer(script, "js")

    document = an_answer(SHELL.replace("<script", "<script defer"))
    page = browser.run(browser.pool.render("slow", URL, document, late))
    assert page.is_quiet and b"made" in page.dom


@pytest.mark.parametrize("name", ["renderer", "chromium", "node"])
def test_a_page_whose_browser_is_killed_is_made_in_another_one(
    browser: Browsing, name: str
) -> None:
    async def killed() -> bytes:
        asked = asyncio.Event()
        told: list[BrowserRequest] = []

        async def answer(request: BrowserRequest) -> BrowserAnswer | None:
            told.append(request)
            asked.set()
            if len(told) == 1:
                await asyncio.sleep(5)  # the kill ends the page before
            return an_answer("document.body.append('made')", "js")

        task = asyncio.create_task(browser.pool.render("killed", URL, an_answer(SHELL), answer))
        await asked.wait()
        found = [each for each in process_tree(os.getpid()) if command(each).startswith(name)]
        # All of a kind: which renderer has the page is not to be seen from here.
        for pid in found if name == "renderer" else found[:1]:
            os.kill(pid, signal.SIGKILL)
        return (await task).dom

    before = browser.pool.started
    assert b"made" in browser.run(killed())
    assert browser.pool.started == before + 1


def command(pid: int) -> str:
    """Return the name of a program, or the kind of a process of Chromium's. Empty: it ended."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split()
    except OSError:
        return ""
    kinds = [each for each in line if each.startswith("--type=")]
    return kinds[0].partition("=")[2] if kinds else Path(line[0]).name if line else ""


def test_a_browser_that_is_worn_is_replaced() -> None:
    with browsing(BrowserOptions(page_s=5.0, quiet_s=0.1, pages_per_browser=2)) as browser:
        for number in range(5):
            assert b"<p>" in browser.render(f"<p>{number}</p>").dom
        assert (browser.pool.started, browser.pool.crashed) == (3, 0)


def test_nothing_is_left_of_a_browser() -> None:
    others = process_tree(os.getpid())
    with browsing(BrowserOptions()) as browser:
        browser.render("<p>")
        running = set(process_tree(os.getpid())) - set(others)

    async def ended() -> None:
        await wait_until_async(lambda: not any(map(command, running)), 5, "all processes ended")

    asyncio.run(ended())
    assert len(running) > 3


def test_a_browser_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="CRAWLER_BROWSER: /no/browser is no program"):
        find_browser("/no/browser")


def test_too_large_a_dom_is_not_taken() -> None:
    too_large = pytest.raises(NotRendered, match="DOM is too large")
    with browsing(BrowserOptions(max_dom_bytes=10_000)) as browser, too_large:
        browser.render("<p>" + "x" * 10_000)
