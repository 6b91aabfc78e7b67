// Prepares and runs the records in files, as kernels.c reads them: records
// FILE... With --fail first, again and again, while one allocation after the
// other fails.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The linker hands every call of an allocator to these (--wrap).
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static int64_t allocations, failing = -1;

static bool fails(void) { return allocations++ == failing; }

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

enum { MOST = 1 << 16 };

static size_t read_file(const char *path, uint8_t *data) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    const size_t size = fread(data, 1, MOST, file);
    fclose(file);
    return size;
}

static int64_t fail_one_by_one(const uint8_t *data, size_t size) {
    bool reached = true;  // whether there was an allocation to fail
    int64_t number = 0;
    for (; reached; number++) {
        allocations = 0;
        failing = number;
        LLVMFuzzerTestOneInput(data, size);
        failing = -1;
        reached = allocations > number;
    }
    return number;
}

int main(int count, char **arguments) {
    static uint8_t data[MOST];
    const bool fail = count > 1 && strcmp(arguments[1], "--fail") == 0;
    int64_t all = 0;
    for (int i = 1 + fail; i < count; i++) {
        const size_t size = read_file(arguments[i], data);
        LLVMFuzzerTestOneInput(data, size);
        if (fail) all += fail_one_by_one(data, size);
    }
    printf("%d records, %lld failures\n", count - 1 - fail, (long long)all);
    return 0;
}
