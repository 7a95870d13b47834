# make demo | test | test-thorough | test-slow | mutants | package | lab | docs | bench — each sets up what it needs, once.
SHELL := /bin/bash
BIN := .venv/bin
export MPLBACKEND := agg
export PYTHONWARNINGS := ignore::FutureWarning:arviz

.PHONY: demo test test-thorough test-slow mutants package lab docs bench export execute readme check clean

TORCH := torch==2.13.0
PYTHON := python3

# ---- set-up: a stamp file newer than what it was made from means there is nothing to do
.venv/.installed: settings.ini setup.py pyproject.toml  # PyTorch first: its CPU build, where the index has one
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here: install Python 3.11 or later, or name yours:  make demo PYTHON=python3.12" >&2; exit 1; }
	@TORCH="$(TORCH)" $(PYTHON) tests/install.py torch library
	@touch $@

.venv/.docs .venv/.dask .venv/.bench: .venv/.installed
	@$(PYTHON) tests/install.py $(@:.venv/.%=%)
	@touch $@

# ---- using it
demo: .venv/.installed
	@$(BIN)/python -m dpsbi.demo

lab: .venv/.installed
	@echo "The notebooks in a browser; open index.ipynb there. Ctrl-C ends it."
	@$(BIN)/jupyter lab nbs

# ---- proving it
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile

QUICK := -m "not slow and not thorough"

test: .venv/.installed  # what sees a mutant, and what is quick; ARGS="-k svt", ARGS=nbs/owner: all that is fast there
	@echo "The tests, and the pages whose own cells catch a fault: some 4 minutes on two cores, for all of them ..."
	@$(PYTEST) $(or $(ARGS),$(QUICK))

test-thorough: .venv/.installed  # all other fast tests, and the fast cells of all other pages
	@echo "What takes a second or so, and the fast cells of every other page: some 7 minutes on two cores ..."
	@$(PYTEST) -m thorough $(ARGS)

test-slow: .venv/.installed .venv/.dask  # hours; ARGS=--shard=1/6 for a part
	@echo "The slow tests and cells: many hours, for all of them ..."
	@$(PYTEST) -m slow --durations=10 $(ARGS)

mutants: .venv/.installed  # small faults, one at a time: a fast test has to fail; ARGS="-k owner.svt"
	@echo "Small faults, one at a time, and the tests that must see them: hours, for all of them ..."
	@$(BIN)/python -m pytest -n auto tests/mutants.py $(ARGS)

package: .venv/.installed  # wheel and source archive, from a clone, in fresh environments
	@echo "Wheel and source archive, each in a fresh environment: 10 minutes or more ..."
	@$(BIN)/python tests/package.py $(PYTHON) --first "$(TORCH)" $(ARGS)

# pages whose rows are kept under nbs/references: what is missing is made, and a page executed again
STUDIES := benchmarks bench/01_tasks bench/02_runs bench/03_side_by_side bench/04_owners_side \
	bench/05_growth bench/06_profile bench/07_gpu cases/33_blind_tasks cases/34_forecasts \
	cases/43_in_two_steps cases/46_stepped_epidemic cases/47_ordinary_problems \
	simulators/04_epidemic analyst/smc/05_input_smc analyst/05_refine cases/32_sharp_releases \
	analyst/marginal/04_surrogate analyst/neural/05_sppe cases/29_references analyst/neural/08_sple \
	cases/31_neural_choices cases/30_neural_cases frontier

bench: .venv/.bench  # hours at first, then only the rows that are missing; NB=nbs/frontier.ipynb for one page
	for page in $(or $(NB),$(STUDIES:%=nbs/%.ipynb)); do \
		(cd $$(dirname $$page) && $(abspath $(BIN))/jupyter execute --inplace $$(basename $$page)) || exit 1; done
	$(BIN)/nbdev_clean

# ---- keeping notebooks, package and README in step
export: .venv/.installed
	$(BIN)/nbdev_export
	$(BIN)/nbdev_clean

# with agg, a notebook would show no figures, and be written without them
lab execute bench: export MPLBACKEND := module://matplotlib_inline.backend_inline
execute: .venv/.installed  # make execute NB=nbs/00_privacy.ipynb
	cd $(dir $(NB)) && $(abspath $(BIN))/jupyter execute --inplace $(notdir $(NB))
	$(BIN)/nbdev_clean

readme: .venv/.installed
	$(BIN)/python nbs/readme.py

# notebooks clean and exported, README written from the index: nothing changes when all are written again
SOURCES := find nbs dpsbi -path nbs/_build -prune -o \( -name '*.ipynb' -o -name '*.py' \) -print | sort | xargs sha256sum
check: .venv/.installed
	@$(SOURCES) > .venv/.before
	@$(MAKE) --no-print-directory export
	@$(SOURCES) > .venv/.after
	@cmp -s .venv/.before .venv/.after || { diff .venv/.before .venv/.after | sed -n 's/^> [0-9a-f]* */changed: /p'; \
		echo "a notebook was not clean, or the package not in step; it is now: look at it, and commit it" >&2; exit 1; }
	@$(BIN)/python nbs/readme.py --check

# ---- the site: notebooks as they are, with their outputs; nothing is fetched when a page is read
MATHJAX := mathjax@3.2.2

nbs/_static/mathjax/tex-svg-full.js:
	@command -v npm >/dev/null || { echo "make docs needs npm (part of Node.js) to fetch $(MATHJAX) once; install it, e.g. apt-get install npm" >&2; exit 1; }
	@mkdir -p nbs/_build/npm $(@D)
	@npm pack --loglevel=error --pack-destination nbs/_build/npm $(MATHJAX) >/dev/null
	@tar -xzmf nbs/_build/npm/$(subst @,-,$(MATHJAX)).tgz -C $(@D) --strip-components=1 package/LICENSE
	@tar -xzmf nbs/_build/npm/$(subst @,-,$(MATHJAX)).tgz -C $(@D) --strip-components=2 package/es5/$(@F)

docs: .venv/.docs nbs/_static/mathjax/tex-svg-full.js
	@echo "Building the site from the notebooks: some minutes ..."
	@$(BIN)/sphinx-build -q -j auto -W -b html -d nbs/_build/doctrees nbs nbs/_build/html \
		|| { rm -rf nbs/_build/doctrees; exit 1; }  # so that the next run reads, and warns, again
	@echo "The site is ready: open nbs/_build/html/index.html"

clean:
	rm -rf .venv nbs/_build nbs/_api nbs/_static/mathjax build dist *.egg-info
