# The whole developer interface. `make setup` once, then `make check test` before every commit.
# HOUSE=eclose-train, and so on, limits setup, fast, test and coverage to one house.

HOUSES := eclose eclose-train eclose-annotate eclose-world
HOUSE ?=
LOCK := $(or $(HOUSE),dev)
CHOSEN := $(or $(HOUSE),$(HOUSES))
# Tests use the world, which stands on eclose-train; only tests of eclose and of its own use eclose-annotate.
NEEDED := $(if $(filter eclose-train eclose-world,$(HOUSE)),$(filter-out eclose-annotate,$(HOUSES)),$(HOUSES))
EDITABLE := $(NEEDED:%=--editable packages/%)
WITH_TORCH := $(filter eclose-train,$(CHOSEN))

VENV ?= .venv
AT_ONCE ?= 2
BIN := $(VENV)/bin
# The site's tools have an environment of their own: they and the package need not agree on versions.
SITE_VENV ?= build/site-venv
RELEASE_VENV ?= build/release-venv
SPELLED := $(wildcard *.md packages/*/*.md packages/*/src) docs skills studies scripts examples
WHEEL_VENV ?= build/wheel-venv
# -m replaces the filter of the fast lane. Tests that compare times run alone, after the others.
PYTEST := $(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal -m 'not (timing or study)'
# Collecting everything again for a few of them would take as long as they do.
TIMED = $(shell grep -rl --include='test_*.py' 'mark\.timing' $(if $(HOUSE),packages/$(HOUSE)/tests,packages studies tests))
# What all figures rest on, covered by its own tests alone. Counting lines takes nearly as long as the tests themselves.
COUNTED := values stats metrics

.PHONY: setup setup-light check format fast test test-parallel test-timing studies coverage breakings train-versions figures campaigns docs \
	benchmark pins pictures tutorials site demo dist wheel-venv install-matrix lock

# Environments are made by uv: the one on the path, or one that pip puts into build/uv.
UV := $(shell command -v uv || echo build/uv/bin/uv)
OWN_UV := $(filter build/uv/bin/uv,$(UV))
# The locks are complete. Resolving again would let `coverage[toml]>=7` of a dependency ask for a version newer than the pin.
PINNED := $(UV) pip install --quiet --require-hashes --no-deps
NEW_VENV := $(UV) venv --quiet --allow-existing --python python3
# Where pip looks for wheels, such as builds of torch for the CPU, uv looks too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# uv compiles nothing when it installs: without bytecode every process of a test would compile torch again, in 20 seconds.
unexport PYTHONDONTWRITEBYTECODE

build/uv/bin/uv:
	python3 -m pip install --quiet --require-hashes --no-deps --target build/uv -r requirements/uv.lock

setup: $(OWN_UV) ## a virtual environment with everything pinned, and the packages in editable form; HOUSE: what one house needs
	$(NEW_VENV) $(VENV)
ifneq ($(WITH_TORCH),) # the CPU build, before anything that would pull a larger one
	$(UV) pip install --quiet --python $(VENV) torch==2.13.0
	$(PINNED) --python $(VENV) -r requirements/models.lock
endif
	$(PINNED) --python $(VENV) -r requirements/$(LOCK).lock
	$(PINNED) --python $(VENV) --python-version 3.12 -r requirements/second.lock
	$(UV) pip install --quiet --python $(VENV) --no-deps --no-build-isolation $(EDITABLE)

setup-light: $(OWN_UV) ## what the fast lane needs, on any interpreter: no torch, no models, nothing pinned
	$(NEW_VENV) $(VENV)
	$(UV) pip install --quiet --python $(VENV) --requirement requirements/$(LOCK).in
	$(UV) pip install --quiet --python $(VENV) --no-deps $(EDITABLE)

check: ## format, lint, types, import contracts, stale documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py --check
	$(BIN)/python scripts/docs/build.py --check

format: ## let the formatter and the fixable lints have their way
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fast: ## the fast lane: offline, no browser, PostgreSQL, Ray, torch or process
	$(BIN)/python -m pytest $(if $(HOUSE),packages/$(HOUSE))

test: test-parallel test-timing ## all tests but the studies; values, stats and metrics must be covered to the last line

# House after house, so that two workers collect that house alone; a failure does not keep the next one from running.
test-parallel:
	@failed=0; run() { echo "== $$*"; $(PYTEST) "$$@" || failed=1; }; \
	case "$(CHOSEN)" in *eclose\ *|eclose) run $(COUNTED:%=packages/eclose/tests/%) $(COUNTED:%=--cov=eclose.%) \
		--cov-report=term:skip-covered --cov-fail-under=100;; esac; \
	for house in $(CHOSEN); do run packages/$$house $(COUNTED:%=--ignore=packages/eclose/tests/%) --durations=10; done; \
	$(if $(HOUSE),,run studies/tests tests --durations=10;) exit $$failed

test-timing:
	$(BIN)/python -m pytest -m timing $(TIMED)

studies: ## the tests that take long: kills at every stage, two devices, real models, many seeds; each has a short twin
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal -m study --durations=25

coverage: ## which lines of the whole package no test reaches
	$(PYTEST) --cov --cov-report=term:skip-covered

breakings: ## single-line changes of the package that a test must catch, tried on copies; takes minutes
	$(BIN)/python scripts/breakings.py --at-once 2

train-versions: ## training on two processes, on the lowest and the newest Transformers
	@set -e; for version in ==5.19.0 ''; do \
		rm -rf build/transformers; $(UV) pip install --quiet --no-deps --target build/transformers "transformers$$version"; \
		PYTHONPATH=build/transformers $(BIN)/python -m pytest -m '' -p no:cacheprovider packages/eclose-train/tests/training/test_distributed.py; done

figures: ## every performance claim, measured now; fails where one does not hold
	@set -e; for script in $(filter-out studies/perf/result.py,$(wildcard studies/perf/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

campaigns: ## every study: kills, simulations, coverage, learning, disclosure; takes hours
	@set -e; for script in studies/campaigns/*.py; do echo "== $$script"; $(BIN)/python $$script; done

docs: ## regenerate what is generated
	$(BIN)/python scripts/docs/build.py

benchmark: ## the rows of the benchmark from the committed records, and their page
	$(BIN)/python scripts/docs/benchmark_page.py --collect

pins: ## renew tests/expected: options, keys of JSON files and the demonstration's outputs, after a wanted change
	$(BIN)/python scripts/pins.py --write

pictures: ## the figures of the documentation, light and dark; needs Chromium and takes minutes
	$(BIN)/python scripts/docs/figures.py

tutorials: ## run the tutorials and write their pages; takes minutes
	$(BIN)/python scripts/docs/tutorial_pages.py

site: $(OWN_UV) ## the documentation as a site in build/site; a broken link or a misspelt word is an error
	$(NEW_VENV) $(SITE_VENV)
	$(PINNED) --python $(SITE_VENV) -r requirements/docs.lock
	$(SITE_VENV)/bin/typos $(SPELLED)
	$(SITE_VENV)/bin/zensical build --strict --config-file mkdocs.yml

demo: ## the README's commands in a fresh folder
	PATH="$(abspath $(BIN)):$$PATH" sh examples/quickstart.sh

dist: $(OWN_UV) ## source archive and wheel of each house, and the bill of materials of all wheels installed
	rm -rf dist $(RELEASE_VENV) $(WHEEL_VENV)
	$(NEW_VENV) $(RELEASE_VENV)
	$(PINNED) --python $(RELEASE_VENV) -r requirements/release.lock
	for house in $(HOUSES); do $(RELEASE_VENV)/bin/python -m build --no-isolation --outdir dist packages/$$house || exit 1; done
	$(MAKE) --no-print-directory wheel-venv EXTRA=annotate,construct,world
	$(RELEASE_VENV)/bin/cyclonedx-py environment --output-file build/eclose.cdx.json $(WHEEL_VENV)/bin/python

# EXTRA=annotate, and so on, brings another house. Constraints, so that each wheel is that of dist and no index is asked.
wheel-venv: $(OWN_UV)
	$(NEW_VENV) $(WHEEL_VENV)
	for wheel in $(abspath $(wildcard dist/*.whl)); do name=$${wheel##*/}; echo "$${name%%-*} @ file://$$wheel"; done \
		>$(WHEEL_VENV)/wheels.txt
	$(UV) pip install --quiet --python $(WHEEL_VENV) $(CONSTRAINTS:%=--constraint %) --constraint $(WHEEL_VENV)/wheels.txt \
		"eclose$(EXTRA:%=[%])"

install-matrix: ## every extra in a fresh environment, and the lowest versions; needs uv, takes minutes
	$(BIN)/python scripts/install_matrix.py
	$(BIN)/python scripts/install_matrix.py --lowest

COMPILE := $(UV) pip compile --quiet --generate-hashes --strip-extras --no-header --python-version 3.11

lock: $(OWN_UV) ## pin the versions of everything, with hashes; those of a house are the ones of the whole
	for name in dev docs release uv; do \
		$(COMPILE) --output-file=requirements/$$name.lock requirements/$$name.in || exit 1; done
	for house in $(HOUSES); do $(COMPILE) --constraint requirements/dev.lock \
		--output-file=requirements/$$house.lock requirements/$$house.in || exit 1; done
	$(UV) pip compile --quiet --generate-hashes --no-deps --no-header --python-version 3.12 \
		--output-file=requirements/second.lock requirements/second.in
