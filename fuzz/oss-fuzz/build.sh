#!/bin/bash -eu
# Run by OSS-Fuzz, which says in CC, CFLAGS and LIB_FUZZING_ENGINE what to build with.
# Targets share helpers with tests, which need hypothesis.
POPC_NATIVE=none pip3 install ./runtime . hypothesis # only what is written in Python: the C core has targets of its own
fuzz/build_native.sh "$WORK/native"
cp "$WORK/native/kernels" "$WORK/native/programs" "$OUT/"
cat > "$OUT/kernels.options" <<OPTIONS
[libfuzzer]
handle_segv=0
handle_bus=0
[asan]
handle_segv=0
handle_sigbus=0
allow_user_segv_handler=1
OPTIONS
for target in archive sealed program options model; do
    script=$SRC/fuzz_$target.py
    printf 'import sys\nfrom fuzz.__main__ import main\nmain(["%s", *sys.argv[1:]])\n' "$target" > "$script"
    compile_python_fuzzer "$script" --paths "$SRC/popc"
done
python3 fuzz/unpack.py "$WORK/corpus"
for folder in "$WORK"/corpus/*; do
    name=$(basename "$folder")
    [ -e "$OUT/fuzz_$name" ] && name=fuzz_$name
    zip -jqr "$OUT/${name}_seed_corpus.zip" "$folder"
done
