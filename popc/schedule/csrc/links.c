#include "links.h"

#include <stdlib.h>
#include <string.h>

bool make_room(Links *links, int64_t sources, int64_t targets, int64_t most) {
    const size_t ends = (size_t)(2 * sources + targets + 1) * sizeof(int32_t);
    links->links = malloc((size_t)(most + 1) * sizeof(Link));
    links->first = malloc(ends);
    links->outgoing = calloc((size_t)(sources + targets + 1), sizeof(int64_t));
    if (!links->links || !links->first || !links->outgoing) return false;
    memset(links->first, -1, ends);
    links->last = links->first + sources, links->top = links->last + sources;
    links->incoming = links->outgoing + sources;
    return true;
}

void free_links(Links *links) {
    free(links->links);
    free(links->first);
    free(links->outgoing);
}

bool are_linked(const Links *links, int64_t source, int64_t target) {
    const Link *all = links->links;
    if (links->outgoing[source] < links->incoming[target]) {
        for (int32_t i = links->first[source]; i >= 0; i = all[i].next)
            if (all[i].target == target) return true;
        return false;
    }
    for (int32_t i = links->top[target]; i >= 0; i = all[i].below)
        if (all[i].source == source) return true;
    return false;
}

// -- the two lists of a link ----------------------------------------------------------------------

static void leave_source(Links *links, int32_t number) {
    const Link link = links->links[number];
    if (link.next >= 0)
        links->links[link.next].previous = link.previous;
    else
        links->last[link.source] = link.previous;
    if (link.previous >= 0)
        links->links[link.previous].next = link.next;
    else
        links->first[link.source] = link.next;
    links->outgoing[link.source]--;
}

static void join_source(Links *links, int32_t number, int64_t source) {
    Link *link = &links->links[number];
    link->source = (int32_t)source, link->next = -1, link->previous = links->last[source];
    if (link->previous >= 0)
        links->links[link->previous].next = number;
    else
        links->first[source] = number;
    links->last[source] = number;
    links->outgoing[source]++;
}

static void leave_target(Links *links, int32_t number) {
    const Link link = links->links[number];
    if (link.below >= 0) links->links[link.below].above = link.above;
    if (link.above >= 0)
        links->links[link.above].below = link.below;
    else
        links->top[link.target] = link.below;
    links->incoming[link.target]--;
}

static void join_target(Links *links, int32_t number, int64_t target) {
    Link *link = &links->links[number];
    link->target = (int32_t)target, link->above = -1, link->below = links->top[target];
    if (link->below >= 0) links->links[link->below].above = number;
    links->top[target] = number;
    links->incoming[target]++;
}

void add_link(Links *links, int64_t source, int64_t target) {
    if (are_linked(links, source, target)) return;
    const int32_t number = (int32_t)links->count++;
    join_source(links, number, source);
    join_target(links, number, target);
}

void remove_link(Links *links, int32_t link) {
    leave_source(links, link);
    leave_target(links, link);
}

void move_source(Links *links, int32_t link, int64_t source) {
    leave_source(links, link);
    join_source(links, link, source);
}

void move_target(Links *links, int32_t link, int64_t target) {
    const int64_t source = links->links[link].source;
    leave_target(links, link);
    join_target(links, link, target);
    move_source(links, link, source);
}
