# Each of these targets does all its own set-up, in a virtual environment inside this folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-slow test-browser lint bench lock clean

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Queuewise needs Python 3.11 or later, this is " + sys.version.split()[0])'
	@echo "Setting up $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

demo: $(READY)  ## a figure of LASED and one of WISE beside their claims, and policies on real outcomes
	@$(BIN)/python -m queuewise.experiments.demo

test: lint  ## what decides whether a change is good: linters, types, tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-slow: $(READY)  ## long statistical runs
	$(BIN)/python -m pytest -m slow

test-browser: $(READY)  ## the status page in a Chromium, as in Debian's package chromium
	$(BIN)/python -m pytest -m browser

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)  ## speed and memory, as ratios in one run
	$(BIN)/python -m benchmarks

lock: $(READY)  ## after a change of the dependencies in pyproject.toml
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-annotate --no-header --all-extras --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
