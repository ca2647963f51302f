# Everything a developer does, by name: `make help`.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 3
STAMP := $(VENV)/.installed
CONSTRAINTS := deploy/dev/constraints.txt
# Many environments forbid bytecode. The tests start hundreds of processes, which would each compile the product again.
unexport PYTHONDONTWRITEBYTECODE
PROTOC := .build/protoc/bin/python
PROTOS := $(sort $(wildcard proto/pointsman/v1/*.proto))
SERVICES := $(sort $(wildcard proto/pointsman/v1/*_service.proto))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ The two commands

.PHONY: demo
demo: programs ## Name servers, brokers, faults and the nightly report, end to end; under three minutes
	$(BIN)/python -m deploy.demo

.PHONY: demo-rocketmq
demo-rocketmq: programs ## The same with unmodified RocketMQ 5.3.3 brokers, and clients in Java and Go; under five minutes
	$(BIN)/python -m deploy.demo.rocketmq

.PHONY: demo-move
demo-move: programs ## From RocketMQ's name servers to Pointsman's and back, without a restart; fifteen minutes
	$(BIN)/python -m deploy.demo.move

.PHONY: test
test: setup ## The tests to run before each commit; WORKERS=3 of them at a time
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(PYTEST)

.PHONY: test-of
test-of: setup ## FILE='...': the tests of these modules, in one process
	@tests=$$($(BIN)/python -m tests.architecture.mirror $(FILE)) && $(BIN)/pytest --quiet $$tests

.PHONY: test-all
test-all: setup helm ## All tests with full loads and fresh random seeds
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --full
	TEST_LISTENER=grpcio $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/e2e tests/integration/client tests/integration/ctl
	deploy/dev/smoke.sh $(BIN)/uv
	@if [ "$$(id -u)" -eq 0 ]; then $(MAKE) --no-print-directory test-images test-packages; \
	else echo "make test-images test-packages was left out: it needs root"; fi

##@ Work on the code

.PHONY: setup
setup: $(STAMP) ## Virtual environment in .venv; Java 17, redis-server, Chromium and Prometheus where they are missing
	@deploy/dev/install_programs.sh tests

.PHONY: programs
programs: $(STAMP)
	@deploy/dev/install_programs.sh

$(STAMP): pyproject.toml $(wildcard */pyproject.toml) $(CONSTRAINTS) deploy/dev/create_environment.sh
	@PYTHON=$(PYTHON) deploy/dev/create_environment.sh $(VENV) $(CONSTRAINTS)
	@touch $@

.PHONY: test-rocketmq
test-rocketmq: setup ## Tests with unmodified RocketMQ; skipped where JDK 17 or Maven is missing
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/real_rocketmq --full

.PHONY: smoke
smoke: setup ## A few tests on the lowest required versions, and on each newer Python of this machine
	deploy/dev/smoke.sh $(BIN)/uv

.PHONY: constraints
constraints: $(STAMP) ## Pin the newest version of every package of the development environment
	$(BIN)/uv pip compile --quiet pyproject.toml --group dev --universal --upgrade \
		$(foreach part,agent client namesrv proto report,--no-emit-package pointsman-$(part)) \
		--no-header --no-annotate --no-emit-index-url --output-file $(CONSTRAINTS)

.PHONY: docs
docs: setup docs-settings ## Build the site of docs/ into .build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir .build/docs

.PHONY: docs-serve
docs-serve: setup ## Serve the site on 127.0.0.1:8000, rebuilt at each change of a page
	$(BIN)/mkdocs serve

.PHONY: docs-settings
docs-settings: $(STAMP) ## Write the tables of docs/settings/ from the dataclasses
	$(BIN)/python -m deploy.dev.settings_pages

.PHONY: docs-pictures
docs-pictures: setup ## Draw the pictures of the name server's pages in docs/images
	$(BIN)/python -m tests.docs.page_pictures

.PHONY: coverage
coverage: ## make test, with the coverage of the two cores and of the client's pure modules
	@$(MAKE) --no-print-directory test PYTEST='--cov --cov-report=term'

.PHONY: check
check: $(STAMP) ## Format, lint, types, imports, alerts, stubs: the checks of CI
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python deploy/dev/plain_words.py
	deploy/dev/check_alerts.sh
	@$(MAKE) --no-print-directory stale-stubs

# actionlint is a Go program.
.PHONY: check-workflows
check-workflows: $(STAMP) ## Lint the workflows in .github with zizmor, and with actionlint where Go is installed
	$(BIN)/uv tool run --quiet --from zizmor==1.32.0 zizmor --offline --quiet .github
	@if command -v go >/dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; \
	else echo "actionlint was not run: Go is not installed"; fi

.PHONY: format
format: setup ## Format the code and apply lint fixes
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

.PHONY: proto
proto: $(STAMP) $(PROTOC) ## Generate the stubs next to the .proto files
	$(call generate,proto)

.PHONY: stale-stubs
stale-stubs: $(STAMP) $(PROTOC) ## Fail if the committed stubs differ from the .proto files
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call generate,$$fresh) \
	&& for stub in "$$fresh"/pointsman/v1/*; do \
		cmp -s "$$stub" "proto/pointsman/v1/$${stub##*/}" || { echo "stale: $${stub##*/}; run 'make proto'"; exit 1; }; \
	done && echo "stubs are fresh"

# An old compiler, in a separate environment: stubs refuse runtimes that are older than their compiler, and applications
# pin protobuf, often to 6. Stubs of 1.72 load without a warning on protobuf 6.30 to 7.36; those of 1.71 warn on 6.30,
# those of 1.73 fail on it.
$(PROTOC): Makefile
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .build/protoc
	@$(BIN)/uv pip install --quiet --python $@ grpcio-tools==1.72.2 'setuptools<81'

# Generate into a folder. Services alone get gRPC stubs; the plugins for types are the development environment's.
define generate
PATH="$(CURDIR)/$(BIN):$$PATH" $(PROTOC) -m grpc_tools.protoc -I proto --python_out="$(1)" --mypy_out=quiet:"$(1)" $(PROTOS) \
	&& PATH="$(CURDIR)/$(BIN):$$PATH" $(PROTOC) -m grpc_tools.protoc -I proto --grpc_python_out="$(1)" --mypy_grpc_out=quiet:"$(1)" $(SERVICES)
endef

.PHONY: mutants
mutants: setup ## Break rules of the core one at a time: the tests must detect each
	$(BIN)/python -m tests.property.mutants

.PHONY: fuzz
fuzz: setup ## MINUTES=n: search with fresh random seeds for a failure of a property test
	$(BIN)/python -m tests.property.fuzz --minutes $(or $(MINUTES),10)

.PHONY: chaos chaos-waiting chaos-load
chaos: setup ## Kills, pauses, cuts and floods at production's intervals; half an hour
	@$(MAKE) --no-print-directory --jobs=2 chaos-waiting chaos-load

CHAOS = $(BIN)/pytest --chaos --verbose --capture=no --show-capture=no --durations=0
WAITING = tests/chaos/test_agents_and_brokers.py

# Half of the time is spent waiting for silence to be noticed, beside which the loads have the machine for themselves.
chaos-waiting: $(STAMP)
	$(CHAOS) $(WAITING)

chaos-load: $(STAMP)
	$(CHAOS) tests/chaos --ignore $(WAITING)

.PHONY: bench
bench: setup ## Figures of the hot paths, as ratios in one run
	$(BIN)/python -m tests.bench

.PHONY: trace
trace: setup ## TRACE=folder: compare the Spark jobs with a real availability trace
	$(BIN)/python -m tests.bench.replay_trace --trace $(TRACE) --work .build/trace

.PHONY: wheels
wheels: $(STAMP) ## Build the wheels into dist/ and test each in an empty environment
	deploy/dev/try_wheels.sh $(VENV)

.PHONY: packages
packages: $(STAMP) ## Build the deb and the rpm into dist/, for the Python of PACKAGE_PYTHON (/usr/bin/python3)
	deploy/packages/build_packages.sh $(BIN)/uv dist

.PHONY: test-packages
test-packages: setup ## Install, upgrade and remove the deb and the rpm on a booted Debian; as root
	deploy/packages/prepare_tests.sh $(BIN)/uv
	$(BIN)/pytest --packages tests/packages

.PHONY: release
release: $(STAMP) ## Build all of a release twice, compare, and put it into dist/ with its SBOMs and SHA256SUMS
	deploy/dev/build_release.sh $(BIN)/uv

.PHONY: checksums
checksums: ## Write dist/SHA256SUMS
	deploy/dev/checksums.sh dist

.PHONY: github-draft
github-draft: ## TAG=v0.2.0: a draft of a GitHub release with the files of dist/
	gh release create "$(TAG)" --draft --verify-tag --title "Pointsman $(TAG)" --notes "See CHANGELOG.md." dist/*

.PHONY: spark-zip
spark-zip: setup ## Pack the report's jobs for spark-submit: dist/pointsman-spark.zip
	@$(BIN)/python -m deploy.spark.make_zip

.PHONY: units
units: setup ## systemd-analyze verify and security of the units (0 is best, 10 worst)
	$(BIN)/pytest --quiet tests/unit/deploy/test_systemd.py
	@for unit in deploy/systemd/*.service; do \
		systemd-analyze security --offline=true --no-pager "$$PWD/$$unit" | grep 'Overall exposure'; done

ENGINE ?= docker
IMAGES := namesrv observe agent report

.PHONY: images
images: ## Build the container images with ENGINE (docker) on PYTHON_IMAGE
	@for image in $(IMAGES); do \
		$(ENGINE) build $(if $(PYTHON_IMAGE),--build-arg PYTHON=$(PYTHON_IMAGE)) -f deploy/container/Containerfile --target $$image -t pointsman-$$image .; done

.PHONY: charts
charts: $(STAMP) helm ## Render the Helm chart into deploy/k8s and tests/fixtures/chart
	$(BIN)/python -m deploy.dev.render_charts

.PHONY: helm
helm:
	@deploy/dev/install_programs.sh charts

.PHONY: save-images
save-images: $(STAMP) ## Save the images of `make images` into dist/ as OCI archives, with their SBOMs
	deploy/dev/save_images.sh $(BIN)/uv $(ENGINE) dist $(IMAGES:%=pointsman-%)
	deploy/dev/checksums.sh dist

# In GitHub's workflow the digests are outputs of the step.
.PHONY: push-images
push-images: ## REPOSITORY=... IMAGE_TAG=...: push the images of `make images`, and print their digests
	@for image in $(IMAGES); do \
		name="$(REPOSITORY)/pointsman-$$image"; \
		$(ENGINE) tag "pointsman-$$image" "$$name:$(IMAGE_TAG)"; \
		$(ENGINE) push --quiet "$$name:$(IMAGE_TAG)" >/dev/null; \
		digest=$$($(ENGINE) image inspect --format '{{index .RepoDigests 0}}' "$$name:$(IMAGE_TAG)"); \
		echo "$$image=$${digest#*@}" | tee -a "$${GITHUB_OUTPUT:-/dev/null}"; done

.PHONY: push-manifests
push-manifests: ## REPOSITORY=... IMAGE_TAG=...: one name for the images IMAGE_TAG-amd64 and IMAGE_TAG-arm64
	@for image in $(IMAGES); do \
		name="$(REPOSITORY)/pointsman-$$image:$(IMAGE_TAG)"; \
		$(ENGINE) buildx imagetools create --tag "$$name" "$$name-amd64" "$$name-arm64"; done

SUITE ?= bookworm

.PHONY: test-images
test-images: setup helm ## Build the images with podman on a base of Debian SUITE (bookworm), and run them; as root
	deploy/container/build_with_podman.sh $(SUITE)
	CONTAINERS_STORAGE_CONF="$(CURDIR)/.build/podman/storage.conf" CONTAINERS_CONF="$(CURDIR)/.build/podman/containers.conf" \
		$(BIN)/pytest --images $(SUITE) tests/images -s

.PHONY: clean
clean: ## Remove what was built, but not .venv
	@# Podman leaves its folder mounted.
	@! mountpoint -q .build/podman/images/overlay || umount --recursive .build/podman/images/overlay
	rm -rf .build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
