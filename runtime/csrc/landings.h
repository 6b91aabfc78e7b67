// Where inputs land: memory of the device that nothing but the copy of an input writes.  A run may
// have kernels read the memory of its caller instead, without that copy, if all that look into such a
// place have said where they keep its address.
#ifndef POPC_LANDINGS_H
#define POPC_LANDINGS_H

#include "kernel.h"

typedef struct {
    const char *start, *end;  // of the memory of the device
    int64_t first, last;  // of `Landings.places`
    int64_t unknown;  // while a record is looked at: words in it whose place is not known yet
    bool fixed;  // something looks into it that cannot look elsewhere
} Landing;

typedef struct {
    void *address;  // of a pointer in the state of a kernel
    int64_t landing;
    int64_t offset;  // of what it points to
} Place;

typedef struct {
    Landing *all;
    int64_t count;
    Place *places;
    int64_t place_count, capacity;
} Landings;

// From pairs of addresses, first byte and end, in ascending order; false if memory is exhausted, or
// they are anything else.
bool landings_begin(Landings *landings, const int64_t *bounds, int64_t count);

// Whoever uses this address does so for good.
void landings_hold(Landings *landings, const void *address);

// The words of a kernel's record, and what it has said; false if memory is exhausted.
bool landings_note(
    Landings *landings, const int64_t *words, const int64_t *end, const Needs *needs);

// When all records have been noted.
void landings_end(Landings *landings);

void landings_free(Landings *landings);

// Whether runs may read this one elsewhere.
bool landing_is_free(const Landings *landings, int64_t number);

// Reads go to `memory` until the next run begins.
void landing_move(const Landings *landings, int64_t number, const char *memory);

// Reads go to the memory of the device, whatever was before: a child that was forked during a run finds
// some pages as they were earlier than others.
void landings_return(const Landings *landings);

#endif
