# Everything is set up here, in build/, on a machine with Python 3.11 or newer,
# such as Debian 12's own 3.11.2, gcc and make; Java 17 is for
# Spark, and Maven beside it for the tests against the real store.  Stamps depend on the sources
# alone; environments and builds are made anew, never mended.
#
#   make demo        the main jobs: a store of order events, written, read and found
#   make demo-producer  RocketMQ's own client, in Java, sends to a store that is served; skipped
#                    where there is no Java or no Maven
#   make demo-spark  a pipeline through Spark with late and poison orders, killed, overtaken by
#                    retention, and exact; skipped where there is no Java; PySpark is 400 MB
#   make demo-cluster a Spark master and two workers, killed in turn, one of them without the disk; in
#                    at most five minutes; Java
#   make test        a slice of all tests, against the installed release build: 8 minutes, building
#                    included
#   make test-all    the tests that make test leaves out: 20 minutes
#   make lint        ruff, mypy, stubtest, cython-lint, and a look at the generated C
#   make asan tsan   tests under the address and undefined-behaviour, or the thread, sanitizer
#   make docs        the pages as a site, build/docs/index.html
#   make wheel       sdist and manylinux wheel in dist/, tried in an empty environment
#   make pythons     the wheel's tests in other Pythons, from 3.12 on; those found on the PATH and of
#                    pyenv, or PYTHONS="python3.12 /path/python3.14t"; ARGS="-q tests/threads"
#   make release-check of versions, changelog, tag, and the files of make wheel
#   make bench       pytest-benchmark; BASE=<revision> compares with that revision, fails at 10 %
#   make instructions of the hot calls, counted by valgrind, beside the committed ones, at 3 %;
#                    UPDATE=1 writes them
#   make bench-table ours beside what the machine needs at least
#   make versus      ours beside the real store, alternately, with each goal: 15 minutes on a quiet
#                    machine; Java and Maven; ARGS="--rounds 2 --messages 20000 --only query"
#   make versus-pages the figures of its last run into docs/performance.md, README.md and the plot
#   make versus-serve rmqstore serve beside the real broker, with the real Java client; Java and Maven;
#                    ARGS="--rounds 5 --seconds 5 --only sync"
#   make bench-serve rmqstore serve alone: a thousand idle consumers, how soon a message arrives, start
#                    and stop; ARGS="--only idle --consumers 5000"
#   make serve-clients all scenarios of real clients, also with accounts and TLS, and mqadmin, beside
#                    the real servers; Java, Maven and Go
#   make toolbox-campaign verify and repair on every kind of damage, beside the real broker: 20 minutes;
#                    Java and Maven; make test-all has a slice
#   make serve-nightly clients in Node and Rust; Node with npm, and cargo, which builds for minutes
#   make lakehouse   the examples of docs/lakehouse.md, in an environment of 1.2 GB of their own
#   make serve-faults rmqstore serve killed 50 times under load of Java clients, then handed to a real
#                    broker and back 10 times; ARGS="--kills 200"; make serve-clients has a slice
#   make hostile-clients attackers at rmqstore serve, one kind at a time and several, and a client
#                    beside them that must not notice; ARGS="--only held --seed 1"; --busy where others
#                    run, --products 100; make test has a slice
#   make serve-traffic ten longer random programs of clients against the real servers and ours
#   make scale       how cost grows: messages, queues, bytes, threads; memory of a reader and a writer;
#                    ARGS="--only sparse,writer" for some,
#                    "--huge 100000000" for a store of 17 GB more
#   make bench-toolbox verbs beside the machine's own pace, and their memory: 4 minutes, 12 GB
#   make bench-spark stores beside Parquet in Spark
#   make bench-spark-scale DIR=<directory> plans over a sparse store of 10 TiB
#   make pipeline    the pipeline of make demo-spark, longer; its plot is build/pipeline/pipeline.png
#   make spark-faults 100 random faults under streams of Spark; make test-all has 10 of them
#   make faults      the fault campaigns, in one table; SCALE=10 for ten times as many cases,
#                    ONLY=kill,power for some, SEED and CASE to repeat one; make test has a slice
#   make fuzz-frames 10^7 mutated frames for the codec of make faults, in one program
#   make faults-proof the known defects of tests/faults/plants one at a time, and which campaign finds
#                    each; ONLY=a4,a5 for some
#   make parity      docs/parity.md, with the comparisons of all of make interop
#   make week        ten million messages over seven days of the store's clock, killed 20 times, then
#                    in the hands of the real broker; ARGS="--messages 1000000 --no-java"
#   make coverage    of lines, the core by gcov, at least 92 %
#   make interop venv clean
#
# ARGS is handed to pytest, which then chooses from all tests: make test ARGS="-k index -x"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

# mkfs.ext4, of some tests, is where users have no PATH to.
export PATH := $(PATH):/usr/sbin:/sbin
# pytest would rewrite all assertions in each process anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(or $(firstword $(foreach p,python3.11 python3,$(shell command -v $(p) 2>/dev/null))),python3)
ifeq ($(origin CC),default)
CC := gcc
endif
ARGS ?=
BASE ?=
export HYPOTHESIS_PROFILE ?= dev

V := build/venv
CLIENTS := interop/clients
PLANTS := tests/faults/plants
SITE := $(CURDIR)/build/site
JAVA := $(shell command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java")
NO_MAVEN := demo-producer: skipped, it needs Java (in JAVA_HOME or on the PATH) and Maven
NO_JAVA = $@: skipped, there is no Java (neither in JAVA_HOME nor on the PATH)
# Not at each make: a JVM starts for it.
ifneq ($(and $(JAVA),$(filter demo-%,$(MAKECMDGOALS))),)
OLD_JAVA := $(shell [[ $$("$(JAVA)" -version 2>&1) =~ version.*\"([0-9]+) ]] && \
    (( BASH_REMATCH[1] < 17 )) && echo $${BASH_REMATCH[1]})
ifneq ($(OLD_JAVA),)
NO_MAVEN := demo-producer: skipped, it needs Java 17; $(JAVA) is older
NO_JAVA = $@: skipped, it needs Java 17; $(JAVA) is older
JAVA :=
endif
endif
MAVEN := $(and $(JAVA),$(shell command -v mvn))
SOURCES := pyproject.toml setup.py README.md LICENSE docs/rmqstore.1 \
    $(sort $(shell find src -name '*.py' -o -name '*.py[xi]' -o -name '*.px[di]' -o -name py.typed))

.PHONY: demo demo-producer demo-spark demo-cluster lakehouse builds docs test test-all lint asan tsan \
    coverage wheel pythons release-check bench instructions bench-table versus versus-pages scale interop parity faults faults-proof \
    fuzz-frames spark-faults week pipeline bench-spark bench-spark-scale bench-serve bench-toolbox serve-clients \
    serve-nightly toolbox-campaign serve-faults serve-traffic hostile-clients versus-serve venv clean FORCE

demo: $(V)/demo.stamp
	rm -rf build/demo-store
	$(V)/bin/rmqstore demo build/demo-store
	@echo "Two more: make demo-producer, a Java client (Maven); make demo-spark, a pipeline (400 MB)"

demo-producer: $(V)/demo.stamp $(if $(MAVEN),$(CLIENTS)/target/clients.jar)
	$(if $(MAVEN),$(V)/bin/python examples/producer.py build/demo-producer,@echo "$(NO_MAVEN)")

$(CLIENTS)/target/clients.jar: $(CLIENTS)/pom.xml $(shell find $(CLIENTS)/src -name '*.java')
	$(MAVEN) -q -B -f $< package
	touch $@

demo-spark: $(if $(JAVA),$(V)/spark.stamp)
	$(if $(JAVA),$(V)/bin/python examples/pipeline/run.py build/demo-pipeline --short,@echo "$(NO_JAVA)")

demo-cluster: $(if $(JAVA),$(V)/spark.stamp)
	$(if $(JAVA),$(V)/bin/python examples/cluster.py build/demo-cluster,@echo "$(NO_JAVA)")

TWO := -n 2 --dist worksteal

# Two at a time: each compiles on one core.
builds:
	@$(MAKE) --no-print-directory -j2 $(V)/test.stamp build/site/faults/stamp

# $(call passes,MARKED and ,PROCESSES of Spark): Spark's tests have a pass of their own: what a
# session leaves in its process is then nothing to the other tests.  Kill points and failure injection
# are not in a release build: the tests that need them are a third pass, with the faults build before
# it on the path.
define passes
	RMQSTORE_FAULTS_PATH=$(SITE)/faults $(V)/bin/pytest $(TWO) \
	    -m "$(1)not needs_debug_build and not spark and not campaign and not nightly and not lakehouse" \
	    $(ARGS) $(or_none)
	RMQSTORE_FAULTS_PATH=$(SITE)/faults $(V)/bin/pytest $(2) \
	    -m "$(1)spark and not slow" $(or $(ARGS),tests/spark) $(or_none)
	RMQSTORE_FAULTS_PATH=$(SITE)/faults PYTHONPATH=$(SITE)/faults $(V)/bin/pytest $(TWO) \
	    -m "$(1)needs_debug_build" $(ARGS) $(or_none)
endef

# ARGS choose from all tests.  The long tests of Spark use both cores each.
test: builds
	$(call passes,$(if $(ARGS),,not long and ),-n 2 --dist loadfile)

test-all: builds
	scripts/need_chromium.sh || [ $$? -eq 3 ]
	$(call passes,long and ,)

# ARGS may leave a pass nothing to run, which is pytest's exit code 5.
or_none = $(if $(ARGS),|| [ $$? -eq 5 ])

interop: $(V)/test.stamp
	RMQSTORE_TURNS=200 RMQSTORE_INTEROP_ROUNDS=3 $(V)/bin/pytest -m "interop and not nightly" $(ARGS)

parity: $(V)/test.stamp
	RMQSTORE_COMPARED=$(CURDIR)/tests/interop/counts.json $(V)/bin/pytest -m "interop and not nightly" $(ARGS)
	$(V)/bin/python scripts/make_parity_page.py

DIR ?= build/scale
SCALE ?= 1
JOBS ?= 2
faults: $(V)/test.stamp build/site/faults/stamp build/site/asan/stamp
	RMQSTORE_FAULTS_PATH=$(SITE)/faults RMQSTORE_ASAN_PATH=$(SITE)/asan PYTHONPATH=$(SITE)/faults:tests $(V)/bin/python -m faults \
	    --scale "$(SCALE)" --jobs "$(JOBS)" --seed "$(SEED)" --only "$(ONLY)" --case "$(CASE)" \
	    --scratch build/faults

fuzz-frames: build/site/faults/stamp
	PYTHONPATH=$(SITE)/faults:tests $(V)/bin/python -m faults.fuzzing frame 14 0 10000000

# Known defects, put back one at a time: the campaigns in whose reach they are must find them.
faults-proof: $(V)/test.stamp build/site/plants/stamp
	RMQSTORE_FAULTS_PATH=$(SITE)/plants PYTHONPATH=$(SITE)/plants:tests $(V)/bin/python \
	    -m faults.proof --seed "$(SEED)" --only "$(ONLY)"

spark-faults: $(V)/test.stamp
	RMQSTORE_SPARK_FAULTS=100 $(V)/bin/pytest tests/spark/test_faults.py $(ARGS)

week: $(V)/test.stamp
	rm -rf build/week
	PYTHONPATH=tests $(V)/bin/python -m week build/week $(ARGS)

pipeline: $(V)/spark.stamp
	$(V)/bin/python examples/pipeline/run.py build/pipeline

# libstdc++ comes with them because ASan must find __cxa_throw before a C++ library throws.  Two
# processes, and of what release runs in full (properties, ways to fail and to die, what takes long)
# a part: wrong accesses of memory are not found by more rounds of the same code.
SHORT := and (not long or needs_debug_build)
asan: $(V)/test.stamp build/site/asan/stamp
	preload=; for lib in libasan.so libubsan.so libstdc++.so.6; do \
	    path=$$($(CC) -print-file-name=$$lib); [ ! -e $$path ] || preload="$$preload $$path"; done; \
	env LD_PRELOAD="$$preload" PYTHONMALLOC=malloc PYTHONPATH=$(SITE)/asan \
	    RMQSTORE_FAULTS_PATH=$(SITE)/asan HYPOTHESIS_PROFILE=$(HYPOTHESIS_PROFILE:dev=sanitizer) \
	    RMQSTORE_SHORT=1 \
	    ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:handle_sigbus=0:allow_user_segv_handler=1 \
	    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(V)/bin/pytest $(TWO) \
	    -m "not interop and not slow and not spark and not pure $(if $(ARGS),,$(SHORT))" $(ARGS)

# polars, which other tests import, does not load under it.
tsan: $(V)/test.stamp build/site/tsan/stamp
	env LD_PRELOAD="$$($(CC) -print-file-name=libtsan.so)" PYTHONPATH=$(SITE)/tsan \
	    TSAN_OPTIONS=exitcode=66:second_deadlock_stack=1 \
	    setarch -R $(V)/bin/python -m pytest -m "threads and not slow and not spark" \
	    $(or $(ARGS),tests/threads)

lint: $(V)/lint.stamp
	$(V)/bin/ruff check .
	$(V)/bin/ruff format --check .
	$(V)/bin/mypy --strict src
	$(V)/bin/stubtest --mypy-config-file pyproject.toml rmqstore._core
	$(V)/bin/python scripts/check_sources.py
	$(V)/bin/python scripts/check_layers.py
	$(V)/bin/python scripts/check_spark.py
	$(V)/bin/python scripts/check_generated_c.py

docs: $(V)-docs/stamp
	rm -rf build/docs
	$(V)-docs/bin/sphinx-build --quiet --fail-on-warning --keep-going -d build/docs/trees docs build/docs
	@echo build/docs/index.html

wheel: $(V)-package/made
	$(V)-package/bin/python -m pip install --quiet --group pyproject.toml:package
	scripts/build_wheel.sh $(V)-package/bin/python dist . build/dist
	rm -rf dist && mkdir dist && cp build/dist/*.tar.gz dist/
	PATH=$(CURDIR)/$(V)-package/bin:$$PATH auditwheel repair --wheel-dir dist build/dist/*.whl
	scripts/make_venv.sh $(PYTHON) $(V)-try
	$(V)-try/bin/python -m pip install --quiet "$$(echo $(CURDIR)/dist/*.whl)[cli]"
	$(V)-try/bin/python scripts/try_wheel.py dist
	$(V)-package/bin/python scripts/check_identifiers.py

PYTHONS ?=
pythons:
	$(PYTHON) scripts/pythons.py --pythons "$(PYTHONS)" $(ARGS)

release-check: wheel
	$(V)-package/bin/twine check --strict dist/*
	$(V)-package/bin/python scripts/check_release.py dist

bench: $(V)-bench/stamp
	if [ -n "$(BASE)" ]; then \
	    $(V)-bench/bin/python scripts/bench_compare.py --python $(PYTHON) $(BASE) $(ARGS); \
	else \
	    $(V)-bench/bin/pytest bench --benchmark-storage=build/benchmarks \
	        --benchmark-autosave $(ARGS); \
	fi

# The wheel as users have it: other flags of the compiler are other counts.
UPDATE ?=
instructions: $(V)/test.stamp
	scripts/need_valgrind.sh || { code=$$?; [ $$code = 3 ] && exit 0; exit $$code; }; \
	PYTHONPATH=bench $(V)/bin/python -m instructions $(if $(UPDATE),--update)

versus: $(V)/test.stamp build/limits
	PYTHONPATH=bench:tests $(V)/bin/python -m versus --limits build/limits --json build/versus.json $(ARGS)

versus-pages: $(V)-docs/stamp
	PYTHONPATH=bench $(V)-docs/bin/python -m versus.pages build/versus.json

versus-serve: $(V)/test.stamp
	PYTHONPATH=bench:tests $(V)/bin/python bench/versus_serve.py $(ARGS)

bench-serve: $(V)/test.stamp
	PYTHONPATH=bench:tests $(V)/bin/python bench/serve_idle.py $(ARGS)

# A file's tests share a fixture of servers or compiled clients.
serve-clients: $(V)/test.stamp
	$(V)/bin/pytest -n 2 --dist loadfile -m campaign \
	    $(or $(ARGS),tests/serve tests/interop/test_mqadmin.py) $(or_none)

toolbox-campaign: $(V)/test.stamp
	$(V)/bin/pytest -n 2 --dist loadfile -m campaign \
	    $(or $(ARGS),tests/interop/test_broker_start.py tests/interop/test_repair.py \
	        tests/property/test_repair.py tests/property/test_repair_kinds.py tests/unit/toolbox) $(or_none)

serve-nightly: $(V)/test.stamp
	$(V)/bin/pytest -m nightly $(ARGS)

lakehouse: $(V)-lakehouse/stamp
	$(V)-lakehouse/bin/pytest tests/lakehouse $(ARGS)

serve-faults: $(V)/test.stamp
	PYTHONPATH=tests $(V)/bin/python -m serve.killed $(ARGS)

hostile-clients: $(V)/test.stamp
	PYTHONPATH=tests $(V)/bin/python -m serve.hostile $(ARGS)

serve-traffic: $(V)/test.stamp
	RMQSTORE_TRAFFIC_ROUNDS=10 RMQSTORE_TRAFFIC_SENDS=200 \
	    $(V)/bin/pytest tests/serve/test_random_traffic.py $(ARGS)

scale: $(V)/test.stamp
	PYTHONPATH=bench $(V)/bin/python -m scale $(ARGS)

bench-toolbox: $(V)/test.stamp
	PYTHONPATH=bench:tests $(V)/bin/python -m verbs $(ARGS)

bench-table: $(V)-bench/stamp build/limits
	$(V)-bench/bin/python bench/table.py build/limits $(ARGS)

# DIR needs some GB, and room for 340,000 files and directories.
bench-spark-scale: $(V)/test.stamp
	PYTHONPATH=bench:tests $(V)/bin/python bench/spark_scale.py "$(DIR)"

bench-spark: $(V)/test.stamp
	$(V)/bin/python bench/spark.py $(ARGS)

# -O3 and run-time dispatch as in the extension, so that the compiler is no difference.
build/limits: bench/limits/limits.c
	mkdir -p build
	$(CC) -std=gnu11 -O3 -Wall -Wextra -Werror -pthread -o $@ $<

# gcov counts the lines of the core, in C that names its parts; what it counts stays beside the object
# files.  A measured child has loaded more than test_import allows.
COVERED := not interop and not slow and not campaign and not nightly and not lakehouse
COVER = export COVERAGE_FILE=$(CURDIR)/build/coverage/python PYTHONPATH=$(CURDIR)/build/coverage/tree/src \
    RMQSTORE_FAULTS_PATH=$(CURDIR)/build/coverage/tree/src; \
    $(V)/bin/pytest --cov --cov-append --cov-report= --cov-fail-under=0
coverage: $(V)/test.stamp
	$(V)/bin/python -m pip install --quiet --group pyproject.toml:coverage
	scripts/build_wheel.sh $(V)/bin/python coverage . build/coverage
	$(COVER) $(TWO) --deselect tests/unit/api/test_import.py \
	    -m "not long and not spark and $(COVERED)" $(ARGS) $(or_none)
	$(COVER) -n 2 --dist loadfile -m "not long and spark and $(COVERED)" $(or $(ARGS),tests/spark) $(or_none)
	cd build/coverage/tree && $(CURDIR)/$(V)/bin/gcovr build
	COVERAGE_FILE=build/coverage/python $(V)/bin/coverage report --skip-covered

venv: $(V)/test.stamp
	@echo "$(V)/bin/activate"

clean:
	rm -rf build dist src/*.egg-info src/rmqstore/_core.c .benchmarks .coverage .pytest_cache \
	    .mypy_cache .ruff_cache .hypothesis interop/target interop/five/target interop/clients/target \
	    interop/clients/target-five interop/node/node_modules interop/rust/target \
	    interop/tools/target
	find src tests bench scripts examples -name __pycache__ -prune -exec rm -rf {} +

# ---- environments and builds -----------------------------------------------------------------

# A file that went away changes no time stamp: the list of sources is a source as well.
build/sources.list: FORCE
	@mkdir -p build
	@printf '%s\n' $(SOURCES) | cmp --quiet - $@ || printf '%s\n' $(SOURCES) > $@

$(V)/made $(V)-bench/made $(V)-docs/made $(V)-lakehouse/made $(V)-package/made: scripts/make_venv.sh
	scripts/make_venv.sh $(PYTHON) $(@D)
	touch $@

MODES := release faults plants asan tsan
$(MODES:%=build/wheels/%.stamp): build/wheels/%.stamp: \
    $(SOURCES) build/sources.list scripts/build_wheel.sh $(V)/made
	@echo "compiling the extension ($*): one to two minutes, silently"
	scripts/build_wheel.sh $(V)/bin/python $* . build/wheels/$*
	touch $@

# A directory changes where a patch comes or goes.
build/wheels/plants.stamp: scripts/plant.sh $(PLANTS) $(wildcard $(PLANTS)/*.patch)

# $(call install,ENVIRONMENT,EXTRAS): pip keeps an equal version, so the old one goes first
install = $(1)/bin/python -m pip uninstall --quiet --yes rmqstore 2>/dev/null && \
    $(1)/bin/python -m pip install --quiet "$$(echo $(CURDIR)/build/wheels/release/*.whl)[$(2)]"

$(V)/demo.stamp: $(V)/made build/wheels/release.stamp
	$(call install,$(V),cli)
	touch $@

# Only where Java is: PySpark is 400 MB.
$(V)/spark.stamp: $(V)/demo.stamp
	$(call install,$(V),cli$(comma)examples)
	touch $@

$(V)/test.stamp: $(V)/made build/wheels/release.stamp
	$(call install,$(V),test$(comma)arrow$(comma)cli)
	touch $@

$(V)-bench/stamp: $(V)-bench/made build/wheels/release.stamp
	$(call install,$(V)-bench,bench$(comma)arrow)
	touch $@

$(V)-docs/stamp: $(V)-docs/made pyproject.toml
	$(V)-docs/bin/python -m pip install --quiet --group pyproject.toml:docs
	touch $@

$(V)-lakehouse/stamp: $(V)-lakehouse/made build/wheels/release.stamp
	$(call install,$(V)-lakehouse,arrow)
	$(V)-lakehouse/bin/python -m pip install --quiet --group pyproject.toml:lakehouse
	touch $@

$(V)/lint.stamp: $(V)/test.stamp pyproject.toml
	$(V)/bin/python -m pip install --quiet --group pyproject.toml:lint
	touch $@

build/site/%/stamp: build/wheels/%.stamp
	rm -rf $(@D)
	$(V)/bin/python -m pip install --quiet --no-deps --target $(@D) build/wheels/$*/*.whl
	touch $@

comma := ,
