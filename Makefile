# Every command sets up what it needs in .venv first, from nothing but python3 and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
CONFIG ?= configs/resnet50.yaml
ARGS ?=
PROCESSES ?= auto
GPU_PYTHON ?= python3
GPU_VERSION ?= 3.12
GPU_SECONDS ?= 240
LOWEST := $(VENV)/lowest
LOWEST_PYTHON ?= python3.11
LOWEST_EXTRAS := tune lab onnx rpc tracking ray gpu
LOWEST_TESTS := tests/autotune/compiler/test_check.py tests/autotune/config tests/autotune/graph/test_mixed.py \
	tests/autotune/graph/test_onnx_model.py tests/autotune/report tests/costmodel/test_booster.py \
	tests/costmodel/test_dataset.py tests/costmodel/test_program_models.py tests/measure/test_record.py \
	tests/measure/rpc/test_protocol.py tests/targets/test_machine_code.py::test_only_innermost_loops_count
BIN := $(VENV)/bin
RUN := $(VENV)/.run
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
BENCH := $(VENV)/.bench
LOCK := requirements.lock

# Every package has its version in the lock, build backends too: pip hands a variable on to the environment in which it
# builds, from 26.2 on the second one alone.
INSTALL := PIP_CONSTRAINT=$(LOCK) PIP_BUILD_CONSTRAINT=$(LOCK) \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(VENV)/.uv

.PHONY: help run test test-core test-lowest lock fuzz lint types check format docs docs-serve bench bench-long bench-quick tables clean gpu-wheels test-gpu

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18
	@echo
	@echo "  make run CONFIG=configs/matmul.yaml ARGS='--trials 32' runs another configuration with options"
	@echo "  make fuzz ARGS='--minutes 60 --programs 20000 --graphs 5000 --seed 7' looks longer, and at what seed 7 has"
	@echo "  make test PROCESSES=0 ARGS='-x tests/measure' runs some tests in one process"

run: $(RUN) ## tune and compile ResNet-50 on this machine (at most 15 minutes)
	$(BIN)/autotune run $(CONFIG) $(ARGS)

# Tests start hundreds of processes: none of them should compile the modules again, and threads of libraries that wait
# for each other would take the processors from other tests. A process of tests that dies ends the run with the name of
# its test: pytest-xdist would wait for one in its place for ever.
PYTEST_WORDS = -n $(PROCESSES) --maxprocesses=4 --dist=loadgroup --max-worker-restart=0 --durations=20 $(ARGS)
test test-core: export PYTHONDONTWRITEBYTECODE =
test test-core: export OMP_NUM_THREADS = 1
test test-core: export OPENBLAS_NUM_THREADS = 1
test: $(READY) ## run every test
	$(BIN)/python -m pytest $(PYTEST_WORDS)

test-core: $(READY) ## run the tests of the core, in a copy without the laboratory (autotune/lab)
	$(BIN)/python -m tests.without_lab $(PYTEST_WORDS)

# The oldest packages that pyproject.toml allows, and tests that reach each of them; the lock does not hold here.
test-lowest: export PYTHONDONTWRITEBYTECODE =
test-lowest: export OMP_NUM_THREADS = 1
test-lowest: export OPENBLAS_NUM_THREADS = 1
test-lowest: $(UV) ## run a selection of tests with the oldest packages that are allowed (LOWEST_PYTHON, 3.11)
	$(BIN)/uv venv --quiet --clear --python $(LOWEST_PYTHON) $(LOWEST)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python pyproject.toml \
		$(addprefix --extra ,$(LOWEST_EXTRAS)) --output-file $(LOWEST)/lowest.txt
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --requirements $(LOWEST)/lowest.txt \
		hypothesis pytest pytest-timeout pytest-xdist
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	$(LOWEST)/bin/python -m pytest -n $(PROCESSES) --maxprocesses=4 --dist=loadgroup $(LOWEST_TESTS) $(ARGS)

lock: $(UV) ## pin what pyproject.toml asks for in requirements.lock; ARGS=--upgrade takes the newest packages
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --annotation-style line \
		--custom-compile-command 'make lock' pyproject.toml --output-file $(LOCK) $(ARGS)

fuzz: $(READY) ## hold programs, graphs, PyTorch's operators and VTA streams against other evaluators (at most 10 minutes)
	$(BIN)/python -m tests.fuzz $(ARGS)

lint: $(READY) ## hold the style rules against the code, and its layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## check the types of the packages
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/user.py

check: lint types test ## everything a change must pass

format: $(READY) ## sort imports and lay the code out
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

# MkDocs and its theme warn of a MkDocs 2 that the extra `docs` keeps out.
docs docs-serve: export NO_MKDOCS_2_WARNING = 1
docs docs-serve: export EXECUTE ?= false
docs: $(READY) ## build the documentation site into build/site; EXECUTE=true runs the notebooks for it (two minutes)
	$(BIN)/python -m mkdocs build --strict $(ARGS)

docs-serve: $(READY) ## show the documentation site on http://127.0.0.1:8000 while pages change
	$(BIN)/python -m mkdocs serve $(ARGS)

bench: $(BENCH) ## measure what README claims, an hour at a time if wanted: ARGS="--minutes 60" (a working day)
	$(BIN)/python -m benchmarks $(ARGS)

bench-long: $(BENCH) ## measure the other tables, likewise (a second day)
	$(BIN)/python -m benchmarks --long $(ARGS)

bench-quick: $(PEERS) ## say which networks have become slower than at a release (ten minutes): ARGS="--base REVISION"
	$(BIN)/python -m benchmarks.quick $(ARGS)

tables: $(READY) ## write the measured tables and pictures into README and docs
	$(BIN)/python -m benchmarks.table
	$(BIN)/python -m benchmarks.pictures

gpu-wheels: $(READY) ## fetch what test-gpu needs on a machine with PyTorch and no registry (GPU_VERSION of its Python)
	$(BIN)/python -m benchmarks.gpu.wheels --python $(GPU_VERSION)

test-gpu: ## a ladder, tests and a benchmark on the GPU of this machine with GPU_PYTHON, which has PyTorch (8 minutes)
	$(GPU_PYTHON) -m benchmarks.gpu.all

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python must be at least 3.11, but found $$(python3 --version 2>&1); PYTHON=path/to/python3 chooses one" >&2; \
		exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python must be at least 3.11, but $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) must have venv and ensurepip; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml $(LOCK) | $(BIN)/python
	$(INSTALL) -e '.[tune,onnx]'
	@touch $@

$(READY): pyproject.toml $(LOCK) | $(BIN)/python
	$(INSTALL) -e '.[all,test]'
	@touch $@ $(RUN)

$(UV): $(LOCK) | $(BIN)/python
	$(INSTALL) uv
	@touch $@

$(PEERS): $(READY)
	$(INSTALL) -e '.[bench,survey]'
	@touch $@

# A peer that is compiled on the spot, for some minutes, where there is a compiler.
$(BENCH): $(PEERS)
	$(INSTALL) -e '.[llama-cpp]' || \
		echo "llama.cpp could not be compiled; language models are measured without it, and their table says so" >&2
	@touch $@
