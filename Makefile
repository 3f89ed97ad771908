# Each target is one line. `make check` is what CI runs after the tests.
PYTHON ?= python3

.PHONY: run test test-all check lint types lock docs bench

run: ; $(PYTHON) -m korvet
test: ; $(PYTHON) -m pytest
test-all: ; $(PYTHON) -m pytest && $(PYTHON) -m pytest -m "spark or java or interop or slow"
check: test lint types
lint: ; $(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check .
types: ; $(PYTHON) -m mypy --strict
lock: ; $(PYTHON) -m korvet.scripts.lock
docs: ; $(PYTHON) -m korvet.docs
bench: ; $(PYTHON) -m benchmarks
