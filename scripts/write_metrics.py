"""Write what docs/metrics.md says about metrics and alerts, the rules for Prometheus and the board
for Grafana, from the tables of metrics and conditions and from the panels below.

Run by `make settings`; tests/test_docs.py compares. Of docs/metrics.md only what stands between the
two marks is written; the files in monitoring/ are written as a whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.frontier.later import DAY_S  # noqa: E402  # needs the path above
from crawler.loop.visit import VisitResult  # noqa: E402  # needs the path above
from crawler.model.program import PROGRAM  # noqa: E402  # needs the path above
from crawler.operate.alerts import (  # noqa: E402  # needs the path above
    CONDITIONS,
    MINUTE_S,
    Condition,
)
from crawler.operate.metrics import METRICS  # noqa: E402  # needs the path above
from scripts.write_settings import written  # noqa: E402  # needs the path above

PAGE: Final = ROOT / "docs" / "metrics.md"
RULES: Final = ROOT / "monitoring" / "alerts.yml"
BOARD: Final = ROOT / "monitoring" / "grafana.json"


def to_do(condition: Condition) -> str:
    """As who has installed the crawler types it, and not who runs this script."""
    return condition.do.replace(f"{PROGRAM} frontier", "gossamer frontier")


def page_lines() -> Iterator[str]:
    yield from ["### The metrics", "", "| metric | type | of | meaning |"]
    yield "| --- | --- | --- | --- |"
    for metric in METRICS:
        name = f"{metric.full_name}{{{metric.label}}}" if metric.label else metric.full_name
        yield f"| `{name}` | {metric.type} | {metric.of} | {metric.meaning} |"
    yield from ["", "### The conditions", "", "| alert | when | for | severity | what to do |"]
    yield "| --- | --- | --- | --- | --- |"
    for each in CONDITIONS:
        minutes = f"{each.for_s // MINUTE_S} min"
        yield f"| `{each.name}` | {each.summary} | {minutes} | {each.severity} | {to_do(each)} |"
    yield ""


def files() -> dict[Path, Iterator[str]]:
    return {PAGE: page_lines()}


# A process that is dead sends nothing: this condition is Prometheus' alone.
_DO_WHEN_DOWN: Final = (
    "Look at the end of its crawl.log; the same command, run again, goes on with it. If the crawl"
    " has finished, remove it from the targets."
)
DOWN: Final = (
    "GossamerDown",
    'up{job="gossamer"} == 0',
    2 * MINUTE_S,
    "critical",
    "A crawl, or a worker of one, does not answer.",
    _DO_WHEN_DOWN,
)


def rule_lines() -> Iterator[str]:
    """The rules for Prometheus. A string of JSON is one of YAML, too."""
    yield "# Made by `make settings` from crawler/operate/alerts.py."
    yield from ["groups:", "  - name: gossamer", "    rules:"]
    conditions = [
        (each.name, each.promql(), each.for_s, each.severity, each.summary, to_do(each))
        for each in CONDITIONS
    ]
    for name, expression, for_s, severity, says, do in [*conditions, DOWN]:
        yield f"      - alert: {name}"
        yield f"        expr: {json.dumps(expression)}"
        yield f"        for: {for_s // MINUTE_S}m"
        yield f"        labels: {{severity: {severity}}}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(says)}"
        yield f"          do: {json.dumps(do)}"


# The panels, three in a row: title, unit, and queries with their legends. J stands for the job, as
# chosen at the top of the board.

_RATE: Final = "[$__rate_interval]"


def _rate_of(metric: str) -> str:
    return f"rate(gossamer_{metric}{{J}}{_RATE})"


def _rate(metric: str, label: str) -> tuple[str, str]:
    return f"sum by ({label}) ({_rate_of(metric)})", f"{{{{{label}}}}}"


def _visits_a_day(*results: VisitResult) -> str:
    """Visits of known pages a day that found one of *results*; none: whatever they found."""
    found = f', result=~"{"|".join(results)}"' if results else ""
    return f"{DAY_S:.0f} * rate(gossamer_revisits_total{{J{found}}}{_RATE})"


def _quantiles(metric: str) -> list[tuple[str, str]]:
    rates = f"sum by (le) ({_rate_of(f'{metric}_bucket')})"
    return [
        (f"histogram_quantile({part}, {rates})", f"{part:.0%} are below")
        for part in (0.5, 0.9, 0.99)
    ]


_FOUND: Final = (VisitResult.CHANGED, VisitResult.UNCHANGED)
_NOT_THERE: Final = (
    VisitResult.ABSENT,
    VisitResult.FAILED,
    VisitResult.GONE,
    VisitResult.MOVED,
)

PANELS: Final[list[tuple[str, str, list[tuple[str, str]]]]] = [
    ("Pages a second, by worker", "short", [_rate("pages_total", "worker")]),
    (
        "URLs of the crawl, by state",
        "short",
        [("max by (state) (gossamer_frontier_urls{J})", "{{state}}")],
    ),
    (
        "Alerts that fire",
        "short",
        [
            (
                'sum by (alertname) (ALERTS{alertname=~"Gossamer.*", alertstate="firing"})',
                "{{alertname}}",
            )
        ],
    ),
    ("Bodies, as they cross the wire", "Bps", [_rate("body_bytes_total", "worker")]),
    ("Answers a second, by class", "short", [_rate("answers_total", "class")]),
    ("Failed tries a second, by reason", "short", [_rate("errors_total", "reason")]),
    (
        "Failed tries, of all fetches",
        "percentunit",
        [(f"sum({_rate_of('errors_total')}) / sum({_rate_of('fetch_seconds_count')})", "failed")],
    ),
    (
        "URLs found and finished a second",
        "short",
        [
            (f"max({_rate_of('frontier_seen_urls_total')})", "found"),
            (f"max({_rate_of('frontier_done_urls_total')})", "finished"),
        ],
    ),
    (
        "Fetches under way",
        "short",
        [
            ("sum(gossamer_fetches{J})", "all"),
            ("sum(gossamer_slow_fetches{J})", "that only wait for their hosts"),
        ],
    ),
    ("Time of a fetch", "s", _quantiles("fetch_seconds")),
    ("Politeness: gap over what was due", "s", _quantiles("gap_over_due_seconds")),
    ("From the end of a fetch to its verdict", "s", _quantiles("verdict_seconds")),
    ("Rests a second, by reason", "short", [_rate("rests_total", "reason")]),
    ("Hosts", "short", [("sum by (state) (gossamer_hosts{J})", "{{state}}")]),
    (
        "URLs that wait, by level",
        "short",
        [("max by (level) (gossamer_frontier_waiting_urls{J})", "level {{level}}")],
    ),
    (
        "robots.txt a second",
        "short",
        [
            (f"sum({_rate_of('robots_fetches_total')})", "fetched"),
            (f"sum({_rate_of('robots_failures_total')})", "failed"),
            (f"sum by (reason) ({_rate_of('robots_unfetched_urls_total')})", "URLs {{reason}}"),
        ],
    ),
    ("Names looked up a second", "short", [_rate("dns_lookups_total", "result")]),
    ("Names that connections need, a second", "short", [_rate("dns_names_total", "source")]),
    ("Time of a look-up", "s", _quantiles("dns_lookup_seconds")),
    ("Links a second", "short", [_rate("links_total", "result")]),
    ("URLs refused a second, by rule", "short", [_rate("refused_urls_total", "rule")]),
    ("Duplicates a second", "short", [_rate("duplicates_total", "kind")]),
    (
        "Lags",
        "s",
        [
            ("max(gossamer_sync_lag_seconds{J})", "sync of the disk"),
            ("max(gossamer_merge_lag_seconds{J})", "search whether URLs are new"),
            ("max(gossamer_redis_lag_seconds{J})", "Redis"),
        ],
    ),
    ("Lag of the event loop", "s", _quantiles("loop_lag_seconds")),
    (
        "Backlogs",
        "short",
        [
            ("sum(gossamer_unrecorded_pages{J})", "pages without a record"),
            ("sum(gossamer_outbox_links{J})", "links for Redis"),
        ],
    ),
    (
        "Memory, by process",
        "bytes",
        [
            ("process_resident_memory_bytes{J}", "{{instance}}"),
            ("gossamer_body_memory_bytes{J}", "{{instance}}, of bodies"),
        ],
    ),
    (
        "Disk",
        "bytes",
        [
            ('min(gossamer_disk_bytes{J, part="free"})', "free"),
            ("sum(gossamer_undelivered_bytes{J})", "waiting for the object store"),
        ],
    ),
    ("Copies that are as the page is", "percentunit", [("gossamer_fresh_share{J}", "{{worker}}")]),
    (
        "Age of copies",
        "s",
        [
            ("gossamer_copy_age_seconds{J}", "since the last visit, {{worker}}"),
            ("max(gossamer_revisit_worth_seconds{J})", "fresh for longer by a visit that is due"),
        ],
    ),
    (
        "Visits of known pages a day, and their budget",
        "short",
        [
            (f"sum({_visits_a_day()})", "visits"),
            ("sum(gossamer_revisit_budget{J})", "budget of pages without a date"),
            ("max(gossamer_revisit_pages{J})", "pages that wait for a visit"),
        ],
    ),
    (
        "Known pages that have changed or not, a day",
        "short",
        [
            (f"sum by (result) ({_visits_a_day(*_FOUND)})", "{{result}}"),
            (f"sum({DAY_S:.0f} * {_rate_of('not_modified_total')})", "unchanged by status 304"),
        ],
    ),
    (
        "Known pages that are not there, a day",
        "short",
        [(f"sum by (result) ({_visits_a_day(*_NOT_THERE)})", "{{result}}")],
    ),
    (
        "Hosts whose answers about changes are wrong, a day",
        "short",
        [
            (f"sum by (fault) ({DAY_S:.0f} * {_rate_of('condition_faults_total')})", "{{fault}}"),
        ],
    ),
    (
        "Workers, and processors that they use",
        "short",
        [
            ("max by (state) (gossamer_workers{J})", "{{state}}"),
            (f"rate(process_cpu_seconds_total{{J}}{_RATE})", "processors of {{instance}}"),
        ],
    ),
    (
        "URLs over the budgets of their domains",
        "short",
        [
            ('max(gossamer_frontier_urls{J, state="spilled"})', "until a round has room"),
            ('max(gossamer_frontier_urls{J, state="capped"})', "over a budget in all"),
            ("max(gossamer_sampled_out_urls_total{J})", "not kept"),
            ("max(gossamer_spilled_domains{J})", "domains"),
        ],
    ),
]

_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def board() -> dict[str, Any]:
    return {
        "title": "Gossamer",
        "uid": "gossamer",
        "tags": ["crawler"],
        "schemaVersion": 39,
        "timezone": "",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Prometheus", "type": "datasource"}
                | {"query": "prometheus"},
                {"name": "job", "label": "Crawl", "type": "query", "datasource": _SOURCE}
                | {"query": "label_values(gossamer_build_info, job)", "refresh": 2}
                | {"current": {"text": "gossamer", "value": "gossamer"}},
            ]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _SOURCE,
            "expr": expression.replace("{J", '{job="$job"'),
            "legendFormat": legend,
        }
        for at, (expression, legend) in enumerate(queries)
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"x": number % 3 * 8, "y": number // 3 * 8, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def whole_files() -> dict[Path, str]:
    return {
        RULES: "\n".join(rule_lines()) + "\n",
        BOARD: json.dumps(board(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    for path, text in whole_files().items():
        path.write_text(text, encoding="utf-8")
