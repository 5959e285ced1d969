/* A binary heap of timers by due time: cheap enough for thousands of streams, exact to the clock. */
#ifndef TIMERS_H
#define TIMERS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct timer {
    uint64_t due_ns;
    int at; /* place in the heap, -1: not set */
};

struct timer_heap {
    struct timer **by_due;
    int len, cap;
};

static inline void timer_put(struct timer_heap *h, int at, struct timer *t) {
    h->by_due[at] = t;
    t->at = at;
}

static inline void timer_up(struct timer_heap *h, int at) {
    struct timer *t = h->by_due[at];
    while (at > 0 && h->by_due[(at - 1) / 2]->due_ns > t->due_ns) {
        timer_put(h, at, h->by_due[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    timer_put(h, at, t);
}

static inline void timer_down(struct timer_heap *h, int at) {
    struct timer *t = h->by_due[at];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= h->len) break;
        if (child + 1 < h->len && h->by_due[child + 1]->due_ns < h->by_due[child]->due_ns) child++;
        if (h->by_due[child]->due_ns >= t->due_ns) break;
        timer_put(h, at, h->by_due[child]);
        at = child;
    }
    timer_put(h, at, t);
}

static inline void timer_set(struct timer_heap *h, struct timer *t, uint64_t due_ns) {
    t->due_ns = due_ns;
    if (t->at >= 0) {
        timer_up(h, t->at);
        timer_down(h, t->at);
        return;
    }
    if (h->len == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 1024;
        h->by_due = realloc(h->by_due, (size_t)h->cap * sizeof *h->by_due);
        if (!h->by_due) { perror("timers"); exit(1); }
    }
    h->by_due[h->len] = t;
    timer_up(h, h->len++);
}

static inline void timer_clear(struct timer_heap *h, struct timer *t) {
    int at = t->at;
    if (at < 0) return;
    t->at = -1;
    if (at == --h->len) return;
    struct timer *last = h->by_due[h->len];
    timer_put(h, at, last);
    timer_up(h, at);
    timer_down(h, last->at);
}

#endif
