# The two commands for a newcomer are `make demo` and `make test`; `make check` is the quick tier for
# development. Every target sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
CODE := src tests lab benchmarks examples docs/hooks conftest.py
# conftest.py says which tests stay on one worker.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

.PHONY: demo test check quick attack lint format bench docs clean setup

setup: $(READY)

$(READY): pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "pipla needs Python 3.11 or newer; set PYTHON=..."'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' # the first with --group
	$(BIN)/python -m pip install --quiet --editable '.[all]' --editable lab --group dev
	@touch $@

demo: setup
	$(BIN)/pipla demo --out demo

test: setup
	$(PYTEST)

# Lint, types, and every test that is quick when the compiled programs are cached.
check: lint quick

quick: setup
	$(PYTEST) -m 'not slow' --ignore=lab/tests/experiments

# Hostile files, kills, interrupts, savers and threads at full length (`make test` has a share).
attack: setup
	$(BIN)/python tests/attack/files.py
	$(BIN)/python tests/attack/odd_calls.py --count 10000
	$(BIN)/python tests/attack/odd_calls.py --count 10000 --x64
	$(BIN)/python tests/attack/default_threads.py

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config lab/.importlinter
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup
	$(BIN)/python benchmarks/logistic.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/total_variation.py
	$(BIN)/python benchmarks/sparse.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/minibatch.py
	$(BIN)/python benchmarks/nuclear.py

docs: setup
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo site build dist
