# Thin front over Meson and the scripts. `make help` lists the targets.
PREFIX ?= /usr/local
BUILD ?= build
ROOT = $(CURDIR)/$(BUILD)/root
BIN = $(ROOT)/usr/local/bin
J ?= $(shell nproc)

.PHONY: help all setup run test test-quick test-asan test-tsan test-vm bench chaos install deb deb-test fmt lint fuzz clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

all: $(BUILD)/build.ninja ## build everything and lay it out in build/root
	@ninja -j$(J) -C $(BUILD) --quiet
	@DESTDIR=$(ROOT) meson install -C $(BUILD) --quiet --no-rebuild

$(BUILD)/build.ninja:
	@scripts/setup build
	@meson setup $(BUILD) --prefix=/usr/local --libdir=lib -Dwerror=true >/dev/null

run: ## install what is needed, build, start the daemon and watch a program run in a sandbox
	@scripts/setup build run
	@$(MAKE) --no-print-directory all
	@PATH="$(BIN):$$PATH" scripts/demo

test: ## install what tests need and run all suites
	@scripts/setup build run test docker lint
	@$(MAKE) --no-print-directory all
	@PATH="$(BIN):$$PATH" python3 tests/run.py $(SUITES)

test-quick: all ## unit tests only
	@python3 tests/run.py unit

test-asan: ## unit and integration suites under AddressSanitizer and UBSan
	@scripts/setup build run test docker
	@[ -e build-asan/build.ninja ] || meson setup build-asan --prefix=/usr/local --libdir=lib -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	@$(MAKE) --no-print-directory all BUILD=build-asan
	@$(MAKE) --no-print-directory all BUILD=build
	@# a sanitized agent needs shared libraries, which images lack: sandboxes get the static one, its own tests the sanitized one
	@install build/root/usr/local/lib/cove/cove-execd build-asan/root/usr/local/lib/cove/cove-execd
	@COVE_EXECD="$(CURDIR)/build-asan/src/execd/cove-execd" PATH="$(CURDIR)/build-asan/root/usr/local/bin:$$PATH" \
	  python3 tests/run.py --build build-asan $(or $(SUITES),unit integration)

test-tsan: ## unit tests of what runs in threads, under ThreadSanitizer
	@scripts/setup build test
	@[ -e build-tsan/build.ninja ] || meson setup build-tsan --prefix=/usr/local --libdir=lib -Db_sanitize=thread -Db_lundef=false >/dev/null
	@tests/tsan build-tsan $(J)

test-vm: all ## the native driver's and the agent's tests on Debian's stock kernel with pure cgroup v2, in qemu
	@tests/vm/suite

bench: ## measure; prints the tables of docs/benchmarks.md
	@scripts/setup build run test docker
	@$(MAKE) --no-print-directory all
	@PATH="$(BIN):$$PATH" python3 tests/bench/bench.py $(BENCH)

chaos: ## kill the daemon at every named place, take engine, registry and disk away; nothing may be lost or left (Docker driver)
	@scripts/setup build run test docker
	@$(MAKE) --no-print-directory all
	@PATH="$(BIN):$$PATH" tests/chaos.py $(CHAOS)

fuzz: ## run every fuzz target for SECONDS (default 300) each
	@scripts/setup build test
	@[ -e build-fuzz/build.ninja ] || CC=clang CXX=clang++ meson setup build-fuzz -Dfuzz=true -Db_lundef=false >/dev/null
	@ninja -j$(J) -C build-fuzz --quiet fuzzers
	@tests/fuzz/run build-fuzz $(or $(SECONDS_EACH),300)

install: all ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@meson configure $(BUILD) --prefix=$(PREFIX)
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD)
	@meson configure $(BUILD) --prefix=/usr/local # what build/root is laid out with

deb: ## a Debian package in build-deb
	@scripts/setup build deb
	@packaging/make-deb build-deb

deb-test: deb ## install that package in a clean Debian root, start it there on both drivers, remove it
	@scripts/setup test docker
	@packaging/try-deb build-deb/cove_*.deb

fmt: ## format the sources
	@git ls-files '*.c' '*.h' '*.cc' | xargs clang-format -i

lint: ## clang-tidy, cppcheck, include directions, house limits
	@scripts/setup build lint
	@$(MAKE) --no-print-directory all
	@scripts/lint $(BUILD)

clean: ## remove build folders
	@rm -rf build build-deb build-asan build-tsan build-fuzz
