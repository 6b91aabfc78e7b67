// Fuzzes what records may say: a kernel is prepared and run on whatever the
// input makes of its words.
//
// An input is the hash of a kernel's name, then items: numbers, and tensors.
// Each tensor gets memory of exactly its extent, so that AddressSanitizer sees
// whatever lies beyond.
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"
#include "runs.h"

enum {
    MOST_WORDS = 4096,
    MOST_TENSORS = 32,
    MOST_BYTES_OF_TENSORS = 1 << 20,
    PANEL = 16,
    NANOSECONDS = 20 * 1000 * 1000
};

typedef struct {
    int64_t words[MOST_WORDS];
    int64_t count;
    void *memory[MOST_TENSORS];
    int tensors;
    int64_t bytes;
} Case;

// A number of the input may stand where a kernel expects an address, which is
// never an archive's to say. What reads there ends the case; any other fault is
// a finding.
static Case *current;
static sigjmp_buf way_out;

static bool is_a_number_of(const Case *made, uintptr_t fault) {
    enum { NEAR = 1 << 20 };
    for (int64_t i = 0; i < made->count; i++) {
        const uintptr_t word = (uintptr_t)made->words[i];
        const uintptr_t shadow = (word >> 3) + 0x7fff8000;  // that AddressSanitizer reads first
        if (fault - word + NEAR < 2 * NEAR || fault - shadow + NEAR < 2 * NEAR) return true;
    }
    return false;
}

static void leave(int number, siginfo_t *info, void *context) {
    (void)context;
    // Addresses of no canonical form are not told.
    if (current && (!info->si_addr || is_a_number_of(current, (uintptr_t)info->si_addr)))
        siglongjmp(way_out, 1);
    signal(number, SIG_DFL);
}

static void watch_faults(void) {
    struct sigaction action = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

static void add(Case *made, int64_t word) {
    if (made->count < MOST_WORDS) made->words[made->count++] = word;
}

// Bytes before the first element, and from there to the end; false if they are
// too many.
static bool find_extent(
    const int64_t *dims, const int64_t *strides, int rank, bool packed, int64_t item,
    int64_t *below, int64_t *above) {
    __int128 low = 0, high = item, whole = item;
    bool empty = false;
    for (int axis = 0; axis < rank; axis++) {
        const __int128 span = (__int128)(dims[axis] - 1) * strides[axis];
        *(span < 0 ? &low : &high) += span;
        // Panels have whole columns, whichever axis they are of.
        whole *= packed ? (dims[axis] + PANEL - 1) / PANEL * PANEL : 1;
        empty = empty || dims[axis] == 0;
    }
    if (empty) low = high = whole = 0;
    if (packed && whole > high) high = whole;
    if (high - low > MOST_BYTES_OF_TENSORS) return false;
    *below = (int64_t)-low;
    *above = (int64_t)high;
    return true;
}

static bool add_tensor(Case *made, Reader *reader) {
    int64_t dims[MAX_RANK], strides[MAX_RANK], below, above;
    const int64_t dtype = read_bytes(reader, 1) % (BOOL + 1), state = read_bytes(reader, 1) % 3;
    const int rank = (int)(read_bytes(reader, 1) % (MAX_RANK + 1));
    for (int axis = 0; axis < rank; axis++) dims[axis] = (uint16_t)read_bytes(reader, 2);
    for (int axis = 0; axis < rank; axis++) strides[axis] = (int32_t)read_bytes(reader, 4);
    const int64_t filled = (uint8_t)read_bytes(reader, 1);
    const uint8_t *contents = reader->at;
    const int64_t there = skip(reader, filled);
    if (!find_extent(dims, strides, rank, state == 2, item_size((DType)dtype), &below, &above) ||
        made->tensors == MOST_TENSORS || (made->bytes += below + above) > MOST_BYTES_OF_TENSORS)
        return false;
    char *memory = malloc((size_t)(below + above));
    if (!memory) return false;
    for (int64_t i = 0; i < below + above; i++) memory[i] = there ? (char)contents[i % there] : 0;
    made->memory[made->tensors++] = memory;
    add(made, (int64_t)(intptr_t)(memory + below));
    add(made, dtype);
    add(made, state);
    add(made, rank);
    for (int axis = 0; axis < rank; axis++) add(made, dims[axis]);
    for (int axis = 0; axis < rank; axis++) add(made, strides[axis]);
    return true;
}

// Kernels that trust words which are never an archive's: addresses of random
// numbers, and where in a larger tensor a window lies.
static bool is_trusting(const char *name) {
    static const char *const names[] = {"MoveAt",          "Round_narrow", "Dropout_f32",
                                        "Multinomial_f32", "RandomNormal", "RandomSeed",
                                        "RandomUniform"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static int64_t find_number(uint32_t hash) {
    for (int64_t family = 0; FAMILIES_V3[family]; family++)
        for (int64_t index = 0; FAMILIES_V3[family][index].name; index++)
            if (hash_of(FAMILIES_V3[family][index].name) == hash)
                return is_trusting(FAMILIES_V3[family][index].name) ? -1
                                                                    : family << FAMILY_BITS | index;
    return -1;
}

static bool read_case(Case *made, Reader *reader) {
    const int64_t number = find_number((uint32_t)read_bytes(reader, 4));
    if (number < 0) return false;
    add(made, number);
    add(made, 0);
    while (reader->at < reader->end) {
        const uint8_t kind = (uint8_t)read_bytes(reader, 1) % 3;
        if (kind == 0) add(made, (int8_t)read_bytes(reader, 1));
        if (kind == 1) add(made, read_bytes(reader, 8));
        if (kind == 2 && !add_tensor(made, reader)) return false;
    }
    made->words[1] = made->count - 2;
    return true;
}

static int refuse(void *context, int64_t step) {
    (void)context, (void)step;
    return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Reader reader = {data, data + size};
    watch_faults();
    Case *made = calloc(1, sizeof(Case));
    if (made && read_case(made, &reader)) {
        current = made;
        if (!sigsetjmp(way_out, 1))
            run_briefly(made->words, made->count, FAMILIES_V3, refuse, NANOSECONDS);
        current = NULL;
        pool_watch(NULL);
    }
    for (int i = 0; made && i < made->tensors; i++) free(made->memory[i]);
    free(made);
    return 0;
}
