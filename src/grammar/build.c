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

void *build_new(build *b, size_t n, size_t size) {
    void *p = mem_new(n, size);
    if (p == NULL) {
        (void)build_fail(b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    }
    return p;
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
    size_t want = *cap == 0 ? MEM_FIRST_CAPACITY : *cap * 2; /* like mem_grow */
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
    if (!NFA_ADD(b, b->a.nodes,
                 (nfa_node){
                     .op = (uint8_t)op, .mode = (uint8_t)mode, .n = (uint16_t)n, .arg = arg, .next = next})) {
        return NFA_FAIL_NODE;
    }
    return b->a.nodes.n - 1;
}

uint32_t build_bytes(build *b, str bytes, uint32_t next) {
    while (bytes.n > UINT16_MAX) { /* splits off parts from the end */
        size_t n = (bytes.n - 1) % UINT16_MAX + 1;
        next = build_bytes(b, (str){bytes.p + bytes.n - n, n}, next);
        bytes.n -= n;
    }
    if (bytes.n == 0) {
        return next;
    }
    uint32_t first = b->a.bytes.n;
    for (size_t i = 0; i < bytes.n; i++) {
        if (!NFA_ADD(b, b->a.bytes, (uint8_t)bytes.p[i])) {
            return NFA_FAIL_NODE;
        }
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
        if (!NFA_ADD(b, b->a.targets, targets[i])) {
            return NFA_FAIL_NODE;
        }
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
    if (!NFA_ADD(b, a->classes, (nfa_class){a->ranges.n, n})) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!NFA_ADD(b, a->ranges, ranges[i])) {
            return 0;
        }
    }
    return a->classes.n - 1;
}

uint32_t build_repeat(build *b, uint32_t body, uint32_t min, uint32_t max, uint32_t next) {
    assert(b != NULL);
    if (!NFA_ADD(b, b->a.repeats, (nfa_repeat){body, min, max})) {
        return NFA_FAIL_NODE;
    }
    return build_node(b, NFA_REPEAT, NFA_RAW, b->a.repeats.n - 1, 0, next);
}

uint32_t build_rule(build *b) {
    assert(b != NULL);
    if (!NFA_ADD(b, b->a.rules, (nfa_rule){.start = NFA_FAIL_NODE})) {
        return 0;
    }
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
        if (!NFA_ADD(b, a->mark_ids, ids[i])) {
            return 0;
        }
        set->n++;
    }
    if (n > 1) {
        qsort(a->mark_ids.p + set->first, set->n, sizeof *ids, compare_ids);
    }
    return a->mark_sets.n - 1;
}

/* The last pass over an nfa: nullable rules, dead ends, classes of bytes. */

/* The cost of a short pass over all nodes. */
static int64_t pass_steps(const nfa *a) {
    return a->nodes.n / 8 + 1;
}

/* ---- which rules may be empty ---- */

static bool object_may_be_empty(const nfa *a, const nfa_object *o) {
    bool may = o->min == 0 && o->rules == 0;
    for (uint32_t i = 0; i < o->n && may; i++) {
        may = !a->parts.p[o->first + i].required;
    }
    return may;
}

static bool node_is_empty(const nfa *a, const bool *empty, uint32_t i) {
    const nfa_node *node = &a->nodes.p[i];
    switch ((nfa_op)node->op) {
    case NFA_RETURN:
        return true;
    case NFA_SPLIT:
        for (uint32_t t = 0; t < node->n; t++) {
            if (empty[a->targets.p[node->arg + t]]) {
                return true;
            }
        }
        return false;
    case NFA_SPACE:
        return empty[node->next];
    case NFA_CALL:
        return node->n == 0 && a->rules.p[node->arg].nullable && empty[node->next];
    case NFA_REPEAT:
        return node->n == 0 && (a->repeats.p[node->arg].min == 0 || empty[a->repeats.p[node->arg].body]) &&
               empty[node->next];
    case NFA_COUNTED:
        return a->counts.p[node->arg].min == 0 && empty[node->next];
    case NFA_TEXT:
        return a->texts.p[node->arg].min == 0 && a->dstates.p[a->texts.p[node->arg].first].accepts &&
               empty[node->next];
    case NFA_STRING:
        return a->dstates.p[a->dfas.p[node->arg]].accepts && empty[node->next];
    case NFA_OBJECT:
        return object_may_be_empty(a, &a->objects.p[node->arg]) && empty[node->next];
    case NFA_ARRAY:
        return a->arrays.p[node->arg].min == 0 && empty[node->next];
    default:
        return false;
    }
}

void build_find_empty(build *b, bool *empty) {
    nfa *a = &b->a;
    bool up = false; /* nodes lead to earlier and to later ones, so directions alternate */
    for (bool changed = true; changed && build_step(b, pass_steps(a));) {
        changed = false;
        up = !up;
        for (uint32_t k = 0; k < a->nodes.n; k++) {
            uint32_t i = up ? k : a->nodes.n - 1 - k;
            if (!empty[i] && node_is_empty(a, empty, i)) {
                empty[i] = changed = true;
            }
        }
        for (uint32_t r = 0; r < a->rules.n; r++) {
            a->rules.p[r].nullable = empty[a->rules.p[r].start];
        }
    }
    for (uint32_t i = 0; i < a->repeats.n; i++) { /* rounds may be empty, so none is needed */
        if (empty[a->repeats.p[i].body]) {
            a->repeats.p[i].min = 0;
        }
    }
}

/* ---- what can be completed ---- */

static bool object_lives(const nfa *a, nfa_room room, const nfa_object *o) {
    uint32_t n = 0, needed = nfa_members_needed(a, o, room, 0, 0, NULL), last = NFA_NONE;
    bool open = false;
    for (uint32_t i = 0; i < o->n + o->n_open; i++) {
        const nfa_part *p = &a->parts.p[o->first + i];
        if (i < o->n && p->name != last && nfa_fits(room, p->entry)) {
            n++;
            last = p->name;
        }
        open = open || (i >= o->n && nfa_fits(room, p->entry));
    }
    return needed != NFA_NONE && needed <= o->max && o->min <= o->max && (open || n >= o->min);
}

/* How many parts of a slot can be completed. */
static uint32_t n_live(const nfa *a, nfa_room room, uint32_t slot) {
    const nfa_slot *s = &a->slots.p[slot];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        n += nfa_fits(room, a->parts.p[s->first + i].entry);
    }
    return n;
}

static bool array_lives(const nfa *a, nfa_room room, const nfa_array *r) {
    return nfa_items_can_end(a, r, room, 0, 0) && (!r->unique || r->min <= n_live(a, room, r->first + r->n));
}

/* Whether node i can be completed within `level` levels. counted: an object or array
 * takes one of them. */
static bool node_lives(const nfa *a, const uint8_t *heights, uint32_t level, bool counted, uint32_t i) {
    const nfa_node *node = &a->nodes.p[i];
    const nfa_room room = {heights, level}, inside = {heights, level - counted};
    bool next = nfa_fits(room, node->next);
    switch ((nfa_op)node->op) {
    case NFA_FAIL:
        return false;
    case NFA_RETURN:
        return true;
    case NFA_SPLIT:
        for (uint32_t t = 0; t < node->n; t++) {
            if (nfa_fits(room, a->targets.p[node->arg + t])) {
                return true;
            }
        }
        return false;
    case NFA_CLASS:
        return a->classes.p[node->arg].n > 0 && next;
    case NFA_MARK:
        return (a->mark_sets.p[node->arg].n > 0 || a->mark_sets.p[node->arg].negated) && next;
    case NFA_CALL:
        return next && nfa_fits(room, a->rules.p[node->arg].start);
    case NFA_REPEAT:
        return next && (a->repeats.p[node->arg].min == 0 || nfa_fits(room, a->repeats.p[node->arg].body));
    case NFA_OBJECT:
        return next && level >= counted && object_lives(a, inside, &a->objects.p[node->arg]);
    case NFA_ARRAY:
        return next && level >= counted && array_lives(a, inside, &a->arrays.p[node->arg]);
    default:
        return next;
    }
}

/* Makes dead nodes NFA_FAIL and removes dead items and bodies, so that every state of the
 * machine can be completed. */
static void cut_dead(build *b, const uint8_t *heights) {
    nfa *a = &b->a;
    const nfa_room any = {heights, NFA_ENDLESS - 1};
    for (uint32_t i = 0; i < a->nodes.n; i++) {
        if (heights[i] == NFA_ENDLESS) {
            a->nodes.p[i].op = NFA_FAIL;
        }
    }
    for (uint32_t i = 0; i < a->repeats.n; i++) {
        nfa_repeat *r = &a->repeats.p[i];
        r->max = nfa_fits(any, r->body) ? r->max : 0;
    }
    for (uint32_t i = 0; i < a->parts.n; i++) {
        a->parts.p[i].entry = nfa_fits(any, a->parts.p[i].entry) ? a->parts.p[i].entry : NFA_FAIL_NODE;
    }
    for (uint32_t i = 0; i < a->arrays.n; i++) {
        nfa_array *r = &a->arrays.p[i];
        uint32_t items = 0;
        while (items < r->n && n_live(a, any, r->first + items) > 0) {
            items++;
        }
        if (n_live(a, any, r->first + items) == 0) {
            r->max = r->max < items ? r->max : items;
        }
    }
}

/* Finds the nodes of this height. False: there are none. */
static bool find_height(build *b, uint8_t *heights, uint32_t level, bool counted) {
    nfa *a = &b->a;
    bool up = false, any = false;
    for (bool changed = true; changed && build_step(b, pass_steps(a));) {
        changed = false;
        up = !up;
        for (uint32_t k = 0; k < a->nodes.n; k++) {
            uint32_t i = up ? k : a->nodes.n - 1 - k;
            if (heights[i] == NFA_ENDLESS && node_lives(a, heights, level, counted, i)) {
                heights[i] = (uint8_t)level;
                changed = any = true;
            }
        }
    }
    return any;
}

/* Sets heights[i], NFA_ENDLESS before, for nodes that can be completed; all 0 if nesting
 * is unlimited. */
static void find_heights(build *b, uint8_t *heights) {
    uint32_t max = b->options->max_depth;
    for (uint32_t level = 0; find_height(b, heights, level, max > 0) && level < max; level++) {
    }
}

/* ---- classes of bytes ---- */

static void cut_at(bool *cut, uint32_t lo, uint32_t hi) {
    cut[lo] = true;
    cut[hi + 1] = true;
}

/* Cuts at the ends of a range of characters in ASCII; if it goes beyond, each byte of
 * longer characters is a class of its own. */
static void cut_chars(bool *cut, uint32_t lo, uint32_t hi) {
    if (lo < 0x80) {
        cut[lo] = true;
    }
    if (hi < 0x80) {
        cut[hi + 1] = true;
    }
    if (lo > 0x80 || (hi >= 0x80 && hi < NFA_MAX_CHAR)) {
        for (uint32_t i = 0x80; i < 0x100; i++) {
            cut[i] = true;
        }
    }
}

/* Cuts at the digits of named special tokens, and at the byte before the digits. */
static void cut_marks(const nfa *a, bool *cut) {
    if (a->mark_sets.n > 0) {
        cut_at(cut, NFA_MARK_BYTE, NFA_MARK_BYTE);
    }
    for (uint32_t i = 0; i < a->mark_ids.n; i++) {
        for (uint32_t d = 0; d < NFA_MARK_DIGITS; d++) {
            uint8_t digit = nfa_mark_digit(a->mark_ids.p[i], d);
            cut_at(cut, digit, digit);
        }
    }
}

static void cut_bytes(nfa *a) {
    bool cut[257] = {0};
    bool json = false;
    static const uint8_t utf8[] = {0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0, 0xE1,
                                   0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5};
    for (size_t i = 0; i < sizeof utf8; i++) {
        cut[utf8[i]] = true;
    }
    for (uint32_t i = 0; i < a->bytes.n; i++) {
        cut_at(cut, a->bytes.p[i], a->bytes.p[i]);
    }
    for (uint32_t i = 0; i < a->ranges.n; i++) {
        cut_chars(cut, a->ranges.p[i].lo, a->ranges.p[i].hi);
    }
    for (uint32_t i = 0; i < a->dedges.n; i++) {
        cut_chars(cut, (uint32_t)a->dedges.p[i].lo, (uint32_t)a->dedges.p[i].hi);
    }
    cut_marks(a, cut);
    for (uint32_t i = 0; i < a->nodes.n; i++) {
        json = json || a->nodes.p[i].mode != NFA_RAW;
    }
    if (json) {
        cut[0x20] = cut[0x7F] = true;
        for (const char *p = "\"\\/bfnrtu0123456789abcdefABCDEF"; *p != 0; p++) {
            cut_at(cut, (uint8_t)*p, (uint8_t)*p);
        }
    }
    for (const char *p = "\t\n\r "; *p != 0; p++) {
        cut_at(cut, (uint8_t)*p, (uint8_t)*p);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < 256; i++) {
        n += i > 0 && cut[i];
        a->byte_class[i] = (uint8_t)n;
    }
    a->n_byte_classes = n + 1;
}

/* Keeps the heights for the machine if nesting is limited. */
static void keep_heights(build *b, const uint8_t *heights) {
    nfa *a = &b->a;
    a->max_depth = b->options->max_depth;
    if (a->max_depth == 0) {
        return;
    }
    a->heights.p = build_new(b, a->nodes.n, sizeof *heights);
    if (a->heights.p == NULL) {
        return;
    }
    memcpy(a->heights.p, heights, a->nodes.n);
    a->heights.cap = a->heights.n = a->nodes.n;
}

static void build_finish_do(build *b, bool *empty, uint8_t *heights) {
    nfa *a = &b->a;
    memset(heights, NFA_ENDLESS, a->nodes.n);
    build_find_empty(b, empty);
    find_heights(b, heights);
    if (b->failed == QUIRE_OK && heights[a->rules.p[0].start] == NFA_ENDLESS) {
        (void)build_fail(b, QUIRE_INVALID, -1, "the grammar matches no text");
    } else {
        cut_dead(b, heights);
        cut_bytes(a);
        keep_heights(b, heights);
    }
}

quire_err build_finish(build *b) {
    assert(b != NULL);
    bool *empty = build_new(b, b->a.nodes.n, sizeof *empty);
    uint8_t *heights = build_new(b, b->a.nodes.n, sizeof *heights);
    if (b->failed == QUIRE_OK) {
        build_finish_do(b, empty, heights);
    }
    mem_free(empty);
    mem_free(heights);
    return b->failed;
}
