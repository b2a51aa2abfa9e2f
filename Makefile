# What can be done here; `make` alone lists it. Each target does its own
# preparation, and what is built stays in build/ and cargo's target folder.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The LuaJIT that everything runs in, by its name in scripts/luajit.sh.
HOST ?= 210.7.4-gc64
# Every LuaJIT that we hold ourselves to, and the few that CI has time for.
HOSTS := 210.7.4-gc64 210.7.4-gc32 210.7.4-assert 210.7.4-52 \
         210.5.4-gc64 210.5.4-gc32 210.4.8-gc64 210.4.8-gc32 \
         210.1.4-gc64 210.1.4-gc32 210.0.0-gc64 210.0.0-gc32
CI_HOSTS := 210.7.4-gc64 210.7.4-gc32 210.4.8-gc64 210.0.0-gc32
# How long each of the soak programs runs, and the fuzzer.
SECONDS ?= 60

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# cargo-nextest where it is installed, for its report; cargo's own where not.
CARGO_TEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo nextest run || echo test)
export HOST

.PHONY: help build disabled luajit matrix matrix-ci env demo test rust-test specs specs-matrix specs-ci foreign specs-hosts hosts soak million fuzz bench step step-host step-ci step-hosts lint clean

help: ## lists the targets
	@echo "usage: make TARGET [HOST=$(HOST)]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/; T; s/[$$]{2}/$$/g; p' $(MAKEFILE_LIST) | expand -t 18

build: ## builds the recorder (build/lib) and the command (build/bin)
	@cargo build --release --workspace
	@install -D $(TARGET_DIR)/release/libsysprof.so build/lib/sysprof_core.so
	@install -D $(TARGET_DIR)/release/libsysprof_stepper.so build/lib/sysprof_stepper.so
	@install -D $(TARGET_DIR)/release/sysprof build/bin/sysprof

disabled: ## builds the recorder with everything in it and nothing working (build/disabled)
	@cargo build --features disabled --target-dir $(TARGET_DIR)/disabled
	@install -D $(TARGET_DIR)/disabled/debug/libsysprof.so build/disabled/libsysprof.so

luajit: ## builds the default host, an unpatched LuaJIT, once
	@scripts/luajit.sh $(HOST) >/dev/null
	@mkdir -p build/bin && ln -sfn ../luajit/$(HOST)/bin/luajit build/bin/luajit

matrix: ## builds every LuaJIT that the tests know
	@printf '%s\n' $(HOSTS) | xargs -P "$$(nproc)" -n 1 scripts/luajit.sh

matrix-ci: ## builds the LuaJITs that CI runs
	@printf '%s\n' $(CI_HOSTS) | xargs -P "$$(nproc)" -n 1 scripts/luajit.sh

env: ## prints the shell's settings: eval "$$(make -s env)"
	@$(MAKE) --no-print-directory -s build luajit >&2
	@scripts/env.sh

demo: build luajit ## profiles luacheck at work, leaves flamegraph.svg
	@scripts/demo.sh

test: build luajit rust-test step-host specs ## runs every test

rust-test: build disabled luajit
	cargo $(CARGO_TEST) --workspace

specs: build luajit ## runs the Lua specs in HOST
	@scripts/specs.sh $(HOST)

specs-ci: build luajit matrix-ci ## the same in the other LuaJITs that CI has time for
	@scripts/specs.sh $(filter-out $(HOST),$(CI_HOSTS))

specs-matrix: build luajit matrix ## the same in every LuaJIT
	@scripts/specs.sh $(HOSTS)

foreign: build luajit ## builds LuaJITs of foreign layouts, which have to be refused
	@SPECS=tests/foreign scripts/specs.sh $(HOST)

specs-hosts: build luajit ## the Lua specs in the luajit that Debian packages
	@scripts/host.sh luajit >/dev/null
	@scripts/specs.sh debian

step-hosts: build ## the stepping in the luajit and tarantool that Debian packages
	@scripts/host.sh luajit >/dev/null
	@scripts/host.sh tarantool >/dev/null
	@scripts/step.sh debian tarantool

hosts: build luajit ## profiles luajit, nvim, tarantool and nginx as Debian packages them
	@SPECS=tests/hosts scripts/specs.sh $(HOST)

soak: build luajit ## runs each program of spec/programs under the profiler for SECONDS (60) each
	@scripts/soak.sh seconds=$(SECONDS) 0.1

million: build matrix ## the same until a million signals, one each 50 us, have hit them, in every LuaJIT
	@failed=; for host in $(HOSTS); do HOST=$$host scripts/soak.sh signals=40000 0.05 || failed=1; done; [ -z "$$failed" ]

fuzz: ## feeds the decoder made-up files for SECONDS (60); needs cargo-fuzz
	@scripts/fuzz.sh $(SECONDS)

bench: build luajit ## measures what profiling costs and delivers
	@scripts/bench.sh

step: build matrix ## checks the stack at every machine instruction of the test programs, in every LuaJIT
	@scripts/step.sh $(HOSTS)

step-host: build luajit ## the same in HOST only
	@scripts/step.sh $(HOST)

step-ci: build matrix-ci ## the same in the other LuaJITs that CI has time for
	@scripts/step.sh $(filter-out $(HOST),$(CI_HOSTS))

lint: ## formatting and clippy, with warnings as errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

clean: ## removes all that was built, the LuaJITs as well
	cargo clean
	rm -rf build flamegraph.svg
