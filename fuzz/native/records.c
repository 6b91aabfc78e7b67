// Prepares and runs the records in files, as kernels.c reads them: records
// FILE... With --fail first, again and again, while one allocation after the
// other fails; with --stop, while each look at the clock in turn finds that
// time is up.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The linker hands every call of an allocator to these (--wrap).
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_clock_gettime(clockid_t clock, struct timespec *time);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

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

// A clock that goes on by `tick` nanoseconds with every look at it, unless that is 0.
static int64_t looks, tick;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    enum { SECOND = 1000000000 };
    if (!tick) return __real_clock_gettime(clock, time);
    const int64_t nanoseconds = tick * looks++;
    *time = (struct timespec){nanoseconds / SECOND, nanoseconds % SECOND};
    return 0;
}

enum { MOST = 1 << 16, MOST_LOOKS = 64 };

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

// Runs end when the clock has been looked at so often since they began.
static int64_t stop_one_by_one(const uint8_t *data, size_t size) {
    enum { ALLOWED = 20 * 1000 * 1000 };  // nanoseconds of a run: see kernels.c
    int64_t number = 1;
    for (bool stopped = true; stopped && number <= MOST_LOOKS; number++) {
        looks = 0;
        tick = ALLOWED / number;
        LLVMFuzzerTestOneInput(data, size);
        stopped = looks > number;
    }
    tick = 0;
    return number - 1;
}

int main(int count, char **arguments) {
    static uint8_t data[MOST];
    const bool fail = count > 1 && strcmp(arguments[1], "--fail") == 0;
    const bool stop = count > 1 && strcmp(arguments[1], "--stop") == 0;
    int64_t all = 0;
    for (int i = 1 + (fail || stop); i < count; i++) {
        const size_t size = read_file(arguments[i], data);
        LLVMFuzzerTestOneInput(data, size);
        if (fail) all += fail_one_by_one(data, size);
        if (stop) all += stop_one_by_one(data, size);
    }
    printf(
        "%d records, %lld %s\n", count - 1 - (fail || stop), (long long)all,
        stop ? "stops" : "failures");
    return 0;
}
