# The commands of this repository. `make` alone lists them.
# May be set: CARGO, FUZZ_SECONDS, ARGS (more arguments for `run` and the benchmarks), FEATURES (of `run` and `install`),
# STEPS (of `package` and `test-packages`: the names of those that are wanted),
# PREFIX, DESTDIR and UNITDIR (of `install` and `uninstall`).

CARGO ?= cargo
FUZZ_SECONDS ?= 60
ARGS ?=
PREFIX ?= /usr/local
DESTDIR ?=
FEATURES ?=
STEPS ?=
# Where systemd looks for units; by default below PREFIX.
UNITDIR ?=
export UNITDIR

TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help run install uninstall package test-packages book test-book test fmt lint fuzz miri bench bench-full bench-peers

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

run: ## Build Offramp and serve a built-in application over https://localhost:8443
	@test -x $(TARGET)/quick/offramp || \
	  echo 'Building Offramp: about two and a half minutes on two cores, this first time. (It is made to build fast, not to run fast: make install builds a release)'
	$(CARGO) run --locked --profile quick -p offramp --features "$(FEATURES)" -- demo $(ARGS)

install: ## Build a release and install it under PREFIX, with units for systemd, man page and completions
	@test -x $(TARGET)/release/offramp || \
	  echo 'Building a release of Offramp: about seven minutes on two cores, this first time.'
	$(CARGO) build --locked --release -p offramp --features "$(FEATURES)"
	scripts/place $(TARGET)/release/offramp $(PREFIX) $(DESTDIR)

uninstall: ## Remove what `make install` has put under PREFIX
	scripts/place --remove $(PREFIX) $(DESTDIR)

package: ## Build what a release consists of into dist/, the same bytes each time: STEPS="deb" builds that alone
	CARGO="$(CARGO)" scripts/package $(STEPS)

test-packages: ## Try what is in dist/ on scratch machines; takes root, and minutes
	scripts/test-packages $(STEPS)

book: ## Build the book from docs/ into target/book; installs mdBook into target/tools, about three minutes the first time
	CARGO="$(CARGO)" scripts/tool mdbook 0.5.4
	scripts/book target/tools/bin/mdbook $(TARGET)

test-book: book ## Look at every page of the book in Chromium: narrow, without a network, in both themes
	scripts/install chromium:chromium
	scripts/test-book $(TARGET)/book

test: ## Everything that must hold: format, lints, tests, documentation
	CARGO="$(CARGO)" scripts/test

fmt: ## Format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml

lint: ## Check format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fuzz: ## Fuzz every target for FUZZ_SECONDS
	scripts/fuzz "$(FUZZ_SECONDS)"

miri: ## Run the tests of the crate with `unsafe` under Miri
	scripts/miri

bench: ## Compare with the installed peers, less than ten minutes; fails naming each bound that is missed
	$(CARGO) build --locked --release -p offramp -p offramp-bench
	target/release/offramp-bench run --gate strict $(ARGS)

bench-full: ## Every scenario in every variant
	$(CARGO) build --locked --release -p offramp -p offramp-bench
	target/release/offramp-bench run --full $(ARGS)

bench-peers: ## Install what Offramp is compared with, and list what there is
	scripts/install nginx:nginx-light /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream \
	  haproxy:haproxy hitch:hitch stunnel:stunnel4 caddy:caddy h2o:h2o \
	  lighttpd:lighttpd /usr/lib/lighttpd/mod_openssl.so:lighttpd-mod-openssl strace:strace wrk:wrk h2load:nghttp2-client node:nodejs \
	  javac:openjdk-17-jdk-headless python3:python3 protoc:protobuf-compiler unshare:util-linux ip:iproute2
	command -v sozu >/dev/null || $(CARGO) install --locked sozu
	scripts/next-debian target/next-debian
	$(CARGO) build --locked --release -p offramp -p offramp-bench
	target/release/offramp-bench list
