// Sizes that are checked when a program runs, and places that count from such sizes.
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"

typedef struct {
    const int64_t *size, *other;  // `other`: NULL if there is none
    int64_t *to;
    int64_t bound;  // below 0: none
} Check;

static void *prepare_check(Params *params, Needs *needs) {
    (void)needs;
    const Tensor size = next_tensor(params), other = maybe_tensor(params);
    const Tensor to = next_tensor(params);
    const int64_t bound = next_int(params);
    Check *check = malloc(sizeof(Check));
    if (!check || params->bad || !holds(&size, I64, 1) || !may_hold(&other, I64, 1) ||
        !holds(&to, I64, 1)) {
        free(check);
        return NULL;
    }
    *check = (Check){(void *)size.data, (void *)other.data, (void *)to.data, bound};
    return check;
}

static Failure run_check(const void *argument, const Run *run) {
    (void)run;
    const Check *check = argument;
    const int64_t size = *check->size;
    const bool differs = check->other && *check->other != size;
    if (differs || size < 0 || (check->bound >= 0 && size > check->bound)) return INDEX_OUTSIDE;
    *check->to = size;
    return OK;
}

typedef struct {
    Tensor indices;
    const int64_t *sizes;
    const bool *valid;  // NULL: all are
    int64_t *to;
    int64_t count, parts;  // indices, and the sizes that these count from in turns
    int64_t padding;
} Places;

static void *prepare_places(Params *params, Needs *needs) {
    (void)needs;
    const Tensor indices = next_tensor(params), sizes = next_tensor(params);
    const Tensor valid = maybe_tensor(params), to = next_tensor(params);
    const int64_t padding = next_int(params), count = element_count(&indices);
    const int64_t parts = element_count(&sizes);
    Places *places = malloc(sizeof(Places));
    if (!places || params->bad || !are_indices(&indices) || parts < 1 || count % parts ||
        !holds(&sizes, I64, parts) || !may_hold(&valid, BOOL, count) || !holds(&to, I64, count) ||
        !are_apart(&indices, &to) || !are_apart(&sizes, &to) || !are_apart(&valid, &to)) {
        free(places);
        return NULL;
    }
    *places = (Places){
        .indices = indices,
        .sizes = (void *)sizes.data,
        .valid = (void *)valid.data,
        .to = (void *)to.data,
        .count = count,
        .parts = parts,
        .padding = padding};
    return places;
}

static Failure run_places(const void *argument, const Run *run) {
    (void)run;
    const Places all = *(const Places *)argument;
    for (int64_t i = 0, part = 0; i < all.count; i++) {
        int64_t place;
        if (all.valid && !all.valid[i]) {
            place = part ? 0 : all.padding;
        } else {
            place = place_at(&all.indices, i, all.sizes[part]);
            if (place < 0) return INDEX_OUTSIDE;
        }
        all.to[i] = place;
        if (++part == all.parts) part = 0;
    }
    return OK;
}

const Kernel ISA(SIZES)[] = {
    {"CheckSize", prepare_check, run_check, NULL},
    {"PlacesWithin", prepare_places, run_places, NULL},
    {NULL, NULL, NULL, NULL},
};
