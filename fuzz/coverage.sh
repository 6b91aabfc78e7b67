#!/bin/sh
# How much of the C core records reach: coverage.sh FOLDER CORPUS...
# Builds with clang's coverage in FOLDER, runs all files in the folders CORPUS, and prints percents.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
CFLAGS="-g -O0 -fprofile-instr-generate -fcoverage-mapping" "$here/build_native.sh" "$out" records
rm -f "$out"/*.profraw
find "$@" -type f -print0 |
    LLVM_PROFILE_FILE="$out/%p.profraw" xargs -0 -n 2000 "$out/records"
llvm-profdata merge -o "$out/all.profdata" "$out"/*.profraw
llvm-cov report "$out/records" -instr-profile="$out/all.profdata" \
    --ignore-filename-regex='fuzz/native' ${DETAILS:---summary-only} | sed -n '1p;$p'
