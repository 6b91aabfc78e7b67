// Asks the processor itself: __builtin_cpu_supports depends on what the compiler's own library finds
// out, and that of zig 0.17 finds nothing.
#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

typedef struct {
    uint32_t eax, ebx, ecx, edx;
} Leaf;

static Leaf leaf(unsigned number, unsigned part) {
    Leaf found = {0, 0, 0, 0};
    __get_cpuid_count(number, part, &found.eax, &found.ebx, &found.ecx, &found.edx);
    return found;
}

static bool has(uint32_t word, int bit) { return word >> bit & 1; }

// Whether the operating system keeps these registers when it switches between threads.
static bool keeps(uint32_t registers) {
    if (!has(leaf(1, 0).ecx, 27)) return false;  // OSXSAVE
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

enum { YMM = 0x06, ZMM = 0xe6 };

bool processor_has_v3(void) {
    const uint32_t first = leaf(1, 0).ecx, more = leaf(7, 0).ebx;
    const bool fma = has(first, 12), avx = has(first, 28), f16c = has(first, 29);
    const bool avx2 = has(more, 5), bmi2 = has(more, 8);
    return fma && avx && f16c && avx2 && bmi2 && keeps(YMM);
}

bool processor_has_v4(void) {
    const uint32_t more = leaf(7, 0).ebx;
    const bool f = has(more, 16), dq = has(more, 17), bw = has(more, 30), vl = has(more, 31);
    return processor_has_v3() && f && dq && bw && vl && keeps(ZMM);
}

bool processor_has_avx512_vnni(void) { return processor_has_v4() && has(leaf(7, 0).ecx, 11); }

bool processor_has_avx_vnni(void) { return processor_has_v3() && has(leaf(7, 1).eax, 4); }

bool processor_has_sha(void) {
    return has(leaf(1, 0).ecx, 19) && has(leaf(7, 0).ebx, 29);  // SSE4.1, SHA
}

#else

bool processor_has_v3(void) { return false; }
bool processor_has_v4(void) { return false; }
bool processor_has_avx512_vnni(void) { return false; }
bool processor_has_avx_vnni(void) { return false; }
bool processor_has_sha(void) { return false; }

#endif
