# The two commands of the README are `make run` and `make test`; everything else is for development.
# Each installs what it misses (tools/install_deps.sh), builds what it needs and then does its job.

PROMPT ?= Explain in two sentences why the sky is blue.
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
ARCH ?= $(shell uname -m)
JOBS ?= $(shell nproc)

# The prompt goes to the program as typed: a dollar sign in it means a dollar sign, not a variable of make.
export ZINC_PROMPT = $(value PROMPT)
unexport PROMPT

# Found when a recipe runs, after its first line has installed it.
CLANGXX = $$(tools/find_clang.sh)
DEPS = tools/install_deps.sh
RUN_TESTS = python3 tools/run_tests.py --jobs $(JOBS)
configured = [ -e $(2)/build.ninja ] || cmake --preset $(1) $(3)
# A first `make run` does not wait for Node and its packages: where they are not there the program is built without the
# chat page, until a goal that has it is made.
run_configured = [ -e build/build.ninja ] || if command -v npm >/dev/null; then cmake --preset release; else \
  mkdir -p build && touch build/without-page && cmake --preset release -DZINC_WEB=OFF; fi
with_page = [ ! -e build/without-page ] || { cmake --preset release -DZINC_WEB=ON && rm build/without-page; }
FORMATTED = git ls-files -z '*.cc' '*.h'

.PHONY: build install deb dist test-dist run unit test test-ci test-all check layers types words format fmt debug fuzz tsan bench clean

build:
	@$(DEPS) build web
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS) --target zinc

# To PREFIX, below DESTDIR where that is given.
install:
	@$(DEPS) build web
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS) --target pages
	@DESTDIR=$(DESTDIR) cmake --install build --prefix $(PREFIX)

# A Debian package of this machine's kind, in build/.
deb:
	@$(DEPS) build web deb
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS) --target pages
	@cd build && cpack -G DEB

# The files of a release in dist/, for ARCH (x86_64 or aarch64; another one than this machine's is cross-compiled): a tarball, a
# Debian package, a Python wheel and an OCI image of one program that runs on any Linux with glibc 2.31 or later.
DIST_BUILD = $(if $(filter $(shell uname -m),$(ARCH)),build,build-$(ARCH))
dist_configured = if [ $(DIST_BUILD) = build ]; then $(call configured,release,build) && $(with_page); \
  else tools/install_aarch64.sh && cmake --preset $(ARCH) -DZINC_WEB=ON; fi
dist:
	@$(DEPS) build web dist
	@$(dist_configured)
	@cmake --build $(DIST_BUILD) -j $(JOBS) --target pages portable
	@tools/make_dist.py $(DIST_BUILD) dist

# Installs each of them in a bare system and runs it there; for another processor under qemu.
test-dist:
	@$(DEPS) build web dist bare-system
	@$(dist_configured)
	@cmake --build $(DIST_BUILD) -j $(JOBS) --target pages portable
	@tests/package/dist.py $(DIST_BUILD)

# Build output goes to standard error, so that `make -s run >answer.txt` contains only the answer.
run:
	@$(DEPS) build run
	@{ $(run_configured); } >&2
	@cmake --build --preset release -j $(JOBS) --target zinc >&2
	@build/zinc run --no-stdin -p "$$ZINC_PROMPT"

# The unit tests of every layer: seconds once built.
unit:
	@$(DEPS) build test
	@$(run_configured)
	@cmake --build --preset release -j $(JOBS) --target unit_tests
	@$(RUN_TESTS) build --ring unit

# Unit tests, and whole models and the program end to end.
test:
	@$(DEPS) build web test
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS)
	@$(RUN_TESTS) build --ring unit,e2e

# Also what takes minutes and breaks only where kernels or tools change: NVRTC for six architectures, each kind of emulated GPU,
# llvmpipe, validation layers. All that CI runs.
test-ci:
	@$(DEPS) build web test maintainer
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS)
	@$(RUN_TESTS) build --ring unit,e2e,maintainer

# Also every case on every emulated GPU and on llvmpipe: more than an hour. Before a release, and where kernels change.
test-all:
	@$(DEPS) build web test maintainer
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS)
	@$(RUN_TESTS) build

check: format layers types words
	@python3 tools/check_sizes.py

layers:
	@python3 tools/check_layers.py

types:
	@python3 tools/check_types.py

words:
	@python3 tools/check_words.py

format:
	@$(DEPS) check
	@$(FORMATTED) | xargs -0 clang-format --dry-run -Werror

fmt:
	@$(DEPS) check
	@$(FORMATTED) | xargs -0 clang-format -i

# A Debug build with ZINC_DCHECK, AddressSanitizer and UBSan: the unit tests, the committed fuzz inputs and the error paths of
# the program; by clang, so that both compilers see every file.
debug:
	@$(DEPS) build test fuzz
	@$(call configured,debug,build-debug,-DCMAKE_CXX_COMPILER=$(CLANGXX))
	@cmake --build --preset debug -j $(JOBS) --target sanitized_tests
	@$(RUN_TESTS) build-debug --label sanitized

# Multi-threaded tests under ThreadSanitizer.
tsan:
	@$(DEPS) build test
	@$(call configured,tsan,build-tsan)
	@cmake --build --preset tsan -j $(JOBS) --target threaded_tests
	@$(RUN_TESTS) build-tsan --label threaded

# Every fuzz target for FUZZ_SECONDS, JOBS at a time, in the build of `make debug`. New corpus entries go to build-debug/found,
# crashing inputs to build-debug/broken; commit a crashing input to tests/fuzz/corpus together with its fix.
fuzz:
	@$(DEPS) build test fuzz
	@$(call configured,debug,build-debug,-DCMAKE_CXX_COMPILER=$(CLANGXX))
	@cmake --build --preset debug -j $(JOBS) --target fuzz_targets
	@ls build-debug/*_fuzz | xargs -P $(JOBS) -n 1 tools/fuzz_one.sh $(FUZZ_SECONDS)

bench:
	@$(DEPS) build web test bench
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target benches
	@set -e; for program in build/*_bench; do echo "== $$program"; $$program; done
	@echo "== chat page"; ZINC_PAGE_BENCH=1 web/tests/run build/zinc build/web-tests speed

clean:
	rm -rf build build-aarch64 build-debug build-tsan build-clang dist
