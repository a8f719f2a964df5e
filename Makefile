# fathom: `make help` lists the targets.
#
# Objects are kept per mode (MODE=release, asan, tsan) under build/<mode>/, so switching modes needs no
# `make clean`. A folder is a layer and one static archive; calls go down: server > eval > engine > kernels.
# With CUDA=1 (by itself where nvcc is, but not under sanitizers) the CUDA kernels and their backend are built in; their
# objects are those of every mode, in build/cuda/.

MODE    ?= release
CC      ?= cc
PYTHON  ?= python3
WERROR  ?= $(if $(CI),-Werror)
VERSION := 0.1.0
B       := build/$(MODE)
FATHOM  := $(if $(filter release,$(MODE)),build/fathom,$(B)/fathom)

comma     := ,
NVCC      ?= $(or $(wildcard $(CUDA_HOME)/bin/nvcc),$(shell command -v nvcc))
NVCC      := $(NVCC)
# Before release 12 nvcc knew no sm_90a. Its folder is what it says itself: the nvcc on the PATH may be a wrapper.
NVCC_RELEASE := $(if $(NVCC),$(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p'))
ifeq ($(NVCC),)
NO_CUDA := there is no nvcc$(if $(CUDA_HOME), in $(CUDA_HOME)/bin or on the PATH)
else ifneq ($(shell test "$(or $(NVCC_RELEASE),0)" -ge 12 && echo 1),1)
NO_CUDA := $(NVCC) $(if $(NVCC_RELEASE),is of CUDA $(NVCC_RELEASE)$(comma) and 12 is the least,tells no release)
endif
ifndef CUDA
CUDA := $(if $(NO_CUDA)$(filter-out release,$(MODE)),0,1)
endif
$(if $(filter-out 0 1,$(CUDA)),$(error CUDA=$(CUDA) is neither 0 nor 1))
ifeq ($(CUDA),1)
$(if $(NO_CUDA),$(error CUDA=1, but $(NO_CUDA)))
CUDA_TOP    := $(or $(realpath $(shell $(NVCC) --dryrun x.cu 2>&1 | sed -n 's/^.. TOP=//p')),$(CUDA_HOME))
CUDA_CFLAGS := -isystem $(CUDA_TOP)/include
CUDA_LIBS   := -L$(CUDA_TOP)/lib64 -Wl,-rpath,$(CUDA_TOP)/lib64 -lcudart_static -ldl -lrt -lstdc++
NVCCFLAGS   ?=
NVCC_FLAGS  := -std=c++17 -O3 -lineinfo -I. -Xcompiler -Wall,-Wextra -MMD -MP $(NVCCFLAGS)
NVCC_ARCH   := -gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]'
NVCC_SM90   := -gencode arch=compute_90a,code=sm_90a
endif

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef $(WERROR)
FLAGS_release := -O2 -g
FLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FLAGS_tsan    := -O1 -g -fsanitize=thread
PKGS     := libmicrohttpd libcjson sqlite3 libpcre2-8 libcurl libcrypto libutf8proc libarchive
PKG_TEST := check
CFLAGS   ?=
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) $(PKG_TEST) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
# No contraction: a*b + c is rounded twice whatever the compiler, so that builds of one version give the same bits. The kernels
# ask for fused products by name.
ALL_CFLAGS := -std=c11 -ffp-contract=off -D_GNU_SOURCE -DFATHOM_VERSION='"$(VERSION)"' -I. -I$(B) $(WARN) $(FLAGS_$(MODE)) -pthread -MMD -MP \
           $(PKG_CFLAGS) $(CUDA_CFLAGS) $(CFLAGS)
LDLIBS   := $(PKG_LIBS) -ldnnl -lgomp $(CUDA_LIBS) -lm -pthread

LAYERS := kernels engine eval server
cpu     = $(if $(filter 1,$(CUDA)),$(1),$(foreach f,$(1),$(if $(findstring cuda,$(f))$(findstring gpu,$(f)),,$(f))))
srcs    = $(filter-out server/main.c,$(call cpu,$(wildcard $(1)/*.c)))
kernels = $(if $(filter 1,$(CUDA)),$(wildcard $(1)/*.cu))
objs    = $(patsubst %.c,$(B)/%.o,$(call srcs,$(1))) $(patsubst %.cu,build/cuda/%.o,$(call kernels,$(1)))
LIBS   := $(foreach l,server eval engine kernels,$(B)/lib$(l).a)

EMBEDDED := $(wildcard migrations/*.sql) server/openapi.json $(wildcard web/*.html web/*.css web/*.js web/*.svg)
CHARTJS  ?= /usr/share/javascript/chart.js/chart.min.js
TESTS    := $(call cpu,$(wildcard tests/test_*.c))
FIXTURES := $(call cpu,$(wildcard tests/fixture*.c))
SOURCES  := $(wildcard $(LAYERS:%=%/*.c) $(LAYERS:%=%/*.h) tests/*.c tests/*.h)

# V=1 shows whole commands. Without a -j of its own, make uses every processor.
say  = $(if $(V),,@printf '  %-5s %s\n' $(1) $@;)
DEPS_CUDA = $(if $(filter 1,$(CUDA)),cuda)
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 2))

.PHONY: build demo test check test-gpu test-gpu-tasks sanitize-gpu bench lint sanitize format clean help deps
.DEFAULT_GOAL := build

build: ## build build/fathom (installs missing packages first); CUDA=0|1 builds without, with CUDA: by itself where nvcc is
	@sh tests/deps.sh build $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(FATHOM)
	$(if $(and $(NO_CUDA),$(NVCC)$(CUDA_HOME),$(filter undefined file,$(origin CUDA))),@echo "built without CUDA: $(NO_CUDA)")

# -- objects, archives, the program -------------------------------------------------------------------

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) -c $< -o $@

$(B)/embedded.o: $(B)/embedded.c
	$(call say,CC)$(CC) $(ALL_CFLAGS) -c $< -o $@

$(B)/embedded.c: tests/embed.py $(EMBEDDED) $(CHARTJS)
	@mkdir -p $(@D)
	$(call say,EMBED)$(PYTHON) tests/embed.py $@ $(EMBEDDED) web/chart.js=$(CHARTJS)

build/cuda/%_sm90.o: %_sm90.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCC_FLAGS) $(NVCC_SM90) -c $< -o $@

build/cuda/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCC_FLAGS) $(NVCC_ARCH) -c $< -o $@

# What was built with another CUDA= is built again: the one object that knows (which backends there are) and the lists.
$(B)/with_cuda: force
	@mkdir -p $(@D)
	@echo $(CUDA) | cmp -s - $@ || echo $(CUDA) > $@
$(B)/engine/device.o: ALL_CFLAGS += $(if $(filter 1,$(CUDA)),-DFATHOM_CUDA)
$(B)/engine/device.o $(B)/tests/suites.h $(LIBS): $(B)/with_cuda

define archive
$(B)/lib$(1).a: $(call objs,$(1))
	@rm -f $$@
	$$(call say,AR)ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach l,$(LAYERS),$(eval $(call archive,$(l))))

$(FATHOM): $(B)/server/main.o $(B)/embedded.o $(LIBS)
	$(call say,LD)$(CC) $(FLAGS_$(MODE)) -o $@ $^ $(LDLIBS)

# -- tests -------------------------------------------------------------------------------------------

$(B)/tests/suites.h: $(TESTS)
	@mkdir -p $(@D)
	@for t in $(patsubst tests/test_%.c,%,$(TESTS)); do echo "SUITE($$t)"; done > $@

$(B)/tests/main.o: $(B)/tests/suites.h

$(B)/tests/check_all: $(patsubst %.c,$(B)/%.o,$(TESTS)) $(B)/tests/main.o $(patsubst %.c,$(B)/%.o,$(FIXTURES)) $(B)/embedded.o $(LIBS)
	$(call say,LD)$(CC) $(FLAGS_$(MODE)) -o $@ $^ $(shell pkg-config --libs $(PKG_TEST)) $(LDLIBS)

# Real models and data, where a folder of them lies beside the checkout; the tests that use them skip without.
SHARED := $(or $(FATHOM_SHARED),../shared)
build/data:
	@mkdir -p build
	tar -xJf $(SHARED)/data.tar.xz -C build && touch $@

# device "auto" is the CPU in these tests, on any machine
NO_GPU := CUDA_VISIBLE_DEVICES=

check: ## the Check suites only; SUITE=name runs one
	@sh tests/deps.sh build test $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(if $(wildcard $(SHARED)/data.tar.xz),build/data) $(B)/tests/check_all $(FATHOM)
	$(if $(SUITE),CK_RUN_SUITE=$(SUITE)) CK_EXCLUDE_TAGS=gpu $(NO_GPU) FATHOM=$(abspath $(FATHOM)) $(B)/tests/check_all

test: check ## everything that needs no GPU: Check suites, end to end over HTTP, the page in Chromium
	$(NO_GPU) FATHOM=$(abspath $(FATHOM)) $(PYTHON) -m unittest discover -v -s tests/e2e
	$(NO_GPU) FATHOM=$(abspath $(FATHOM)) /usr/bin/python3 -m unittest discover -v -s tests/browser

test-gpu: ## the tests that need a CUDA device, alone (SUITE=name: one Check suite); without one they say so, and FATHOM_REQUIRE_GPU=1 makes that a failure
ifeq ($(CUDA),1)
	@sh tests/deps.sh build test $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(if $(wildcard $(SHARED)/data.tar.xz),build/data) $(B)/tests/check_all $(FATHOM)
	$(if $(SUITE),CK_RUN_SUITE=$(SUITE)) CK_INCLUDE_TAGS=gpu FATHOM=$(abspath $(FATHOM)) $(B)/tests/check_all
	$(if $(SUITE),,FATHOM=$(abspath $(FATHOM)) $(PYTHON) -m unittest discover -v -s tests/e2e -p test_gpu.py)
else
	@echo "SKIP: the suites of tag gpu: built without CUDA"
	@test "$(FATHOM_REQUIRE_GPU)" != 1
endif

test-gpu-tasks: ## whole task files on a CUDA device, rope-29m and pope-29m, beside the CPU's f32 on a sample; GPU_TASKS='--device cpu --limit 20' checks the comparison itself
ifneq ($(wildcard $(SHARED)/data.tar.xz),)
	@sh tests/deps.sh build $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(FATHOM) build/data
	$(PYTHON) tests/gpu_tasks.py --fathom $(FATHOM) --models $(SHARED)/models $(GPU_TASKS)
else
	@echo "SKIP: test-gpu-tasks: there is no $(SHARED)/data.tar.xz"
	@test "$(FATHOM_REQUIRE_GPU)" != 1
endif

sanitize-gpu: ## the CUDA kernels under compute-sanitizer: memcheck, initcheck, synccheck, racecheck; SUITE=name: that suite, too
ifeq ($(CUDA),1)
	@sh tests/deps.sh build test $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/check_all
	sh tests/sanitize_gpu.sh $(B)/tests/check_all $(SUITE)
else
	@echo "SKIP: sanitize-gpu: built without CUDA"
endif

# -- speed: scoring beside PyTorch, which only the benchmark needs and which lives in a virtual environment of its own; memory;
# the tokenizer; HTTP while a worker computes (its clients are wrk, curl and jq)

BENCH_VENV ?= build/bench-venv
$(BENCH_VENV)/bin/python:
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet torch numpy safetensors transformers

# lm-eval is there for the parity tests and the benchmark of whole tasks. A version: parity is with its rules.
LM_EVAL := $(BENCH_VENV)/bin/lm_eval
$(LM_EVAL): | $(BENCH_VENV)/bin/python
	$(BENCH_VENV)/bin/pip install --quiet 'lm-eval[api]==0.4.13' accelerate

test-peers: ## parity with lm-eval 0.4.13, item by item, directly and through the endpoint; PEERS='--scale 4' or '--full': more of each file
ifneq ($(wildcard $(SHARED)/data.tar.xz),)
	@sh tests/deps.sh build test $(DEPS_CUDA)
	@$(MAKE) --no-print-directory $(JOBS) $(FATHOM) build/data $(LM_EVAL)
	$(NO_GPU) $(BENCH_VENV)/bin/python tests/peers/peers.py --fathom $(FATHOM) --models $(SHARED)/models $(PEERS)
else
	@echo "SKIP: test-peers: there is no $(SHARED)/data.tar.xz"
endif

build/bench_%: $(B)/tests/bench_%.o $(LIBS)
	$(call say,LD)$(CC) $(FLAGS_$(MODE)) -o $@ $^ $(LDLIBS)

bench-score: build/bench_score $(BENCH_VENV)/bin/python
	$(BENCH_VENV)/bin/python tests/bench_peer.py --models $(SHARED)/models

bench-memory: build/bench_score # one document of 32k tokens: peak_rss_mb beside weights_mb, and load_s
	build/bench_score --model $(SHARED)/models/pope-29m --length 32768 --tokens 32768 --repeat 1

bench-tokenizer: build/bench_tokenizer build/data
	build/bench_tokenizer $(firstword $(wildcard build/data/pg19/*.txt build/data/pg19/*/*.txt)) \
	    $(SHARED)/models/pope-29m/tokenizer.json $(wildcard build/data/tokenizers/*_tokenizer.json)

bench-cbt: $(FATHOM) build/data # ten candidates a question: the context read once, and ten times
	$(PYTHON) tests/cbt_rebuild.py build/data/cbt/cbt_test_raw.txt build/cbt --per-kind 5
	$(PYTHON) tests/bench_cbt.py $(FATHOM) $(SHARED)/models/rope-29m build/cbt

# Whole tasks beside lm-eval: of a tiny model on the CPU so much that a minute or two is enough for each.
BENCH_TASKS ?= --limit lambada=300,hellaswag=60,blimp=10,cbt=3 --trial lambada=40,hellaswag=10,blimp=1,cbt=1
bench-tasks: ## whole tasks, fathom and lm-eval with transformers; BENCH_TASKS='--device cuda:0 --dtype bf16 --shape 124m --batch 64,128,256,auto'
ifneq ($(wildcard $(SHARED)/data.tar.xz),)
	@$(MAKE) --no-print-directory $(JOBS) $(FATHOM) build/data $(LM_EVAL)
	$(PYTHON) tests/cbt_rebuild.py build/data/cbt/cbt_test_raw.txt build/peers/cbt --per-kind 2500
	$(BENCH_VENV)/bin/python tests/bench_tasks.py --fathom $(FATHOM) --cbt build/peers/cbt $(BENCH_TASKS)
else
	@echo "SKIP: bench-tasks: there is no $(SHARED)/data.tar.xz"
endif

bench-http: $(FATHOM)
	@sh tests/deps.sh bench
	FATHOM=$(abspath $(FATHOM)) sh tests/bench_http.sh

bench: build ## speed, as ratios to a peer in the same run, memory, the tokenizer, HTTP under load; bench-score is one of them
	@$(MAKE) --no-print-directory bench-score bench-memory bench-tokenizer bench-cbt bench-tasks bench-http

# On the device's own python where that has PyTorch, else in the virtual environment.
bench-gpu: ## speed on a CUDA device: attention and scoring, ours and PyTorch's in one run; BENCH_GPU='--only attention' runs a part
ifeq ($(CUDA),1)
	@sh tests/deps.sh build cuda
	@$(MAKE) --no-print-directory $(JOBS) build/bench_gpu
	@if $(PYTHON) -c 'import torch, safetensors, transformers' 2>/dev/null; then python=$(PYTHON); else \
	    $(MAKE) --no-print-directory $(BENCH_VENV)/bin/python && python=$(BENCH_VENV)/bin/python; fi && \
	    set -x && $$python tests/bench_gpu.py --bench build/bench_gpu --out build/bench-gpu $(BENCH_GPU)
else
	@echo "SKIP: bench-gpu: built without CUDA"
endif

.PHONY: test-peers bench-score bench-memory bench-tokenizer bench-cbt bench-tasks bench-http bench-gpu
.PRECIOUS: $(B)/tests/bench_%.o

lint: ## layers, headers that compile alone, clang-format, clang-tidy, cppcheck
	@sh tests/deps.sh lint
	@$(MAKE) --no-print-directory $(B)/tests/suites.h
	sh tests/check_layers.sh
	clang-format --dry-run --Werror $(SOURCES)
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --suppressions-list=.cppcheck -I. -D_GNU_SOURCE \
	    -DFATHOM_VERSION='""' $(LAYERS)
	printf '%s\n' $(call cpu,$(filter %.c,$(SOURCES))) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet --warnings-as-errors="*" "$$@" -- \
	    -std=c11 -D_GNU_SOURCE -DFATHOM_VERSION=\"\" -I. -I$(B) $(PKG_CFLAGS) $(CUDA_CFLAGS)' clang-tidy

format: ## clang-format in place
	clang-format -i $(SOURCES)

sanitize: ## the Check suites under address+undefined, then thread sanitizers
	@sh tests/deps.sh build test $(DEPS_CUDA)
	$(MAKE) MODE=asan check
	CK_TIMEOUT_MULTIPLIER=10 TSAN_OPTIONS='halt_on_error=1 suppressions=$(abspath tests/tsan.supp)' $(MAKE) MODE=tsan check

demo: build ## three small models read six novels: jobs over REST, a table, and the page
	@sh tests/deps.sh demo
	@$(PYTHON) eval/demo/demo.py build/fathom

deps: ## install what build and test need (Debian, Ubuntu); elsewhere name what is missing
	@sh tests/deps.sh build test $(DEPS_CUDA)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: force
force:

clean: ## remove build/
	rm -rf build

-include $(shell find build/$(MODE) build/cuda -name '*.d' 2>/dev/null)
