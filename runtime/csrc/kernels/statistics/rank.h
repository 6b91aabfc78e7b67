// How many levels of a TYPE are below an element, for counts.c: included for each.  What is not a
// number is behind all others.

static int64_t JOIN(rank, TYPE)(const Ranks *ranks, int64_t i) {
    const TYPE x = ((const TYPE *)ranks->x.data)[i];
    const TYPE *levels = (const TYPE *)ranks->levels.data;
    int64_t low = 0, high = ranks->boundaries;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const TYPE level = levels[middle];
        const bool below = level < x || (x != x && level == level);
        const bool same = level == x || (x != x && level != level);
        if (below || (ranks->right && same))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#undef TYPE
