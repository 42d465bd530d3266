# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo environment test lint docs wheel bench bench-quick format clean

demo: .venv/demo-installed
	$(BIN)/zonal demo --out demo

# All that tests, checks and pages need, in one installation.
environment: .venv/all-installed

# Every worker has a core of its own; more threads, of BLAS or of LightGBM, would be in
# each other's way.
test: .venv/dev-installed
	OMP_NUM_THREADS=1 LOKY_MAX_CPU_COUNT=1 $(BIN)/python -m pytest -n auto

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: .venv/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The wheel, installed in an environment of its own, runs the example of the README.
# It imports a small part of what is installed, so no more than that is compiled.
wheel: | $(BIN)/python
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --no-compile dist/*.whl pandas
	cd build && wheel/bin/python -m doctest -o NORMALIZE_WHITESPACE ../README.md

# Measures zonal beside its peers: all experiments, or EXPERIMENTS="uci susy".
bench: .venv/bench-installed
	PYTHONPATH=benchmarks $(BIN)/python -m zonal_bench $(or $(EXPERIMENTS),all)

bench-quick: .venv/dev-installed
	PYTHONPATH=benchmarks $(BIN)/python -m zonal_bench --quick

format: .venv/dev-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo build dist

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/demo-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[cli,plot]"
	touch $@

.venv/docs-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

.venv/bench-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[bench,cli,plot]"
	touch $@ .venv/demo-installed

.venv/dev-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ .venv/demo-installed

.venv/all-installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev,docs]"
	touch $@ .venv/dev-installed .venv/docs-installed .venv/demo-installed
