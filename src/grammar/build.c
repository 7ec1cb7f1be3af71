/* Appends nodes to an nfa, within budgets. */
#include "grammar/build.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/turn.h"

#define CLOCK_EVERY 1024 /* steps */

void build_init(build *b, const grammar_options *options, quire_error *err) {
    static const grammar_options none = {0};
    *b = (build){.options = options != NULL ? options : &none, .err = err};
    options = b->options;
    b->steps = options->max_steps > 0 ? options->max_steps : GRAMMAR_MAX_STEPS;
    b->bytes = options->max_bytes > 0 ? options->max_bytes : GRAMMAR_MAX_BYTES;
    b->until_us = clock_thread_us() + (options->max_us > 0 ? options->max_us : GRAMMAR_MAX_US);
    b->until_clock = b->steps - CLOCK_EVERY;
    (void)build_node(b, NFA_FAIL, NFA_RAW, 0, 0, NFA_FAIL_NODE);
    (void)build_node(b, NFA_RETURN, NFA_RAW, 0, 0, NFA_FAIL_NODE);
}

quire_err build_fail(build *b, quire_err code, int64_t position, const char *format, ...) {
    assert(b != NULL);
    if (b->failed == QUIRE_OK) {
        char text[sizeof b->err->message];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof text, format, args);
        va_end(args);
        b->failed = err_set(b->err, code, position, "%s%s%s", b->where != NULL ? b->where : "",
                            b->where != NULL ? ": " : "", text);
    }
    return b->failed;
}

bool build_step(build *b, int64_t n) {
    assert(b != NULL);
    if (b->failed != QUIRE_OK) {
        return false;
    }
    b->steps -= n;
    if (b->steps < b->until_clock) {
        b->until_clock = b->steps - CLOCK_EVERY;
        if (turn_poll(TURN_WORK) == QUIRE_CANCELLED) {
            return build_fail(b, QUIRE_CANCELLED, -1, "cancelled") == QUIRE_OK;
        }
        if (clock_thread_us() > b->until_us) {
            (void)build_fail(b, QUIRE_TOO_LARGE, -1,
                             "the grammar takes too long to compile; make it smaller");
        }
    }
    if (b->steps < 0) {
        (void)build_fail(b, QUIRE_TOO_LARGE, -1,
                         "the grammar takes too many steps to compile; make it smaller");
    }
    return b->failed == QUIRE_OK;
}

bool build_index(build *b, hash_index *x, uint32_t hash, uint32_t entry) {
    return hash_index_add(x, hash, entry) == QUIRE_OK ||
           build_fail(b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar") == QUIRE_OK;
}

bool build_grow(build *b, void *p, size_t *cap, size_t n, size_t size) {
    if (!build_step(b, 1)) {
        return false;
    }
    if (n < *cap) {
        return true;
    }
    size_t want = *cap == 0 ? MEM_FIRST_CAPACITY : *cap * 2; /* what mem_grow makes of it */
    b->bytes -= (int64_t)((want - *cap) * size);
    if (b->bytes < 0 || n >= UINT32_MAX / 2) {
        (void)build_fail(b, QUIRE_TOO_LARGE, -1, "the grammar takes too much memory; make it smaller");
    } else if (mem_grow(p, cap, want, size) != QUIRE_OK) {
        (void)build_fail(b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    }
    return b->failed == QUIRE_OK;
}

void build_free(build *b, void *p, size_t n_bytes) {
    b->bytes += (int64_t)n_bytes;
    mem_free(p);
}

uint32_t build_node(build *b, nfa_op op, nfa_mode mode, uint32_t arg, uint32_t n, uint32_t next) {
    assert(b != NULL);
    nfa_node *node = NFA_PUSH(b, b->a.nodes);
    if (node == NULL) {
        return NFA_FAIL_NODE;
    }
    *node = (nfa_node){.op = (uint8_t)op, .mode = (uint8_t)mode, .n = (uint16_t)n, .arg = arg, .next = next};
    return b->a.nodes.n - 1;
}

uint32_t build_bytes(build *b, str bytes, uint32_t next) {
    while (bytes.n > UINT16_MAX) { /* the last part first */
        size_t n = (bytes.n - 1) % UINT16_MAX + 1;
        next = build_bytes(b, (str){bytes.p + bytes.n - n, n}, next);
        bytes.n -= n;
    }
    if (bytes.n == 0) {
        return next;
    }
    uint32_t first = b->a.bytes.n;
    for (size_t i = 0; i < bytes.n; i++) {
        uint8_t *byte = NFA_PUSH(b, b->a.bytes);
        if (byte == NULL) {
            return NFA_FAIL_NODE;
        }
        *byte = (uint8_t)bytes.p[i];
    }
    return build_node(b, NFA_BYTES, NFA_RAW, first, (uint32_t)bytes.n, next);
}

uint32_t build_split(build *b, const uint32_t *targets, uint32_t n) {
    if (n == 1) {
        return targets[0];
    }
    uint32_t rest = NFA_FAIL_NODE;
    while (n > 4096) {
        uint32_t part = (n - 1) % 4096 + 1;
        uint32_t some = build_split(b, targets + n - part, part);
        rest = rest == NFA_FAIL_NODE ? some : build_split2(b, some, rest);
        n -= part;
    }
    uint32_t first = b->a.targets.n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *to = NFA_PUSH(b, b->a.targets);
        if (to == NULL) {
            return NFA_FAIL_NODE;
        }
        *to = targets[i];
    }
    uint32_t split = build_node(b, NFA_SPLIT, NFA_RAW, first, n, NFA_FAIL_NODE);
    return rest == NFA_FAIL_NODE ? split : build_split2(b, split, rest);
}

uint32_t build_split2(build *b, uint32_t first, uint32_t second) {
    return build_split(b, (uint32_t[]){first, second}, 2);
}

uint32_t build_loop(build *b) {
    return build_split2(b, NFA_FAIL_NODE, NFA_FAIL_NODE);
}

void build_patch(build *b, uint32_t split, uint32_t first, uint32_t second) {
    assert(b != NULL);
    if (b->failed == QUIRE_OK) {
        uint32_t at = b->a.nodes.p[split].arg;
        b->a.targets.p[at] = first;
        b->a.targets.p[at + 1] = second;
    }
}

uint32_t build_class(build *b, const nfa_range *ranges, uint32_t n) {
    nfa *a = &b->a;
    for (uint32_t i = a->classes.n, tried = 0; i-- > 0 && tried < 64; tried++) {
        const nfa_class *c = &a->classes.p[i];
        if (c->n == n && (n == 0 || memcmp(a->ranges.p + c->first, ranges, n * sizeof *ranges) == 0)) {
            return i;
        }
    }
    nfa_class *c = NFA_PUSH(b, a->classes);
    if (c == NULL) {
        return 0;
    }
    *c = (nfa_class){a->ranges.n, n};
    for (uint32_t i = 0; i < n; i++) {
        nfa_range *r = NFA_PUSH(b, a->ranges);
        if (r == NULL) {
            return 0;
        }
        *r = ranges[i];
    }
    return a->classes.n - 1;
}

uint32_t build_repeat(build *b, uint32_t body, uint32_t min, uint32_t max, uint32_t next) {
    assert(b != NULL);
    nfa_repeat *r = NFA_PUSH(b, b->a.repeats);
    if (r == NULL) {
        return NFA_FAIL_NODE;
    }
    *r = (nfa_repeat){body, min, max};
    return build_node(b, NFA_REPEAT, NFA_RAW, b->a.repeats.n - 1, 0, next);
}

uint32_t build_rule(build *b) {
    assert(b != NULL);
    nfa_rule *r = NFA_PUSH(b, b->a.rules);
    if (r == NULL) {
        return 0;
    }
    *r = (nfa_rule){.start = NFA_FAIL_NODE};
    return b->a.rules.n - 1;
}

void build_rule_set(build *b, uint32_t rule, uint32_t start) {
    assert(b != NULL);
    if (b->failed == QUIRE_OK) {
        b->a.rules.p[rule].start = start;
    }
}

uint32_t build_call(build *b, uint32_t rule, uint32_t next) {
    return build_node(b, NFA_CALL, NFA_RAW, rule, 0, next);
}

static int compare_ids(const void *x, const void *y) {
    const int32_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

uint32_t build_mark_set(build *b, const int32_t *ids, size_t n, bool negated) {
    nfa *a = &b->a;
    nfa_mark_set *set = NFA_PUSH(b, a->mark_sets);
    if (set == NULL) {
        return 0;
    }
    *set = (nfa_mark_set){.first = a->mark_ids.n, .negated = negated};
    for (size_t i = 0; i < n; i++) {
        int32_t *id = NFA_PUSH(b, a->mark_ids);
        if (id == NULL) {
            return 0;
        }
        *id = ids[i];
        set->n++;
    }
    if (n > 1) {
        qsort(a->mark_ids.p + set->first, set->n, sizeof *ids, compare_ids);
    }
    return a->mark_sets.n - 1;
}
