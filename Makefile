# Everything a fresh machine needs: Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
READY_DOCS := $(VENV)/.ready-docs
LOWEST := .venv-lowest
# The extra with the training systems that exports are checked by (1 GB, most of it torch).
RUNTIMES := runtimes
# Whoever may install packages of the system
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# $(call LOCKED,SETS) installs what these sets of .constraints.txt need, and no file whose hash is not
# there. What is built from its sources is built by what is installed, which is checked as well.
LOCKED = $(BIN)/python -m tests.locked $(1) > $(VENV)/locked.txt && \
	$(PIP) --require-hashes --no-deps --no-build-isolation --requirement $(VENV)/locked.txt
UNCHECKED = $(BIN)/python -m tests.locked --unchecked $(1) > $(VENV)/locked.txt && \
	$(PIP) --requirement $(VENV)/locked.txt
ITSELF = $(PIP) --no-deps --no-build-isolation --editable .

# Python's bytecode and, by a few solves, the numerical kernels: no later run waits for them.
WARM := @$(BIN)/python -m compileall -q ilp_planner; echo "compiling the numerical kernels, once"; $(BIN)/ilp-plan solve --json > /dev/null; \
	$(BIN)/ilp-plan solve --space operators --json > /dev/null; \
	$(BIN)/ilp-plan solve --space groups --model gpt-10l-4096 --cluster mixed-a100-t4 --global-batch-size 8 --json > /dev/null; \
	for solver in gradient anneal; do $(BIN)/ilp-plan solve --space operators --solver $$solver --starts 4 --json > /dev/null; done

.PHONY: plan test test-all test-page test-sweeps test-mcp test-lowest fuzz faults soak sbom coverage mutants lint docs notebooks bench bench-gpu clean

plan: $(READY)
	$(BIN)/ilp-plan solve

# Python's bytecode of the tests is kept also where the environment says otherwise: each of pytest's
# processes would compile all of them otherwise, on every run.
test: $(READY_TEST)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto

test-all: $(READY_TEST) docs
	$(BIN)/python -m pytest -n auto --dist worksteal -m "slow or not slow" --hypothesis-profile=new

# Pages of plans in headless Chromium: Debian's or Ubuntu's package, where none is there.
test-page: $(READY_TEST)
	$(call LOCKED,browser)
	for name in chromium chromium-browser google-chrome; do command -v $$name && exit 0; done; \
		$(ROOT) apt-get update && $(ROOT) apt-get install --yes chromium
	$(BIN)/python -m pytest tests/faces/page

# Sweeps whose points Slurm's stand-in, a Dask cluster and a Ray cluster of this machine solve, with
# workers that are killed; tables as Parquet.
test-sweeps: $(READY_TEST)
	$(call LOCKED,parquet slurm dask ray)
	$(BIN)/python -m pytest tests/faces/sweeps -m "slow or not slow"

# Tools for agents, with a client of the Model Context Protocol.
test-mcp: $(READY_TEST)
	$(call LOCKED,mcp)
	$(BIN)/python -m pytest tests/faces/tools

# The fast tests with the lowest versions that pyproject.toml allows; those of 2024 run on Python 3.11
# and 3.12.
test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n auto

# Hostile inputs for all readers, over all cores: `make fuzz COUNT=1000000`.
COUNT := 100000
fuzz: $(READY_TEST)
	$(BIN)/python -m tests.fuzz --count $(COUNT)

# Commands killed at 200 moments each, and all tests of faults.
MOMENTS := 200
faults: $(READY_TEST)
	$(BIN)/python -m tests.faults --count $(MOMENTS)

# Random solves, reads and exports, for as long: memory must not grow.
HOURS := 2
soak: $(READY_TEST)
	$(BIN)/python -m tests.faults.soak --hours $(HOURS)

# The wheel in dist/, and beside it what it needs, as CycloneDX: versions, hashes and licences.
sbom: $(READY)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -m tests.components --sbom dist

# Which lines the fast tests reach, and by which of them: kernels are plain Python for it. Tests that
# take more than a minute so are left out, and those that fail as a search finds less in its time.
coverage: $(READY_TEST)
	$(call LOCKED,coverage)
	-NUMBA_DISABLE_JIT=1 COVERAGE_FILE=.mutants/coverage $(BIN)/python -m pytest -n auto \
		-p tests.mutants.reached --cov=ilp_planner --cov-context=test --cov-report=term:skip-covered

.mutants/coverage:
	$(MAKE) coverage

# Wrong versions of the judge, the costs and the bounds, and which of them no test notices, over all
# cores: `make mutants SEED=17`, `make mutants MODULES="--module evaluate.py"` (docs/dev/mutants.md).
SEED := 16
MODULES :=
mutants: $(READY_TEST) .mutants/coverage
	$(BIN)/python -m tests.mutants --seed $(SEED) $(MODULES)

lint: $(READY_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The manual as a site in site/. Once its tools are installed, neither building nor reading it needs the network.
docs: $(READY_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

# The notebooks of the gallery, run anew and kept with what they show.
notebooks: $(READY_DOCS)
	PATH="$(CURDIR)/$(BIN):$$PATH" COLUMNS=140 $(BIN)/jupyter nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.record_timing=False docs/gallery/*.ipynb

bench: $(READY_TEST)
	$(BIN)/python -m tests.benchmarks

# On a machine with a GPU: profiles of known models into clusters/profiles/, and whole training steps
# against their rows. A run that is cut off goes on where it was.
bench-gpu: $(READY_TEST)
	$(BIN)/python -m tests.benchmarks --suite gpu
	$(BIN)/python tests/benchmarks/gpu_runs.py tests/benchmarks/results/gpu_runs.json
	$(BIN)/python -m tests.benchmarks --suite one_gpu

clean:
	rm -rf $(VENV) $(LOWEST) build dist site .cache *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants
	find ilp_planner tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps say that what these two files pin is installed.
$(READY): pyproject.toml .constraints.txt | $(BIN)/python
	$(call LOCKED,build)
	$(call LOCKED,plan)
	$(ITSELF)
	$(WARM)
	touch $@

# torchtitan alone, without the packages that read text and draw charts: its reader and its models
# need none of them. Its release that Python configures has the same package name, and so a folder of
# its own. `make test RUNTIMES=` leaves all training systems out, and their tests. The searches in
# boxes and for fewest stages compile for fifteen seconds, and all tests for ten, which two workers
# would do side by side: two tests of all do it before.
$(READY_TEST): pyproject.toml .constraints.txt | $(BIN)/python
	$(call LOCKED,build)
	$(call LOCKED,plan test $(RUNTIMES))
	$(if $(RUNTIMES),$(call UNCHECKED,$(RUNTIMES)))
	$(if $(RUNTIMES),$(call LOCKED,titan))
	$(if $(RUNTIMES),$(call LOCKED,titan-0.3.0) --upgrade --target $(VENV)/torchtitan-0.3.0)
	$(ITSELF)
	$(WARM)
	-PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -k "test_the_cheapest_chain or test_no_pipeline_is_faster_or_left_out"
	touch $(READY) $@

$(READY_DOCS): pyproject.toml .constraints.txt | $(BIN)/python
	$(call LOCKED,build)
	$(call LOCKED,plan docs)
	$(ITSELF)
	touch $@

$(LOWEST)/.ready: pyproject.toml .constraints.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) -m tests.lowest > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(LOWEST)/constraints.txt --editable . hypothesis pytest pytest-xdist setuptools
	touch $@
