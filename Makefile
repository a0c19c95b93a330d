PYTHON ?= python3
BIN := .venv/bin
# many tests wait for a program or a server that they start, so that more processes than cores keep the cores busy
PROCESSES = $$(n=$$(($$(getconf _NPROCESSORS_ONLN) + 2)); echo $$((n < 6 ? n : 6)))

.PHONY: help demo test test-fast test-all daily every accept-terraform checkov test-tensorflow test-jax test-beam mutate contract check audit bench house clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)$$/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r target text; do \
	  printf '%-16s %s\n' "$$target" "$$text"; done

demo: .venv/ready  ## run the six commands on the simulator with a real dataset
	@$(BIN)/python demo/main_job.py

test: .venv/ready  ## check lint and types, run the tests of every day: what must pass before a change lands
	@$(MAKE) --no-print-directory --jobs=2 check daily

test-fast: .venv/ready  ## run the tests without the files that take a while: what one runs while editing
	$(BIN)/python -m pytest --processes $(PROCESSES) -m "not slow and not long"

test-all: .venv/ready  ## check lint and types, run every test: before an issue is closed
	@$(MAKE) --no-print-directory --jobs=2 check every

# while one process collects, mypy has the other core
daily: .venv/ready
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --processes $(PROCESSES) -m "not slow"

# the matrices of faults wait more than they compute
every: PROCESSES = $$(n=$$((3 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n < 12 ? n : 12)))
every: .venv/ready
	TPUCTL_FUZZ_SECONDS=$${TPUCTL_FUZZ_SECONDS:-60} PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --processes $(PROCESSES) -m "not network"

accept-terraform: .venv/ready  ## record the plans of terraform/ anew, unless they break a law: look at the difference in git
	$(BIN)/python -m tests.terraform.plans.record --accept

checkov: .checkov/ready  ## judge terraform/ by the rules of checkov, in an environment of its own (290 MB)
	.checkov/bin/checkov --config-file tests/terraform/checkov.yaml

test-tensorflow: .venv/ready  ## test the emulated TPU with every TensorFlow from 2.16 on; installs each
	$(BIN)/python tests/sim/guest/tensorflow_versions.py

test-jax: .venv/ready  ## test the emulated TPU with releases of JAX up to the newest, on Python 3.12; installs each
	$(BIN)/python tests/sim/guest/jax_versions.py

test-beam: .beam/ready  ## test datasets made by Apache Beam, also on a Dask cluster; needs other versions of packages
	.beam/bin/python -m pytest tests/flows/datasets/beam

mutate: .venv/ready  ## make one-line mistakes in the code that differs from BASE (main), and see whether a test fails
	$(BIN)/python -m tests.mutation --base $(or $(BASE),main) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

contract: .venv/ready  ## run every test, and write which method works with which client into docs/simulator.md
	TPUCTL_CONTRACT_WRITE=1 $(BIN)/python -m pytest --processes $(PROCESSES) -m "not network"

check: .venv/ready  ## check lint, format, types and known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.audit

audit: .venv/ready  ## look up known vulnerabilities of the pinned packages; says so if the database cannot be reached
	$(BIN)/python -m tests.audit

bench: .venv/ready  ## run all benchmarks; they print JSON and a table
	$(BIN)/python -m benchmarks

house: .venv/ready  ## print how heavy the package is: files, lines, imports, tokens
	@$(BIN)/python -m tests.house

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "tpuctl needs Python 3.11 to 3.13; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "this Python cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.beam/ready: pyproject.toml
	$(PYTHON) -m venv .beam
	.beam/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,beam]' 'apache-beam[dask]'
	@touch $@

# checkov holds many packages at exact versions, and has another module named hcl2
.checkov/ready:
	$(PYTHON) -m venv .checkov
	.checkov/bin/python -m pip install --quiet --disable-pip-version-check 'checkov>=3.2,<4'
	@touch $@

clean:  ## delete all environments and what the demo wrote
	rm -rf .venv .demo .tensorflow .jax .beam .checkov
