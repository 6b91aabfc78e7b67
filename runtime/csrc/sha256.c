#include "sha256.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

enum { BLOCK = 64, LENGTH = 8 };  // bytes of a block, and of the length that ends the last one

static const uint32_t CONSTANTS[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

// As the instructions want the eight words a to h: from the last byte to the first.
typedef struct {
    __m128i abef;
    __m128i cdgh;
} State;

#define WITH_SHA __attribute__((target("sha,sse4.1")))

// Four words of the schedule from the sixteen before them.
WITH_SHA static inline __m128i next_words(
    __m128i first, __m128i second, __m128i third, __m128i last) {
    const __m128i seventh = _mm_alignr_epi8(last, third, 4);
    const __m128i part = _mm_sha256msg1_epu32(first, second);
    return _mm_sha256msg2_epu32(_mm_add_epi32(part, seventh), last);
}

WITH_SHA static void add_blocks(State *state, const uint8_t *data, size_t blocks) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = state->abef, cdgh = state->cdgh;
    for (; blocks; blocks--, data += BLOCK) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];  // of the next 16 rounds
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), big_endian);
#pragma GCC unroll 16
        for (int four = 0; four < 16; four++) {
            const __m128i constants = _mm_load_si128((const __m128i *)&CONSTANTS[4 * four]);
            const __m128i sum = _mm_add_epi32(w[four % 4], constants);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (four >= 12) continue;
            w[four % 4] =
                next_words(w[four % 4], w[(four + 1) % 4], w[(four + 2) % 4], w[(four + 3) % 4]);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    *state = (State){abef, cdgh};
}

static void put_big_endian(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

void sha256(const uint8_t *data, size_t size, uint8_t digest[SHA256_BYTES]) {
    State state = {
        _mm_set_epi32(0x6a09e667, (int)0xbb67ae85, 0x510e527f, (int)0x9b05688c),
        _mm_set_epi32(0x3c6ef372, (int)0xa54ff53a, 0x1f83d9ab, 0x5be0cd19),
    };
    add_blocks(&state, data, size / BLOCK);
    const size_t rest = size % BLOCK;
    uint8_t end[2 * BLOCK] = {0};
    if (rest) memcpy(end, data + size - rest, rest);
    end[rest] = 0x80;
    const size_t blocks = rest + 1 + LENGTH > BLOCK ? 2 : 1;
    put_big_endian(end + blocks * BLOCK - LENGTH, 8 * (uint64_t)size, LENGTH);
    add_blocks(&state, end, blocks);
    uint32_t f_e_b_a[4], h_g_d_c[4];
    _mm_storeu_si128((__m128i *)f_e_b_a, state.abef);
    _mm_storeu_si128((__m128i *)h_g_d_c, state.cdgh);
    const uint32_t words[8] = {
        f_e_b_a[3], f_e_b_a[2], h_g_d_c[3], h_g_d_c[2],
        f_e_b_a[1], f_e_b_a[0], h_g_d_c[1], h_g_d_c[0],
    };
    for (int i = 0; i < 8; i++) put_big_endian(digest + 4 * i, words[i], 4);
}

#else

void sha256(const uint8_t *data, size_t size, uint8_t digest[SHA256_BYTES]) {
    (void)data, (void)size, (void)digest;
}

#endif
