# `make` prints what can be made. All of it lands in .venv, nothing outside is touched; only
# `make test` may install servers, through apt, where it is allowed to.

PYTHON ?=
SEEDS ?= seeds.txt
CONTACT ?=
WORKERS ?= 1
MINUTES ?= 10
ARGS ?=
HOME_URL ?=

PY := .venv/bin/python
CRAWL := .venv/.for-crawling
WORK := .venv/.for-working
JUDGES := .venv-judges/.for-judging
DOCS := .venv-docs/.for-docs
PROTO := .venv-urlfrontier/.for-urlfrontier
RUN = $(if $(filter-out 1,$(WORKERS)),share web --workers '$(WORKERS)',crawl web)

# Where bytecode may not be written beside its source, it goes into .venv: with none at all, each
# start of Python compiles what it imports, which doubles the CPU time of a crawl's start.
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode
endif

# What numba compiles, it compiles once in an installation, for 10 to 25 s.
COMPILE = $(PY) -c 'from crawler.content.compiling import load; load()'

# Whether .venv works at all: it does not after the folder was moved or its Python removed.
ALIVE := $(shell $(PY) -c '' 2>/dev/null && echo yes)

.DEFAULT_GOAL := help
.PHONY: help setup crawl demo docs lint check test compiled retest fuzz lives rounds kills paces simulate fresh documentation-sites script-sites rendering bench lean release flame hostile-pages bench-scale format settings screenshots urlfrontier again

help:  ## print this
	@echo "make crawl SEEDS=seeds.txt CONTACT=ADDRESS ARGS='-a scope=host'"
	@echo '  ADDRESS: a mail address that you read, or the URL of a page about your crawl'
	@echo '  without a scope links are followed into the whole web'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: $(WORK)  ## a .venv with all that crawling and working on the crawler need
	@echo 'Compiling what reads pages, once' >&2
	@$(COMPILE)

crawl: $(CRAWL)  ## crawl from SEEDS with CONTACT in each request; WORKERS=4 share it, ARGS='-a max_pages=9' adds more
	@$(PY) -m scrapy $(RUN) -a 'seeds=$(SEEDS)' $(if $(CONTACT),-s 'CRAWLER_CONTACT=$(CONTACT)') $(ARGS)

demo: $(CRAWL)  ## crawl a small web on this machine, made of all that a crawler meets
	@$(PY) -m demo

docs: $(DOCS)  ## the documentation as a site with search, in build/site, to be opened from the disk
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo 'The documentation: file://$(CURDIR)/build/site/index.html'

lint: $(WORK)  ## format, lint and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

check: lint  ## lint, and what needs nothing but this folder: layers, documents, unit tests
	$(PY) -m pytest -q -n 2 tests/test_architecture.py tests/test_shape.py tests/test_docs.py tests/unit

# Five at once: many of them wait for rests and servers. By file, as each starts its servers once,
# and in our order (tests/harness/budget.py).
test: $(WORK)  ## lint, and every test; installs nginx, redis-server, prometheus, chromium and pages to crawl where they are missing
	@$(MAKE) --no-print-directory --jobs=2 lint $(JUDGES) compiled
	@sh scripts/system-packages.sh
	$(PY) -m pytest -q -n 5 --dist loadfile --no-loadscope-reorder

# pytest compiles the tests in a way of its own: without this each of its processes does, for 17 s.
# numba compiles once in an installation: the first tests of whole crawls would wait for it.
compiled: $(WORK)
	@$(PY) -m pytest -qq --collect-only >/dev/null 2>&1 || true
	@$(COMPILE)

retest: $(WORK)  ## what failed in the last run of tests, each alone and three times
	@$(PY) scripts/retest.py

fuzz: $(WORK)  ## property tests with new examples, for MINUTES=10
	@sh scripts/fuzz.sh '$(MINUTES)'

lives: $(WORK)  ## 10,000 random lives of owned shards, with take-overs, kills, and servers that lose a second
	OWNED_LIVES=10000 $(PY) -m pytest -q -n 2 tests/contract -k 'TestOwned or nothing_is_lost'
	UPDATED_LIVES=500 $(PY) -m pytest -q -n 2 tests/contract/test_updates.py -k lives

rounds: $(WORK)  ## 200 random crawls in rounds over each store, and of several workers, killed inside, four of real processes; FIRST=17 SEEDS=1 replays one
	SEEDS=$(if $(filter seeds.txt,$(SEEDS)),200,$(SEEDS)) $(PY) -m pytest -q -n 2 tests/contract/test_rounds.py tests/contract/test_shared_rounds.py
	$(PY) -m pytest -q -n 2 tests/harness/round_kills.py

simulate: SIMULATED = --seeds $(if $(filter seeds.txt,$(SEEDS)),1000,$(SEEDS))
simulate: $(WORK)  ## SEEDS=10000 crawls on a virtual clock, and as many of several workers, judged; a failing one prints how to replay it
	$(PY) -m crawler.simulate $(SIMULATED)
	$(PY) -m crawler.simulate --shared $(SIMULATED)

fresh: $(WORK)  ## how fresh simulated crawls keep 10,000 pages, at a visit in 7, 30 and 100 days, and 100,000 at 30: an hour of one core
	$(PY) -m bench.fresh_crawl 7 30 100
	$(PY) -m bench.fresh_crawl 30 --pages 100000 --hosts 2000

documentation-sites: $(WORK)  ## what it costs to find what changed in Debian's documentation, published anew: half an hour, 150 MB by apt-get
	$(PY) -m bench.documentation_sites --folder .bench/documentation

script-sites: $(WORK)  ## build in .bench/script-sites what rendering is measured on: 30 sites with five frameworks from npm, 54 documentations; needs Node.js, takes some minutes and 2 GB
	$(PY) -m bench.script_sites --build .bench/script-sites

rendering: script-sites  ## what rendering brings and costs on these sites: never, auto, always, and beside scrapy-playwright; an hour or two of two cores
	$(PY) -m bench.rendering --sites .bench/script-sites

kills: $(WORK)  ## crawls killed 0 to 100 ms after a 429, five of each kind: is its Retry-After kept? and 30 lives of a served frontier
	$(PY) -m tests.harness.retry_after_kills 5
	SERVED_LIVES=30 $(PY) -m pytest -q -n 2 tests/integration/test_served_frontier.py

paces: $(WORK)  ## five minutes of 200 hosts at their own pace, by name, domain and address, with kills: what do their logs say?
	for unit in host domain address; do $(PY) -m tests.harness.paced_hosts --unit $$unit || exit 1; done

bench: $(WORK)  ## beside plain Scrapy, crawlee and scrapy-redis on the same web: CPU, pages/s, memory
	$(PY) -m bench

lean: $(WORK)  ## the whole and the lean installation, each anew in a folder of its own: megabytes, and a crawl
	for kind in full lean; do $(PY) -m tests.harness.installed_crawl .bench/$$kind $$kind || exit 1; done

release:  ## wheel and sdist in dist/, checked, and the whole suite from the sdist; HOME_URL=https://... names where the project is
	@sh scripts/release.sh '$(PYTHON)' '$(HOME_URL)'

hostile-pages: $(WORK)  ## pages that would hold, fill or flood the browser that renders them: all 77, some minutes
	HOSTILE_PAGES=all $(PY) -m pytest -q -rP tests/integration/test_hostile_pages.py

flame: $(WORK)  ## a flame graph of a crawl of a synthetic web, in flame.svg
	$(PY) -m bench.profile flame.svg

bench-scale: $(WORK)  ## what is stored, at up to 1e8 URLs: hours, up to 40 GB in .bench; goes on where it was stopped
	$(PY) -m bench.scale

format: $(WORK)  ## put the code into its form
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

screenshots: $(WORK)  ## write the pictures of the console in docs/, of a crawl on this machine (needs chromium)
	$(PY) -m tests.harness.screenshots

settings: $(WORK)  ## write what docs/ and monitoring/ say of settings, keys, states, metrics and queries, from their tables
	$(PY) scripts/write_settings.py
	$(PY) scripts/write_redis_keys.py
	$(PY) scripts/write_operating.py
	$(PY) scripts/write_metrics.py
	$(PY) scripts/write_lives.py
	$(PY) scripts/write_queries.py
	$(PY) scripts/write_api.py

urlfrontier: $(PROTO)  ## make the modules of the URL Frontier protocol from crawler/urlfrontier/urlfrontier.proto
	@.venv-urlfrontier/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. crawler/urlfrontier/urlfrontier.proto

$(CRAWL): requirements.txt scripts/venv.sh $(if $(ALIVE),,again)
	@sh scripts/venv.sh '$(PYTHON)' requirements.txt
	@touch $@

$(WORK): requirements-dev.txt $(CRAWL)
	@sh scripts/venv.sh '$(PYTHON)' requirements-dev.txt
	@touch $@

$(DOCS): requirements-docs.txt
	@sh scripts/venv.sh '$(PYTHON)' requirements-docs.txt .venv-docs
	@touch $@

$(PROTO): requirements-urlfrontier.txt
	@sh scripts/venv.sh '$(PYTHON)' requirements-urlfrontier.txt .venv-urlfrontier
	@touch $@

$(JUDGES): requirements-judges.txt scripts/judges.sh $(WORK)
	@sh scripts/judges.sh
	@touch $@

again:
