# One word per task; every recipe is a script that can be read and run on its own.
# Prerequisites: Rust by rustup, make, a C compiler. Everything else is named, and installed where it may be, by
# scripts/install-test-tools.

.DEFAULT_GOAL := help
.PHONY: help demo demo-accel demo-cluster demo-console console test-console test-api accel-faults test test-full soak bench bench-emulator bench-main-job bench-store bench-wire bench-link bench-codec bench-streams bench-database check doc

help:  ## Show this list.
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

demo:  ## Two sites on this machine: mirror a file system, kill one, take over at the other, and back. IMAGE=disk.img KEEP=1
	@scripts/demo

demo-accel:  ## The accelerator on one machine, in four network namespaces: curl and nginx over two boxes (root).
	@scripts/demo-accel

demo-cluster:  ## Volumes on Ceph RBD: a cluster of Debian's packages, an image mirrored, its side lost, and back.
	@scripts/demo-cluster

demo-console:  ## Three sites with mirrors in every state, for the web console: prints its address, user and password.
	@scripts/demo-console

console:  ## Build the web console into console/dist, which is committed (Node 20.19 or newer; nothing else needs it).
	@scripts/build-console

test-console:  ## The web console in chromium, against real daemons (Node 20.19 or newer). ARGS=story
	@scripts/test-console $(ARGS)

test-api:  ## Every request of the API's document, made up and wrong, against a real daemon (python3). ARGS="--seed 7"
	@scripts/test-api $(ARGS)

accel-faults:  ## What kills, damage and bad networks do to connections over the accelerator, as a table (root). ARGS=--full
	@scripts/accel-faults $(ARGS)

test:  ## Install what the tests need, run all of them (half an hour on two cores, and the build of the libraries).
	@scripts/test

test-full:  ## The same with the long tests, those marked #[ignore], too.
	@scripts/test --full

soak:  ## Random histories with fresh seeds again and again, for MINUTES=60.
	@scripts/soak

bench:  ## Run the benchmarks; the figures go to bench/results/, to be committed.
	@scripts/bench

bench-emulator:  ## Prove the emulated links against ping and iperf3 (root, an hour, resumable). ARGS=--estimate
	@scripts/bench-lab emulator two-links -- $(ARGS)

bench-main-job:  ## Farside and its peers: copy and update over T3, 10 Mb/s and T1 (root, hours, resumable). ARGS=--estimate
	@scripts/bench-lab main-job -- $(ARGS)

bench-store:  ## A volume at its own site beside qemu-nbd and nbdkit, fio as its host (root, half an hour, resumable). ARGS=--estimate
	@scripts/bench-lab local-volume -- $(ARGS)

bench-wire:  ## Bytes of every data set, farside and its peers; T1 and 1 Gb/s (root, 40 minutes, resumable). ARGS=--estimate
	@scripts/bench-lab wire wire-rates wire-large -- $(ARGS)

bench-link:  ## How full lines get, farside and iperf3 and rsync (root, 20 minutes, resumable). ARGS=--all, ARGS=--estimate
	@scripts/bench-link $(ARGS)

bench-streams:  ## The accelerator's chunk store on streams: bytes and speed per effort, cold, warm, after an update.
	@scripts/bench-streams

bench-database:  ## What 10,000 mirrors and five daemons ask of PostgreSQL, by the daemon's statements (five minutes).
	@scripts/bench-database

bench-codec:  ## The codec alone on the data sets: bytes and speed per effort, break-even rates, index sizes.
	@scripts/bench-codec

check:  ## Every static check: format, clippy, API documentation, dependencies, licences, manual.
	@scripts/check

doc:  ## Build the manual (needs mdbook) and the API documentation.
	@scripts/doc
