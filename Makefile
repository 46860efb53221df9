# make help lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

CTL := test/services/ctl
SERVICES ?= kafka postgres15 postgres16 postgres17 postgres18 mysql mysql-nogtid mysql-nobinlog mariadb1011 mariadb118
BINARY := $(CURDIR)/bin/outboxd

.PHONY: help build test test-unit test-long test-run test-apart test-rules demo lint docs docs-check clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/outboxd, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/outboxd ./cmd/outboxd

test: build ## everything, against real Kafka, Postgres, MySQL and MariaDB (test/services/README.md)
	@rm -f bin/test.log; rc=0; \
	test/tools && $(MAKE) test-rules || rc=1; \
	$(CTL) with $(SERVICES) -- $(MAKE) test-run || rc=1; \
	$(CTL) with kafka3 postgres17 mysql -- $(MAKE) test-apart PACKAGE=./cluster || rc=1; \
	$(CTL) with kafka39 postgres17 -- $(MAKE) test-apart PACKAGE=./kafka39 || rc=1; \
	$(CTL) with kafka-secure postgres17 -- $(MAKE) test-apart PACKAGE=./kafkasecure || rc=1; \
	test/services/budget bin/test.log; exit $$rc

test-long: ## the same with real durations and full repetition counts
	@OUTBOXD_TEST_LONG=1 $(MAKE) test TIMEOUT=6h

test-unit: ## the fast loop: no services
	go test -race ./...

TIMEOUT ?= 40m
# What test runs once the services are up. Both modules run even when the first fails. -p 1 in test/: its packages share
# the servers, and some kill them.
test-run:
	@mkdir -p bin; rc=0; \
	{ go test -race -count=1 -timeout $(TIMEOUT) ./... || rc=1; \
	  cd test && OUTBOXD_TEST_BINARY=$(BINARY) go test -count=1 -p 1 -timeout $(TIMEOUT) $$(go list ./... | grep -v $(APART)) || rc=1; \
	  exit $$rc; } 2>&1 | tee -a bin/test.log || rc=1; exit $$rc

# Packages that need other brokers, which run after the main ones are stopped: one Kafka at a time.
APART := -e /cluster$$ -e /kafka39$$ -e /kafkasecure$$
test-apart:
	@cd test && OUTBOXD_TEST_BINARY=$(BINARY) go test -count=1 -timeout $(TIMEOUT) -v $(PACKAGE) 2>&1 | tee -a ../bin/test.log

test-rules: ## deploy/prometheus: the alert rules and their tests (test/tools fetches promtool)
	@PATH="$$PATH:$(CURDIR)/bin/tools"; cd deploy/prometheus && promtool check rules rules.yml && promtool test rules rules_test.yml

demo: build ## an order service, Postgres and Kafka on a bare machine, with outboxd killed in mid stream
	@cd test && CGO_ENABLED=0 go build -trimpath -o ../bin/demo ./demo
	@OUTBOXD_TEST_BINARY=$(BINARY) exec bin/demo

lint: ## gofmt, go vet, golangci-lint, both modules
	@.ci/lint

docs: ## docs/configuration.md from the table of variables
	@mkdir -p bin; go run ./cmd/outboxd config --markdown >bin/configuration.md.new && mv bin/configuration.md.new docs/configuration.md

docs-check: ## fails when docs/configuration.md is not what docs would write
	@go run ./cmd/outboxd config --markdown | diff -u docs/configuration.md - || \
	  { echo "docs/configuration.md is out of date: run make docs" >&2; exit 1; }

clean: ## stops this checkout's test services, deletes what was built and their data
	-@$(CTL) stop-all
	@for s in $$($(CTL) services); do $(CTL) wipe $$s; done
	rm -rf bin
