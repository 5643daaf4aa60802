# `make run` and `make test` need no preparation on a fresh machine.

UV := .boot/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
PYTHON ?= python3
TOOLS := bubblewrap podman runc catatonit uidmap tmux zsh fish
ENGINE := docker.io containerd runc tini

.PHONY: help setup tools run smoke trace test release test-agents test-programs test-crash zoo zoo-short attacks oracle check format bench docs clean simulate

help:  ## show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(UV):
	$(PYTHON) -m venv .boot
	.boot/bin/pip install --quiet uv

.venv/.synced: $(UV) pyproject.toml uv.lock
	$(UV) sync --frozen --quiet --compile-bytecode --python $(PYTHON)
	@touch $@

setup: .venv/.synced  ## create .venv with all dependencies

tools:  ## install the system programs that some tests need (Debian, Ubuntu; as root)
	apt-get update -q
	apt-get install -y -q --no-install-recommends $(TOOLS)
	$(MAKE) .docker/usr/sbin/dockerd

.docker/usr/sbin/dockerd:  # unpacked, not installed: only tests start it
	mkdir -p .docker/packages
	cd .docker/packages && apt-get download -q $(ENGINE) && for each in *.deb; do dpkg -x "$$each" ..; done
	@touch $@

run: setup  ## start Rota with sample tasks in ./.rota
	ROTA_HOME=$(CURDIR)/.rota ROTA_LOG_FORMAT=text .venv/bin/rota up --samples

test: setup  ## run the tests, including PostgreSQL
	.venv/bin/pytest -n 3 --dist worksteal

smoke: setup  ## run a quick check of the code layout, the command line and a daemon, in two minutes
	.venv/bin/pytest -q -n 2 tests/architecture tests/system/cli/test_daemon.py tests/system/cli/test_both_ways.py

trace: setup  ## print which code the daemon runs for `rota run hello --wait`
	@.venv/bin/python -m tests.tools.trace $(if $(JSON),--json)

release: check test zoo-short test-programs test-agents  ## run all release tests and build the wheel
	$(UV) build --quiet --out-dir dist

test-agents: setup  ## run the real Claude Code, Codex and pi against a stub of their providers
	.venv/bin/python -m tests.agents.programs
	.venv/bin/pytest -m agents -n 2 tests/agents

test-programs: setup  ## run real programs in every executor, on both databases, with many kills of the daemon
	.venv/bin/pytest -m programs -n 2 --dist worksteal tests/system tests/attacks

test-crash: setup  ## kill the daemon at every fault point; RANDOM=1000 STORE=sqlite for random kills
	.venv/bin/python -m tests.tools.crash $(if $(STORE),--store $(STORE)) $(if $(RANDOM),--random $(RANDOM))

zoo: setup  ## plant known bugs of other schedulers and check that each is caught
	.venv/bin/python -m tests.zoo

attacks: setup  ## run every attack on a real daemon at once
	.venv/bin/python -m tests.attacks

zoo-short: setup  ## the same for the bugs that are found quickly, in a minute
	.venv/bin/python -m tests.zoo --short

oracle: setup  ## compare all time rules with the oracle, in all zones from 2020 to 2030
	.venv/bin/python -m tests.oracle

check: setup  ## check format, lint, types and imports
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

simulate: setup  ## run a thousand simulated histories (more: python -m tests.tools.simulation --help)
	.venv/bin/python -m tests.tools.simulation --from 0 --to 999

format: setup  ## format the code and apply lint fixes
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: setup  ## measure Rota and comparable systems
	.venv/bin/python bench/run.py

clean:  ## remove everything that was generated
	rm -rf dist .venv .boot .docker .agents .bench .crash .rota .mypy_cache .ruff_cache .pytest_cache .hypothesis /dev/shm/rota-postgres-$$(id -u)
