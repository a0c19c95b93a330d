PYTHON ?= python3
BIN := .venv/bin
PROCESSES = $$(n=$$(($$(getconf _NPROCESSORS_ONLN) + 1)); echo $$((n < 4 ? n : 4)))

.PHONY: demo test test-slow test-terraform test-tensorflow test-beam contract check bench clean

demo: .venv/ready  ## the main job on the simulator, with a real dataset
	@$(BIN)/python demo/main_job.py

test: check  ## everything that has to pass before a change lands
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

test-slow: .venv/ready  ## what takes minutes
	$(BIN)/python -m pytest -m slow

test-terraform: .venv/ready  ## terraform/ with the real terraform, every planted mistake included
	$(BIN)/python -m pytest tests/terraform -m "slow or not slow"

test-tensorflow: .venv/ready  ## the emulated TPU with every TensorFlow from 2.16 on; installs each
	$(BIN)/python tests/sim/guest/tensorflow_versions.py

test-beam: .beam/ready  ## datasets made by an Apache Beam pipeline, which wants other versions of packages
	.beam/bin/python -m pytest tests/flows/datasets/beam/test_upload.py

contract: .venv/ready  ## run the tests, and write what they show of the simulator into docs/simulator.md
	TPUCTL_CONTRACT_WRITE=1 $(BIN)/python -m pytest -m "slow or not slow" --ignore=tests/soak

check: .venv/ready  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready  ## what is measured side by side; JSON and a table
	$(BIN)/python -m benchmarks

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
	.beam/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,beam]'
	@touch $@

clean:
	rm -rf .venv .demo .tensorflow .beam
