// Asks the processor itself: __builtin_cpu_supports depends on what the compiler's own library finds
// out, and that of zig 0.17 finds nothing.
#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { ASKED = 1, V3 = 2, V4 = 4, AVX512_VNNI = 8, AVX_VNNI = 16, SHA = 32 };

typedef struct { uint32_t eax, ebx, ecx, edx; } Leaf;

static Leaf leaf(unsigned number, unsigned part) {
    Leaf found;
    __cpuid_count(number, part, found.eax, found.ebx, found.ecx, found.edx);
    return found;
}

static bool has(uint32_t word, int bit) { return word >> bit & 1; }

// The registers that the operating system keeps when it switches between threads.
static uint32_t kept_registers(Leaf first) {
    if (!has(first.ecx, 27)) return 0;  // OSXSAVE
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

enum { YMM = 0x06, ZMM = 0xe6 };  // bits of XCR0: SSE and AVX; and those of AVX-512

static unsigned ask(void) {
    if (__get_cpuid_max(0, NULL) < 7) return 0;
    const Leaf first = leaf(1, 0), more = leaf(7, 0);
    const uint32_t kept = kept_registers(first);
    const bool fma = has(first.ecx, 12), avx = has(first.ecx, 28), f16c = has(first.ecx, 29);
    const bool avx2 = has(more.ebx, 5), bmi2 = has(more.ebx, 8);
    const bool f = has(more.ebx, 16), dq = has(more.ebx, 17);
    const bool bw = has(more.ebx, 30), vl = has(more.ebx, 31);
    unsigned found = has(first.ecx, 19) && has(more.ebx, 29) ? SHA : 0;  // SSE4.1, SHA
    if (!(fma && avx && f16c && avx2 && bmi2 && (kept & YMM) == YMM)) return found;
    found |= V3;
    if (more.eax >= 1 && has(leaf(7, 1).eax, 4)) found |= AVX_VNNI;
    if (!(f && dq && bw && vl && (kept & ZMM) == ZMM)) return found;
    return found | V4 | (has(more.ecx, 11) ? AVX512_VNNI : 0);
}

// Asked once: a virtual machine takes tens of microseconds for each answer.
static bool processor_has(unsigned what) {
    static _Atomic unsigned known;
    unsigned found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        found = ask() | ASKED;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found & what;
}

bool processor_has_v3(void) { return processor_has(V3); }
bool processor_has_v4(void) { return processor_has(V4); }
bool processor_has_avx512_vnni(void) { return processor_has(AVX512_VNNI); }
bool processor_has_avx_vnni(void) { return processor_has(AVX_VNNI); }
bool processor_has_sha(void) { return processor_has(SHA); }

#else

bool processor_has_v3(void) { return false; }
bool processor_has_v4(void) { return false; }
bool processor_has_avx512_vnni(void) { return false; }
bool processor_has_avx_vnni(void) { return false; }
bool processor_has_sha(void) { return false; }

#endif
