"""Pages that would hold, fill or flood a browser: each ends within its bounds of time and memory.

`make hostile-pages` renders all of them; without it those are left out that take seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from crawler.render.browser import BrowserOptions, NotRendered, RenderedPage, process_tree
from tests.harness.rendering import URL, Answers, Browsing, an_answer, browsing, is_alive

OPTIONS: Final = BrowserOptions(
    page_s=1.5,
    quiet_s=0.1,
    memory_bytes=900_000_000,
    max_dom_bytes=2_000_000,
)
KEPT: Final = b"<p>kept</p>"
RENDERED, BOUND = "rendered", "at its bound"  # else parts of the reason why there is no page
EITHER: Final = "either"  # by how fast the machine is
MOST_S: Final = 2 * (OPTIONS.page_s + 3.0 + 10.0)  # two tries, and a browser's start for each


@dataclass(frozen=True)
class Hostile:
    name: str
    script: str
    expected: str = RENDERED
    head: str = ""  # in place of the script, what stands before it
    answers: Mapping[str, str] = field(default_factory=dict)
    is_slow: bool = False
    has: bytes = KEPT

    def document(self) -> str:
        return f"<!DOCTYPE html><p>kept</p>{self.head}<script>{self.script}</script>"


SPIN = "for (;;) {}"
PAGES: Final = [
    # Scripts that do not end.
    Hostile("a loop", SPIN, "it hangs"),
    Hostile("a loop in a timer", f"setTimeout(() => {{ {SPIN} }}, 10)", "it hangs", is_slow=True),
    Hostile("microtasks", "const f = () => Promise.resolve().then(f); f()", "it hangs|memory", is_slow=True),
    Hostile("frames of an animation", "const f = () => requestAnimationFrame(f); f()"),
    Hostile(
        "an animation that adds",
        "const f = () => { document.body.append('x'); requestAnimationFrame(f) }; f()",
        BOUND,
    ),
    Hostile("an interval that adds", "setInterval(() => document.body.append('x'), 5)", BOUND),
    Hostile("timers of hours", "for (let i = 0; i < 1e5; i++) setTimeout(() => 0, 3.6e6)", EITHER),
    Hostile("a wasm loop", """
      const loop = new Uint8Array([0,97,115,109,1,0,0,0,1,4,1,96,0,0,3,2,1,0,7,5,1,1,102,0,0,10,9,1,7,0,
        3,64,12,0,11,11]);
      new WebAssembly.Instance(new WebAssembly.Module(loop)).exports.f()""", "it hangs", is_slow=True),
    Hostile("a catastrophic expression", "/^(a+)+$/.test('a'.repeat(40) + 'b')", "it hangs", is_slow=True),
    Hostile("a debugger statement", "for (let i = 0; i < 1000; i++) debugger"),
    # Memory.
    Hostile("arrays", "const a = []; for (;;) a.push(new Array(1e6).fill(1.5))", "memory|crash|it hangs", is_slow=True),
    Hostile("buffers", "const a = []; for (;;) a.push(new Uint8Array(1e8).fill(1))", "memory|crash|it hangs"),
    Hostile("strings", "let s = 'x'.repeat(1e6); const a = []; for (;;) a.push((s + a.length).split(''))",
            "memory|crash|it hangs", is_slow=True),
    Hostile("one string", "let s = 'x'; try { for (;;) s += s } catch {}"),
    Hostile("nodes", "for (;;) document.body.append(document.createElement('div'))", "it hangs|memory|crash",
            is_slow=True),
    Hostile("a canvas", """
      const a = []; setInterval(() => { const c = document.createElement('canvas');
      c.width = c.height = 8000; c.getContext('2d').fillRect(0, 0, 8000, 8000); a.push(c) }, 20)""",
      EITHER, is_slow=True),
    Hostile("wasm memory", """
      const a = []; try { for (;;) { const m = new WebAssembly.Memory({initial: 8000, maximum: 8000});
      new Uint8Array(m.buffer).fill(1); a.push(m) } } catch {}""", "memory|crash|it hangs", is_slow=True),
    Hostile("blobs", "const a = []; for (let i = 0; i < 200; i++) a.push(new Blob([new Uint8Array(1e7)]))",
            EITHER, is_slow=True),
    # The DOM.
    Hostile("a huge DOM", "document.body.append('x'.repeat(3e6))", "DOM is too large"),
    Hostile("many nodes", "document.body.innerHTML += '<b>x</b>'.repeat(1e5)", EITHER),
    Hostile("deep nesting", "let e = document.body; for (let i = 0; i < 2e4; i++) e = e.appendChild(document.createElement('i'))", EITHER),
    Hostile("deep markup", "", EITHER, head="<div>" * 20_000),
    Hostile("lone surrogates", "document.body.append('\\ud800 after')", has="\ufffd after".encode()),
    Hostile("text that changes for ever", """
      setInterval(() => { document.querySelector('b').textContent = Math.random() }, 1)""", BOUND, head="<b></b>"),
    Hostile("written after it is loaded", "onload = () => setTimeout(() => document.write('<p>written'), 50)",
            has=b"<p>written"),
    Hostile("opened for ever", "onload = () => { document.open(); document.write('<p>opened') }", EITHER,
            has=b"<p>opened"),
    Hostile("a shadow root", "document.body.attachShadow({mode: 'closed'}).innerHTML = 'x'.repeat(1e5)"),
    Hostile("no root", "document.documentElement.remove()", has=b""),
    Hostile("functions of a reader replaced", """
      for (const [of, name] of [[Element.prototype, 'outerHTML'], [Document.prototype, 'documentElement'],
          [Document.prototype, 'doctype'], [Document.prototype, 'readyState']])
        Object.defineProperty(of, name, { get() { throw 1 } });
      String.prototype.toWellFormed = performance.now = MutationObserver = () => { throw 1 };
      Error.prepareStackTrace = () => { for (;;) {} };
      Promise.prototype.then = Array.prototype.push = JSON.stringify = () => { for (;;) {} };"""),
    Hostile("getters that loop", "Object.defineProperty(document, 'documentElement', { get() { for (;;) {} } });"
            "Object.defineProperty(window, 'take', { get() { for (;;) {} } })"),
    # Windows and dialogs.
    Hostile("dialogs", "for (let i = 0; i < 50; i++) { alert(1); confirm(2); prompt(3) }", EITHER),
    Hostile("dialogs for ever", "for (;;) alert(1)", "it hangs", is_slow=True),
    Hostile("a trap before it is left", "onbeforeunload = () => 'stay'; onunload = () => { for (;;) {} }"),
    Hostile("windows", "for (let i = 0; i < 100; i++) open('/x' + i)", EITHER),
    Hostile("windows for ever", "setInterval(() => open('about:blank'), 1)"),
    Hostile("printing", "print(); setInterval(print, 50)"),
    Hostile("fullscreen, pointer and permissions", """
      document.body.requestFullscreen().catch(() => 0); document.body.requestPointerLock();
      Notification.requestPermission(); navigator.geolocation.getCurrentPosition(() => 0);
      navigator.mediaDevices?.getUserMedia({video: true}).catch(() => 0);
      navigator.clipboard?.readText().catch(() => 0); Notification && new Notification('x')"""),
    Hostile("a file chooser", "const i = document.createElement('input'); i.type = 'file'; i.click();"
            "i.showPicker && setTimeout(() => i.showPicker(), 10)"),
    # Leaving.
    Hostile("locations", "setInterval(() => { location = '/x' + Math.random() }, 1)", EITHER),
    Hostile("reloads", "location.reload()"),
    Hostile("a refresh", "", head='<meta http-equiv="refresh" content="0">'),
    Hostile("states", "setInterval(() => history.pushState(0, '', '/x' + Math.random()), 1)", EITHER),
    Hostile("going back", "history.back(); history.go(-1)", "it left its document"),
    Hostile("a blank page", "location = 'about:blank'", "it left its document"),
    Hostile("a blob as page", "location = URL.createObjectURL(new Blob(['<p>blob'], {type: 'text/html'}))",
            "it left its document"),
    Hostile("a data URL as page", "location = 'data:text/html,<p>data'"),
    Hostile("a script as URL", "location = 'javascript:for(;;){}'", "it hangs", is_slow=True),
    Hostile("other schemes", "for (const to of ['file:///etc/passwd', 'chrome://crash', 'mailto:a@b', 'ftp://x/',"
            "'view-source:http://x/', 'chrome://settings', 'devtools://x', 'intent:x']) try { location = to } catch {}"),
    Hostile("a form that sends itself", "document.forms[0].submit()",
            head="<form method=post action=/x enctype=multipart/form-data><input name=a value=b></form>"),
    Hostile("downloads", """
      const blob = URL.createObjectURL(new Blob(['x'.repeat(1e6)]));
      for (let i = 0; i < 20; i++) { const a = document.createElement('a');
      a.href = i % 2 ? blob : '/file' + i; a.download = 'x'; a.click() }"""),
    # Requests.
    Hostile("a fetch storm", "for (let i = 0; i < 2000; i++) fetch('/x' + i).catch(() => 0)", EITHER),
    Hostile("10,000 fetches", "for (let i = 0; i < 10000; i++) fetch('/x' + i).catch(() => 0)", EITHER, is_slow=True),
    Hostile("a fetch after each", "const f = (i) => fetch('/x' + i).catch(() => f(i + 1)); f(0)", BOUND),
    Hostile("a large POST", "fetch('/x', {method: 'POST', body: 'x'.repeat(1e7)}).catch(() => 0)", EITHER),
    Hostile("sockets", """
      for (let i = 0; i < 100; i++) { new WebSocket('ws://site.test/x' + i); new EventSource('/e' + i) }
      navigator.sendBeacon('/b', 'x'); try { new WebTransport('https://site.test:1/') } catch {}""", EITHER),
    Hostile("a peer connection", """
      const c = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:3478'}]});
      c.createDataChannel('x'); c.createOffer().then((offer) => c.setLocalDescription(offer))"""),
    Hostile("hints", "", head='<link rel=preconnect href=//a.test><link rel=dns-prefetch href=//b.test>'
            '<link rel=prefetch href=/p><link rel=prerender href=/q><script type=speculationrules>'
            '{"prerender": [{"urls": ["/r"]}], "prefetch": [{"urls": ["/s"]}]}</script>'),
    # Workers.
    Hostile("workers that spin", """
      const u = URL.createObjectURL(new Blob(['for (;;) {}']));
      for (let i = 0; i < 4; i++) new Worker(u)"""),
    Hostile("a worker that asks", "new Worker('worker.js')", EITHER,
            answers={"worker.js": "setInterval(() => fetch('/x').catch(() => 0), 10)"}),
    Hostile("a shared worker", "new SharedWorker('worker.js')", EITHER, answers={"worker.js": SPIN}),
    Hostile("a service worker", "navigator.serviceWorker?.register('/worker.js').catch(() => 0)",
            answers={"worker.js": "onfetch = () => { for (;;) {} }"}),
    Hostile("a worker bomb", """
      const u = URL.createObjectURL(new Blob(['const u = self.name; new Worker(u, {name: u}); new Worker(u, {name: u})']));
      new Worker(u, {name: u})""", EITHER, is_slow=True),
    # Frames.
    Hostile("1,000 frames", "for (let i = 0; i < 1000; i++) document.body.append(document.createElement('iframe'))",
            EITHER, is_slow=True),
    Hostile("100 frames of other hosts", """
      for (let i = 0; i < 100; i++) { const f = document.createElement('iframe');
      f.src = 'http://h' + i + '.test/'; document.body.append(f) }""", EITHER),
    Hostile("frames in frames", """
      const s = '<script>const f = document.createElement("iframe"); f.srcdoc = document.documentElement.outerHTML;'
        + 'document.body.append(f)<' + '/script><body>';
      const f = document.createElement('iframe'); f.srcdoc = s; document.body.append(f)""", EITHER, is_slow=True),
    Hostile("an object and an embed", "", head='<object data="/o"></object><embed src="/e.swf"><video src="/v.mp4" '
            'autoplay loop></video><audio src="/a.mp3" autoplay></audio>'),
    # Storage, output, rendering.
    Hostile("storage", """
      try { for (let i = 0; i < 100; i++) localStorage['k' + i] = 'x'.repeat(1e6) } catch {}
      for (let i = 0; i < 300; i++) document.cookie = 'c' + i + '=' + 'x'.repeat(3000)"""),
    Hostile("a database", """
      const open = indexedDB.open('x'); open.onupgradeneeded = () => open.result.createObjectStore('s');
      open.onsuccess = () => { const t = open.result.transaction('s', 'readwrite').objectStore('s');
        for (let i = 0; i < 300; i++) t.put(new Uint8Array(1e6), i) }""", EITHER, is_slow=True),
    Hostile("a console flood", "for (let i = 0; i < 1e4; i++) console.log('x'.repeat(1000), i)", EITHER),
    Hostile("a console flood of a million", "for (let i = 0; i < 1e6; i++) console.log('line', i)", EITHER, is_slow=True),
    Hostile("errors", "setInterval(() => { throw new Error('x') }, 1); Promise.reject(1)"),
    Hostile("functions compiled", """
      const big = 'a=>' .repeat(2000) + '0'; for (let i = 0; i < 300; i++) Function('return ' + big + '//' + i)""",
      EITHER),
    Hostile("styles", "", EITHER, head="<style>" + "*:has(*) ~ * *:nth-child(2n+1) { transform: rotate(1deg) }" * 500
            + "</style>" + "<div><b>x</b>" * 200),
    Hostile("an SVG bomb", "", EITHER, head='<svg width=9999 height=9999><defs><g id=a0><rect width=1 height=1></g>'
            + "".join(f'<g id=a{i}>' + f"<use href=#a{i - 1}>".replace(">", "/>") * 8 + "</g>" for i in range(1, 7))
            + "</defs><use href=#a6 /></svg>"),
    Hostile("a filter", "", EITHER, head='<div style="filter: blur(500px); width: 20000px; height: 20000px; '
            'background: linear-gradient(red, blue)">x</div>', is_slow=True),
    Hostile("fonts", "document.fonts.load('10px x')", head="<style>@font-face { font-family: x; src: url(/f.woff2) }"
            "body { font-family: x }</style>"),
    Hostile("endless scrolling", """
      addEventListener('scroll', () => { const d = document.createElement('div'); d.style.height = '2000px';
        d.append('more'); document.body.append(d) });
      document.body.style.height = '3000px'"""),
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browsing]:
    before = set(process_tree(os.getpid()))
    with browsing(OPTIONS) as made:
        yield made
    deadline = time.monotonic() + 10
    while left := [pid for pid in set(process_tree(os.getpid())) - before if is_alive(pid)]:
        assert time.monotonic() < deadline, f"left running: {left}"


IS_ALL: Final = os.environ.get("HOSTILE_PAGES") == "all"
CHOSEN: Final = [
    each for each in PAGES if IS_ALL or (not each.is_slow and each.expected not in (EITHER, BOUND))
]


@pytest.mark.parametrize("page", CHOSEN, ids=lambda page: page.name)
def test_a_hostile_page_ends_within_its_bounds(browser: Browsing, page: Hostile) -> None:
    began = time.monotonic()
    try:
        made = browser.render(page.document(), page.answers, key=page.name)
        found = RENDERED if made.is_quiet else f"{RENDERED} {BOUND}"
        assert page.has in made.dom
        assert len(made.dom) <= OPTIONS.max_dom_bytes
    except NotRendered as reason:
        found = str(reason)
    took = time.monotonic() - began
    print(f"{page.name}: {found}, {took:.1f} s, {browser.pool.memory_bytes >> 20} MiB")
    assert took < MOST_S
    if page.expected != EITHER:
        assert any(each in found for each in page.expected.split("|"))
    if RENDERED not in found:  # the next page is none the worse
        assert KEPT in browser.render(KEPT.decode(), key="next").dom


def test_a_page_beside_one_that_fills_the_memory_is_made(browser: Browsing) -> None:
    async def both() -> list[RenderedPage | BaseException]:
        bomb = an_answer(
            "<script>const a = []; for (;;) a.push(new Uint8Array(1e8).fill(1))</script>"
        )
        beside = an_answer(
            f"{KEPT.decode()}<script>setInterval(() => document.title += 1, 20)</script>"
        )
        pages = [
            browser.pool.render(key, URL, answer, Answers({}))
            for key, answer in (("bomb", bomb), ("beside", beside))
        ]
        return await asyncio.gather(*pages, return_exceptions=True)

    bomb, beside = browser.run(both())
    assert isinstance(bomb, NotRendered) and "memory" in str(bomb)
    assert isinstance(beside, RenderedPage) and KEPT in beside.dom
