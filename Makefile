.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint format docs-cli jvm lock bench clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK_VENV := build/lock-venv

# Our Python and Java and no other Spark installation's settings; Spark talks to itself over the loopback
# interface unless told otherwise, so that an unresolvable host name or a VPN does not matter.
RUN = env -u SPARK_HOME -u SPARK_CONF_DIR -u PYTHONPATH \
	JAVA_HOME="$(CURDIR)/$(VENV)/java-home" \
	PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" \
	SPARK_LOCAL_IP="$${SPARK_LOCAL_IP:-127.0.0.1}"

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv with the locked dependencies, and a Java runtime when none is found
	@$(BIN)/python scripts/java_home.py $(VENV)/java-home

$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" scripts/make_venv.sh $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## run the demo pipeline; ARGS=--once ends by itself with a verified result
	$(RUN) $(BIN)/midstream demo $(ARGS)

# Three processes also on two cores: many tests wait for servers, clocks and processes of their own.
test: lint ## lint, check types and run the tests; ARGS go to pytest
	@scripts/browser.sh
	$(RUN) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: setup ## run the long suite; ARGS go to pytest
	$(RUN) $(BIN)/pytest -m long --timeout 3600 $(ARGS)

bench: setup ## run a benchmark, for instance ARGS="keycount --keys 1000000"
	$(RUN) $(BIN)/midstream bench $(ARGS)

lint: setup ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs-cli: setup ## write docs/cli.md, the reference of the command, after a change to it
	$(RUN) $(BIN)/python -m midstream.cli.reference > docs/cli.md

jvm: setup ## compile the one JVM class into the jar of the package, after a change to its source
	$(RUN) $(BIN)/python scripts/build_jvm.py

# A separate environment, because the lock cannot hold pip-tools: it wants pip and setuptools themselves pinned.
lock: ## bring requirements.lock up to date with pyproject.toml; ARGS=--upgrade takes the newest versions
	@PYTHON="$(PYTHON)" scripts/make_venv.sh $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --disable-pip-version-check --quiet pip-tools==7.6.2
	$(LOCK_VENV)/bin/pip-compile --quiet --all-extras --generate-hashes --strip-extras --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		$(ARGS) --output-file requirements.lock pyproject.toml

clean: ## remove build output and caches; .venv stays
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache spark-warehouse artifacts
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
