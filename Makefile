# The front door. CMake does the work; every build tree lies under build/.
SHARED ?= ../shared
PREFIX ?= /usr/local
PROMPT ?= The prince looked at her and
CMAKE  := cmake -S . -G Ninja
export QUIRE_SHARED := $(abspath $(SHARED))

.PHONY: all packages run check test test-quick test-long avx512 bench bench-json bench-save asan asan-quick asan-turn tsan tsan-quick fuzz neon layers map size format wheel install uninstall clean

all: ## build/quire, and build/quire-lab beside it
	@mkdir -p build && $(CMAKE) -B build -DCMAKE_BUILD_TYPE=Release -DQUIRE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build/configure.log 2>&1 || \
	    { cat build/configure.log; echo "tools/packages.sh build installs what is missing"; exit 1; }
	@cmake --build build

packages:
	@tools/packages.sh build

run: packages all ## a continuation by the built-in model
	build/quire run builtin -p "$(PROMPT)" --echo -n 80 --temp 0.8 --seed 7

check: ## the inner loop, a minute or two: unit tests without the slow ones, tests/golden, one server; ROOM=kv: that room's unit tests alone
	@tools/packages.sh unit
	@tools/test.sh --check $(ROOM)

test: ## everything below 15 minutes: unit, second compiler, expected outputs, end to end
	@tools/packages.sh test
	@tools/test.sh

test-quick: ## the unit tests and the expected outputs, with one compiler: some five minutes
	@tools/packages.sh unit
	@tools/test.sh --quick

test-long: ## the same with more rounds, the Promela models, ten minutes of each fuzz target of grammars, answers and requests, the sanitizers over all, make check, a bare Debian, and the Dockerfile
	@tools/packages.sh test
	@tools/packages.sh test-long || true
	@tools/test.sh --long
	@tools/packages.sh fuzz
	@tools/fuzz.sh 600 grammar parsers calls program
	@tools/fuzz.sh 10800 requests # ten minutes of each dialect
	@$(MAKE) --no-print-directory asan tsan check
	@cmake --build build/tsan --target quire_program >build/tsan/program.log && QUIRE_BIN=build/tsan/quire build/venv/bin/python -m pytest -q -p no:cacheprovider tests/e2e/test_storm.py
	@tools/bare.sh 13 --quick || [ $$? -eq 77 ]
	@tools/bare.sh 13 --wheel || [ $$? -eq 77 ]
	@tools/bare.sh 13 --image || [ $$? -eq 77 ]

bench: packages all ## speed of a 1.1B model beside this machine's limits and the goals, and of text: some ten minutes, 6 GB of memory
	build/quire bench speed
	build/quire bench text

bench-json: packages all ## the same as JSON lines
	@build/quire bench speed --json
	@build/quire bench text --json

bench-save: packages all ## the same into bench/results, with machine, commit and command; run it where nothing else runs
	@tools/bench_save.py

asan: ## unit tests under AddressSanitizer and UBSan
	@tools/packages.sh test
	@tools/test.sh --sanitizer asan

tsan: ## unit tests of the threaded rooms under ThreadSanitizer
	@tools/packages.sh test
	@tools/test.sh --sanitizer tsan

asan-quick: ## the same without the slow tests
	@tools/packages.sh unit
	@tools/test.sh --sanitizer asan --quick

asan-turn: ## the same of the parsers and of some other rooms, by the hour of HEAD's commit
	@tools/packages.sh unit
	@tools/test.sh --sanitizer asan --turn

tsan-quick: ## make tsan without the slow tests
	@tools/packages.sh unit
	@tools/test.sh --sanitizer tsan --quick

fuzz: ## a minute of libFuzzer on every parser
	@tools/packages.sh fuzz
	@tools/fuzz.sh

avx512: ## the kernels' tests with AVX-512 emulated, on any x86
	@tools/packages.sh test
	@tools/test.sh --emulated

neon: ## the CPU backend's tests for ARM, under qemu
	@tools/packages.sh neon
	@tools/neon.sh

layers: ## who includes whom, no circles inside a room, and a line on every file
	@tools/layers.py
	@tools/map.py --check

map: ## every file with a line on what it is; ROOM=kv: that room's
	@tools/map.py $(ROOM)

size: all ## lengths of files, functions and lines, size of the program
	@tools/size.py build/quire

format:
	@tools/packages.sh format
	tools/format.py $$(git ls-files '*.c' '*.h')

wheel: all ## a Python wheel in build/wheels, with the program and libquire.so (docs/python.md)
	@tools/wheel.py --tools build/venv-wheel

install: all ## programs, pages, completions and the library below PREFIX (/usr/local); DESTDIR goes before it
	@tools/install.sh install build $(PREFIX)

uninstall: all ## removes what install put there
	@tools/install.sh uninstall build $(PREFIX)

clean:
	rm -rf build
