# What a person needs: `make run` to try Weir, `make test` before a change is handed in.
# `make run` and `make build` need Go and make, nothing else.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BENCH   ?= # flags, such as --rounds 3 --cases small
CONFIG  ?= examples/three-tiers.yaml

.PHONY: help run build test check test-long bench drill fmt

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: build ## Build Weir and serve on 127.0.0.1:8484
	@./bin/weir run --log-format text

build: ## Build the static binary bin/weir
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/weir ./cmd/weir

test: ## Install what tests need, then check and test everything
	@scripts/test

check: ## Format, vet, staticcheck, floors, schema, examples
	@scripts/check

test-long: ## Fuzz every parser, full sweeps, repeats (hours; FUZZTIME, COUNT)
	@scripts/test-long

bench: build ## Measure what Weir costs beside a bare reverse proxy
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/bench ./bench
	@./bin/bench all --weir ./bin/weir $(BENCH)

drill: build ## Try the fault catalogue on CONFIG (examples/three-tiers.yaml), and write docs/conformance.md
	@./bin/weir drill --config $(CONFIG) --markdown --numbers >bin/conformance.md; code=$$?; mv bin/conformance.md docs/conformance.md; exit $$code

fmt: ## Format all Go code
	@gofmt -s -w $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')
