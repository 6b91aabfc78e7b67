// Lists of numbers, and the memory for tables of them.
#pragma once

#include <stdint.h>

// Lists one after another: list i is items[starts[i]] to items[starts[i + 1]].
typedef struct { const int64_t *starts, *items; } Lists;

// So many numbers of a block of memory, which begins behind them afterwards.
void *cut(int64_t **memory, int64_t count);

// For each number below a limit the lists in which it is, of so many: `starts` has room for two
// numbers more than the limit, of which the last is no part of the result.
void turn_around(Lists lists, int64_t count, int64_t limit, int64_t *starts, int64_t *items);
