# make demo: set up and run the quickstart. make check: linters, types, import contracts and the quick tests, for daily
# use. make test: the tests. make drills: the long ones. make test-processors: the tests as each kind of processor
# computes. make test-lowest, make test-newest: the quick tests with the lowest versions that pyproject.toml allows, and
# with the newest. make mutants: whether the tests find mistakes. make release-check: whether a release can be made; the
# packages and the bill of materials are then in dist/. Each sets up what it needs from Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(if $(shell command -v uv),uv pip install --python $(BIN)/python,$(BIN)/python -m pip install --disable-pip-version-check)
INSTALL = .ci/say "installing what fedkernel needs into $(VENV)" $(PIP) --quiet --constraint constraints.txt

# As `make docs SPHINX="-D plot_gallery=0"`, which runs no example of the gallery
SPHINX ?=

# OpenBLAS' kernels, whose last bits differ; SkylakeX takes a processor with AVX-512
PROCESSORS ?= Haswell Zen SkylakeX Sandybridge
# One that this processor would not take by itself, and the tests where a last bit could decide what is a direction
OTHER_KERNEL ?= $(shell grep -qs avx512f /proc/cpuinfo && echo Haswell || echo Sandybridge)
NUMERICAL = $(addprefix tests/, $(addsuffix .py, \
	numerics/test_eigenpairs numerics/test_power numerics/test_remote_lanczos numerics/test_subspaces site/test_gate \
	site/test_guards strategies/test_admm_steps strategies/test_dkpca strategies/test_vfedpca \
	strategy/test_projecting))

.PHONY: demo check test drills test-kernel test-processors test-lowest test-newest mutants release-check lint docs bench benchmark defaults performance clean

demo: $(VENV)/.demo
	$(BIN)/fedkernel demo --out runs/quickstart

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-kernel: $(VENV)/.dev
	OPENBLAS_CORETYPE=$(OTHER_KERNEL) $(BIN)/python -m pytest -q -n 3 --dist loadfile $(NUMERICAL)

drills: $(VENV)/.dev
	$(BIN)/python -m pytest -m drill -n 3 --dist loadfile

test-processors: $(VENV)/.dev
	for kernel in $(PROCESSORS); do \
		echo "== $$kernel"; OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest -q -n 3 --dist loadfile || exit 1; \
	done

test-lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) .ci/lowest.py) --editable .
	$(VENV)-lowest/bin/python -m pytest --quick -n 2 -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning

test-newest:
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable ".[simulation,dev]"
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "flwr[simulation]" # past our bound, too
	$(VENV)-newest/bin/python -m pytest --quick -n 2 -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning

release-check:
	PYTHON=$(PYTHON) .ci/release $(TAG)

mutants: $(VENV)/.dev
	$(BIN)/python benchmarks/mutants.py --strict $(MUTANTS)

check: lint
	$(BIN)/python -m pytest --quick -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -j 2 $(SPHINX) docs build/docs

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/performance.py
	$(BIN)/python benchmarks/grpc_many.py
	$(BIN)/python benchmarks/resumed.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/restarted.py
	$(BIN)/python benchmarks/drills.py
	$(BIN)/python benchmarks/fuzz.py
	$(BIN)/python benchmarks/lying_sites.py
	$(BIN)/python benchmarks/many_rounds.py

defaults: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/defaults.py

# Rivals have environments of their own in build/rivals. QUICK=1: one or two problems a task, page in build/
benchmark: $(VENV)/.dev
	$(BIN)/python benchmarks/benchmark.py $(if $(QUICK),--quick)

performance: $(VENV)/.dev
	$(BIN)/python benchmarks/performance.py

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest build dist runs docs/gallery docs/project docs/reference/api

$(BIN)/python:
	.ci/say "making an environment, $(VENV)" $(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable .
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable ".[docs]"
	touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable ".[simulation,dev]"
	touch $@ $(VENV)/.demo
