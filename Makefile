# make demo | test | test-slow | lab | docs | bench — each sets up what it needs, once.
SHELL := /bin/bash
BIN := .venv/bin
export MPLBACKEND := agg
export PYTHONWARNINGS := ignore::FutureWarning:arviz

.PHONY: demo test test-slow lab docs bench export execute readme check clean

# ---- set-up: a stamp file newer than what it was made from means there is nothing to do
.venv/.installed: settings.ini setup.py pyproject.toml
	@echo "Setting up .venv (a minute or two, once) ..."
	@test -x $(BIN)/python || python3 -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

.venv/.docs: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

# ---- using it
demo: .venv/.installed
	@$(BIN)/python -m dpsbi.demo

lab: .venv/.installed
	$(BIN)/jupyter lab nbs

# ---- proving it
test: .venv/.installed
	$(BIN)/nbdev_test --n_workers 2 --timing
	$(BIN)/pytest

test-slow: .venv/.installed
	$(BIN)/nbdev_test --n_workers 1 --timing --flags slow
	$(BIN)/pytest -m "slow or not slow"

bench: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	$(BIN)/jupyter execute nbs/benchmarks.ipynb

# ---- keeping notebooks, package and README in step
export: .venv/.installed
	$(BIN)/nbdev_export
	$(BIN)/nbdev_clean

execute: .venv/.installed   ## make execute NB=nbs/00_privacy.ipynb
	cd $(dir $(NB)) && $(abspath $(BIN))/jupyter execute --inplace $(notdir $(NB))
	$(BIN)/nbdev_clean

docs: .venv/.docs
	@echo docs

clean:
	rm -rf .venv nbs/_build build dist *.egg-info
