// Numbers from the bytes that a fuzzer makes up; past the end they are zeros.
#ifndef POPC_FUZZ_READER_H
#define POPC_FUZZ_READER_H

#include <stdint.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

// `count` bytes as a number, the lowest first.
static inline int64_t read_bytes(Reader *reader, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count && reader->at < reader->end; i++)
        value |= (uint64_t)*reader->at++ << (8 * i);
    return (int64_t)value;
}

// How many of `count` bytes there are, which are left out.
static inline int64_t skip(Reader *reader, int64_t count) {
    const int64_t left = reader->end - reader->at, there = count < left ? count : left;
    reader->at += there;
    return there;
}

// FNV-1a; fuzz/seeds.py computes the same.
static inline uint32_t hash_of(const char *text) {
    uint32_t hash = 2166136261u;
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 16777619u;
    return hash;
}

#endif
