# Two commands: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: demo test lint format bench docs clean setup

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "pipla needs Python 3.11 or newer; set PYTHON=..."'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/pipla demo --out demo

test: setup
	$(BIN)/python -m pytest -n $(WORKERS)

lint: setup
	$(BIN)/ruff check src tests benchmarks examples docs/hooks
	$(BIN)/ruff format --check src tests benchmarks examples docs/hooks
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix src tests benchmarks examples docs/hooks
	$(BIN)/ruff format src tests benchmarks examples docs/hooks

bench: setup
	$(BIN)/python benchmarks/logistic.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/total_variation.py

docs: setup
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo site build dist
