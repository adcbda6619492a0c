# `make demo` and `make test` are all a fresh machine needs: they build their own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
LOWEST := .venv-lowest

.PHONY: setup demo test core long docs whole without optimized lowest attack fuzz smoke speed site lint voice types imports format ci clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,docs]"
	touch $(READY)

demo: $(READY)
	$(BIN)/filtrax demo

test: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m "not documentation and not speed and not long and not golden"

# The library alone, without the laboratory.
core: $(READY)
	$(BIN)/pytest tests/core tests/accelerate -n 2 --dist loadgroup -m "not speed and not long"

long: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m "long or golden"

docs: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m documentation

# What the three above run but golden numbers, in one go: both cores are busy to the end.
whole: $(READY)
	$(BIN)/pytest -n 2 --dist loadgroup -m "not speed and not golden"

# The library in a copy that has neither kernels nor laboratory: nothing may need them.
without: $(READY)
	rm -rf runs/without && mkdir -p runs/without && cp -r src tests examples runs/without/
	cd runs/without/src/filtrax && rm -r accelerate lab cli __main__.py
	cd runs/without && PYTHONPATH=src ../../$(BIN)/pytest -c ../../pyproject.toml --rootdir . \
		tests/core/filters tests/core/test_interface.py tests/core/test_examples.py \
		-n 2 --dist loadgroup -m "not speed and not long" -p no:cacheprovider
	rm -rf runs/without

# Oracles and gradients as users compile them: other tests switch the optimizer off.
optimized: $(READY)
	XLA_FLAGS=--xla_cpu_parallel_codegen_split_count=1 $(BIN)/pytest -n 2 --dist loadgroup -m "not long" \
		tests/core/filters/test_kalman_oracle.py tests/core/filters/test_gradients.py

# Every cell of every table at its smallest: about half an hour on two cores.
# What is done is not run again, so that it can be interrupted.
smoke: $(READY)
	XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" \
	$(BIN)/filtrax reproduce all --scale smoke --out runs/smoke

# The lowest versions that pyproject.toml allows, in an environment of their own.
lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tools/lowest.py > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python -m pip install --quiet --requirement $(LOWEST)/requirements.txt
	PYTHONPATH=$(CURDIR)/src $(LOWEST)/bin/python -m pytest -n 2 --dist loadgroup -p no:cacheprovider \
		-m "not long and not speed and not golden and not documentation" \
		tests/core/filters tests/core/test_interface.py tests/core/test_plot.py tests/cli/test_verbs.py \
		tests/training/test_fit.py tests/training/test_checkpoints.py tests/lab/experiments tests/lab/report

# All bad inputs that programs made up, a few minutes; it writes their figures.
attack: $(READY)
	$(BIN)/python tests/attack/figures.py --write docs/reliability.md

# Fuzzers of all parsers.
MINUTES ?= 10
fuzz: $(READY)
	$(BIN)/python tests/attack/fuzz.py --minutes $(MINUTES)

speed: $(READY)
	$(BIN)/pytest -m speed

# The documentation in `runs/site`, with links that lead nowhere as errors.
site: $(READY)
	$(BIN)/python tools/build_site.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Docstrings and comments that begin like riddles are refused.
voice: $(READY)
	$(BIN)/python tools/voice.py src tools benchmarks examples

types: $(READY)
	$(BIN)/pyright

imports: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ci: lint types imports voice site whole without optimized speed

clean:
	rm -rf $(VENV) $(LOWEST) .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist
