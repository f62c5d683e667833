# llm_infer - text generation inside PostgreSQL.
#
# Two products: the extension llm_infer.so (src/pg, src/wire, core/status.c; PostgreSQL's flags) and
# the engine llm_infer_engine (everything else; its own flags, no PostgreSQL). Both are built below
# $(BUILD), so several builds can stand side by side: make BUILD=build-clang CC=clang.

EXTENSION   = llm_infer
LLM_INFER_VERSION = 0.1.0
BUILD      ?= build
PG_CONFIG  ?= pg_config
PROTOC_C   ?= protoc-c

DATA        = $(wildcard sql/$(EXTENSION)--*.sql)
EXTRA_CLEAN = $(BUILD)

PGXS := $(shell $(PG_CONFIG) --pgxs)
# PGXS sets CC and CFLAGS to what PostgreSQL was built with; the engine has its own.
ENGINE_CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
include $(PGXS)

.DEFAULT_GOAL := all
SILENT_WARNINGS =
WARN      = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers

# ---- wire messages: generated, never committed ----

GEN = $(BUILD)/gen
$(GEN)/llm.pb-c.c $(GEN)/llm.pb-c.h &: src/wire/llm.proto
	@mkdir -p $(GEN)
	$(PROTOC_C) --proto_path=src/wire --c_out=$(GEN) llm.proto

# ---- the engine ----

# Folders from the roof to the ground: an archive may use those after it.
ENGINE_DIRS  = server engine sched model kernels echo kv sample tokenizer template tensor wire core
SANITIZE    ?=
ENGINE_OPT  ?= -O2 -g
ENGINE_CFLAGS = -std=c11 -D_GNU_SOURCE $(ENGINE_OPT) -ffp-contract=off -fvisibility=hidden \
	-pthread -fno-omit-frame-pointer $(WARN) $(SANITIZE) -Isrc -isystem $(GEN) \
	-DLLM_VERSION='"$(LLM_INFER_VERSION)"'
ENGINE_LIBS  = -lprotobuf-c -ljansson -lpcre2-8 -lutf8proc -lxxhash -lm

engine_objs  = $(patsubst src/%.c,$(BUILD)/engine/%.o,$(wildcard src/$(1)/*.c))
ENGINE_ARCHIVES = $(foreach d,$(ENGINE_DIRS),$(if $(wildcard src/$(d)/*.c),$(BUILD)/engine/$(d).a))

$(BUILD)/engine/%.o: src/%.c
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_CFLAGS) -MMD -MP -c -o $@ $<

# Many unrolled shapes: tracking their variables would take most of the compile time.
$(BUILD)/engine/kernels/qgemm_%.o: ENGINE_CFLAGS += -g1

# The build's part of the numerics key (rule R1): sources, compiler and flags. The one file that carries
# it is compiled again whenever any of them changes.
ENGINE_SRCS = $(sort $(wildcard $(foreach d,$(ENGINE_DIRS),src/$(d)/*.c src/$(d)/*.h)))
BUILD_ID_FILE = $(BUILD)/engine/engine/loader.o
$(BUILD_ID_FILE): ENGINE_CFLAGS += -DLLM_BUILD_ID='"$(shell (cat $(ENGINE_SRCS); $(ENGINE_CC) --version; \
	echo '$(ENGINE_OPT) $(SANITIZE)') | sha256sum | cut -c1-16)"'
$(BUILD_ID_FILE): $(ENGINE_SRCS)

$(BUILD)/engine/gen/llm.pb-c.o: $(GEN)/llm.pb-c.c
	@mkdir -p $(@D)
	$(ENGINE_CC) -O2 -g -fvisibility=hidden $(SANITIZE) -I$(GEN) -c -o $@ $<

define ARCHIVE
$(BUILD)/engine/$(1).a: $(call engine_objs,$(1))
	@rm -f $$@
	$(AR) rcs $$@ $$^
endef
$(foreach d,$(ENGINE_DIRS),$(eval $(call ARCHIVE,$(d))))
$(call engine_objs,server) $(call engine_objs,wire): | $(GEN)/llm.pb-c.h

$(BUILD)/llm_infer_engine: $(ENGINE_ARCHIVES) $(BUILD)/engine/gen/llm.pb-c.o
	$(ENGINE_CC) $(ENGINE_OPT) $(SANITIZE) -pthread -o $@ -Wl,--start-group \
		$(ENGINE_ARCHIVES) $(BUILD)/engine/gen/llm.pb-c.o -Wl,--end-group $(ENGINE_LIBS)

# ---- the extension ----

PG_SRCS   = $(wildcard src/pg/*.c src/pg/*/*.c src/wire/*.c) src/core/status.c
PG_OBJS   = $(patsubst src/%.c,$(BUILD)/pg/%.o,$(PG_SRCS)) $(BUILD)/pg/gen/llm.pb-c.o
PG_CC    ?= $(ENGINE_CC)
PG_INCLUDE ?= $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -std=gnu11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -fno-strict-aliasing -fwrapv \
	$(WARN) $(SANITIZE) -Wdeclaration-after-statement -Wmissing-prototypes -Isrc -isystem $(GEN) \
	-isystem $(PG_INCLUDE) -DLLM_VERSION='"$(LLM_INFER_VERSION)"'

$(BUILD)/pg/%.o: src/%.c | $(GEN)/llm.pb-c.h
	@mkdir -p $(@D)
	$(PG_CC) $(PG_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/pg/gen/llm.pb-c.o: $(GEN)/llm.pb-c.c
	@mkdir -p $(@D)
	$(PG_CC) -O2 -g -fPIC -fvisibility=hidden $(SANITIZE) -I$(GEN) -c -o $@ $<

$(BUILD)/llm_infer.so: $(PG_OBJS)
	$(PG_CC) -shared $(SANITIZE) -o $@ $(PG_OBJS) -Wl,--as-needed -lprotobuf-c -Wl,--no-undefined-version

# ---- unit tests: test/unit/test_NAME.c; a line " * links: DIR ..." in its first comment names the
# archives it is linked with, roof first ----

UNIT_TESTS = $(patsubst test/unit/test_%.c,%,$(wildcard test/unit/test_*.c))
unit_links = $(shell sed -n 's/^ \* links: //p' test/unit/test_$(1).c | head -1)
unit_archives = $(foreach d,$(call unit_links,$(1)),$(BUILD)/engine/$(d).a)

define UNIT_TEST
$(BUILD)/test/test_$(1): test/unit/test_$(1).c $(call unit_archives,$(1)) | $(GEN)/llm.pb-c.h \
		$(if $(filter wire server,$(call unit_links,$(1))),$(BUILD)/engine/gen/llm.pb-c.o)
	@mkdir -p $$(@D)
	$$(ENGINE_CC) $$(ENGINE_CFLAGS) -MMD -MP -o $$@ $$< -Wl,--start-group $(call unit_archives,$(1)) \
		$(if $(filter wire server,$(call unit_links,$(1))),$(BUILD)/engine/gen/llm.pb-c.o) -Wl,--end-group -lcmocka $$(ENGINE_LIBS)
endef
$(foreach t,$(UNIT_TESTS),$(eval $(call UNIT_TEST,$(t))))

# ---- benchmarks of parts: test/bench/NAME.c, linked like unit tests ----

bench_archives = $(foreach d,$(shell sed -n 's/^ \* links: //p' test/bench/$(1).c | head -1),$(BUILD)/engine/$(d).a)

define BENCH
$(BUILD)/bench/$(1): test/bench/$(1).c $(call bench_archives,$(1))
	@mkdir -p $$(@D)
	$$(ENGINE_CC) $$(ENGINE_CFLAGS) -MMD -MP -o $$@ $$< -Wl,--start-group $(call bench_archives,$(1)) -Wl,--end-group $$(ENGINE_LIBS)
endef
$(foreach t,$(patsubst test/bench/%.c,%,$(wildcard test/bench/*.c)),$(eval $(call BENCH,$(t))))

# ---- fuzz targets: clang's libFuzzer with ASan and UBSan, over the same archives ----

FUZZ_TARGETS = $(patsubst test/fuzz/%.c,%,$(wildcard test/fuzz/fuzz_*.c))
FUZZ_SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all
fuzz_links = $(shell sed -n 's/^ \* links: //p' test/fuzz/$(1).c | head -1)

# The archives of a fuzz build must carry coverage: they are made by the recursive call below.
fuzz-targets:
	$(MAKE) --no-print-directory BUILD=$(BUILD) CC=clang ENGINE_OPT='-O1 -g' \
		SANITIZE='$(FUZZ_SANITIZE) -fsanitize=fuzzer-no-link' $(FUZZ_TARGETS:%=$(BUILD)/fuzz/%)

define FUZZ_TARGET
$(BUILD)/fuzz/$(1): test/fuzz/$(1).c $(foreach d,$(call fuzz_links,$(1)),$(BUILD)/engine/$(d).a) \
		$(if $(filter wire server,$(call fuzz_links,$(1))),$(BUILD)/engine/gen/llm.pb-c.o)
	@mkdir -p $$(@D)
	$$(ENGINE_CC) $$(ENGINE_CFLAGS) -fsanitize=fuzzer -o $$@ $$< -Wl,--start-group \
		$(foreach d,$(call fuzz_links,$(1)),$(BUILD)/engine/$(d).a) \
		$(if $(filter wire server,$(call fuzz_links,$(1))),$(BUILD)/engine/gen/llm.pb-c.o) \
		-Wl,--end-group $$(ENGINE_LIBS)
endef
$(foreach t,$(FUZZ_TARGETS),$(eval $(call FUZZ_TARGET,$(t))))

# ---- everyday targets ----

all: $(BUILD)/llm_infer_engine $(BUILD)/llm_infer.so
engine: $(BUILD)/llm_infer_engine
unit-tests: $(UNIT_TESTS:%=$(BUILD)/test/test_%)

help:
	@echo 'make                  build the engine and the extension below build/'
	@echo 'make install          install both for the PostgreSQL of PG_CONFIG'
	@echo 'make installcheck     regression tests on a temporary instance'
	@echo 'make check-unit       C tests of the engine; no PostgreSQL needed'
	@echo 'make check-tap        crash, cancel and life-cycle tests on temporary instances'
	@echo 'make check-isolation  concurrent sessions on a temporary instance'
	@echo 'make check-fuzz       replay the saved fuzzing corpus'
	@echo 'make check-house      include rules, sizes, flags, symbols, formatting'
	@echo 'make format           clang-format over the sources'
	@echo 'scripts/test          all of these; scripts/demo shows the extension at work'

installcheck:
	scripts/test regress
check-unit:
	scripts/test unit
check-tap:
	scripts/test tap
check-isolation:
	scripts/test isolation
check-fuzz:
	scripts/test fuzz
check-house:
	scripts/test house

format:
	clang-format -i $$(find src test -name '*.[ch]')

# Names for scripts/test: every regression and isolation test there is, in a fixed order.
regress-names:
	@echo $(sort $(patsubst sql/%.sql,%,$(filter-out $(DATA),$(wildcard sql/*.sql))))
isolation-names:
	@echo $(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec)))

install: install-products
install-products: all
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(INSTALL_SHLIB) $(BUILD)/llm_infer.so '$(DESTDIR)$(pkglibdir)/llm_infer.so'
	$(INSTALL_PROGRAM) $(BUILD)/llm_infer_engine '$(DESTDIR)$(pkglibdir)/llm_infer_engine'

.PHONY: engine unit-tests fuzz-targets help installcheck check-unit check-tap check-isolation \
	check-fuzz check-house format regress-names isolation-names install-products
-include $(shell find $(BUILD)/engine $(BUILD)/pg $(BUILD)/test -name '*.d' 2>/dev/null)
