"""The project as an egg on a real scrapyd: several jobs side by side, cancelled, continued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event

import pytest

from crawler.data.outcomes import read_outcomes
from tests.harness.archive_judges import read_folder
from tests.harness.waiting import wait_until
from tests.servers.loopback import Reply, Routes, Site, page, site
from tests.servers.scrapyd import WAIT_S, Scrapyd, scrapyd_with_project

QUICK = ("CRAWLER_MIN_DELAY_S=0.02", "CRAWLER_DELAY_FACTOR=0")
PATHS = [f"/{number}" for number in range(10)]
ROUTES: Routes = {"/": page(*PATHS), **{path: page(text=path) for path in PATHS}}
ENDED_WITHIN_S = 30.0  # of a cancel: three seconds for the crawl, the rest for a busy machine


@pytest.fixture(scope="module")
def scrapyd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd_with_project(tmp_path_factory.mktemp("scrapyd")) as server:
        yield server


def archived(data: Path) -> set[str]:
    return {one.url for one in read_folder(data / "warc").values() if one.kind == "response"}


def all_of(web: Site) -> set[str]:
    return {web.url(path) for path in ["/", *PATHS]}


def test_the_project_deploys_as_an_egg(scrapyd):
    assert scrapyd.ask("listspiders", project="crawler")["spiders"] == ["web"]
    assert list((scrapyd.folder / "eggs" / "crawler").glob("*.egg"))


def test_a_cancelled_job_puts_back_what_was_under_way_and_continues_when_scheduled_again(scrapyd):
    in_flight = Event()

    def hangs_once(hit: int) -> Reply:
        in_flight.set()
        return Reply(hang=True) if hit == 1 else page(text="at last")

    with site("127.0.0.74", {**ROUTES, "/3": hangs_once}) as web:
        seeds = web.url("/")
        scrapyd.schedule("long", seeds=seeds, setting=QUICK)
        assert in_flight.wait(WAIT_S)
        assert scrapyd.cancel("long") == "running"
        wait_until(lambda: "long" in scrapyd.jobs("finished"), ENDED_WITHIN_S, "the job has ended")
        data = scrapyd.data("long")
        summary = json.loads((data / "summary.json").read_text())
        assert summary["reason"] == "shutdown"
        done = {one.url for one in read_outcomes(data / "outcomes.jsonl")}
        assert web.url("/3") not in done
        left = summary["frontier"]
        assert left["waiting"] + left["later"] == len(all_of(web) - done), "nothing stays leased"

        scrapyd.schedule("long", seeds=seeds, setting=QUICK)
        wait_until(lambda: "finished" in summary_of(data)["reason"], WAIT_S, "it has finished")
        assert archived(data) == all_of(web)
        assert [path for path in PATHS if web.hits[path] > 1] == ["/3"], "no other page twice"


def test_two_jobs_side_by_side_each_crawl_their_own(scrapyd, tmp_path):
    both_run = Event()

    async def gate() -> AsyncIterator[bytes]:
        while not both_run.is_set():
            await asyncio.sleep(0.02)
        yield b"<p>Both run."

    routes = {**ROUTES, "/0": Reply(gate)}
    with site("127.0.0.72", routes) as one, site("127.0.0.73", routes) as two:
        crawls = {"one": one, "two": two}
        for job, web in crawls.items():
            (tmp_path / f"{job}.txt").write_text(web.url("/"))
            data = f"CRAWLER_DATA_DIR={tmp_path / job}"
            scrapyd.schedule(job, seeds=tmp_path / f"{job}.txt", setting=[*QUICK, data])
        wait_until(
            lambda: all("/0" in web.asked for web in crawls.values()),
            WAIT_S,
            "both are in mid-crawl",
        )
        assert scrapyd.jobs("running") == {"one", "two"}
        both_run.set()
        for job, web in crawls.items():
            scrapyd.wait_for(job)
            assert archived(tmp_path / job) == all_of(web)
            assert "Closing spider (finished)" in scrapyd.log(job)


def summary_of(data: Path) -> dict[str, str]:
    return json.loads((data / "summary.json").read_text())


REFUSED = {
    "no-such-seeds": ({"seeds": "/no/such/seeds.txt"}, "/no/such/seeds.txt does not exist"),
    "misspelt-argument": ({"sseds": "x"}, "unknown argument sseds; did you mean seeds?"),
    "misspelt-setting": (
        {"seeds": "http://127.0.0.75/", "setting": "CRAWLER_MIN_DELAYS=3"},
        "did you mean CRAWLER_MIN_DELAY_S?",
    ),
}


@pytest.fixture(scope="module")
def refused(scrapyd: Scrapyd) -> None:
    for job, (arguments, _) in REFUSED.items():
        scrapyd.schedule(job, **arguments)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("job", REFUSED)
def test_a_job_that_cannot_start_logs_the_reason_and_leaves_no_files(scrapyd, job):
    scrapyd.wait_for(job)
    assert REFUSED[job][1] in scrapyd.log(job)
    assert not scrapyd.data(job).exists()
