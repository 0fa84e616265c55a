"""`scrapy frontier` and its options. What it does: `crawler/cli/frontier.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class FrontierCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        from crawler.operate.verbs import VERBS

        acts = " | ".join(f"{verb.name} {verb.takes}".strip() for verb in VERBS.values())
        return (
            "counts | now | hosts | domains | plan | dead | audit | why URL | fresh [HOST|URL]"
            " | workers | check | seen --from FILE | snapshot FOLDER | report | changes"
            f" | serve [HOST:PORT] | {acts}  [options]"
        )

    def short_desc(self) -> str:
        return "Look into a crawl's frontier, act on the crawl, copy and repair it"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from crawler.cli.frontier import TOP
        from crawler.data.data_dir import REPORT
        from crawler.view.budgets import DomainSort
        from crawler.view.hosts import HostFilter, HostSort

        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="answer in JSON")
        parser.add_argument(
            "--top", type=int, metavar="N", help=f"now, hosts, domains, plan: how many ({TOP})"
        )
        parser.add_argument(
            "--per-host",
            type=int,
            metavar="N",
            help="plan: most URLs of a host in a new round; with -a round..., in that of the run",
        )
        parser.add_argument(
            "--per-domain",
            type=int,
            metavar="N",
            help="plan: most URLs of a registered domain in it",
        )
        parser.add_argument("--host", metavar="NAME", help="now, hosts: this one only")
        parser.add_argument(
            "--sort",
            choices=[each.value for each in dict.fromkeys([*HostSort, *DomainSort])],
            help="hosts, domains: by what, the greatest first, or by name (waiting, spilled)",
        )
        parser.add_argument(
            "--match", metavar="TEXT", help="hosts, domains: those with this in their names only"
        )
        parser.add_argument(
            "--address", metavar="IP", help="hosts: those that were fetched from this address only"
        )
        parser.add_argument(
            "--state",
            choices=[each.value for each in HostFilter if each],
            help="hosts: those that are empty, due or resting, were never asked (new), whose last"
            " fetch failed, that are paused for failing or left",
        )
        parser.add_argument(
            "--failure",
            metavar="KIND",
            help="hosts: those whose last failure was a timeout, status_503...; any: that have one",
        )
        parser.add_argument(
            "--pace",
            action="store_true",
            default=None,
            help="hosts: how often each may be asked, and why, in place of how it answers",
        )
        parser.add_argument(
            "--offset", type=int, metavar="N", help="hosts, domains: leave out the first N of them"
        )
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help=f"dead, audit: how many ({TOP}); changes: at most so many",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            default=None,
            help="refuse, drop...: only say how many waiting URLs that would touch",
        )
        parser.add_argument("--level", type=int, metavar="N", help="add: the level of the URLs")
        parser.add_argument(
            "--again",
            action="store_true",
            default=None,
            help="add: fetch the URLs even if they were fetched before",
        )
        parser.add_argument("--all", action="store_true", default=None, help="retry: all of them")
        parser.add_argument(
            "--forget",
            metavar="NAME",
            help="workers: this one's disk is lost, with its links; changes: this consumer is no"
            " more",
        )
        parser.add_argument(
            "--consumer", metavar="NAME", help="changes: those that NAME has not taken"
        )
        parser.add_argument(
            "--taken",
            type=int,
            metavar="N",
            help="changes: --consumer has taken all up to number N",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            default=None,
            help="changes: go on with those that come",
        )
        parser.add_argument(
            "--consumers",
            action="store_true",
            default=None,
            help="changes: list the consumers, and how far each is",
        )
        parser.add_argument(
            "--repair",
            action="store_true",
            default=None,
            help="check: rebuild damaged files of the seen URLs, and correct the counters",
        )
        parser.add_argument(
            "--archive",
            action="store_true",
            default=None,
            help="purge: delete what the archive holds, too, if no crawl runs",
        )
        parser.add_argument(
            "--from",
            dest="begin",
            metavar="FILE|N",
            help="seen: an index (CDXJ) of another crawl, whose URLs are not to be fetched;"
            " changes: the number of the first",
        )
        parser.add_argument(
            "-o",
            "--out",
            dest="output",
            metavar="FILE",
            help=f"report: where to write it ({REPORT} in the data directory); plan: where to write"
            " its URLs, one as JSON a line",
        )
        parser.add_argument(
            "--certificate", metavar="FILE", help="serve: of TLS, in PEM; others need it and tokens"
        )
        parser.add_argument("--key", metavar="FILE", help="serve: of the certificate, in PEM")
        parser.add_argument(
            "--metrics", metavar="HOST:PORT", help="serve: where Prometheus scrapes /metrics"
        )
        parser.add_argument(
            "-a",
            dest="spargs",
            action="append",
            metavar="NAME=VALUE",
            help="why, plan, serve: an argument of the crawl, such as seeds, scope or deny; plan:"
            " with round, round_per_host or round_per_domain it goes on in the round of the crawl",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import frontier
        from crawler.report.messages import ending_with_its_reader

        assert self.settings is not None
        with ending_with_its_reader():
            self.exitcode = frontier.run(args, opts, self.settings)
