# Every target sets up what it needs, on a fresh Debian or Ubuntu with Python 3.11+ and Java 17+.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
# A container's environment may switch off the files of compiled modules, without which each start of a job's Python
# processes takes two more seconds of CPU. Tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(READY)  ## the virtual environment, and Kafka's and Spark's jars in the cache

$(READY): pyproject.toml requirements/dev.lock jars/kafka/pom.xml jars/spark/pom.xml tools/setup.sh
	@tools/setup.sh $(VENV)
	@touch $@

demo: setup  ## real records under each guarantee, under kills (ARGS="--records 50000 -o json")
	@$(RUN)/ackwright demo $(ARGS)

check: setup  ## format, lint, types, import layers, words; with ACKWRIGHT_ADVISORIES known vulnerabilities
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	@$(MAKE) -s words
	$(RUN)/python tools/audit_dependencies.py

words: $(READY)  ## words that the project does not use (tools/words.toml)
	@$(RUN)/python tools/check_words.py

audit-deps: setup  ## known vulnerabilities of the locked packages, from OSV; no answer is a failure
	@$(RUN)/python tools/audit_dependencies.py --strict $(ARGS)

# Three files of tests at a time, also on two cores: each worker has separate brokers, and tests wait half of the time.
# A test that hangs fails with its stack. If it hangs in C code, which a signal does not interrupt, its worker ends.
LIMITS := --timeout 900 -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true
PYTEST := $(RUN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(LIMITS)
EVERYTHING := tests/integration tests/model tests/unit
# Printed whether tests fail or not.
NOT_RUN_SLOW := "Not run: slow tests, whose files are listed above: make test-all"
NOT_RUN_CLUSTER := "Not run: tests/chart, tests/lab, tests/e2e, which need Go, root and an hour: make e2e"

test-fast: setup  ## static checks, unit tests, the protocol's model; no broker, no Spark (3 minutes)
	@$(MAKE) --no-print-directory -j 2 check test-units  # side by side: the static checks use one core
	@echo "Not run: tests on real brokers and Spark: make test"

test-units: setup
	$(RUN)/pytest -n 2 -q $(LIMITS) tests/unit tests/model

test: check  ## what CI runs: test-fast, and each guarantee's proof on brokers and Spark (ARGS="tests/unit -k plan" narrows it)
ifeq ($(strip $(ARGS)),)
	$(PYTEST) -m "not slow" $(EVERYTHING); code=$$?; echo $(NOT_RUN_SLOW); echo $(NOT_RUN_CLUSTER); exit $$code
else
	$(RUN)/pytest $(LIMITS) $(ARGS)
endif

test-all: check  ## make test and its slow tests: every variant, campaigns of kills, the demo
	$(PYTEST) $(EVERYTHING); code=$$?; echo $(NOT_RUN_CLUSTER); exit $$code

model: setup  ## every variant of the protocol's model, also the slow ones; half an hour (ARGS="NAME --traces")
	@$(RUN)/python -m tests.model $(ARGS)

e2e: check  ## the operator on a real cluster of the lab's own; as root (ARGS="tests/e2e -k lifecycle" narrows it)
	$(RUN)/pytest $(if $(strip $(ARGS)),$(ARGS),tests/chart tests/lab tests/e2e)

chaos: setup  ## a seeded campaign of kills and faults (ARGS="--kills 100 --seed 7", ARGS="--soak 7200")
	@$(RUN)/python -m tests.chaos $(ARGS)

nightly: setup  ## test-all, e2e, chaos and chaos --stateful, as root; ends with a table (ARGS="--kills 500": of chaos)
	@$(RUN)/python tools/nightly.py $(ARGS)

bench: setup  ## exactly-once against Spark's own Kafka sink, in turn; hours (ARGS="--list", ARGS="latency --quick")
	@$(RUN)/python -m bench $(ARGS)

cluster: setup  ## a Kubernetes cluster and three Kafka brokers on this machine, to experiment with (needs root and Go)
	@$(RUN)/python -m tests.lab up $(ARGS)

cluster-down: setup  ## remove that cluster completely
	@$(RUN)/python -m tests.lab down

crd: setup  ## the CustomResourceDefinition, from the models
	@$(RUN)/python tools/crd.py

reference: setup  ## docs/reference, from the models, the command line and the metrics
	@$(RUN)/python tools/reference.py

pictures: setup  ## docs/images/*.svg, from tools/pictures
	@$(RUN)/python tools/draw_pictures.py

DOCS := build/docs-environment

$(DOCS)/.ready: requirements/docs.lock | $(READY)
	@$(RUN)/uv venv -q --clear --python $(RUN)/python $(DOCS)
	@$(RUN)/uv pip install -q --python $(DOCS)/bin/python --require-hashes -r requirements/docs.lock
	@touch $@

docs: $(DOCS)/.ready  ## the documentation as a site, in build/docs/index.html; a broken link or anchor fails
	@PYTHONPATH=tests $(RUN)/python -m unit.console.example
	@$(DOCS)/bin/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

simulator: setup  ## the delivery simulator: compares it with its model, builds the page, checks it in Chromium (needs Node 20)
	@PYTHONPATH=tests $(RUN)/python -m simulator.export
	@cd simulator && npm ci --silent && npm test --silent && npm run --silent build
	@cp build/simulator/index.html docs/delivery-simulator.html
	@mkdir -p docs/images && cd simulator && SCREENSHOTS=$(CURDIR)/docs/images npm run --silent test:page

console: setup  ## the page of ackwright console: builds it, and checks it in Chromium (needs Node 20)
	@cd console && npm ci --silent && npm run --silent build
	@cp build/console/index.html operator/ackwright/console/page.html
	@mkdir -p docs/images && cd console && SCREENSHOTS=$(CURDIR)/docs/images npm run --silent test:page

chart: crd  ## generated files of the chart: CRD template, table of values, kustomize base (needs Go once, for helm)
	@$(RUN)/python tools/chart_files.py

AUDIT := build/audit-environment

$(AUDIT)/.ready: requirements/audit.lock | $(READY)
	@$(RUN)/uv venv -q --clear --python $(RUN)/python $(AUDIT)
	@$(RUN)/uv pip install -q --python $(AUDIT)/bin/python --require-hashes -r requirements/audit.lock
	@touch $@

sbom: $(AUDIT)/.ready  ## the images' Python packages as CycloneDX documents, in build/sbom
	@mkdir -p build/sbom
	@for image in operator spark; do \
	  $(AUDIT)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible requirements/$$image.lock \
	    -o build/sbom/$$image.cdx.json && echo build/sbom/$$image.cdx.json || exit 1; done

# Hashed lock files, and no uv.lock: that records the address of the index or mirror for each file.
LOCK := $(RUN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate

lock: setup  ## resolve all dependencies again; the images get the same versions
	$(LOCK) --all-extras --group dev pyproject.toml -o requirements/dev.lock
	$(LOCK) --extra operator -c requirements/dev.lock pyproject.toml -o requirements/operator.lock
	$(LOCK) --extra spark -c requirements/dev.lock pyproject.toml -o requirements/spark.lock
	$(LOCK) --python-version 3.11 --group docs -o requirements/docs.lock
	$(LOCK) --python-version 3.11 --group audit -o requirements/audit.lock

clean:  ## remove everything that make has created in the tree
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: model nightly audit-deps test-units words sbom chart reference pictures docs simulator console crd e2e help setup demo check test test-fast test-all chaos bench \
	cluster cluster-down lock clean
