#!/bin/bash
# Builds the release twice from the lock file, in two folders, and compares the programs byte by byte.
#
#     scripts/reproducible.sh [options of cargo build, such as --no-default-features --features cpu]
#
# It builds what is committed. The line at the end has the hash of the program; it exits with 1 where the two
# differ. TRAINER_REPRODUCIBLE=FOLDER keeps the folders.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${TRAINER_REPRODUCIBLE:-$(mktemp -d)}
[ -n "${TRAINER_REPRODUCIBLE:-}" ] || trap 'rm -rf "$work"' EXIT
# What a program could have of the place and time of its build: paths, in Rust and in C, and dates.
crates=${CARGO_HOME:-$HOME/.cargo}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0
build() {
    mkdir -p "$work/$1"
    git archive HEAD | tar -x -C "$work/$1"
    (
        cd "$work/$1"
        export RUSTFLAGS="--remap-path-prefix=$PWD=/trainer --remap-path-prefix=$crates=/cargo"
        export CFLAGS="-ffile-prefix-map=$PWD=/trainer -ffile-prefix-map=$crates=/cargo"
        export CXXFLAGS=$CFLAGS CARGO_TARGET_DIR=$PWD/target
        cargo build --release --locked --bin trainer "${@:2}"
    )
}
# Paths of two lengths.
build first "$@"
build the-second-of-the-two "$@"
programs=("$work"/*/target/release/trainer)
sha256sum "${programs[@]}"
strings -a "${programs[0]}" | grep -F -e "$work" -e "$crates" | sort -u | head && places=yes || places=no
cmp "${programs[@]}" && echo "the same program, $(stat -c %s "${programs[0]}") bytes, $(rustc --version), paths of this machine in it: $places"
