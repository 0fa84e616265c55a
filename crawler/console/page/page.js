"use strict";
// The console in a browser. What comes from the crawl is set as text, never as HTML.

const $ = (id) => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// --- numbers and times as people read them

const number = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
const rate = (value) => value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);

function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < 5) { bytes /= 1000; unit += 1; }
  return `${unit && bytes < 9.95 ? bytes.toFixed(1) : Math.round(bytes)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

function span(seconds) {
  if (seconds > 0 && seconds < 0.095) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const steps = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [120, "min", 1, "s"]];
  for (const [least, large, each, small] of steps) {
    const whole = least === 120 ? 60 : least;
    if (seconds >= least) return `${Math.floor(seconds / whole)} ${large} ${Math.floor(seconds % whole / each)} ${small}`;
  }
  return `${Math.round(seconds)} s`;
}

const moment = (at) => at ? new Date(at * 1000).toLocaleString("sv") : "–";
const ago = (at) => at ? `${span(now() - at)} ago` : "–";

// --- talking to the crawl

// Of a console of many crawls: the one that is shown.
const chosenCrawl = new URLSearchParams(location.search).get("crawl");
const API = chosenCrawl ? `/api/crawls/${encodeURIComponent(chosenCrawl)}` : "/api";

let token = sessionStorage.getItem("token") || "";
let clockAhead = 0; // of the crawl, in seconds
const now = () => Date.now() / 1000 + clockAhead;

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.status !== 401) return answer;
  const given = await question("The token of this crawl's console:", "", "password");
  if (given === null) throw new Error("a token is needed");
  token = given.trim();
  sessionStorage.setItem("token", token);
  return send(path, options);
}

async function get(path, asked = {}) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== "" && value !== undefined));
  const answer = await send(`${API}/${path}?${query}`);
  if (path.endsWith(".csv") && answer.ok) return answer.text();
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

async function act(verb, fields = {}) {
  try {
    const answer = await send(`${API}/${verb}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields),
    });
    const found = await answer.json();
    say(answer.ok ? found.said : found.error, !answer.ok);
    if (answer.ok && $("undo")) lastAct().catch(() => {});
    return answer.ok;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

function say(text, isBad = false) {
  $("said").textContent = text;
  $("said").className = isBad ? "bad" : "";
  $("said").hidden = false;
}

/** Ask a question; null if it was not answered. Without *reply* only yes or no. */
function question(text, reply = null, type = "text") {
  const dialog = $("ask"), input = $("reply");
  $("question").textContent = text;
  input.hidden = reply === null;
  input.type = type;
  input.value = reply || "";
  dialog.returnValue = "no";
  dialog.showModal();
  (reply === null ? $("yes") : input).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? input.value : null), { once: true });
  });
}

async function sure(verb, fields, text) {
  if (await question(text) === null) return false;
  return act(verb, fields);
}

// --- live figures

let latest = null; // the last overview
const points = []; // of the last ten minutes: [at, pages, errors, bytes]
const listeners = new Set();
let outcomesAsked = {};
let stream = null;

async function listen() {
  for (;;) {
    stream = new AbortController();
    try {
      const query = new URLSearchParams(outcomesAsked);
      const answer = await send(`${API}/live?${query}`, { signal: stream.signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        let end;
        while ((end = text.indexOf("\n\n")) >= 0) {
          take(JSON.parse(text.slice(6, end)));
          text = text.slice(end + 2);
        }
      }
      throw new Error("the crawl has ended");
    } catch (error) {
      if (error.name !== "AbortError") {
        show("bad", `No figures: ${error.message}. Trying again.`);
        await new Promise((resolve) => setTimeout(resolve, 3000));
      }
    }
  }
}

function take(event) {
  const seen = event.overview;
  latest = seen;
  clockAhead = seen.now - Date.now() / 1000;
  points.push([seen.now, seen.pages, seen.errors, seen.bytes, seen.counts.seen, seen.fetching]);
  while (points[0][0] < seen.now - 600) points.shift();
  const [light, text] = health(seen);
  show(light, text);
  $("spider").textContent = [seen.spider, seen.worker, seen.data_dir].filter(Boolean).join(" · ");
  $("pause").hidden = seen.paused_until !== null;
  $("resume").hidden = seen.paused_until === null;
  $("stop").hidden = Boolean(seen.ended);
  for (const listener of listeners) listener(event);
}

function show(light, text) {
  $("light").className = light;
  if ($("sentence").textContent !== text) $("sentence").textContent = text;
}

/** Whether the crawl is well, and a sentence that says so. */
function health(seen) {
  const minute = points.find(([at]) => at >= seen.now - 60);
  const pages = seen.pages - minute[1], errors = seen.errors - minute[2], since = seen.now - minute[0];
  const waiting = seen.to_fetch;
  if (seen.ended) return ["", `${seen.ended} ${number(seen.pages)} pages in all its runs; ${number(waiting)} URLs are left.`];
  if (seen.paused_until !== null) {
    return ["doubt", seen.paused_until > 9e10 ? "Paused until it is resumed." : `Paused until ${moment(seen.paused_until)}.`];
  }
  if (since > 20 && errors > 5 && errors > pages / 3) {
    return ["bad", `${number(errors)} of ${number(pages + errors)} fetches of the last ${span(since)} failed, most: ${worst(seen.failures)}.`];
  }
  if (seen.waits_for) return ["doubt", `Nothing is being fetched: waits for ${seen.waits_for}.`];
  if (seen.idle_s && waiting) return ["doubt", `Nothing has been fetched for ${span(seen.idle_s)}: every host rests.`];
  const all = seen.pages + seen.errors;
  const failed = !seen.errors ? "none of them failed"
    : `${number(seen.errors)} failed (${(100 * seen.errors / all).toFixed(1)} %)${since < 10 ? "" : `, ${errors ? number(errors) : "none"} in the last ${span(since)}`}`;
  const evidence = all ? ` Of ${number(all)} fetches ${failed}; ${number(waiting)} URLs wait.` : ` ${number(waiting)} URLs wait.`;
  const round = seen.round ? ` ${seen.round[0].toUpperCase()}${seen.round.slice(1)}.` : "";
  return ["good", `Well: ${rate(seen.pages_per_s)} pages a second.${evidence}${round} ${ending(seen, minute)}`];
}

/** When the crawl ends, or why that cannot be told. *minute*: the figures of a minute ago. */
function ending(seen, minute) {
  if (!seen.ends) return "Too early to say when it ends.";
  if (!seen.ends.startsWith("end unknown")) return `It ${seen.ends}.`;
  const [at, pages, , , known] = minute, since = seen.now - at;
  const found = seen.counts.seen - known, fetched = seen.pages - pages;
  if (since < 10 || found <= fetched) return `No end in sight: ${seen.ends.replace("end unknown: ", "")}.`;
  return `No end in sight: ${rate(found / since)} new URLs a second are found, ${rate(fetched / since)} fetched.`;
}

const worst = (failures) => (Object.entries(failures).sort((a, b) => b[1] - a[1])[0] || ["none"])[0].replaceAll("_", " ");

// --- tables

/** Columns: [title, value of a row, class]. What *value* returns is a text or a node. On a phone each row is a card, of two lines if
 * *isBrief*, and for CSS no table then: the roles say that it is one still. */
function table(columns, rows, caption, isBrief = false) {
  if (!rows.length) return el("p", { className: "faint" }, caption || "Nothing.");
  const head = el("tr", { role: "row" }, ...columns.map(([title, , kind, sort]) => {
    const cell = el("th", { className: kind || "", scope: "col", role: "columnheader" });
    if (sort) {
      cell.append(el("button", { type: "button", onclick: sort.choose }, title));
      if (sort.chosen) cell.setAttribute("aria-sort", "descending");
    } else cell.append(title || el("span", { className: "unseen" }, "more"));
    return cell;
  }));
  const lines = rows.map((row) => el("tr", { role: "row" }, ...columns.map(([title, value, kind]) => {
    const found = value(row);
    return el("td", { className: kind || "", role: "cell", "data-title": title }, found instanceof Node ? found : String(found ?? ""));
  })));
  return el("div", { className: "scroll" }, el("table", { role: "table", className: isBrief ? "brief" : "" }, el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...lines)));
}

/** Links that save a table as CSV and JSON. Not plain links, which would be without the token. */
function saving(view, asked) {
  const save = async (format) => {
    try {
      const found = await get(format === "csv" ? `${view}.csv` : view, asked());
      const text = format === "csv" ? found : JSON.stringify(found, null, 1);
      const link = el("a", { href: URL.createObjectURL(new Blob([text])), download: `${view}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    } catch (error) { say(error.message, true); }
  };
  return ["csv", "json"].map((format) => el("button", { className: "small", onclick: () => save(format) }, format.toUpperCase()));
}

/** A link to a URL of the web, if it is one. */
function outside(url) {
  return /^https?:\/\//.test(url) ? el("a", { href: url, target: "_blank", rel: "noreferrer noopener" }, url) : url;
}

const asker = (url) => el("a", { href: `#why/${encodeURIComponent(url)}`, title: "What is known of it" }, "why");

/** Show what *load* returns in *place*, again and again: a view may cost the crawl 1 % of its time. */
function refreshed(place, load, least = 5000) {
  let timer = 0, ended = false, isFirst = true; // which takes longer than the later ones
  async function once() {
    clearTimeout(timer);
    const begun = performance.now();
    try {
      const made = await load();
      // Rows may come in another order: not while one is chosen, or pointed at to act.
      if (!ended && !place.contains(document.activeElement) && !place.querySelector("td button:hover")) place.replaceChildren(made);
    } catch (error) {
      if (!ended) place.replaceChildren(el("p", { className: "bad" }, error.message));
    }
    if (!ended) timer = setTimeout(once, isFirst ? least : Math.max(least, 100 * (performance.now() - begun)));
    isFirst = false;
  }
  once();
  return { again: () => { document.activeElement?.blur?.(); return once(); }, end: () => { ended = true; clearTimeout(timer); } };
}

// --- the views: each fills *main*, and returns what ends it

const cards = (rows) => el("div", { className: "cards" }, ...rows.map(([name, value, meaning]) =>
  el("div", { className: "card", title: meaning || "" }, el("b", {}, value), el("span", {}, name))));

/** What the words on cards mean, for those who have no pointer to hover with. */
const meanings = (rows) => el("details", {}, el("summary", {}, "What these words mean"),
  el("dl", {}, ...rows.filter((row) => row[2]).flatMap(([name, , meaning]) => [el("dt", {}, name), el("dd", {}, meaning)])));

/** The most URLs that were under way in the last ten seconds. */
const fetching = () => Math.max(...points.slice(-10).map((point) => point[5]));

// What an answer of this class means for its URL.
const CLASSES = { "2xx": "pages", "3xx": "moved: the target is fetched", "4xx": "gone or forbidden: finished, not tried again", "5xx": "trouble of the server: tried again later" };

function overviewView(main) {
  const figures = el("div"), words = el("div"), plots = el("div", { className: "plots" }), answers = el("div"), failures = el("div");
  const chosen = el("select", { ariaLabel: "Time", onchange: () => draw.again() },
    ...["hour", "day", "all"].map((name) => el("option", { value: name }, name === "all" ? "the whole crawl" : `the last ${name}`)));
  const draw = refreshed(plots, () => plotted(chosen.value), 10000);
  const take = ({ overview: seen }) => {
    const counts = seen.counts;
    const rows = [
      [seen.ended ? "pages of all runs" : "pages of this run", number(seen.pages)], ...seen.ended ? [] : [["pages a second", rate(seen.pages_per_s)]],
      ["bytes", size(seen.bytes)], ["failed fetches", number(seen.errors)], ["duplicates", number(seen.duplicates)],
      ...seen.rendered.pages ? [["rendered", number(seen.rendered.pages), `pages of which a browser has run the scripts, in ${number(Math.round(seen.rendered.seconds))} s of work`],
        ["of these with more", number(seen.rendered.paid), `${number(seen.rendered.links)} links and ${number(seen.rendered.chars)} letters that they were not sent with`]] : [],
      ...seen.ended ? [] : [["being fetched", `${number(fetching())} of ${number(seen.concurrency)}`, "URLs under way, most of the last ten seconds; and how many may be at once"]],
      ["URLs wait", number(counts.waiting), "found, and not fetched yet"],
      ["URLs with a date", number(counts.later), "to be tried again after a failure, or visited again, when their time has come"],
      ["URLs seen", number(counts.seen), "all that were ever admitted"], ["URLs finished", number(counts.done), "fetched, moved or given up"],
      ["dead letters", number(counts.dead), "given up after several tries"], ["refused by rules", number(counts.refused), "kept, and put back when no rule refuses them"],
      ["URLs over budget", number(counts.spilled), "wait for the budget of their domain: of a round, or in all"],
      ["URLs sampled out", number(counts.sampled_out), "were over a budget, and not kept"],
      ["hosts at work", number(counts.hosts_active), "with URLs that wait"],
    ];
    figures.replaceChildren(cards(rows));
    if (!words.firstChild) words.append(meanings(rows));
    const listed = (found) => Object.entries(found).sort((a, b) => b[1] - a[1]);
    answers.replaceChildren(table([
      ["answers", ([name]) => el("a", { href: `#outcomes/status=${name}` }, name)], ["fetches", ([, count]) => number(count), "number"],
      ["what they are", ([name]) => CLASSES[name] || ""],
    ], listed(seen.answers), "No answers yet.", true));
    failures.replaceChildren(table([
      ["what failed", ([name]) => name === "robots_failed" ? "fetches of robots.txt" : el("a", { href: `#outcomes/failure=${encodeURIComponent(name)}` }, name.replaceAll("_", " "))],
      ["times", ([, count]) => number(count), "number"],
    ], listed(seen.failures), "Nothing has failed.", true));
  };
  const slowest = el("div");
  const slow = refreshed(slowest, async () => {
    const found = (await get("hosts", { sort: "end", top: 50 })).filter((row) => row.left_s > 0).slice(0, 5);
    return table([
      ["what holds up the end", (row) => hostLink(row.host), "long"],
      ["takes at least", (row) => span(row.left_s), "number"], ["URLs wait", (row) => number(row.waiting), "number"],
      ["rest after each fetch", (row) => span(Math.max(row.gap_s, row.crawl_delay_s)), "number"],
      ["because", (row) => row.rest_because, "long"],
    ], found, "Nothing waits, or no host was fetched from yet.");
  });
  const redraw = () => draw.again();
  addEventListener("resize", redraw);
  if (latest) take({ overview: latest });
  listeners.add(take);
  main.append(figures, words, el("div", { className: "plots" }, answers, failures), slowest,
    el("div", { className: "row" }, el("h2", {}, "Over time"), chosen), plots);
  return () => { listeners.delete(take); removeEventListener("resize", redraw); draw.end(); slow.end(); };
}

const COLOURS = { "2xx": "--good", "3xx": "--a", "4xx": "--doubt", "5xx": "--b" };

async function plotted(time) {
  const found = await get("history", { span: time });
  if (found.at.length < 2) return el("p", { className: "faint" }, "Too short to plot.");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const made = el("div", { className: "plots" });
  const width = Math.max(280, Math.min(($("main").clientWidth || 800) / 2 - 24, 680));
  const axis = { stroke: colour("--ink"), grid: { stroke: colour("--line"), width: 1 } };
  const scales = { y: { range: (plot, least, most) => [0, most > 0 ? most * 1.05 : 1] } };
  const times = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hour12: false };
  const clock = (at) => new Date(at * 1000).toLocaleString("en-GB", time === "hour" ? { ...times, day: undefined, month: undefined } : times);
  const one = (name) => [["", found[name], "--a"]];
  const plots = [
    ["pages a second", one("pages_per_s"), rate], ["answers a second, by status", Object.entries(found.answers_per_s).map(([name, values]) => [name, values, COLOURS[name]]), rate],
    ["failed fetches a second", one("errors_per_s"), rate], ["time of a fetch, in the mean", one("fetch_s"), span],
    ["bytes a second", one("bytes_per_s"), size], ["URLs wait", one("waiting"), number], ["hosts at work", one("hosts_active"), number],
  ];
  if (found.fresh.some((each) => each !== null)) plots.push(["changes found a second", one("changes_per_s"), rate], ["share of copies that are fresh, as estimated", one("fresh"), rate]);
  for (const [title, lines, written] of plots) {
    const ticks = (value) => written === rate ? number(value) : written(value);
    const axes = [{ ...axis, size: 32, values: (plot, found) => found.map((at) => clock(at) + (found[1] - found[0] < 60 ? `:${String(new Date(at * 1000).getSeconds()).padStart(2, "0")}` : "")) }, { ...axis, size: 65, values: (plot, found) => found.map(ticks) }];
    const words = el("p", { className: "value" }), box = el("div", { className: "plot" }, el("h3", {}, title), words);
    made.append(box);
    /** Say what the lines are at the pointer, or at the end. */
    const tell = (at) => {
      const values = lines.map(([name, values, ink]) => [name, values[at] === null || values[at] === undefined ? "–" : written(values[at]), ink]);
      words.replaceChildren(...values.map(([name, value, ink]) => el("span", {}, lines.length > 1 ? el("i", { className: ink.slice(2) }) : null, [name, value].filter(Boolean).join(" "))),
        el("span", { className: "faint" }, found.at.length ? moment(found.at[at]).slice(time === "hour" ? 11 : 5) : ""));
    };
    const end = found.at.length - 1;
    tell(end);
    const series = [{}, ...lines.map(([, , ink]) => ({ stroke: colour(ink), width: 1.5, spanGaps: false, points: { show: false } }))];
    const hooks = { setCursor: [(plot) => tell(plot.cursor.idx ?? end)] };
    const plot = new uPlot({ width, height: 140, axes, scales, legend: { show: false }, series, hooks, cursor: { sync: { key: "time" }, y: false } }, [found.at, ...lines.map(([, values]) => values)], box);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `${title}: ${words.textContent} at the end`);
  }
  return made;
}

const HOST_SORTS = { waiting: "waiting", end: "what holds up the end", next: "next contact", rest: "rest, the slowest first", fetch: "time of a fetch", success: "share that did not fail, the worst first", pages: "pages",
  bytes: "bytes", failed: "last failure", failures: "failures in a row", admitted: "admitted", name: "host" };
const HOST_STATES = { "": "any state", new: "never asked", failing: "last fetch failed", paused: "paused for failing", left: "left", active: "at work", front: "waits for its turn", resting: "rests for long", empty: "nothing waits" };
const HOST_FAILURES = ["any", "timeout", "connect", "dns", "tls", "disconnect", "protocol", "challenge", "too_fast", "status_403", "status_404", "status_429", "status_500", "status_502", "status_503"];
const hostLink = (host) => el("a", { href: `#hosts/${encodeURIComponent(host)}` }, host);
const MOST_IN_ORDER = 10000; // the crawl puts no more of them in order by a figure

// What is known of the pace of a host: [what it is, what that means].
const PACE = {
  stage: [(row) => row.stage || "–", "first: the base is not known yet. probes: it is measured anew. paced: rests are as short as the server stays near it. parallel: and several URLs are fetched at once"],
  base: [(row) => row.base_s ? span(row.base_s) : "–", "how long its fetches take while it is hardly used"],
  factor: [(row) => row.stage ? `× ${Number(row.factor.toPrecision(3))}` : "–", "so many times what the last fetch took the host rests, if nothing asks for more"],
  "at once": [(row) => row.at_once > 1 ? `${row.at_once} at once` : "–", "most requests that are under way together"],
  share: [(row) => row.share ? `${(100 * row.share).toFixed(1)} %` : "–", "of the time that the server works for us, by its mean fetch"],
  admitted: [(row) => number(row.admitted), "URLs of it that were ever admitted"],
  "Crawl-delay": [(row) => row.crawl_delay_s ? span(row.crawl_delay_s) : "–", "the least time between two fetches, as its robots.txt asks"],
  refused: [(row) => row.refused_interval_s ? `${span(row.refused_interval_s)} apart` : "–", "it refused to be asked more often than so, with 429 or 503"],
};
function hostsView(main, only) {
  const asked = { sort: "waiting", match: only || "", offset: 0, top: 50, state: "", failure: "" };
  const place = el("div");
  const choose = (fields) => { Object.assign(asked, { offset: 0 }, fields); rows.again(); };
  const search = el("input", { type: "search", placeholder: "part of a host's name", value: asked.match, ariaLabel: "Search hosts",
    onchange: () => choose({ match: search.value.trim().toLowerCase() }) });
  const select = (name, title, values) => el("select", { ariaLabel: title, onchange: (event) => choose({ [name]: event.target.value }) },
    ...Object.entries(values).map(([value, words]) => el("option", { value, selected: value === asked[name] }, words)));
  const failures = { "": "any last failure, or none", ...Object.fromEntries(HOST_FAILURES.map((kind) => [kind, kind === "any" ? "some failure" : kind.replaceAll("_", " ")])) };
  const sorted = (sort) => ({ chosen: asked.sort === sort, choose: () => choose({ sort }) });
  const done = async (promise) => { if (await promise) rows.again(); };
  const rows = refreshed(place, async () => {
    const found = await get("hosts", asked);
    const acts = (row) => {
      if (row.because === "a rule refuses it") return el("a", { href: "#audit" }, "undo in the audit");
      const button = (word, act, grave) => el("button", { className: grave ? "small grave" : "small", ariaLabel: `${word} ${row.host}`, title: `${word} ${row.host}`, onclick: () => done(act()) }, word);
      const value = async (verb, words, usual) => { const given = await question(words, usual); return given ? act(verb, { targets: [row.host], value: given }) : false; };
      return el("span", {},
        row.because === "a rule pauses it" ? button("resume", () => act("resume", { targets: [row.host] })) : button("pause", () => act("pause", { targets: [row.host] })), " ",
        button("delay", () => value("delay", `Rest of ${row.host} after each fetch (5s, 2m):`, "10s")), " ",
        button("level", () => value("level", `Level of the URLs of ${row.host}, 0 is the best:`, "0")), " ",
        button("refuse", () => sure("refuse", { targets: [row.host] }, `Fetch nothing of ${row.host} any more? What waits is kept; undo brings it back.`), true), " ",
        button("drop", () => sure("drop", { targets: [row.host] }, `Make dead letters of all ${number(row.waiting)} waiting URLs of ${row.host}?`), true));
    };
    const failure = (row) => row.last_failure ? el("span", {},
      el("a", { className: row.failures ? "bad" : "", href: `#outcomes/match=${encodeURIComponent(row.host)}${row.last_status ? `&status=${row.last_status}` : `&failure=${row.last_failure}`}` }, row.last_failure.replaceAll("_", " ")),
      ` ${ago(row.failed_at)}`, row.failures > 1 ? `, ${number(row.failures)} in a row` : "") : "–";
    const made = el("div", {}, table([
      ["host", (row) => hostLink(row.host), "long", sorted("name")],
      ["waiting", (row) => number(row.waiting), "number", sorted("waiting")],
      ["takes", (row) => row.left_s === null ? "–" : span(row.left_s), "number", sorted("end")],
      ["why not now", (row) => row.because || (row.waiting ? "may be asked" : "nothing waits"), "why"],
      ["until", (row) => row.next_at > 9e10 ? "it is resumed" : row.next_at > now() ? `in ${span(row.next_at - now())}` : "now", "short", sorted("next")],
      ["rest", (row) => span(Math.max(row.gap_s, row.crawl_delay_s)), "number", sorted("rest")],
      ["fetch", (row) => row.fetch_s ? span(row.fetch_s) : "–", "number", sorted("fetch")],
      ["ok", (row) => row.success === null ? "–" : `${Math.floor(100 * row.success)} %`, "number", sorted("success")],
      ["pages", (row) => number(row.pages), "number", sorted("pages")],
      ["bytes", (row) => size(row.bytes), "number", sorted("bytes")],
      ["last failure", failure, "evidence", sorted("failed")],
      ["acts", acts, "many"],
    ], found, "No such host."));
    const chosen = found.find((row) => row.host === asked.match);
    if (chosen) {
      const rows = Object.entries(PACE).map(([name, [value, meaning]]) => [name, value(chosen), meaning]);
      made.prepend(el("h2", {}, `The pace of ${chosen.host}`), cards(rows), meanings(rows));
    }
    const step = (by) => el("button", { disabled: by < 0 ? !asked.offset : found.length < asked.top || asked.sort !== "name" && asked.offset + 2 * asked.top > MOST_IN_ORDER, onclick: () => { asked.offset = Math.max(0, asked.offset + by * asked.top); rows.again(); } }, by < 0 ? "‹ before" : "next ›");
    made.append(el("p", { className: "faint" }, "takes: what waits there, at least, as its requests follow each other. why not now: what keeps it from being contacted. rest: the pause between two fetches, some times what the last answer took."
      + " fetch: how long one takes, in the mean. ok: the share of fetches that did not fail; a 404 counts as failed. pages: answers 2xx. level: 0 is fetched first. drop: make dead letters of what waits, which can be tried again."));
    made.append(el("div", { className: "row" }, step(-1), step(1), el("span", { className: "faint" }, `from ${number(asked.offset + 1)}, by ${HOST_SORTS[asked.sort]}`)));
    return made;
  });
  main.append(el("div", { className: "row" }, search, select("state", "State", HOST_STATES), select("failure", "Last failure", failures), select("sort", "Order", Object.fromEntries(Object.entries(HOST_SORTS).map(([sort, words]) => [sort, `by ${words}`]))), ...saving("hosts", () => ({ ...asked, top: 10000 }))), place);
  return rows.end;
}

const DOMAIN_SORTS = { spilled: "spilled URLs", admitted: "admitted URLs", linked: "how many domains link to them" };

function domainsView(main) {
  const asked = { sort: "spilled", match: "", offset: 0, top: 50 };
  const place = el("div");
  const search = el("input", { type: "search", placeholder: "part of a domain's name", ariaLabel: "Search domains",
    onchange: () => { asked.match = search.value.trim().toLowerCase(); asked.offset = 0; rows.again(); } });
  const sorted = (sort) => ({ chosen: asked.sort === sort, choose: () => { asked.sort = sort; asked.offset = 0; rows.again(); } });
  const rows = refreshed(place, async () => {
    const found = await get("domains", asked);
    const made = el("div", {}, table([
      ["domain", (row) => el("a", { href: `#hosts/${encodeURIComponent(row.domain)}` }, row.domain), "long"],
      ["rank", (row) => number(row.rank), "number"],
      ["linked by", (row) => number(row.linked_by), "number", sorted("linked")],
      ["budget", (row) => row.budget === null ? "–" : `${number(row.budget)} in ${span(row.round_s)}`, "short"],
      ["used", (row) => number(row.used), "number"],
      ["next round", (row) => row.budget === null ? "–" : row.next_round_at > now() ? `in ${span(row.next_round_at - now())}` : "now", "short"],
      ["admitted", (row) => number(row.admitted), "number", sorted("admitted")],
      ["most", (row) => number(row.most), "number"],
      ["spilled", (row) => number(row.spilled), "number", sorted("spilled")],
      ["waits for", (row) => !row.spilled ? "" : row.capped ? "a larger budget in all" : "a round, or idle slots", "short"],
      ["sampled out", (row) => number(row.sampled_out), "number"],
    ], found, "No such domain, or none has a budget."));
    const step = (by) => el("button", { disabled: by < 0 ? !asked.offset : found.length < asked.top || asked.offset + 2 * asked.top > MOST_IN_ORDER, onclick: () => { asked.offset = Math.max(0, asked.offset + by * asked.top); rows.again(); } }, by < 0 ? "‹ before" : "next ›");
    made.append(el("p", { className: "faint" }, "rank: by how many other domains link to it; equal ones have the worst of their ranks. budget: URLs a round, while others wait; used: of it, in this round."
      + " most: URLs in all. spilled: URLs over a budget, that wait. sampled out: such URLs that were not kept."));
    made.append(el("div", { className: "row" }, step(-1), step(1), el("span", { className: "faint" }, `from ${number(asked.offset + 1)}, by ${DOMAIN_SORTS[asked.sort]}`)));
    return made;
  });
  main.append(el("div", { className: "row" }, search, ...saving("domains", () => ({ ...asked, offset: 0, top: 10000 }))), place);
  return rows.end;
}

const OUTCOME_COLUMNS = [
  ["when", (row) => moment(row.at).slice(11)], ["URL", (row) => outside(row.url), "long"], ["fate", (row) => row.fate],
  ["status", (row) => row.status ?? "–", "number"], ["reason", (row) => row.reason || "", "long"],
  ["time", (row) => row.seconds ? span(row.seconds) : "–", "number"], ["bytes", (row) => row.size ? size(row.size) : "–", "number"],
  ["", (row) => asker(row.url)],
];

function outcomesView(main, given) {
  const asked = { match: "", fate: "", status: "", failure: "", reason: "", ...Object.fromEntries(new URLSearchParams(given || "")) };
  const place = el("div"), left = el("p", { className: "faint" });
  let shown = [], waiting = [];
  const more = el("button", { id: "more", hidden: true, onclick: () => { more.blur(); scrollTo(0, 0); goOn(); } });
  const draw = () => place.replaceChildren(table(OUTCOME_COLUMNS, shown, "None yet.", true));
  const list = el("div", {}, more, left, place); // one, so that nothing moves from under the pointer
  /** Whether somebody reads: points at the list, has chosen something in it, or has scrolled down. */
  const isRead = () => list.matches(":hover, :focus-within") || scrollY > 0;
  const goOn = () => {
    shown = [...waiting, ...shown].slice(0, 200);
    waiting = [];
    more.hidden = true;
    draw();
  };
  const begin = async () => {
    outcomesAsked = Object.fromEntries(Object.entries(asked).filter(([, value]) => value));
    waiting = [];
    more.hidden = true;
    try { shown = await get("outcomes", { ...outcomesAsked, top: 100 }); draw(); } catch (error) { say(error.message, true); }
    stream?.abort();
  };
  const field = (name, title, values) => {
    const change = (event) => { asked[name] = event.target.value.trim(); begin(); };
    return values ? el("select", { ariaLabel: title, onchange: change }, ...values.map((value) => el("option", { value, selected: value === asked[name] }, value || title)))
      : el("input", { type: "search", placeholder: title, ariaLabel: title, value: asked[name], onchange: change });
  };
  const take = (event) => {
    left.textContent = event.left_out ? `${number(event.left_out)} more in the last second are not shown.` : "";
    waiting = [...event.outcomes.reverse(), ...waiting].slice(0, 200);
    if (!waiting.length) return;
    if (!isRead()) return goOn();
    more.textContent = `${waiting.length === 200 ? "200 or more" : number(waiting.length)} new: show them`;
    more.hidden = false;
  };
  listeners.add(take);
  main.append(el("div", { className: "row" }, field("match", "part of the URL"), field("fate", "any fate", ["", "done", "retry", "moved", "dead", "refused"]),
    field("status", "any status", ["", "2xx", "3xx", "4xx", "5xx"]), field("failure", "kind of failure"), field("reason", "part of the reason"), ...saving("outcomes", () => ({ ...outcomesAsked, top: 10000 }))),
    el("p", { className: "faint" }, "The list waits while you point at it, or have scrolled down."), list);
  begin();
  return () => { listeners.delete(take); outcomesAsked = {}; stream?.abort(); };
}

function listView(view, columns, empty, least = 5000, words = "") {
  return (main) => {
    const place = el("div");
    const rows = refreshed(place, async () => table(columns(() => rows.again()), await get(view, { ...(view === "workers" ? {} : { top: 200 }) }), empty), least);
    main.append(el("div", { className: "row" }, ...saving(view, () => view === "workers" ? {} : { top: 10000 })), place, el("p", { className: "faint" }, words));
    return rows.end;
  };
}

const nowView = listView("now", () => [
  ["host", (row) => hostLink(row.host), "long"], ["URL", (row) => outside(row.url), "long"],
  ["for", (row) => span(row.seconds), "number"], ["usual", (row) => row.usual_s ? span(row.usual_s) : "–", "number"],
  ["bytes", (row) => row.bytes === null ? "–" : size(row.bytes), "number"],
  ["state", (row) => row.is_hung ? el("span", { className: "bad" }, "hung") : row.stage || "–"], ["worker", (row) => row.worker || "–"], ["", (row) => asker(row.url)],
], "Nothing is fetched now.", 2000, "for: since it was sent. usual: how long a fetch of its host takes. state: storing is what has come and is not in the archive yet."
  + " hung: for 3 s and three times as long as usual, with less than 1 kB a second. –: leased, and not told yet how far it is.");

const deadView = listView("dead", (again) => [
  ["when", (row) => moment(row.at)], ["URL", (row) => outside(row.url), "long"], ["reason", (row) => row.reason, "long"],
  ["tries", (row) => number(row.attempts), "number"], ["", (row) => asker(row.url)],
  ["acts", (row) => el("button", { className: "small", ariaLabel: `try again ${row.url}`, title: `try again ${row.url}`, onclick: async () => { if (await act("retry", { targets: [row.url] })) again(); } }, "try again"), "acts"],
], "No URL was given up.");

const archiveView = listView("archive", () => [
  ["file", (row) => row.file, "long"], ["state", (row) => row.state], ["bytes", (row) => size(row.bytes), "number"],
  ["changed", (row) => moment(row.changed_at)], ["beside it", (row) => row.beside.join(", ")], ["folder", (row) => row.folder, "long"],
], "No file here: nothing is archived yet, or files are brought to another store.");

const workersView = listView("workers", () => [
  ["worker", (row) => row.name], ["machine", (row) => row.host], ["process", (row) => row.pid, "number"], ["state", (row) => row.state],
  ["pages", (row) => number(row.pages), "number"], ["pages/s", (row) => rate(row.pages_per_s), "number"], ["failed", (row) => number(row.errors), "number"],
  ["leases", (row) => number(row.leases), "number"], ["links on its disk", (row) => number(row.outbox), "number"], ["last seen", (row) => ago(row.heard_at)],
], "This crawl has its own frontier, and is its only worker.");

const auditView = listView("audit", (again) => [
  ["act", (row) => row.number, "number"], ["when", (row) => moment(row.at)], ["by", (row) => row.by], ["verb", (row) => row.verb],
  ["targets", (row) => row.targets, "long"], ["value", (row) => row.value], ["URLs touched", (row) => row.touched === null ? "–" : number(row.touched), "number"],
  ["state", (row) => row.state], ["acts", (row) => row.state === "in force" && !row.verb.startsWith("undo")
    ? el("button", { className: "small", onclick: async () => { if (await act("undo", { value: String(row.number) })) again(); } }, `undo act ${row.number}`) : "", "acts"],
], "Nobody has acted on this crawl.");

const RULES_EXAMPLE = `# What is said here is in force within two seconds of the button below. The narrowest target decides.

[[rule]]
for = "*.example.org"  # the host example.org, and all below it
delay_s = 10  # its rest after each fetch
note = "their webmaster asked for it"

[[rule]]
for = ["shop.example.com/cart/*", "shop.example.com/login*"]  # * is any text
refuse = true  # what waits is kept, and comes back with the end of the rule

[[rule]]
for = "news.example.net"
level = 0  # before all others
max_urls = 5000
`;

function rulesView(main) {
  const text = el("textarea", { spellcheck: false, disabled: true, ariaLabel: "rules.toml" }), note = el("p", { className: "faint" });
  let before = "";
  const load = async () => {
    try {
      const found = await get("rules");
      before = text.value = found.text;
      text.disabled = false;
      note.textContent = found.error || `${number(found.rules)} rules are in force.`;
      example.hidden = Boolean(before.trim());
    } catch (error) { say(error.message, true); }
  };
  const example = el("div", { hidden: true }, el("p", {}, "There are no rules yet. An example, of which each part may stand alone:"), el("pre", {}, RULES_EXAMPLE),
    el("p", {}, el("button", { id: "example", onclick: () => { text.value = RULES_EXAMPLE; text.focus(); } }, "Begin with it")));
  const save = async () => { if (await act("rules", { value: text.value, before })) load(); };
  main.append(note, example, text, el("div", { className: "row" }, el("button", { id: "save", onclick: save }, "Check, and put in force"), el("button", { onclick: load }, "Read again"),
    el("span", { className: "faint" }, "An error is refused with its line, and the rules stay as they are.")));
  load();
  return () => {};
}

function whyView(main, given) {
  const url = el("input", { className: "wide", type: "url", required: true, placeholder: "https://…", value: given || "", ariaLabel: "URL" });
  const answer = el("pre", { hidden: true });
  const ask = async (event) => {
    event?.preventDefault();
    try {
      const found = await get("why", { url: url.value.trim() });
      answer.textContent = found.text.join("\n");
    } catch (error) { answer.textContent = error.message; }
    answer.hidden = false;
  };
  const add = el("form", { className: "row", onsubmit: (event) => {
    event.preventDefault();
    const urls = many.value.split(/\s+/).filter(Boolean);
    act("add", { targets: urls, again: again.checked, ...(level.value ? { level: Number(level.value) } : {}) });
  } });
  const many = el("textarea", { rows: 3, required: true, ariaLabel: "URLs to add", placeholder: "one or more URLs", id: "added" });
  const again = el("input", { type: "checkbox", id: "again" }), level = el("input", { type: "number", min: 0, size: 4, ariaLabel: "Level", placeholder: "level" });
  many.style.minHeight = "5rem";
  add.append(many, el("label", {}, again, " even if fetched before"), level, el("button", { id: "add" }, "Add"));
  main.append(el("h2", {}, "What is known of a URL"), el("form", { className: "row", onsubmit: ask }, url, el("button", { id: "asked" }, "Ask")), answer, el("h2", {}, "Add URLs"), add);
  if (given) ask();
  return () => {};
}

const VIEWS = {
  overview: ["Overview", overviewView], hosts: ["Hosts", hostsView], domains: ["Domains", domainsView], now: ["Now", nowView], outcomes: ["Latest outcomes", outcomesView], dead: ["Dead letters", deadView],
  why: ["A URL", whyView], rules: ["Rules", rulesView], archive: ["Archive", archiveView], workers: ["Workers", workersView], audit: ["Audit", auditView],
};

let end = () => {};

function open() {
  const [name, word] = location.hash.slice(1).split("/");
  const chosen = VIEWS[name] ? name : "overview";
  end();
  $("said").hidden = true;
  $("main").replaceChildren();
  end = VIEWS[chosen][1]($("main"), word ? decodeURIComponent(word) : "");
  for (const link of $("nav").children) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[chosen][0]} · Gossamer`;
}

const actWords = (act) => [act.verb, act.targets || "the whole crawl", act.value].filter(Boolean).join(" ");

/** The last act that is in force, or null; its button says which it is. */
async function lastAct() {
  const last = (await get("audit", { top: 1000 })).find((row) => row.state === "in force" && !row.verb.startsWith("undo")) || null;
  $("undo").textContent = last ? `Undo: ${actWords(last)}` : "Undo the last act";
  $("undo").title = last ? `act ${last.number} of ${last.by}: ${actWords(last)}` : "There is no act to undo.";
  return last;
}

/** The page of one crawl. */
function crawlPage() {
  for (const [name, [title]] of Object.entries(VIEWS)) $("nav").append(el("a", { href: `#${name}` }, title));
  $("pause").onclick = () => sure("pause", {}, "Pause the whole crawl until it is resumed?");
  $("resume").onclick = () => act("resume");

  $("undo").onclick = async () => {
    try {
      const last = await lastAct();
      if (!last) return say("There is no act to undo.");
      await sure("undo", { value: String(last.number) }, `Undo act ${last.number} of ${last.by}, ${ago(last.at)}: ${actWords(last)}?`);
    } catch (error) { say(error.message, true); }
  };
  $("stop").onclick = () => sure("stop", {}, "End the crawl in good order? It goes on at its next start.");
  addEventListener("hashchange", open);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || /input|textarea|select/i.test(event.target.tagName)) return;
    const search = document.querySelector("main input");
    if (search) { event.preventDefault(); search.focus(); }
  });
  open();
  listen();
  lastAct().catch(() => {});
  if (!chosenCrawl) return;
  $("nav").prepend(el("a", { href: "/" }, "All crawls"));
  $("acts").append(" ", el("button", { onclick: () => report(chosenCrawl) }, "Report of the last end"));
}

/** The page of many crawls. */
function crawlsPage() {
  const place = el("div");
  refreshed(place, async () => {
    const found = await get("crawls");
    const running = found.filter((row) => row.is_running).length;
    show(running ? "good" : "", `${number(found.length)} crawls, ${running ? number(running) : "none"} of them at work.`);
    return table([
      ["crawl", (row) => el("a", { href: `/?crawl=${row.id}` }, row.path), "long"], ["state", (row) => row.state, "why"],
      ["pages/s", (row) => row.is_running ? rate(row.pages_per_s) : "–", "number"], ["pages", (row) => number(row.pages), "number"], ["bytes", (row) => size(row.bytes), "number"],
      ["failed", (row) => number(row.errors), "number"], ["URLs wait", (row) => number(row.waiting), "number"], ["runs", (row) => number(row.runs), "number"],
      ["last sign of life", (row) => row.is_running ? `process ${row.process}` : moment(row.at), "short"],
      ["report", (row) => row.has_report ? el("button", { className: "small", ariaLabel: `report of ${row.path}`, onclick: () => report(row.id) }, "open") : "–"],
    ], found, "No crawl was found in these folders, or two levels below them.");
  }, 3000);
  const described = el("div");
  const files = refreshed(described, async () => {
    const found = await get("described");
    if (!found.length) return el("span");
    return el("div", {}, el("h2", {}, "Crawls that may be started"), table([
      ["described in", (row) => row.path, "long"],
      ["", (row) => row.is_running ? "runs" : el("button", { ariaLabel: `start ${row.path}`, onclick: async () => {
        if (await question(`Start the crawl that ${row.path} describes?`) === null) return;
        say(`Starting ${row.path}…`);
        if (await act("start", { id: row.id })) files.again();
      } }, "start"), "acts"],
    ], found));
  }, 3000);
  $("main").append(place, described);
}

/** Open the report of a crawl; where a token is needed, which a link cannot send, save it. */
async function report(id) {
  const path = `/api/crawls/${id}/report.html`;
  if (!token) return void window.open(path, "_blank", "noopener");
  try {
    const answer = await send(path);
    if (!answer.ok) throw new Error((await answer.json()).error);
    const link = el("a", { href: URL.createObjectURL(await answer.blob()), download: "report.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) { say(error.message, true); }
}

if (document.body.dataset.page === "crawls") crawlsPage();
else crawlPage();
