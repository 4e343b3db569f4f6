# `make` lists what there is. Everything needs only Python 3.11, git and the package registries;
# nothing needs root. State is kept in var/ (RUNBOARD_VAR), the environment in .venv/, scratch files in build/.

VENV   := .venv
PY     := $(VENV)/bin/python
# The interpreter to build .venv from; the first suitable one when unset.
PYTHON ?=
PIP    := $(PY) -m pip --disable-pip-version-check --no-input --quiet

# What is installed is locked: every package at one version, each of its files by hash (docs/decisions/0002). Packages
# that come as source are built with what is locked too, which is installed first: pip 23 takes no hashes as constraints.
LOCKS  := locks
LOCKED := $(PIP) install --no-deps --require-hashes
INSTALL_LOCKED := $(LOCKED) --requirement $(LOCKS)/build.txt && $(LOCKED) --no-build-isolation
# torch comes second and by its version, since indexes carry different builds of it. TORCH_LOCK=cpu or cuda names one: by hash.
TORCH_LOCK ?=
TORCH      := $(LOCKS)/torch$(addprefix -,$(TORCH_LOCK)).txt
INSTALL_TORCH := $(if $(TORCH_LOCK),$(LOCKED),$(PIP) install) --requirement $(TORCH)

# A stamp is named by what it was installed from, so a changed file, or one changed back, is noticed.
stamp = $(VENV)/installed-$(1)-$(shell cat $(LOCKS)/$(1).txt $(LOCKS)/build.txt $(TORCH) | cksum | tr ' ' '-')
# Where there is no C compiler, one comes as a package: for the kernel that reads runs (docs/decisions/0002).
INSTALL_COMPILER := { command -v $(firstword $(CC)) || command -v gcc || command -v clang; } >/dev/null || { \
	echo "No C compiler was found: installing the package ziglang, which brings one ..."; $(LOCKED) --requirement $(LOCKS)/compiler.txt; }
RUN_STAMP  := $(call stamp,run)
TEST_STAMP := $(call stamp,test)

# What makes and checks locks has an environment of its own.
TOOLS       := build/tools
TOOLS_STAMP := $(TOOLS)/installed-$(shell cat $(LOCKS)/tools.txt | cksum | tr ' ' '-')

# The published JavaScript client that uploads are tested with. Where npm's registry is out of reach its test is skipped.
CLIENT_STAMP := build/clients/installed-$(shell cat tests/clients/package*.json | cksum | tr ' ' '-')

# What no Python package carries, out of npm's. Where its registry is out of reach the site does without, and says so.
ASSETS       := build/assets
ASSETS_STAMP := build/assets-$(shell cat assets/* | cksum | tr ' ' '-')

# What lint asks Django is about a site on the internet, and touches no real state.
PRODUCTION := RUNBOARD_VAR=build/lint ALLOWED_HOSTS=runboard.example HTTPS=1 DEBUG=0 EMAIL_URL=smtp://localhost

# One form for all templates. djade writes their tags, djhtml indents them; lines are counted by tests/structure.
TEMPLATES = $(shell find templates -name '*.html')

# How many checkpoints are spoilt, and which: the same seed spoils the same ones.
COUNT ?= 1500
SEED  ?= 1
# How long, and with how many cases of each kind, everything that strangers send is fuzzed.
MINUTES ?= 60
CASES ?= 10000
# How often tests of faults kill a worker at each stage, and as often its child.
REPEAT ?= 50
# The same for Celery's workers, which take seconds to start again, and minutes where they load models.
REPEAT_CELERY ?= 4
# How many readers load the site.
READERS ?= 200
# The image that is tried: web or cpu-worker.
TARGET ?= web

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install assets run test test-long test-faults lint measure-structure benchmark load-test screenshot attack fuzz sanitize \
	fuzz-checkpoints check-containers try-dockerfile try-compose lock check-locks audit docs wheels pin-images clean

help: ## list these recipes
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(RUN_STAMP) ## install what `make run` needs, and run nothing (TORCH_LOCK=cpu or cuda: that build of torch, by hash)

assets: $(RUN_STAMP) ## fetch plotly.js's small bundle and the fonts from npm (NPM_CONFIG_REGISTRY=...); `make run` does it once
	$(PY) assets/fetch.py $(ASSETS)

run: $(RUN_STAMP) $(ASSETS_STAMP) ## install what is missing, then run the whole site on http://127.0.0.1:8000 (PORT=...)
	@exec $(PY) manage.py runboard --stop-with-parent

test: $(TEST_STAMP) $(CLIENT_STAMP) ## check everything: lint, all tests on SQLite, those of the database on PostgreSQL again
	$(PY) tests/side_by_side.py

test-long: $(TEST_STAMP) ## the tests marked long, in full size, on both databases; `make test` has a short one of each
	$(PY) tests/side_by_side.py long

test-faults: $(TEST_STAMP) ## kill workers and their children at every stage, REPEAT times (50) each, with real servers; see docs/reliability.md
	RUNBOARD_FAULTS=full RUNBOARD_TEST_DATABASE=sqlite $(PY) -m pytest -q --nomigrations tests/faults
	RUNBOARD_FAULTS=full RUNBOARD_TEST_DATABASE=postgresql REPEAT=$(REPEAT) REPEAT_CELERY=$(REPEAT_CELERY) \
		RUNBOARD_FAULTS_PAGE=docs/measurements/reliability.md $(PY) -m pytest -q --nomigrations --durations=10 tests/faults

lint: $(TEST_STAMP) ## style, types, templates, layers of imports, missing migrations, checks for production, the API's schema
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) tests/structure/measure.py --check
	PYTHONPATH=client $(VENV)/bin/lint-imports
	@$(VENV)/bin/djade --check --target-version 5.2 $(TEMPLATES)
	@$(VENV)/bin/djhtml --check --tabwidth 2 $(TEMPLATES)
	$(PRODUCTION) $(PY) manage.py makemigrations --check --dry-run
	$(PRODUCTION) SECRET_KEY=$$($(PY) -c 'import secrets; print(secrets.token_urlsafe(50))') \
		$(PY) manage.py check --deploy --fail-level WARNING
	$(PRODUCTION) SECRET_KEY=lint $(PY) manage.py spectacular --validate --fail-on-warn --file /dev/null

measure-structure: $(TEST_STAMP) ## statements, lines, imports and cycles of each package, as a table
	@$(PY) tests/structure/measure.py --longest 10

benchmark: $(TEST_STAMP) ## measure speed, write docs/measurements/speed.md, and fail where a bound is missed (20 minutes)
	RUNBOARD_VAR=build/benchmark $(PY) tests/benchmarks

load-test: MINUTES := 10
load-test: $(TEST_STAMP) ## 200 readers while 20 runs of 100 MB arrive, behind nginx (MINUTES=10, READERS=200)
	PYTHONPATH=. $(PY) tests/load/run.py --minutes $(MINUTES) --readers $(READERS) --write docs/measurements/load.md

screenshot: $(TEST_STAMP) ## take the README's pictures of a board, in light and dark mode, from a fresh demo site
	$(PY) -m tests.screenshot

attack: $(TEST_STAMP) ## play the attack on hidden judgements with each protection on and off, write the tables, fail where a bound is missed
	RUNBOARD_ATTACK=1 $(PY) -m pytest -q tests/attack
	PYTHONPATH=. $(PY) tests/attack/campaign.py --write docs/measurements/attack.md

fuzz: $(TEST_STAMP) ## all that strangers send, spoilt: 10,000 cases by kind, bombs, then guided by coverage (MINUTES=60)
	RUNBOARD_FUZZ_CASES=$(CASES) $(PY) -m pytest -q tests/evaluation/core/test_hostile_bytes.py
	PYTHONPATH=. $(PY) tests/fuzz/bombs.py --write docs/measurements/reliability.md
	PYTHONPATH=. $(PY) tests/fuzz/session.py $(MINUTES) --write docs/measurements/reliability.md

sanitize: $(TEST_STAMP) ## the tests of the compiled kernel, with its memory and arithmetic watched (gcc's sanitizers)
	tests/fuzz/sanitize.sh $(PY)

check-containers: $(TEST_STAMP) ## Docker Compose v2 (and 1.29 where it is) on docker/compose.yaml, our rules on it, the proxy in front of the site, its roles
	PYTHONPATH=. $(PY) tests/docker/check_compose.py
	PYTHONPATH=. $(PY) tests/docker/try_proxy.py
	PYTHONPATH=. $(PY) tests/docker/try_roles.py

try-dockerfile: $(TEST_STAMP) ## the Dockerfile's steps in a plain Debian, then served from it: needs root (TARGET=web or cpu-worker)
	PYTHONPATH=. $(PY) tests/docker/try_dockerfile.py $(TARGET)

try-compose: $(TEST_STAMP) ## compose.yaml's services from the Dockerfile's roots: a run and a model reach a board; needs root
	PYTHONPATH=.:client $(PY) tests/docker/try_compose.py

fuzz-checkpoints: $(TEST_STAMP) ## spoil good checkpoints at random: each is accepted or refused with a reason (COUNT=..., SEED=...)
	PYTHONPATH=. $(PY) tests/fuzz/spoilt_checkpoints.py $(COUNT) $(SEED)

lock: $(TOOLS_STAMP) ## write the locks anew after a change of requirements (UPGRADE="NAME ..." or all: newer versions too)
	UPGRADE="$(UPGRADE)" $(TOOLS)/bin/python locks/make.py

check-locks: $(TOOLS_STAMP) ## resolve every lock for Linux and macOS, each Python, torch for CPU and CUDA; installs nothing
	$(TOOLS)/bin/python locks/check.py

audit: $(TOOLS_STAMP) ## known vulnerabilities of what is locked, secrets in files and history: needs the internet
	$(TOOLS)/bin/python locks/audit.py

docs: $(TOOLS_STAMP) ## docs/ as a site, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build --strict --quiet && echo 'build/docs/index.html'

wheels: $(RUN_STAMP) ## the packages runboard-eval (evaluation/) and runboard (client/), in build/wheels
	$(PY) packages/evaluation_wheel.py build/wheels
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheels ./client

pin-images: ## ask the registry for the digests of the images that docker/ names, and write them: needs Docker
	python3 docker/pin_images.py

clean: ## remove .venv, build/ and caches; never var/
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +

$(RUN_STAMP): $(VENV)/created
	@echo "Installing what requirements.txt names, as locked in $(LOCKS)/, into $(VENV) (once; two minutes or so) ..."
	@$(INSTALL_LOCKED) --requirement $(LOCKS)/run.txt && $(INSTALL_TORCH)
	@$(INSTALL_COMPILER)
	@touch $@

$(TEST_STAMP): $(VENV)/created
	@echo "Installing what requirements-test.txt names, as locked in $(LOCKS)/, into $(VENV) (once; two minutes or so) ..."
	@$(INSTALL_LOCKED) --requirement $(LOCKS)/test.txt && $(INSTALL_TORCH)
	@$(INSTALL_COMPILER)
	@touch $@

$(CLIENT_STAMP): $(TEST_STAMP)
	@$(PY) tests/clients/install.py && touch $@ || true

$(ASSETS_STAMP): $(RUN_STAMP)
	@$(PY) assets/fetch.py $(ASSETS) && touch $@ || true

$(TOOLS_STAMP): $(TOOLS)/created
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check --no-input --quiet install --no-deps --require-hashes \
		--requirement $(LOCKS)/tools.txt
	@touch $@

# Some distributions ship Python without ensurepip: their own pip can then put one into the environment.
$(VENV)/created $(TOOLS)/created:
	@for python in $(or $(PYTHON),python3.11 python3 python); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Runboard needs Python 3.11, and found none. Name one: make run PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if $$found -c 'import ensurepip' 2>/dev/null; then \
		$$found -m venv "$$(realpath -m $(@D))"; \
	else \
		$$found -m venv --without-pip "$$(realpath -m $(@D))" && $$found -m pip --python $(@D)/bin/python install --quiet pip || { \
			echo "$$found can make no environment: install its venv and pip packages, or name another PYTHON." >&2; \
			exit 1; }; \
	fi
	@touch $@
