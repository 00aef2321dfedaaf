# The two commands of the README are `make run` and `make test`; everything else is for development.
# Each installs what it misses (tools/install_deps.sh), builds what it needs and then does its job.

PROMPT ?= Explain in two sentences why the sky is blue.
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

# The prompt goes to the program as typed: a dollar sign in it means a dollar sign, not a variable of make.
export ZINC_PROMPT = $(value PROMPT)
unexport PROMPT

CLANGXX = $(shell tools/find_clang.sh)
DEPS = tools/install_deps.sh
CTEST = ctest --output-on-failure -j $(JOBS)
configured = [ -e $(2)/build.ninja ] || cmake --preset $(1) $(3)
# A first `make run` does not wait for Node and its packages: where they are not there the program is built without the
# chat page, until a goal that has it is made.
run_configured = [ -e build/build.ninja ] || if command -v npm >/dev/null; then cmake --preset release; else \
  mkdir -p build && touch build/without-page && cmake --preset release -DZINC_WEB=OFF; fi
with_page = [ ! -e build/without-page ] || { cmake --preset release -DZINC_WEB=ON && rm build/without-page; }
FORMATTED = git ls-files -z '*.cc' '*.h'

.PHONY: build install deb run test check layers format fmt fuzz asan tsan bench clean

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

# What the build says goes to standard error, so that `make -s run >answer.txt` holds the answer alone.
run:
	@$(DEPS) build run
	@{ $(run_configured); } >&2
	@cmake --build --preset release -j $(JOBS) --target zinc >&2
	@build/zinc run "$$ZINC_PROMPT"

test:
	@$(DEPS) build web test
	@$(call configured,release,build)
	@$(with_page)
	@cmake --build --preset release -j $(JOBS)
	@$(CTEST) --test-dir build
	@python3 tools/check_layers.py

check: format layers
	@python3 tools/check_sizes.py

layers:
	@python3 tools/check_layers.py

format:
	@$(DEPS) check
	@$(FORMATTED) | xargs -0 clang-format --dry-run -Werror

fmt:
	@$(DEPS) check
	@$(FORMATTED) | xargs -0 clang-format -i

# The unit tests, the committed fuzz inputs and the error paths of the program under AddressSanitizer and UBSan; by clang, so
# that both compilers see every file.
asan:
	@$(DEPS) build test fuzz
	@$(call configured,asan,build-asan,-DCMAKE_CXX_COMPILER=$(CLANGXX))
	@cmake --build --preset asan -j $(JOBS) --target sanitized_tests
	@$(CTEST) --test-dir build-asan -L sanitized

# What has threads under ThreadSanitizer.
tsan:
	@$(DEPS) build test
	@$(call configured,tsan,build-tsan)
	@cmake --build --preset tsan -j $(JOBS) --target threaded_tests
	@$(CTEST) --test-dir build-tsan -L threaded

# Every fuzz target for FUZZ_SECONDS each. What it finds interesting goes to build-fuzz/found, what breaks it to
# build-fuzz/broken; a broken input belongs into tests/fuzz/corpus together with its fix.
fuzz:
	@$(DEPS) build fuzz
	@$(call configured,fuzz,build-fuzz,-DCMAKE_CXX_COMPILER=$(CLANGXX))
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@set -e; for target in build-fuzz/*_fuzz; do \
	  name=$$(basename $$target _fuzz); \
	  mkdir -p build-fuzz/found/$$name build-fuzz/broken; \
	  echo "== $$name: $(FUZZ_SECONDS) s"; \
	  $$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=build-fuzz/broken/$$name- build-fuzz/found/$$name tests/fuzz/corpus/$$name; \
	done

bench:
	@$(DEPS) build web bench
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target benches
	@set -e; for program in build/*_bench; do echo "== $$program"; $$program; done

clean:
	rm -rf build build-dev build-asan build-tsan build-clang build-fuzz
