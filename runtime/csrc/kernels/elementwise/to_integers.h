// A FLOAT, float or double, as an integer, for casts.c: included for each.
//
// What numbers outside of the integers become is what x86 makes of them.  (Of those outside of
// uint32 numpy itself makes one thing or the other, depending on strides.)

INLINE int32_t JOIN(FLOAT, to_i32)(FLOAT x) {
    return x > (FLOAT)-0x1p31 && x < (FLOAT)0x1p31 ? (int32_t)x : INT32_MIN;
}
INLINE int64_t JOIN(FLOAT, to_i64)(FLOAT x) {
    return x >= (FLOAT)-0x1p63 && x < (FLOAT)0x1p63 ? (int64_t)x : INT64_MIN;
}
INLINE uint32_t JOIN(FLOAT, to_u32)(FLOAT x) {
    return !(x >= (FLOAT)0x1p31) ? (uint32_t)JOIN(FLOAT, to_i32)(x)
                                 : (uint32_t)JOIN(FLOAT, to_i32)(x - (FLOAT)0x1p31) ^ (1u << 31);
}
INLINE uint64_t JOIN(FLOAT, to_u64)(FLOAT x) {
    return !(x >= (FLOAT)0x1p63) ? (uint64_t)JOIN(FLOAT, to_i64)(x)
                                 : (uint64_t)JOIN(FLOAT, to_i64)(x - (FLOAT)0x1p63) ^ (1ull << 63);
}

#undef FLOAT
