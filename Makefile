# `make` lists the targets. Environments are made by scripts/env.py: dependencies are installed once per machine, below
# $XDG_CACHE_HOME/twintrace/envs (or ~/.cache/…), and .venv is this checkout's thin layer over them.

# 3.11 is what everything is tested on; any other of 3.10 to 3.13 will do. `make test PYTHON=python3.12` chooses.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3.13 python3; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
PY := .venv/bin/python
env = $(or $(PYTHON),$(error no Python 3.10 to 3.13 with venv found: install one, or say make $@ PYTHON=/path/to/python)) scripts/env.py

PYTEST_ARGS ?= -n auto
# A framework that is not installed is an error, not a pile of skipped tests. For 3.13 there is no MindSpore: REQUIRE=--require=torch.
REQUIRE ?= --require=torch --require=mindspore
BENCH ?= record compare npy msprobe torch_npu

.DEFAULT_GOAL := help
.PHONY: help demo test test-all matrix mutants lint docs bench picture clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: ## find the difference between a small network in PyTorch and its port to MindSpore
	@$(or $(PYTHON),python3) -c 'import sys; sys.version_info < (3, 13) or sys.exit("demo: MindSpore has no release for this Python. Take an older one: make demo PYTHON=python3.12")'
	@$(env) pinned fast
	@$(PY) examples/01_find_the_difference/in_torch.py runs/demo
	@$(PY) examples/01_find_the_difference/in_mindspore.py runs/demo
	@echo
	@.venv/bin/twintrace compare runs/demo/torch runs/demo/mindspore --html runs/demo/report.html || test $$? = 1  # 1: they part, which is the point

test: lint ## lint, then every test but the slow ones (PYTEST_ARGS="-n auto")
	$(PY) -m pytest $(PYTEST_ARGS) $(REQUIRE) -m "not slow"

test-all: lint ## lint, then every test
	$(PY) -m pytest $(PYTEST_ARGS) $(REQUIRE)

matrix: ## the tests with the oldest, middle and newest versions; writes docs/reference/versions.md (MATRIX="oldest --discard")
	@$(or $(PYTHON),python3) scripts/matrix.py $(MATRIX)

mutants: ## changes of the source that no test notices (MUTANTS="--paths src/twintrace/judge --count 200 --seed 1")
	@$(env) dev
	@OMP_NUM_THREADS=1 nice $(PY) scripts/mutants.py $(MUTANTS)

lint: ## ruff check, ruff format --check, mypy
	@$(env) dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

docs: ## build the site into build/site; a link that leads nowhere is an error
	@$(env) docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "docs: build/site/index.html"

bench: ## measurements beside the peers (BENCH="record …": modules of benchmarks/)
	@$(env) test
	@status=0; for name in $(BENCH); do $(PY) -m benchmarks.$$name || status=$$?; done; exit $$status

picture: ## make docs/images/report.png anew (needs chromium)
	@$(env) test
	@$(PY) scripts/picture.py

clean: ## remove .venv, caches and builds from the checkout (not the cached dependencies)
	rm -rf .venv .mypy_cache .pytest_cache build dist
	find . -type d \( -name __pycache__ -o -name .ruff_cache \) -prune -exec rm -rf {} +
