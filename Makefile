# `make` lists the targets. They need Python 3.11, git, and a package registry, but no root. State is in var/
# (RUNBOARD_VAR), the virtual environment in .venv/, and temporary files in build/.

VENV   := .venv
PY     := $(VENV)/bin/python
# Interpreter for creating .venv. Default: the first suitable one.
PYTHON ?=
PIP    := $(PY) -m pip --disable-pip-version-check --no-input --quiet

# Every package is locked by version and file hash (docs/decisions/0002). Build dependencies of source packages are
# locked too and installed first, because pip 23 does not accept hashes in constraints.
LOCKS  := locks
LOCKED := $(PIP) install --no-deps --require-hashes
INSTALL_LOCKED := $(LOCKED) --requirement $(LOCKS)/build.txt && $(LOCKED) --no-build-isolation
# torch is installed separately and by version, because indexes have different builds of it. TORCH_LOCK=cpu or cuda
# selects a build that is locked by hash.
TORCH_LOCK ?=
TORCH      := $(LOCKS)/torch$(addprefix -,$(TORCH_LOCK)).txt
INSTALL_TORCH := $(if $(TORCH_LOCK),$(LOCKED),$(PIP) install) --requirement $(TORCH)

# The name of a stamp contains a checksum of the lock files, so that each change reinstalls.
stamp = $(VENV)/installed-$(1)-$(shell cat $(LOCKS)/$(1).txt $(LOCKS)/build.txt $(TORCH) | cksum | tr ' ' '-')
# Without a C compiler, install one as a package: it compiles the run reader (docs/decisions/0002).
INSTALL_COMPILER := { command -v $(firstword $(CC)) || command -v gcc || command -v clang; } >/dev/null || { \
	echo "No C compiler was found: installing the package ziglang, which brings one ..."; $(LOCKED) --requirement $(LOCKS)/compiler.txt; }
# Compile the functions of BM25 and scoring into the site's cache, which only its user may read. Jobs report errors.
COMPILE_KERNELS := umask 077; cache="$${RUNBOARD_VAR:-var}/cache"; mkdir -p "$$cache"; \
	export RUNBOARD_KERNEL_CACHE="$${RUNBOARD_KERNEL_CACHE:-$$cache/kernel}" NUMBA_CACHE_DIR="$${NUMBA_CACHE_DIR:-$$cache/numba}"; \
	$(PY) -c "from evaluation.engines.index.kernels import load; from evaluation.engines.warm_up import warm_up; \
	load(); warm_up()" 2>/dev/null || true
RUN_STAMP  := $(call stamp,run)
TEST_STAMP := $(call stamp,test)

# Tools that create and check locks have a separate environment.
TOOLS       := build/tools
TOOLS_STAMP := $(TOOLS)/installed-$(shell cat $(LOCKS)/tools.txt | cksum | tr ' ' '-')

# tus's JavaScript client, for tests of uploads. Its test is skipped if npm's registry cannot be reached.
CLIENT_STAMP := build/clients/installed-$(shell cat tests/clients/package*.json | cksum | tr ' ' '-')

# plotly.js and fonts from npm. If npm's registry cannot be reached, the site reports it and works without them.
ASSETS       := build/assets
ASSETS_STAMP := build/assets-$(shell cat assets/* | cksum | tr ' ' '-')

# The site and its tests start many processes, and each would compile 650 files: 1.5 s.
unexport PYTHONDONTWRITEBYTECODE

# Settings of a production site for Django's checks in lint; they do not touch real state.
PRODUCTION := RUNBOARD_VAR=build/lint ALLOWED_HOSTS=runboard.example HTTPS=1 DEBUG=0 EMAIL_URL=smtp://localhost

# djade formats the tags of templates, djhtml their indentation; tests/structure checks the line length.
TEMPLATES = $(shell find templates -name '*.html')

# Number of corrupted checkpoints, and the random seed.
COUNT ?= 1500
SEED  ?= 1
# Minutes of fuzzing, and number of cases per kind of input.
MINUTES ?= 60
CASES ?= 10000
# Number of times that the fault tests kill a worker, and its child process, at each stage.
REPEAT ?= 50
# The same for Celery workers, which need seconds to restart, or minutes if they load models.
REPEAT_CELERY ?= 4
# Number of concurrent readers in the load test.
READERS ?= 200
# Docker target to try: web or cpu-worker.
TARGET ?= web

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install install-collections assets run test test-long test-faults lint measure-structure benchmark check-figures \
	load-test screenshot attack fuzz sanitize fuzz-checkpoints check-containers try-dockerfile try-compose lock check-locks audit docs wheels pin-images clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(RUN_STAMP) ## install the dependencies of `make run` (TORCH_LOCK=cpu or cuda: a build of torch that is locked by hash)

install-collections: $(RUN_STAMP) ## install the optional packages ir_datasets and pyarrow, which some imports need
	$(INSTALL_LOCKED) --requirement $(LOCKS)/collections.txt

assets: $(RUN_STAMP) ## fetch plotly.js and the fonts from npm (NPM_CONFIG_REGISTRY=...); `make run` does it once
	$(PY) assets/fetch.py $(ASSETS)

run: $(RUN_STAMP) $(ASSETS_STAMP) ## install missing packages and run the site on http://127.0.0.1:8000 (PORT=...)
	@exec $(PY) manage.py runboard --stop-with-parent

test: $(TEST_STAMP) $(CLIENT_STAMP) ## run lint, all tests on SQLite, and the database tests on PostgreSQL
	$(PY) tests/side_by_side.py

test-long: $(TEST_STAMP) ## run the tests marked long on both databases; `make test` has a short version of each
	$(PY) tests/side_by_side.py long

test-faults: $(TEST_STAMP) ## kill workers and their child processes at every stage, REPEAT times (50) each; see docs/reliability.md
	RUNBOARD_FAULTS=full RUNBOARD_TEST_DATABASE=sqlite $(PY) -m pytest -q --nomigrations tests/faults
	RUNBOARD_FAULTS=full RUNBOARD_TEST_DATABASE=postgresql REPEAT=$(REPEAT) REPEAT_CELERY=$(REPEAT_CELERY) \
		RUNBOARD_FAULTS_PAGE=docs/measurements/reliability.md $(PY) -m pytest -q --nomigrations --durations=10 tests/faults

lint: $(TEST_STAMP) ## check style, types, templates, import layers, code size, migrations, production settings, and the API schema
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

measure-structure: $(TEST_STAMP) ## print statements, lines, imports, and cycles of each package as a table
	@$(PY) tests/structure/measure.py --longest 10

benchmark: $(TEST_STAMP) ## measure speed, write docs/measurements/speed.md, and fail if a bound is missed (35 minutes)
	RUNBOARD_VAR=build/benchmark $(PY) tests/benchmarks

check-figures: $(VENV)/created ## check that docs/benchmarks.md has figures of the present code, as a release requires
	$(PY) tests/result_table.py --check

load-test: MINUTES := 10
load-test: $(TEST_STAMP) ## load the site with 200 readers and 20 uploads of 100 MB behind nginx (MINUTES=10, READERS=200)
	PYTHONPATH=. $(PY) tests/load/run.py --minutes $(MINUTES) --readers $(READERS) --write docs/measurements/load.md

screenshot: $(TEST_STAMP) $(ASSETS_STAMP) ## take the pictures of a board and of its parts for the README and the docs, from a fresh demo site
	$(PY) -m tests.screenshot

attack: $(TEST_STAMP) ## attack hidden judgments with each protection on and off, write the tables, and fail if a bound is missed
	RUNBOARD_ATTACK=1 $(PY) -m pytest -q tests/attack
	PYTHONPATH=. $(PY) tests/attack/campaign.py --write docs/measurements/attack.md

fuzz: $(TEST_STAMP) ## fuzz all untrusted input: 10,000 cases per kind, bombs, then coverage-guided (MINUTES=60)
	RUNBOARD_FUZZ_CASES=$(CASES) $(PY) -m pytest -q tests/evaluation/core/test_hostile_bytes.py
	PYTHONPATH=. $(PY) tests/fuzz/bombs.py --write docs/measurements/reliability.md
	PYTHONPATH=. $(PY) tests/fuzz/session.py $(MINUTES) --write docs/measurements/reliability.md

sanitize: $(TEST_STAMP) ## test the compiled kernel with gcc's sanitizers
	tests/fuzz/sanitize.sh $(PY)

check-containers: $(TEST_STAMP) ## check docker/compose.yaml with Docker Compose, our rules, the proxy, and the database roles
	PYTHONPATH=. $(PY) tests/docker/check_compose.py
	PYTHONPATH=. $(PY) tests/docker/try_proxy.py
	PYTHONPATH=. $(PY) tests/docker/try_roles.py

try-dockerfile: $(TEST_STAMP) ## run the Dockerfile's steps in a plain Debian and serve from it; needs root (TARGET=web or cpu-worker)
	PYTHONPATH=. $(PY) tests/docker/try_dockerfile.py $(TARGET)

try-compose: $(TEST_STAMP) ## start compose.yaml's services and bring a run and a model to a board; needs root
	PYTHONPATH=.:client $(PY) tests/docker/try_compose.py

fuzz-checkpoints: $(TEST_STAMP) ## corrupt valid checkpoints at random: each must be accepted or rejected with a reason (COUNT=..., SEED=...)
	PYTHONPATH=. $(PY) tests/fuzz/spoilt_checkpoints.py $(COUNT) $(SEED)

lock: $(TOOLS_STAMP) ## update the locks after a change of requirements (UPGRADE="NAME ..." or all for newer versions)
	UPGRADE="$(UPGRADE)" $(TOOLS)/bin/python locks/make.py

check-locks: $(TOOLS_STAMP) ## resolve every lock for Linux and macOS, each Python version, and torch for CPU and CUDA
	$(TOOLS)/bin/python locks/check.py

audit: $(TOOLS_STAMP) ## look for known vulnerabilities of locked packages and for secrets in the history; needs the internet
	$(TOOLS)/bin/python locks/audit.py

docs: $(TOOLS_STAMP) ## build the documentation as a site in build/docs
	@NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build --strict --quiet && echo 'build/docs/index.html'

wheels: $(RUN_STAMP) ## build the packages runboard-eval (evaluation/) and runboard (client/) in build/wheels
	$(PY) packages/evaluation_wheel.py build/wheels
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheels ./client

pin-images: ## write the digests of the images in docker/; needs Docker
	python3 docker/pin_images.py

clean: ## remove .venv, build/ and caches; never var/
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +

$(RUN_STAMP): $(VENV)/created
	@echo "Installing what requirements.txt names, as locked in $(LOCKS)/, into $(VENV) (once; two minutes or so) ..."
	@$(INSTALL_LOCKED) --requirement $(LOCKS)/run.txt
	@$(INSTALL_COMPILER)
	@($(COMPILE_KERNELS)) & $(INSTALL_TORCH); status=$$?; wait; exit $$status
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

# Some distributions ship Python without ensurepip. Their pip can then install pip into the environment.
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
