/* The part of the machine that decodes characters, from UTF-8 or from escapes in JSON
 * strings.
 *
 * A partly read character is one of a range. If the whole range leads to one target, its
 * bits no longer matter: the configuration keeps only the target and the number of
 * missing bytes. So texts in any script need few states. */
#include "grammar/machine.h"

#include <assert.h>

/* What is missing of a character: value >> 24. RAW_x_y: y of x bytes. HEX_n, LOW_n: n
 * digits were read. */
typedef enum phase {
    BEGIN,
    RAW_2_1,
    RAW_3_2,
    RAW_3_1,
    RAW_4_3,
    RAW_4_2,
    RAW_4_1,
    ESCAPE,
    HEX_0,
    HEX_1,
    HEX_2,
    HEX_3,
    LOW_ESCAPE,
    LOW_U,
    LOW_0,
    LOW_1,
    LOW_2,
    LOW_3
} phase;
#define SETTLED 0x80u /* flag of a phase: `at` is the target, whatever the missing bytes are */

typedef enum fit { FIT_NONE, FIT_PART, FIT_ALL } fit;

typedef struct reader {
    machine *m;
    const nfa_node *node;
    machine_config c;
} reader;

static fit class_fit(const nfa *a, const nfa_class *c, uint32_t lo, uint32_t hi) {
    for (uint32_t i = 0; i < c->n; i++) {
        const nfa_range *r = &a->ranges.p[c->first + i];
        if (r->lo <= lo && hi <= r->hi) {
            return FIT_ALL;
        }
        if (r->lo <= hi && lo <= r->hi) {
            return FIT_PART;
        }
    }
    return FIT_NONE;
}

/* The number of characters read, after another one, as far as it matters. */
static uint32_t machine_chars_one_more(uint32_t at, uint32_t min, uint32_t max) {
    return max == NFA_NONE && at >= min ? min : at + 1;
}

/* The number of characters of a text in state `to`, after `count` in the state before. */
static uint32_t count_at(const nfa *a, const nfa_text *t, uint32_t count, uint32_t to) {
    return a->dstates.p[to].silent ? count : machine_chars_one_more(count, t->min, t->max);
}

/* Returns `to`, or NFA_NONE if a text with `count` characters is too long or too short to
 * be completed from there. */
static uint32_t in_length(const nfa *a, const nfa_text *t, uint32_t count, uint32_t to) {
    bool ends =
        t == NULL || to == NFA_NONE || nfa_text_can_end(a, t, to - t->first, count_at(a, t, count, to));
    return ends ? to : NFA_NONE;
}

/* Where characters lo to hi lead from a dfa's state. t: NULL, or the limited text that it
 * belongs to, of which `count` characters were read. */
static fit dfa_fit(const nfa *a, uint32_t state, const nfa_text *t, uint32_t count, uint32_t lo, uint32_t hi,
                   uint32_t *to) {
    const nfa_dstate *d = &a->dstates.p[state];
    uint32_t n_targets = 0, from = lo;
    bool any = false, over = false;
    *to = NFA_NONE;
    for (uint32_t i = 0; i <= d->n && !over; i++) {
        const nfa_dedge *e = i < d->n ? &a->dedges.p[d->first + i] : NULL;
        if (e != NULL && e->hi < from) {
            continue;
        }
        if (e == NULL || e->lo > from) { /* characters without an edge up to here */
            uint32_t led = in_length(a, t, count, d->other);
            n_targets += n_targets == 0 || *to != led;
            *to = led;
            any = any || led != NFA_NONE;
        }
        over = e == NULL || e->lo > hi;
        if (!over) {
            uint32_t led = in_length(a, t, count, nfa_dedge_to(e));
            n_targets += n_targets == 0 || *to != led;
            *to = led;
            any = any || led != NFA_NONE;
            over = e->hi >= hi;
            from = (uint32_t)e->hi + 1;
        }
    }
    return !any ? FIT_NONE : n_targets == 1 ? FIT_ALL : FIT_PART;
}

/* Whether the name's characters are recorded (nfa_node.n). */
static bool keeps_chars(const reader *r) {
    return r->node->op == NFA_STRING && (r->node->n & NFA_KEPT) != 0;
}

/* Whether characters lo to hi are allowed. FIT_ALL: each of them leads to *to. */
static fit range_fit(const reader *r, uint32_t lo, uint32_t hi, uint32_t *to) {
    const nfa *a = r->m->a;
    *to = 0;
    switch ((nfa_op)r->node->op) {
    case NFA_CLASS:
        return class_fit(a, &a->classes.p[r->node->arg], lo, hi);
    case NFA_STRING:
        return dfa_fit(a, r->c.at, NULL, 0, lo, hi, to);
    case NFA_TEXT: {
        const nfa_text *t = &a->texts.p[r->node->arg];
        uint32_t count = r->c.at / t->n;
        fit f = dfa_fit(a, t->first + r->c.at % t->n, t, count, lo, hi, to);
        *to = f == FIT_ALL ? count_at(a, t, count, *to) * t->n + (*to - t->first) : 0;
        return f;
    }
    default: {
        const nfa_count *n = &a->counts.p[r->node->arg];
        *to = machine_chars_one_more(r->c.at, n->min, n->max);
        return FIT_ALL;
    }
    }
}

/* Like range_fit for characters written as \u: not those that must be themselves. */
static fit escaped_fit(const reader *r, uint32_t lo, uint32_t hi, uint32_t *to) {
    if (r->node->mode != NFA_PLAIN || hi < 0x20 || lo > 0x7E) {
        return range_fit(r, lo, hi, to);
    }
    fit f = FIT_NONE;
    if (lo < 0x20) {
        f = range_fit(r, lo, 0x1F, to);
    }
    if (f == FIT_NONE && hi > 0x7E) {
        f = range_fit(r, 0x7F, hi, to);
    }
    return f == FIT_NONE ? FIT_NONE : FIT_PART;
}

/* Finishes character c (ignored if the phase is settled). */
static void done(reader *r, uint32_t c, uint32_t to) {
    if (r->node->op == NFA_CLASS) {
        machine_follow(r->m, r->node->next, 0, r->c.stack, 0);
    } else if (keeps_chars(r)) {
        machine_cell name = ((const machine_cell *)r->m->cells.p)[r->c.stack];
        uint32_t longer = machine_push(r->m, NFA_RETURN_NODE, c, name.data);
        machine_follow(r->m, r->c.node, to, machine_push(r->m, name.node, longer, name.below), 0);
    } else {
        machine_follow(r->m, r->c.node, to, r->c.stack, 0);
    }
}

static void machine_chars_complete(reader *r, uint32_t c, bool escaped) {
    uint32_t to;
    if ((escaped ? escaped_fit(r, c, c, &to) : range_fit(r, c, c, &to)) == FIT_ALL) {
        done(r, c, to);
    }
}

/* Continues in phase p with the bits read so far, if some character in lo to hi is
 * allowed. whole: all of these are characters. */
static void go_on(reader *r, phase p, uint32_t bits, uint32_t lo, uint32_t hi, bool escaped, bool whole) {
    uint32_t to;
    fit f = escaped ? escaped_fit(r, lo, hi, &to) : range_fit(r, lo, hi, &to);
    if (f == FIT_NONE) {
        return;
    }
    machine_config c = r->c;
    if (f == FIT_ALL && whole && !keeps_chars(r)) {
        c.at = to;
        c.value = ((uint32_t)p | SETTLED) << 24;
    } else {
        c.value = (uint32_t)p << 24 | bits;
    }
    machine_add(r->m, c);
}

/* ---- UTF-8 ---- */

static void lead_byte(reader *r, uint8_t byte) {
    if (byte >= 0xC2 && byte <= 0xDF) {
        uint32_t lo = (byte & 0x1Fu) << 6;
        go_on(r, RAW_2_1, byte & 0x1Fu, lo, lo + 0x3F, false, true);
    } else if (byte >= 0xE0 && byte <= 0xEF) {
        uint32_t lo = (byte & 0xFu) << 12;
        go_on(r, RAW_3_2, byte & 0xFu, byte == 0xE0 ? 0x800 : lo, byte == 0xED ? 0xD7FF : lo + 0xFFF, false,
              byte != 0xE0 && byte != 0xED);
    } else if (byte >= 0xF0 && byte <= 0xF4) {
        uint32_t lo = (byte & 7u) << 18;
        go_on(r, RAW_4_3, byte & 7u, byte == 0xF0 ? 0x10000 : lo, byte == 0xF4 ? NFA_MAX_CHAR : lo + 0x3FFFF,
              false, byte != 0xF0 && byte != 0xF4);
    }
}

static void next_byte(reader *r, phase p, uint32_t bits, uint8_t byte) {
    bits = bits << 6 | (byte & 0x3Fu);
    if ((byte & 0xC0) != 0x80) {
        return;
    }
    switch (p) {
    case RAW_3_2:
        if (bits >= 0x20 && bits >> 5 != 0x1B) { /* neither overlong nor a surrogate */
            go_on(r, RAW_3_1, bits, bits << 6, (bits << 6) + 0x3F, false, true);
        }
        break;
    case RAW_4_3:
        if (bits >= 0x10 && bits <= 0x10F) {
            go_on(r, RAW_4_2, bits, bits << 12, (bits << 12) + 0xFFF, false, true);
        }
        break;
    case RAW_4_2:
        go_on(r, RAW_4_1, bits, bits << 6, (bits << 6) + 0x3F, false, true);
        break;
    default:
        machine_chars_complete(r, bits, false);
    }
}

/* ---- escapes ---- */

static void escape_byte(reader *r, uint8_t byte) {
    static const char letters[] = "\"\\bfnrt/", meanings[] = "\"\\\b\f\n\r\t/";
    const char *at = byte != 0 ? strchr(letters, byte) : NULL;
    if (byte == 'u') {
        uint32_t to;
        if (escaped_fit(r, 0, NFA_MAX_CHAR, &to) != FIT_NONE) {
            r->c.value = (uint32_t)HEX_0 << 24;
            machine_add(r->m, r->c);
        }
    } else if (at != NULL && (byte != '/' || r->node->mode == NFA_JSON)) {
        uint32_t c = (uint8_t)meanings[at - letters], to;
        if (range_fit(r, c, c, &to) == FIT_ALL) {
            done(r, c, to);
        }
    }
}

static bool may_escape(const reader *r) {
    uint32_t to;
    if (escaped_fit(r, 0, NFA_MAX_CHAR, &to) != FIT_NONE) {
        return true;
    }
    return range_fit(r, '"', '"', &to) != FIT_NONE || range_fit(r, '\\', '\\', &to) != FIT_NONE;
}

static int hex_value(uint8_t byte) {
    return hex_digit((char)byte);
}

/* Reads a digit of \uXXXX. bits: the digits so far, with this one last. */
static void hex_byte(reader *r, phase p, uint32_t bits) {
    uint32_t n = p - HEX_0 + 1u, left = 4 * (4 - n);
    uint32_t lo = bits << left, hi = lo + (1u << left) - 1;
    if (n == 1 && bits == 0xD) { /* D000 to D7FF, or a surrogate pair */
        uint32_t to;
        if (escaped_fit(r, 0xD000, 0xD7FF, &to) != FIT_NONE ||
            escaped_fit(r, 0x10000, NFA_MAX_CHAR, &to) != FIT_NONE) {
            r->c.value = (uint32_t)HEX_1 << 24 | bits;
            machine_add(r->m, r->c);
        }
    } else if (n >= 2 && lo >= 0xD800 && lo < 0xDC00) {
        uint32_t first = 0x10000 + ((lo - 0xD800) << 10), last = 0x10000 + ((hi - 0xD800) << 10) + 0x3FF;
        go_on(r, n == 4 ? LOW_ESCAPE : (phase)(HEX_0 + n), n == 4 ? bits - 0xD800 : bits, first, last, true,
              n == 4);
    } else if (n >= 2 && lo >= 0xDC00 && lo < 0xE000) {
        return;
    } else if (n == 4) {
        machine_chars_complete(r, bits, true);
    } else {
        go_on(r, (phase)(HEX_0 + n), bits, lo, hi, true, true);
    }
}

/* Reads a digit of the low surrogate. bits: the high one, then the low one's digits after
 * the first. */
static void low_byte(reader *r, phase p, uint32_t bits, uint8_t byte) {
    int digit = hex_value(byte);
    if (p == LOW_0) {
        if (digit == 0xD) {
            r->c.value = (uint32_t)LOW_1 << 24 | bits;
            machine_add(r->m, r->c);
        }
        return;
    }
    if (digit < 0 || (p == LOW_1 && digit < 0xC)) {
        return;
    }
    bits = p == LOW_1 ? bits << 2 | ((uint32_t)digit - 0xC) : bits << 4 | (uint32_t)digit;
    uint32_t left = p == LOW_1 ? 8 : p == LOW_2 ? 4 : 0, lo = 0x10000 + (bits << left);
    if (p == LOW_3) {
        machine_chars_complete(r, lo, true);
    } else {
        go_on(r, (phase)(p + 1), bits, lo, lo + (1u << left) - 1, true, true);
    }
}

/* ---- names ---- */

bool machine_is_roomy(const machine *m, const machine_config *c) {
    assert(c != NULL);
    /* `at` is the state before the character */
    bool is_open = c->value != 0 && (c->value >> 24 & SETTLED) == 0;
    const nfa_dstate *d = &m->a->dstates.p[m->a->nodes.p[c->node].op == NFA_STRING ? c->at : 0];
    return m->a->nodes.p[c->node].op == NFA_COUNTED || (m->a->nodes.p[c->node].n & NFA_WORD) != 0 ||
           (is_open ? d->free : d->roomy);
}

/* ---- a byte ---- */

/* The next phase if only the number of bytes matters. BEGIN: the character is complete;
 * the phase after LOW_3: the byte is wrong. */
static phase settled_next(phase p, uint8_t byte) {
    static const phase next[] = {
        [RAW_2_1] = BEGIN, [RAW_3_2] = RAW_3_1, [RAW_3_1] = BEGIN, [RAW_4_3] = RAW_4_2, [RAW_4_2] = RAW_4_1,
        [RAW_4_1] = BEGIN, [HEX_1] = HEX_2,     [HEX_2] = HEX_3,   [HEX_3] = BEGIN,     [LOW_ESCAPE] = LOW_U,
        [LOW_U] = LOW_0,   [LOW_0] = LOW_1,     [LOW_1] = LOW_2,   [LOW_2] = LOW_3,     [LOW_3] = BEGIN};
    bool right = p <= RAW_4_1      ? (byte & 0xC0) == 0x80
                 : p == LOW_ESCAPE ? byte == '\\'
                 : p == LOW_U      ? byte == 'u'
                 : p == LOW_0      ? hex_value(byte) == 0xD
                 : p == LOW_1      ? hex_value(byte) >= 0xC
                                   : hex_value(byte) >= 0;
    return right ? next[p] : (phase)(LOW_3 + 1);
}

static void machine_chars_first_byte(reader *r, uint8_t byte) {
    bool json = r->node->mode != NFA_RAW;
    if (byte >= 0x80) {
        lead_byte(r, byte);
    } else if (json && byte == '\\') {
        if (may_escape(r)) {
            r->c.value = (uint32_t)ESCAPE << 24;
            machine_add(r->m, r->c);
        }
    } else if (!json || (byte >= 0x20 && byte != '"')) {
        machine_chars_complete(r, byte, false);
    }
}

void machine_read_char(machine *m, const machine_config *c, uint8_t byte) {
    reader r = {m, &m->a->nodes.p[c->node], *c};
    uint32_t bits = c->value & 0xFFFFFF;
    phase p = (phase)(c->value >> 24 & ~SETTLED);
    if ((c->value >> 24 & SETTLED) != 0) {
        phase to = settled_next(p, byte);
        if (to == BEGIN) {
            done(&r, 0, c->at);
        } else if (to <= LOW_3) {
            r.c.value = ((uint32_t)to | SETTLED) << 24;
            machine_add(m, r.c);
        }
    } else if (p == BEGIN) {
        machine_chars_first_byte(&r, byte);
    } else if (p <= RAW_4_1) {
        next_byte(&r, p, bits, byte);
    } else if (p == ESCAPE) {
        escape_byte(&r, byte);
    } else if (p <= HEX_3) {
        if (hex_value(byte) >= 0) {
            hex_byte(&r, p, bits << 4 | (uint32_t)hex_value(byte));
        }
    } else if (p == LOW_ESCAPE || p == LOW_U) {
        if (byte == (p == LOW_U ? 'u' : '\\')) {
            r.c.value = (uint32_t)(p + 1) << 24 | bits;
            machine_add(m, r.c);
        }
    } else {
        low_byte(&r, p, bits, byte);
    }
}
