# `make demo` and `make test` do all the set-up themselves: they choose a Python (PYTHON=... overrides),
# make .venv and install the project with pinned versions. Both are quick to start the second time.
SHELL := bash
VENV := .venv
VERSIONS := 3.11 3.10 3.12 3.13
BIN := $(VENV)/bin
CODE := tfr_moe beam serving tuning experiments benchmarks
# Number of test processes, `auto` for one per core, four at most; all tests of a file run in one of
# them, files in the order of conftest.py.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder
# The tests of `make test`, by their markers; none for all tests.
MARKED ?= not slow
export PYTHON
# Every test process would compile the package and rewrite the assertions of all tests again.
unexport PYTHONDONTWRITEBYTECODE
# TensorFlow reads the stack of each operation: 4 % less time without positions within lines.
export PYTHONNODEBUGRANGES := 1
# The threads of NumPy's and SciPy's BLAS wait busily from their start: 0.2 s in each process.
export OPENBLAS_NUM_THREADS := 1
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help venv demo lint test test-slow docs gpu-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: ## make or refresh .venv (PYTHON=/path/to/python chooses the interpreter)
	@scripts/make_venv.sh $(VENV) $(VERSIONS)

demo: venv ## logs to served model in one go, into the folder demo/
	$(BIN)/tfr-moe demo --out demo

lint: venv ## style, format, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/python -m pytest -q -m "not smoke" tests/test_architecture.py

test: lint ## lint, then the fast tests
	$(PYTEST) -m "$(MARKED)"

test-slow: venv ## the slow tests only
	$(PYTEST) -m slow

docs: venv ## the documentation, into build/site; a warning is an error
	scripts/build_docs.sh $(BIN)/python

gpu-check: venv ## the layers' tests, the step, reading and an export on a GPU, into gpu-check/
	$(BIN)/python benchmarks/gpu_check.py --out gpu-check

clean: ## remove environments, caches and what the demo made
	rm -rf .venv .venv-lane2 demo gpu-check build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
