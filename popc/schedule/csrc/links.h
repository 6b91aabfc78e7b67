// Links from sources to targets: the links of a source are in the order in which they were added.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct { int32_t source, target, next, previous, below, above; } Link;

typedef struct {
    Link *links;  // numbers of links are places here; -1 is none
    int32_t *first, *last;  // of each source
    int32_t *top;  // of each target
    int64_t *outgoing, *incoming;  // how many there are, of each source and of each target
    int64_t count;
} Links;

// Makes room for so many links; false if there is no memory.
bool make_room(Links *links, int64_t sources, int64_t targets, int64_t most);

void free_links(Links *links);

bool are_linked(const Links *links, int64_t source, int64_t target);

// Adds a link behind those of the source, unless there is one.
void add_link(Links *links, int64_t source, int64_t target);

void remove_link(Links *links, int32_t link);

// Lets a link begin at another source, behind its other links.
void move_source(Links *links, int32_t link, int64_t source);

// Lets a link end at another target; it is put behind the other links of its source.
void move_target(Links *links, int32_t link, int64_t target);
