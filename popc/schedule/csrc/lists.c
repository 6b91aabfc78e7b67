#include "lists.h"

#include <string.h>

void *cut(int64_t **memory, int64_t count) {
    *memory += count;
    return *memory - count;
}

void turn_around(Lists lists, int64_t count, int64_t limit, int64_t *starts, int64_t *items) {
    memset(starts, 0, (size_t)(limit + 2) * sizeof(int64_t));
    for (int64_t i = 0; i < lists.starts[count]; i++) starts[lists.items[i] + 2]++;
    for (int64_t i = 2; i < limit + 2; i++) starts[i] += starts[i - 1];
    for (int64_t list = 0; list < count; list++)  // each start moves to the end of its list
        for (int64_t i = lists.starts[list]; i < lists.starts[list + 1]; i++)
            items[starts[lists.items[i] + 1]++] = list;
}
