# Every target brings its own environment: `make test` on a fresh clone is all it takes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
JOBS ?= 2
CLANG_FORMAT = find runtime/csrc popc/schedule/csrc fuzz/native -name '*.[ch]' -print0 | xargs -0 $(BIN)/clang-format

POPART_ENV := .venv-popart
POPART_TESTS ?=

MINUTES ?= 10
FUZZ := build/fuzz

.PHONY: fuzz release sanitizers help setup demo train-demo test test-all test-serve test-ray conformance oracles popart-extensions popart-tests gradients docs native operators bench lint format wheels clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml setup.py runtime/pyproject.toml
	@echo "Making $(VENV) with popc and what it needs ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@echo "Compiling the native kernels, which takes a minute or two ..."
	@PYTHONWARNINGS=ignore $(PIP) install -e ./runtime
	@PYTHONWARNINGS=ignore $(PIP) install -e .
	@touch $@
	@$(BIN)/popc doctor | sed -n '/^engine/p;/^search/p'
	@echo "$(VENV) is ready."

$(VENV)/.test: $(VENV)/.ready
	$(PIP) install --group test
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) install --group lint
	touch $@

setup: $(VENV)/.ready  ## install popc and popc-runtime into .venv

demo: $(VENV)/.ready  ## compile a trained model and run it on a real input
	$(BIN)/python samples/demo.py

train-demo: $(VENV)/.ready  ## train a network to read digits, export it, use it
	$(BIN)/python samples/train_digits.py

test: $(VENV)/.test  ## run every test that is not marked slow
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m 'not slow'

test-all: $(VENV)/.test  ## run every test
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup --hypothesis-profile=thorough

$(VENV)/.serve: $(VENV)/.test
	$(PIP) install --group serve
	touch $@

test-serve: $(VENV)/.serve  ## run the tests of the server, with Triton's clients
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup tests/serving tests/format/test_remote.py

RAY_ENV := .venv-ray

$(RAY_ENV)/.ready: pyproject.toml runtime/pyproject.toml
	$(PYTHON) -m venv $(RAY_ENV)
	$(RAY_ENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(RAY_ENV)/bin/python -m pip install --quiet -e ./runtime -e .
	$(RAY_ENV)/bin/python -m pip install --quiet --group test --group ray
	touch $@

test-ray: $(RAY_ENV)/.ready  ## run the samples for Ray on a Ray of this machine
	$(RAY_ENV)/bin/python -m pytest -q -n 0 tests/samples/test_ray.py

conformance: $(VENV)/.test  ## count the ONNX backend tests that pass, and list the others
	$(BIN)/python -m tests.conformance.report

$(POPART_ENV)/.ready: pyproject.toml runtime/pyproject.toml facade/pyproject.toml
	$(PYTHON) -m venv $(POPART_ENV)
	$(POPART_ENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(POPART_ENV)/bin/python -m pip install --quiet -e ./runtime -e . -e ./facade
	$(POPART_ENV)/bin/python -m pip install --quiet --group popart-tests
	touch $@

$(POPART_ENV)/.extensions: $(POPART_ENV)/.ready
	@echo "Compiling torch_scatter and torch_spline_conv, which takes some ten minutes ..."
	$(POPART_ENV)/bin/python -m pip install --quiet setuptools wheel
	FORCE_ONLY_CPU=1 $(POPART_ENV)/bin/python -m pip install --quiet --no-build-isolation torch_scatter torch_spline_conv
	touch $@

popart-extensions: $(POPART_ENV)/.extensions  ## build what four more of PopART's tests compare with

popart-tests: $(POPART_ENV)/.ready  ## run PopART's own tests, from the folder POPART_TESTS
	@test -n "$(POPART_TESTS)" || { echo "set POPART_TESTS to a checkout of PopART's repository"; exit 2; }
	$(POPART_ENV)/bin/python -m tools.popart_tests --jobs $(JOBS) "$(POPART_TESTS)"

$(VENV)/.oracles: $(VENV)/.test
	$(PIP) install --group oracles
	touch $@

oracles: $(VENV)/.oracles  ## ask PyTorch anew for the answers in tests/recorded, and compare
	rm -rf tests/recorded
	$(BIN)/python -m pytest -q -n 0 --record-oracles $$(grep -rlE 'pytorch: Pytorch' tests --include='test_*.py')

gradients: $(VENV)/.test  ## which ops have a gradient, and why the others have none
	$(BIN)/python -m tests.autodiff.report

$(VENV)/.fuzz: $(VENV)/.test
	$(PIP) install --group fuzz
	touch $@

fuzz: $(VENV)/.fuzz  ## fuzz readers and the C core, MINUTES=10 for all targets together (needs clang)
	fuzz/build_native.sh $(FUZZ)/native
	$(BIN)/python fuzz/unpack.py $(FUZZ)/corpus
	$(BIN)/python -m fuzz.campaign $(FUZZ) --minutes $(MINUTES) --jobs $(JOBS)

sanitizers: $(VENV)/.ready  ## the C core under ASan, UBSan and TSan, some two minutes (needs clang)
	PYTHON=$(BIN)/python .ci/sanitizers

docs: $(VENV)/.ready  ## make options.md, dialects.md, patterns.md, popart.md and schemas/ of docs anew
	$(BIN)/python tools/options_page.py > docs/options.md
	$(BIN)/python tools/dialects_page.py > docs/dialects.md
	$(BIN)/python tools/patterns_page.py > docs/patterns.md
	$(BIN)/python -m tools.popart_page > docs/popart.md
	$(BIN)/python -m tools.schemas_page docs/schemas

native: $(VENV)/.test  ## make docs/inside/native-instructions.md anew: which instructions run natively
	$(BIN)/python -m tools.native_page > docs/inside/native-instructions.md

operators: $(VENV)/.ready  ## make popc/frontend/operators.txt anew, of what onnx knows about operators
	$(BIN)/python -m tools.operators_table > popc/frontend/operators.txt

bench: $(VENV)/.test  ## measure speed, start-up, compile time and size beside onnxruntime
	$(BIN)/python -m benchmarks

lint: $(VENV)/.lint  ## style, types, layers, budgets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(CLANG_FORMAT) --dry-run --Werror
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks tools fuzz
	$(BIN)/mypy samples
	$(BIN)/mypy facade
	$(BIN)/lint-imports
	$(BIN)/python tools/budgets.py

format: $(VENV)/.lint  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CLANG_FORMAT) -i

$(VENV)/.wheels: $(VENV)/.ready
	$(PIP) install --group wheels
	touch $@

wheels: $(VENV)/.wheels  ## build wheels (Linux) and source distributions into dist/
	$(BIN)/python tools/wheels.py dist

release: wheels  ## wheels, and what is published beside them: REPOSITORY=URL, KEY=FILE to sign it
	$(BIN)/python -m tools.release dist --repository "$(REPOSITORY)" $(if $(KEY),--key "$(KEY)")

$(VENV)/.site: $(VENV)/.ready
	$(PIP) install --group site
	touch $@

.PHONY: site
site: $(VENV)/.site  ## the documentation as a site, in build/site/html; a broken link is an error
	$(BIN)/python -m tools.site build/site

.PHONY: man
man: $(VENV)/.site  ## manual pages of popc and its verbs, in build/man/man
	$(BIN)/python -m tools.site build/man --man

.PHONY: release-trial
release-trial:  ## a release but for publishing: builds, indexes, installs, runs, tests (RELEASING.md)
	.ci/wheels

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(POPART_ENV) $(RAY_ENV) dist build .cache runtime/build *.egg-info runtime/*.egg-info
