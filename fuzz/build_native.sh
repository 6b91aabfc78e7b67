#!/bin/sh
# Builds the fuzz targets of the native library with clang: build_native.sh FOLDER [TARGET]...
# CC, CFLAGS and LIB_FUZZING_ENGINE may say otherwise, as they do for OSS-Fuzz.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sources=$here/../runtime/csrc
out=$1
shift
targets=${*:-kernels programs records}
CC=${CC:-clang}
CFLAGS=${CFLAGS:--g -O1 -fsanitize=fuzzer-no-link,address}
engine=${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}
objects=$out/objects
mkdir -p "$objects"
base="-std=gnu11 -Wno-unknown-pragmas -I$sources"
# The flags of runtime/setup.py that change what is computed.
kernel="-ffp-contract=fast -fno-math-errno -mavx2 -mfma -mf16c -mbmi2 -DPOPC_ISA=V3"
# Compilers that do not know _Float16 on these processors convert halves under another name.
echo '_Float16 half;' | $CC -x c -fsyntax-only - 2>/dev/null || kernel="$kernel -D_Float16=__fp16"

find "$sources/kernels" -name '*.c' | sort | while read -r file; do
    object=$objects/$(basename "$(dirname "$file")")_$(basename "$file" .c).o
    [ "$object" -nt "$file" ] || echo "$CC $CFLAGS $base $kernel -w -c $file -o $object"
done | xargs -r -P "${JOBS:-2}" -I{} sh -c '{}'
for name in program landings pool cores processor trial; do
    $CC $CFLAGS $base -c "$sources/$name.c" -o "$objects/core_$name.o"
done

compile() { $CC $CFLAGS $base -c "$here/native/$1.c" -o "$out/$1.o"; }
link() {
    name=$1
    shift
    ${CXX:-$CC} $CFLAGS "$@" "$objects"/*.o -pthread -lm -o "$out/$name"
}
for target in $targets; do
    compile "$target"
    case $target in
    records)
        compile kernels
        wraps=-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=clock_gettime
        link records "$out/records.o" "$out/kernels.o" $wraps
        ;;
    *) link "$target" "$out/$target.o" $engine ;;
    esac
done
