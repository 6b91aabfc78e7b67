#include "landings.h"

#include <stdlib.h>
#include <string.h>

bool landings_begin(Landings *landings, const int64_t *bounds, int64_t count) {
    landings->all = calloc((size_t)count + 1, sizeof(Landing));
    if (!landings->all) return false;
    landings->count = count;
    const char *before = NULL;
    for (int64_t i = 0; i < count; i++) {
        Landing *landing = &landings->all[i];
        landing->start = (const char *)(intptr_t)bounds[2 * i];
        landing->end = (const char *)(intptr_t)bounds[2 * i + 1];
        if (landing->start < before || landing->end < landing->start) return false;
        before = landing->end;
    }
    return true;
}

// The landing that an address is in; NULL if it is in none.
static Landing *find(const Landings *landings, const char *address) {
    int64_t low = 0, high = landings->count;
    if (!high || address < landings->all[0].start || address >= landings->all[high - 1].end)
        return NULL;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (address < landings->all[middle].start)
            high = middle;
        else
            low = middle;
    }
    Landing *found = &landings->all[low];
    return address < found->end ? found : NULL;
}

void landings_hold(Landings *landings, const void *address) {
    Landing *landing = find(landings, address);
    if (landing) landing->fixed = true;
}

static const char *pointer_at(const void *address) {
    const char *pointer;
    memcpy(&pointer, address, sizeof(pointer));
    return pointer;
}

static bool add_place(Landings *landings, void *address, const Landing *landing, int64_t offset) {
    if (landings->place_count == landings->capacity) {
        const int64_t capacity = landings->capacity ? 2 * landings->capacity : 16;
        Place *places = realloc(landings->places, (size_t)capacity * sizeof(Place));
        if (!places) return false;
        landings->places = places;
        landings->capacity = capacity;
    }
    const int64_t number = landing - landings->all;
    landings->places[landings->place_count++] = (Place){address, number, offset};
    return true;
}

// An integer may look like an address: then the landing is fixed for nothing.
bool landings_note(
    Landings *landings, const int64_t *words, const int64_t *end, const Needs *needs) {
    bool any = false;
    for (const int64_t *word = words; word < end; word++) {
        Landing *landing = find(landings, (const char *)(intptr_t)*word);
        if (!landing) continue;
        landing->unknown++;
        any = true;
    }
    if (!any) return true;
    for (int i = 0; i < needs->count; i++) {
        const char *pointer = pointer_at(needs->places[i]);
        Landing *landing = find(landings, pointer);
        if (!landing) continue;
        landing->unknown--;
        if (!add_place(landings, needs->places[i], landing, pointer - landing->start)) return false;
    }
    for (const int64_t *word = words; word < end; word++) {
        Landing *landing = find(landings, (const char *)(intptr_t)*word);
        if (!landing) continue;
        if (landing->unknown) landing->fixed = true;
        landing->unknown = 0;
    }
    return true;
}

static int by_landing(const void *a, const void *b) {
    const int64_t first = ((const Place *)a)->landing, second = ((const Place *)b)->landing;
    return (first > second) - (first < second);
}

void landings_end(Landings *landings) {
    if (landings->place_count)
        qsort(landings->places, (size_t)landings->place_count, sizeof(Place), by_landing);
    int64_t place = 0;
    for (int64_t i = 0; i < landings->count; i++) {
        landings->all[i].first = place;
        while (place < landings->place_count && landings->places[place].landing == i) place++;
        landings->all[i].last = place;
    }
}

void landings_free(Landings *landings) {
    free(landings->all);
    free(landings->places);
}

bool landing_is_free(const Landings *landings, int64_t number) {
    return number >= 0 && number < landings->count && !landings->all[number].fixed;
}

void landing_move(const Landings *landings, int64_t number, const char *memory) {
    const Landing *landing = &landings->all[number];
    for (int64_t i = landing->first; i < landing->last; i++) {
        const Place *place = &landings->places[i];
        const char *pointer = memory + place->offset;
        memcpy(place->address, &pointer, sizeof(pointer));
    }
}

void landings_return(const Landings *landings) {
    for (int64_t i = 0; i < landings->count; i++) landing_move(landings, i, landings->all[i].start);
}
