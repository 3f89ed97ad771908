# `make help` lists the targets. `make check test-all` is what .ci/run runs.
PYTHON ?= python3

.PHONY: help dev run test test-all coverage covered check lint types lock docs site bench faults \
  release requirements audit

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

dev: ## Create .venv with all extras and install the pre-commit hooks
	python3 -m venv .venv
	.venv/bin/pip install -q -e '.[test,lake,zookeeper,docs,dev]'
	.venv/bin/pre-commit install

run: ## Run a broker
	$(PYTHON) -m korvet

test: ## Run the quick tests, which need only Python
	$(PYTHON) -m pytest

test-all: test ## Run all tests: Java, Spark, other clients, a browser, processes, long faults
	$(PYTHON) -m pytest -m "spark or java or interop or browser or slow or processes"

coverage: ## Run the quick tests, measure the services' coverage: it must reach the floor
	$(PYTHON) -m coverage erase
	$(PYTHON) -m pytest -p tests.covered
	$(MAKE) covered

covered: ## Report the coverage that a run with `-p tests.covered` measured
	$(PYTHON) -m coverage combine -q
	$(PYTHON) -m coverage report

check: lint types ## Run the linters and the type checker
	$(PYTHON) -m docs.generate --check

lint: ## Check style and format
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: ## Check types
	$(PYTHON) -m mypy --strict

lock: ## Write lua/scripts.lock
	$(PYTHON) -m korvet.scripts.lock

docs: ## Write the generated pages and parts of pages
	$(PYTHON) -m docs.generate

site: ## Build the documentation into build/site; a broken link is an error
	$(PYTHON) -m mkdocs build --strict

faults: ## Run every fault with 20 seeds, and write the results that the docs show
	$(PYTHON) -m tests.faults --seeds 20 --write --clients Java franz-go kafka-python

bench: ## Measure a fresh broker
	$(PYTHON) -m benchmarks

release: ## Build sdist and wheel, check them, run the wheel in a clean environment
	PYTHON=$(PYTHON) bash .ci/release

# The exact packages of the image and of a release, with their hashes.
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make requirements" uv pip compile -q --upgrade --universal \
  --python-version 3.11 --generate-hashes --no-annotate

requirements: ## Update the locked packages of the image and of a release; needs uv
	$(COMPILE) --extra oauth --extra zookeeper -o deploy/requirements.txt pyproject.toml
	$(COMPILE) -o deploy/requirements-release.txt deploy/requirements-release.in

audit: ## Ask for known flaws of the locked packages; needs pip-audit and its service
	pip-audit --require-hashes --disable-pip -r deploy/requirements.txt
