"""The page for webmasters: which crawler this is, how to slow it, refuse it, and know it.

Rule: what it says follows from the settings of the crawl.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crawler.config.settings import Config, PolitenessSettings
from crawler.engine.web_bot_auth import DIRECTORY_PATH, LIFE_S, Fields
from crawler.model.choices import HostUnit, RenderChoice, RevisitChoice, Use
from crawler.report.agent_card import contact_url
from crawler.report.html_parts import html_page, text
from crawler.view.formats import many

EXAMPLE_HOST: Final = "www.example.com"
_USES: Final = {Use.TRAIN_AI: "the training of AI models", Use.SEARCH: "search engines"}


@dataclass(frozen=True, slots=True)
class Signed:
    """With which key requests are signed."""

    agent: str  # the origin of the directory
    key_id: str
    example: Fields  # of a request to EXAMPLE_HOST


def webmaster_page(config: Config, signed: Signed | None, purpose: str = "") -> str:
    """Return the page. *purpose*: what the pages are for, in the words of the user."""
    name = config.identity.user_agent_name
    return html_page(
        f"{name}, a web crawler",
        [f"<p>This page is for webmasters to whose sites {text(name)} has come.</p>"],
        [
            '<div class="prose">',
            *_who(config),
            *_what_for(config, purpose),
            *_how_often(config),
            *_refusing(config),
            *_verifying(config, signed),
            *_removing(config),
            "</div>",
        ],
        is_public=True,
    )


def _who(config: Config) -> Iterator[str]:
    identity = config.identity
    yield "<section><h2>How to recognise it</h2><dl>"
    yield f"<dt>User-Agent</dt><dd>{_code(identity.user_agent)}</dd>"
    yield f"<dt>Name in robots.txt</dt><dd>{_code(identity.user_agent_name)}</dd>"
    if identity.mailbox:
        yield f"<dt>From</dt><dd>{_code(identity.mailbox)}</dd>"
    yield f"<dt>Contact</dt><dd>{_contact(config)}</dd>"
    yield "</dl><p>The User-Agent can be copied by anybody: "
    yield '<a href="#verify">how to know whether a request is ours</a>.</p></section>'


def _what_for(config: Config, purpose: str) -> Iterator[str]:
    yield "<section><h2>What for</h2>"
    if purpose:
        yield f"<p>{_escaped(purpose)}</p>"
    yield "<p>It follows links, and keeps the pages that it finds in an archive, with their text. "
    if config.render.render is not RenderChoice.NEVER:
        yield "Pages that are made by scripts are opened in a browser, which asks for their scripts"
        yield " and data, too. "
    yield "It fills in no forms, and gets around no login, paywall or challenge.</p>"
    yield "<p>What a publisher says of the use of a page is kept with the page:"
    yield f" {_code('Content-Usage')} and {_code('Content-Signal')}, RSL licences, TDMRep,"
    yield f" {_code('noai')} in {_code('X-Robots-Tag')} or meta elements."
    for use in config.preferences.require_preference:
        yield f" Pages whose publisher disallows their use for {_USES[use]}"
        yield f" ({_code(use)}) are not stored."
    yield "</p></section>"


def _how_often(config: Config) -> Iterator[str]:
    politeness, unit = config.politeness, _unit(config.politeness)
    yield "<section><h2>How often it comes</h2><ul>"
    if politeness.paced_connections == 1:
        yield f"<li>One request at a time to {unit}.</li>"
    else:
        yield f"<li>One request at a time to {unit}; up to {politeness.paced_connections} where the"
        yield " server stays fast.</li>"
    factor, first = f"{politeness.delay_factor:g}", _seconds(politeness.min_delay_s)
    yield f"<li>After each, a rest of {factor} times as long as the answer took, and at least"
    yield f" {first}; of a server that stays fast less and less, down to"
    yield f" {_seconds(politeness.paced_min_delay_s)}, and a request is under way at most"
    yield f" {politeness.paced_share:.0%} of the time.</li>"
    yield f"<li>After a failure, or a {_code('429')} or {_code('503')}, the rest doubles."
    yield f" After {many(politeness.pause_after_failures, 'failure')} in a row there is a pause of"
    yield f" {_seconds(politeness.pause_s)}, then longer ones.</li>"
    yield f"<li>{_code('robots.txt')} is fetched before anything else, and again after"
    yield f" {_seconds(config.robots.robots_max_age_s)}.</li>"
    if config.revisits.revisit is RevisitChoice.ONCE:
        yield "<li>A page is fetched once.</li>"
    else:
        yield "<li>Pages are visited again, and asked for by their ETag and date: answer"
        yield f" {_code('304')} where nothing has changed.</li>"
    yield "</ul></section>"


def _refusing(config: Config) -> Iterator[str]:
    name, politeness, links = config.identity.user_agent_name, config.politeness, config.links
    yield "<section><h2>How to slow it, or keep it out</h2>"
    yield f"<p>In {_code('robots.txt')}, which is kept as RFC 9309 has it. Ten seconds between"
    yield f" requests (kept up to {_seconds(politeness.max_crawl_delay_s)}):</p>"
    yield _block(f"User-agent: {name}", "Crawl-delay: 10")
    yield "<p>Nothing of one folder:</p>"
    yield _block(f"User-agent: {name}", "Disallow: /private/")
    yield "<p>Nothing at all:</p>"
    yield _block(f"User-agent: {name}", "Disallow: /")
    if requires := config.preferences.require_preference:
        yield "<p>It may come, but not for these uses:</p>"
        asked = ", ".join(f"{use}=n" for use in requires)
        yield _block(f"User-agent: {name}", f"Content-Usage: {asked}", "Allow: /")
    yield "<p>By what your server answers:</p><ul>"
    yield f"<li>{_code('429')} or {_code('503')} with {_code('Retry-After')}: it comes back no"
    yield f" sooner (kept up to {_seconds(politeness.max_retry_after_s)}).</li>"
    yield "<li>A block or a challenge page: it pauses, and after five more tries it stays away."
    yield " It does not try to get around it.</li></ul>"
    if links.respect_noindex or links.respect_nofollow:
        element = _code('<meta name="robots" content="...">')
        yield f"<p>In a page ({element}) or in {_code('X-Robots-Tag')}:</p><ul>"
        if links.respect_noindex:
            yield f"<li>{_code('noindex')}: the page is not stored.</li>"
        if links.respect_nofollow:
            yield f"<li>{_code('nofollow')}: its links are not followed; as the {_code('rel')}"
            yield " of one link, that one.</li>"
        yield "</ul>"
    yield "</section>"


def _verifying(config: Config, signed: Signed | None) -> Iterator[str]:
    yield '<section id="verify"><h2>How to know whether a request is ours</h2>'
    if signed is None:
        yield "<p>Requests of this crawler are not signed. Write to us with the time, the URL and"
        yield f" the address it came from: {_contact(config)}.</p></section>"
        return
    directory = signed.agent + DIRECTORY_PATH
    yield "<p>Its requests over https are signed (Web Bot Auth: HTTP Message Signatures, RFC 9421)."
    yield " One over https without a signature that is valid for your host is not ours.</p><dl>"
    yield f"<dt>Keys</dt><dd>{_link(directory)}</dd>"
    yield f"<dt>The key in use</dt><dd>{_code(signed.key_id)}</dd></dl>"
    yield "<p>A request looks like this:</p>"
    yield _block(
        "GET /page HTTP/1.1",
        f"Host: {EXAMPLE_HOST}",
        f"User-Agent: {config.identity.user_agent}",
        *(f"{name.decode()}: {value.decode()}" for name, value in signed.example),
    )
    yield f"<p>A signature is for one host, and for {_seconds(LIFE_S)}, so it cannot be used"
    yield " elsewhere or later. Requests over http carry none, as anybody on the way could copy"
    yield " it.</p></section>"


def _removing(config: Config) -> Iterator[str]:
    yield "<section><h2>How to have pages removed, or anything else</h2>"
    yield "<p>Write to us with the URLs, or the name of the site, and say whether it shall only be"
    yield f" left alone from now on, or what was kept be deleted, too: {_contact(config)}.</p>"
    yield "</section>"


def _contact(config: Config) -> str:
    identity = config.identity
    return _link(contact_url(identity), identity.contact)


def _unit(politeness: PolitenessSettings) -> str:
    match politeness.host_unit:
        case HostUnit.HOST:
            return "a host"
        case HostUnit.DOMAIN:
            return "all hosts of a domain together"
        case HostUnit.ADDRESS:
            return "all hosts of one address together"


def _seconds(value: float) -> str:
    for length, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if value >= length and value % length == 0:
            return many(round(value / length), name)
    return "1 second" if value == 1 else f"{value:g} seconds"


def _block(*lines: str) -> str:
    return "<pre><code>" + _escaped("\n".join(lines)) + "</code></pre>"


def _code(shown: str) -> str:
    return f"<code>{_escaped(shown)}</code>"


def _link(url: str, shown: str = "") -> str:
    return f'<a href="{_escaped(url)}">{_escaped(shown or url)}</a>'


def _escaped(shown: str) -> str:
    """Return *shown* at any length: it is the user's own."""
    return html.escape(shown)
