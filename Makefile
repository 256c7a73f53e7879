# Every target builds the environment it needs under .venv/ from the locks in requirements/,
# with nothing but Python (3.11 or newer) and pip. `make clean` forgets them all, for example after a change of PYTHON.

PYTHON ?= python3
DEMO := results/demo

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check lint types house bench docs dist test-oldest test-newest lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

# ---- what there is to do ---------------------------------------------------------------------------------------------

demo: export MPLBACKEND = Agg
demo: .venv/demo/.stamp ## two figures of the papers in a small size, pictures under results/demo
	rm -rf $(DEMO)
	@echo 'Two figures, in about a minute; the first time most of it is compiling. Importing JAX and scikit-learn ...'
	$(<D)/bin/python -m experiments demo --out $(DEMO)

test: .venv/test/.stamp ## the test suite
	$(<D)/bin/python -m pytest -n auto --dist worksteal

test-oldest: .venv/test-oldest/.stamp ## the test suite on the oldest dependencies allowed, with warnings as warnings
	$(<D)/bin/python -m pytest -n auto --dist worksteal -W default

test-newest: .venv/test-newest/.stamp ## the test suite on the newest dependencies that there are, with warnings as warnings
	$(<D)/bin/python $(PIP) install --upgrade --upgrade-strategy eager -e '.[test]'
	$(<D)/bin/python -m pytest -n auto --dist worksteal -W default

check: lint types house ## lint, format, imports, types and the house rules

lint: .venv/check/.stamp
	$(<D)/bin/python -m ruff check .
	$(<D)/bin/python -m ruff format --check .
	$(<D)/bin/lint-imports --no-cache

types: .venv/check/.stamp
	$(<D)/bin/python -m mypy

house: .venv/check/.stamp
	$(<D)/bin/python -m pytest tests/test_house.py

bench: .venv/demo/.stamp ## the benchmarks
	$(<D)/bin/python -m benchmarks

docs: .venv/docs/.stamp ## the documentation, under site/
	$(<D)/bin/python -m mkdocs build --strict
	$(<D)/bin/python -m tests.built_docs site

dist: .venv/demo/.stamp ## wheel and sdist under dist/, tried in environments with nothing but the core
	rm -rf dist
	$(<D)/bin/python -m hatchling build
	$(<D)/bin/python -m tests.wheel dist/*

clean: ## remove the environments, caches and built files; results/ stays
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- environments ----------------------------------------------------------------------------------------------------

# A Python without ensurepip (Debian without python3-venv) lends its own pip to the environment instead. PIP_USER and
# PYTHONPATH would let the outside in.
unexport PIP_USER PYTHONPATH

# Its errors alone: what it warns of, such as folders in its configuration that are not there, is not ours to mend.
PIP := -m pip --quiet --quiet --disable-pip-version-check

define new_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	    "jaxht needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
	    "Name another with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo 'building the environment $(@D) with $(PYTHON)'
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D) || { rm -rf $(@D) && $(PYTHON) -m venv --without-pip $(@D) \
	    && $(PYTHON) $(PIP) --python $(@D)/bin/python install pip; }
endef

.venv/%/.stamp: requirements/%.txt pyproject.toml
	$(new_environment)
	@$(@D)/bin/python $(PIP) install --require-hashes --only-binary :all: -r $<
	@$(@D)/bin/python $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# Has no lock: `make test-newest` installs what is newest at the time.
.venv/test-newest/.stamp:
	$(new_environment)
	@touch $@

# ---- locks -----------------------------------------------------------------------------------------------------------

# One file serves every Python from 3.11 on: where a package dropped 3.11, markers give each Python its newest.
COMPILE = .venv/lock/bin/python -m uv pip compile --quiet --upgrade --universal --fork-strategy requires-python \
    --python $(PYTHON) --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
    --group build pyproject.toml

.venv/lock/.stamp:
	$(new_environment)
	@$(@D)/bin/python $(PIP) install 'uv>=0.9'
	@touch $@

lock: .venv/lock/.stamp ## renew the locks from pyproject.toml
	$(COMPILE) --extra experiments -o requirements/demo.txt
	$(COMPILE) --extra test -o requirements/test.txt
	$(COMPILE) --extra check -o requirements/check.txt
	$(COMPILE) --extra docs -o requirements/docs.txt
	$(COMPILE) --extra test --resolution lowest-direct -o requirements/test-oldest.txt
