// Groups that fit into products of pairs come first.
#include "pair_order.h"

#include "../support/sizes.h"

enum { GROUP_BYTES = 4 * BYTE_COLUMNS, LIMIT = 128 };

int64_t ISA(order_bytes)(int64_t groups) {
    return padded((int64_t)sizeof(GroupOrder) + groups * (int64_t)sizeof(int32_t), 64);
}

// A pair of both signs never adds up to more than the limit, and neither do its products.
static bool fits(const int8_t *group) {
    int beyond = 0;
    for (int i = 0; i < GROUP_BYTES; i += 2) {
        const int sum = group[i] + group[i + 1];
        beyond |= (sum > LIMIT) | (sum < -LIMIT);
    }
    return !beyond;
}

void ISA(find_order)(const int8_t *panel, int64_t groups, GroupOrder *order) {
    int32_t in_pairs = 0, last = (int32_t)groups;
    for (int32_t p = 0; p < groups; p++)
        order->groups[fits(panel + p * GROUP_BYTES) ? in_pairs++ : --last] = p;
    order->in_pairs = in_pairs;
}
