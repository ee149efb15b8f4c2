# One command per job; each sets up what it needs first, and is quick when nothing changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INTEROP ?=
# How many files of tests run at a time: more than there are cores, since many of them wait.
WORKERS ?= 6
# Where crash tests make their stores: in memory if possible, since they simulate the disk.
SHARED_MEMORY := $(firstword $(wildcard /dev/shm) /tmp)
# Benchmarks that CI runs for one short round, so that none rots.
SMOKE := $(addprefix smoke-,append scan read_send store_append store_read store_query arrow_decode arrow_encode \
	rpc_round_trip client_send client_consume client_tracing request_reply ordered_handover filter_server replication promotion catch_up master_death)
# The long campaigns, short ones first; each can be run alone.
SOAK := $(addprefix soak-,examples marked plain sanitize pythons nameserver store crashes flips index transactions replication requests attack ordered \
	reconnects clients spark pipelines workers brokers)
# What the compiled forms of the hot path are made of; setup.py says how they are found.
COMPILED := $(wildcard $(addsuffix /*.p*,$(wildcard src/orbitmq/*/compiled src/orbitmq/*/*/compiled)))
COMPILED += $(wildcard $(subst /compiled/,/,$(patsubst %_cython.pxd,%.py,$(filter %_cython.pxd,$(COMPILED)))))

# Files stay whole; tests/scheduling.py says which worker takes which. What fails is run once more.
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --rerun-failed

# What fetches something gets a second chance: networks fail for a moment.
twice = $(1) || { echo "that failed; once more" && sleep 10 && $(1); }

export INTEROP
# Hundreds of processes start: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check smoke interop pythons scenarios wheel bench sanitize soak docs clean $(SOAK)

help:  ## Show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY)  ## Make .venv with everything, pinned

$(READY): pyproject.toml constraints.txt setup.py $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "OrbitMQ needs Python 3.11 or newer; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV): installs what pyproject.toml names, and compiles the hot path; a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(call twice,PIP_CONSTRAINT=constraints.txt PIP_RETRIES=10 PIP_DEFAULT_TIMEOUT=60 \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]')
	@touch $(READY)
	@echo "$(VENV) is ready: $(BIN)/orbitmq up starts a cluster, make test runs the tests"

demo: setup  ## Run a pipeline on a cluster of its own, about a minute
	@$(BIN)/python examples/demo.py

test: setup  ## Run the tests; INTEROP=1 adds official RocketMQ and its clients
	$(BIN)/pytest $(SIDE_BY_SIDE)

interop: setup  ## Run only the tests against official RocketMQ and its clients
	INTEROP=1 $(BIN)/pytest $(SIDE_BY_SIDE) -m interop

pythons: setup  ## Run the unit tests of clients on the other Pythons we support, if installed
	$(BIN)/python -m scripts.other_pythons --plain tests/unit/client

check: setup  ## Format, lint, types, layers, spelling, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/typos
	$(BIN)/python -m scripts.generate_docs --check

docs: setup  ## Regenerate the generated pages
	$(BIN)/python -m scripts.generate_docs

scenarios: setup  ## Write down which scenarios the interop suite runs, for the docs
	INTEROP=1 ORBITMQ_RECORD_SCENARIOS=1 $(BIN)/pytest tests/interop --collect-only --quiet > /dev/null
	$(BIN)/python -m scripts.generate_docs

wheel: setup  ## Build the wheel and the source package into dist/
	$(call twice,PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist)

bench: setup  ## Run every benchmark; those of servers short
	$(BIN)/python -m benchmarks.append
	$(BIN)/python -m benchmarks.scan
	$(BIN)/python -m benchmarks.read_send
	$(BIN)/python -m benchmarks.arrow_decode
	$(BIN)/python -m benchmarks.arrow_encode
	$(BIN)/python -m benchmarks.store_append
	$(BIN)/python -m benchmarks.store_read
	$(BIN)/python -m benchmarks.store_query
	$(BIN)/python -m benchmarks.store_memory
	$(BIN)/python -m benchmarks.store_recovery
	$(BIN)/python -m benchmarks.rpc_round_trip --rounds 3 --seconds 1 --output .cache/rpc_round_trip.json
	$(BIN)/python -m benchmarks.broker_send --rounds 3 --seconds 1 --output .cache/broker_send.json
	$(BIN)/python -m benchmarks.broker_pull --rounds 3 --seconds 1 --output .cache/broker_pull.json
	$(BIN)/python -m benchmarks.broker_latency --rounds 3 --seconds 1 --output .cache/broker_latency.json
	$(BIN)/python -m benchmarks.broker_start --rounds 1 --output .cache/broker_start.json
	$(BIN)/python -m benchmarks.client_send --rounds 3 --seconds 1 --output .cache/client_send.json
	$(BIN)/python -m benchmarks.client_consume --rounds 3 --output .cache/client_consume.json
	$(BIN)/python -m benchmarks.client_tracing --rounds 3
	$(BIN)/python -m benchmarks.request_reply --rounds 3 --seconds 1 --output .cache/request_reply.json
	$(BIN)/python -m benchmarks.delayed_messages --messages 20000 --seconds 20 --output .cache/delayed_messages.json
	$(BIN)/python -m benchmarks.pending_timers --messages 100000 --output .cache/pending_timers.json
	$(BIN)/python -m benchmarks.timer_burst --messages 100000 --output .cache/timer_burst.json
	$(BIN)/python -m benchmarks.transactions --rounds 3 --seconds 1 --output .cache/transactions.json
	$(BIN)/python -m benchmarks.replication --rounds 3 --seconds 1 --output .cache/replication.json
	$(BIN)/python -m benchmarks.promotion --rounds 1 --messages 20000 --output .cache/promotion.json
	$(BIN)/python -m benchmarks.catch_up --rounds 1 --messages 100000 --output .cache/catch_up.json
	$(BIN)/python -m benchmarks.master_death --rounds 1 --messages 50000 --output .cache/master_death.json
	$(BIN)/python -m benchmarks.spark_kafka --rounds 2 --rows 200000 --output .cache/spark_kafka.json

smoke: setup $(SMOKE)  ## Run each benchmark for one short round
	$(BIN)/python -m benchmarks.broker_smoke

smoke-%: setup
	@$(BIN)/python -m benchmarks.$* --smoke

# What is committed is compiled once more, aside, so that the usual forms stay as they are.
sanitize: CFLAGS := -fsanitize=address -fno-omit-frame-pointer -g -O1
sanitize: LDFLAGS := -fsanitize=address
sanitize:  ## Run the tests of what is compiled under an address sanitizer
	rm -rf .cache/sanitized && git clone --quiet . .cache/sanitized
	CFLAGS="$(CFLAGS)" LDFLAGS="$(LDFLAGS)" $(MAKE) --directory .cache/sanitized setup
	cd .cache/sanitized && ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" \
		.venv/bin/pytest -q tests/unit/record tests/unit/protocol $$(find tests/unit -name compiled) \
		tests/unit/*/test_fast_forms.py tests/unit/spark/rows tests/unit/spark/writing tests/unit/store/log/test_appender.py

# Each campaign is stopped when its time is over; docs/soak/README.md says what it does and how long it may take.
soak: setup  ## Run the long campaigns, some hours, and write docs/soak/
	$(MAKE) --keep-going --jobs=1 $(SOAK)

at_most = timeout --foreground --kill-after=60 $(1)m
scratch = "$$(mktemp -d -p $(SHARED_MEMORY))"

soak-examples: setup
	for round in 1 2 3 4 5; do ORBITMQ_NEW_EXAMPLES=1 $(call at_most,15) \
		$(BIN)/pytest -q $$(grep -rl hypothesis tests/unit tests/crash tests/replication --include='test_*.py') || exit 1; done

soak-marked: setup
	$(call at_most,30) $(BIN)/pytest -q -m campaign

soak-plain: setup
	ORBITMQ_PURE=1 $(call at_most,30) $(BIN)/pytest -q $(SIDE_BY_SIDE) tests/integration

soak-sanitize:
	$(call at_most,30) $(MAKE) sanitize

soak-pythons: setup
	$(call at_most,60) $(BIN)/python -m scripts.other_pythons tests/unit tests/integration $(SIDE_BY_SIDE)

soak-nameserver: setup
	$(call at_most,15) $(BIN)/python -m scripts.soak_name_server

soak-store: setup
	$(call at_most,30) $(BIN)/python -m tests.crash.soak $(scratch) 1200 --page docs/soak/store-crashes.md

soak-crashes: setup
	$(call at_most,45) $(BIN)/python -m tests.crash.soak $(scratch) 1800 --broker --page docs/soak/broker-crashes.md

soak-flips: setup
	$(call at_most,15) $(BIN)/python -m tests.crash.entry_flipping $(scratch) 600 --page docs/soak/queue-flips.md

soak-index: setup
	$(call at_most,15) $(BIN)/python -m tests.crash.index_flipping $(scratch) 600 --page docs/soak/index-flips.md

soak-transactions: setup
	$(call at_most,20) $(BIN)/python -m tests.crash.killed_transactions $(scratch) 600 --page docs/soak/transaction-kills.md

soak-replication: setup
	$(call at_most,45) $(BIN)/python -m tests.replication.soak 2400 --page docs/soak/replication-faults.md

soak-requests: setup
	$(call at_most,30) $(BIN)/python -m tests.integration.request_limits --rounds 50 --page docs/soak/request-limits.md

soak-attack: setup
	$(call at_most,10) $(BIN)/python -m tests.integration.broker.under_attack --page docs/soak/under-attack.md

soak-ordered: setup
	$(call at_most,20) $(BIN)/python -m tests.integration.client.hand_overs --seconds 600 --page docs/soak/ordered-members.md

soak-reconnects: setup
	$(call at_most,30) $(BIN)/python -m tests.integration.client.reconnects 10000 --page docs/soak/client-reconnects.md

soak-clients: setup
	$(call at_most,90) $(BIN)/python -m tests.integration.client.soak --seconds 3600 --page docs/soak/clients.md

soak-spark: setup
	$(call at_most,60) $(BIN)/python -m tests.spark.soak --kills 20 --page docs/soak/spark-kills.md

soak-pipelines: setup
	$(call at_most,60) $(BIN)/python -m tests.spark.pipelines.pipeline_soak --kills 20 --page docs/soak/pipeline-kills.md

soak-workers: setup
	$(call at_most,30) $(BIN)/python -m tests.spark.standalone --page docs/soak/spark-standalone.md

soak-brokers: setup
	INTEROP=1 ORBITMQ_LOAD_KILLS=50 ORBITMQ_LOAD_PAGE=docs/soak/broker-kills.md \
		$(call at_most,60) $(BIN)/pytest tests/interop/test_broker_load.py

clean:  ## Remove what was built
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		tests/interop/java/target tests/interop/go/bin
