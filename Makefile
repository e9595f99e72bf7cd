# Everything a newcomer or a CI needs. `make demo` and `make test` do all the set-up themselves.
.PHONY: help setup demo test check check-fast style types architecture kernels modules classes contract \
    bench screenshots site wheel deb containers release clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests wait more than they compute: two workers a core. `make test WORKERS=0` runs them in one process.
WORKERS ?= 4
TOGETHER := $(MAKE) --no-print-directory --jobs 2 --output-sync=target
# Compiled once, not by each of the hundreds of processes that tests start, whatever the machine's environment says.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo 'make demo    install into .venv what is needed, then run the main job: a Spark query that is killed and comes back exact'
	@echo 'make test    the same set-up, then style, types, architecture and all tests'
	@echo 'make check-fast   style, types, architecture, pure cores and one seed, for the inner loop'
	@echo 'make contract     Hadoop'\''s own contract tests, FsShell and distcp, beside a real HDFS; wants Maven and a JDK'
	@echo 'make containers   builds the images and starts the compose files; wants root, podman, buildah and debootstrap'
	@echo 'make setup   only the set-up'
	@echo 'make bench   all benchmarks: tables on the screen, JSON in benchmarks/results'
	@echo 'make screenshots  the pictures of docs/web-page.md; wants Chromium'
	@echo 'make site    the documentation as a site, in build/site'
	@echo 'make wheel   the package as a wheel, in dist'
	@echo 'make deb     the package for Debian, in dist; docs/install.md'
	@echo 'make release  the wheel, checked and tried, with its sdist and notes; CONTRIBUTING.md'
	@echo 'make clean   removes what the other targets made'

setup: $(READY)

$(READY): setup.sh pyproject.toml locks/build.cfg locks/build.lock locks/workshop.lock locks/java.lock
	@./setup.sh $(VENV)
	@touch $@

demo: $(READY)
	@echo '== the main job: peacefs demo'
	@$(BIN)/peacefs demo
	@echo '== dataflows that lose an executor of Spark, and stay exact: $(BIN)/peacefs dataflow demo'

# At the same time, each one's output in a piece.
check: $(READY)
	@$(TOGETHER) types style architecture

style:
	@echo '== style'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types:
	@echo '== types'
	@$(BIN)/mypy

architecture:
	@echo '== architecture'
	@$(BIN)/lint-imports --no-logo

# What tests in many processes would otherwise each compile.
kernels:
	@echo '== kernels of paged state'
	@$(BIN)/python -m peacefs.state.warm

# What each of the workers would do anew otherwise: pytest keeps the modules of tests as it has rewritten them.
modules:
	@echo '== modules of tests'
	@$(BIN)/pytest --collect-only -qq > /dev/null || echo 'they cannot be collected; the tests say why'

# What the first test that starts a JVM would do otherwise, while others wait for it.
classes:
	@echo '== classes of Spark'
	@PYTHONPATH=tests:. $(BIN)/python -m support.class_archive || echo 'there is no archive of them; tests take longer'

check-fast: check
	@echo '== pure cores, one seed'
	@PEACEFS_SEEDS=1 $(BIN)/pytest -q -n 2 -m 'not spark and not cluster' \
	    tests/test_*.py tests/coordinator tests/metadata tests/peace tests/topology tests/store tests/simulation

test: $(READY)
	@$(TOGETHER) types classes kernels modules style architecture
	@echo '== tests'
	@$(BIN)/pytest -n $(WORKERS)

contract: $(READY)
	@cd tests && ../$(BIN)/python -m contract

bench: $(READY)
	@echo '== what benchmarks compare with (locks/peers.lock)'
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-build-isolation -r locks/peers.lock
	@$(BIN)/python -m benchmarks

screenshots: $(READY)
	@cd tests && ../$(BIN)/python -m support.screenshots

site: $(READY)
	@$(BIN)/python docs/site/build.py

wheel: $(READY)
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

containers: $(READY)
	@cd tests && ../$(BIN)/python -m containers

deb: $(READY)
	@$(BIN)/python -m release deb

release: $(READY)
	@$(BIN)/python -m release make

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/results
