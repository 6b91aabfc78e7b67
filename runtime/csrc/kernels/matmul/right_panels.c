#include "right_panels.h"

#include <stdlib.h>

// Room for so many numbers of `size` bytes.
static void *room_for(int64_t count, size_t size) {
    return aligned_alloc(64, (size_t)padded(count, 32) * size);
}

void *ISA(pack_right)(const RightMatrix *right, bool halves) {
    const int64_t count = padded(right->n, PANEL_COLUMNS) * right->k;
    float *packed = halves ? NULL : room_for(count, sizeof(float));
    if (right->dtype == F32) {
        if (packed)
            ISA(pack_panels)(
                packed, (const float *)right->data, right->column, right->row, right->n, right->k,
                PANEL_COLUMNS);
        return packed;
    }
    uint16_t *narrow = room_for(count, sizeof(uint16_t));
    if (narrow)
        ISA(pack_half_panels)(
            narrow, (const uint16_t *)right->data, right->row, right->column, right->k, right->n);
    if (halves) return narrow;
    const bool made = narrow && packed;
    if (made) ISA(widen)(packed, narrow, count, right->dtype == BF16);
    free(narrow);
    if (made) return packed;
    free(packed);
    return NULL;
}
