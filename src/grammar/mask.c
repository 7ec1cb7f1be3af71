/* Token masks: walks the trie of the vocabulary through the machine.
 *
 * In an unrestricted string, all tokens that stay inside are allowed: one precomputed
 * mask per vocabulary. Only tokens that may leave the string are walked; if the string's
 * state is constant or only counts characters, only from their closing quote on. A string
 * with some characters restricted takes the plain tokens as a mask, and the rest of the
 * trie is walked. A mask is kept with its state: as one of the vocabulary's masks and a
 * list of further tokens, if these are few, else as bits. */
#include <assert.h>
#include <string.h>

#include "grammar/grammar_run.h"

/* How many plain characters configuration c accepts, whatever they are; at most
 * VOCAB_PLAIN. */
static uint32_t plain_room(const run_core *r, const machine_config *c) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0) {
        return 0;
    }
    if (node->op == NFA_STRING && node->mode != NFA_RAW) {
        return a->dstates.p[c->at].roomy ? VOCAB_PLAIN : 0;
    }
    if (node->op != NFA_COUNTED || node->mode == NFA_RAW) {
        return 0;
    }
    const nfa_count *n = &a->counts.p[node->arg];
    return n->max == NFA_NONE || n->max - c->at >= VOCAB_PLAIN ? VOCAB_PLAIN : n->max - c->at;
}

/* Whether configuration c is in a string of which only the length matters. */
static bool is_counted(const run_core *r, const machine_config *c) {
    const nfa_node *node = &r->m.a->nodes.p[c->node];
    return c->value == 0 && node->op == NFA_COUNTED && node->mode == NFA_JSON;
}

/* Whether configuration c reads a quote next. */
static bool is_quote(const run_core *r, const machine_config *c) {
    const nfa_node *node = &r->m.a->nodes.p[c->node];
    return node->op == NFA_BYTES && r->m.a->bytes.p[node->arg + c->at] == '"';
}

/* Whether configuration c is in a JSON string where any text may follow. *steady: no text
 * changes it. */
static bool is_free(const run_core *r, const machine_config *c, bool *steady) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0 || node->mode != NFA_JSON || (node->op != NFA_STRING && node->op != NFA_COUNTED)) {
        return false;
    }
    if (node->op == NFA_STRING) {
        const nfa_dstate *d = &a->dstates.p[c->at];
        *steady = d->n == 0 && d->other == c->at;
        return d->free;
    }
    const nfa_count *n = &a->counts.p[node->arg];
    *steady = c->at >= n->min;
    return n->max == NFA_NONE || n->max - c->at >= r->v->longest;
}

/* The precomputed masks of a vocabulary; 0 is none. */
enum { BASE_NONE, BASE_BODY, BASE_PLAIN, BASE_WITHIN = BASE_PLAIN + VOCAB_PLAIN + 1 };
static const uint64_t *base_mask(const grammar_vocab *v, uint32_t base) {
    return base == BASE_NONE    ? NULL
           : base == BASE_BODY  ? v->body
           : base < BASE_WITHIN ? v->plain[base - BASE_PLAIN]
                                : v->within[base - BASE_WITHIN];
}

static void begin_mask(const grammar_vocab *v, uint32_t base, uint64_t *bits) {
    if (base == BASE_NONE) {
        memset(bits, 0, v->n_words * sizeof *bits);
    } else {
        memcpy(bits, base_mask(v, base), v->n_words * sizeof *bits);
    }
}

/* How many bytes of JSON white space may follow; 0: none. */
static uint32_t space_room(const run_core *r, const machine_config *c) {
    return r->m.a->nodes.p[c->node].op == NFA_SPACE ? GRAMMAR_SPACE_MAX - c->at : 0;
}

static void add_spaces(const grammar_vocab *v, uint32_t room, mask_out *o) {
    for (int32_t i = 0; i < v->n_spaces; i++) {
        if (vocab_text(v, v->spaces[i]).n <= room) {
            mask_set(o, v->spaces[i]);
        }
    }
}

/* Whether configuration c may read white space other than JSON's between values. */
static bool may_take_space(const nfa *a, const machine_config *c) {
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0 || node->op == NFA_SPACE || node->op == NFA_RETURN || node->op == NFA_MARK) {
        return false;
    }
    if (node->op == NFA_BYTES) {
        return a->bytes.p[node->arg + c->at] <= ' ';
    }
    if (node->op == NFA_CLASS) {
        const nfa_class *class = &a->classes.p[node->arg];
        return class->n > 0 && a->ranges.p[class->first].lo <= ' ';
    }
    if (node->op != NFA_STRING) {
        return true;
    }
    const nfa_dstate *d = &a->dstates.p[c->at];
    return d->other != NFA_NONE || (d->n > 0 && a->dedges.p[d->first].lo <= ' ');
}

/* Whether node i, read up to `at`, accepts only what a JSON string may contain, up to a
 * quote. The end of the answer reads nothing. */
static bool is_within_string(const nfa *a, uint32_t i, uint32_t at) {
    if (i == NFA_RETURN_NODE) {
        return true;
    }
    for (int n = 0; n < 8 && a->nodes.p[i].op == NFA_BYTES; n++) {
        const nfa_node *node = &a->nodes.p[i];
        for (; at < node->n; at++) {
            uint8_t byte = a->bytes.p[node->arg + at];
            if (byte == '"' || byte < 0x20 || byte > 0x7E || byte == '\\') {
                return byte == '"';
            }
        }
        i = node->next;
        at = 0;
    }
    const nfa_node *node = &a->nodes.p[i];
    bool is_text =
        node->op == NFA_CLASS || node->op == NFA_STRING || node->op == NFA_COUNTED || node->op == NFA_TEXT;
    return is_text && node->mode != NFA_RAW;
}

/* Whether all n configurations are in a JSON string. What came before decides that,
 * unless a text that is not JSON can begin in the same way. */
static bool are_within_string(const run_core *r, const machine_config *c, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!is_within_string(r->m.a, c[i].node, c[i].value == 0 ? c[i].at : 0)) {
            return false;
        }
    }
    return true;
}

/* What a state's configurations have in common, as far as masks need it. */
typedef struct mask_shape {
    uint32_t base, spaces;
    bool steady; /* in unrestricted text: no character changes the state */
    /* set if there is only a counted string and its end; `chars`: its length so far */
    const nfa_count *count;
    uint32_t chars;
    const vocab_trie *beside; /* the tokens that base does not decide */
} mask_shape;

static uint32_t count_left(const mask_shape *m) {
    return m->count->max == NFA_NONE ? NFA_NONE : m->count->max - m->chars;
}

static mask_shape mask_shape_of(const run_core *r, uint32_t s) {
    const grammar_vocab *v = r->v;
    const machine_config *c = machine_configs(&r->m, s);
    mask_shape m = {.beside = &v->all};
    uint32_t room = 0, n = machine_state_at(&r->m, s)->n, n_quotes = 0;
    bool free_text = false, other_spaces = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t plain = plain_room(r, c + i), space = space_room(r, c + i);
        room = plain > room ? plain : room;
        m.spaces = space > m.spaces ? space : m.spaces;
        other_spaces = other_spaces || may_take_space(r->m.a, c + i);
        if (is_counted(r, c + i)) {
            m.count = &r->m.a->counts.p[r->m.a->nodes.p[c[i].node].arg];
            m.chars = c[i].at;
        }
        n_quotes += is_quote(r, c + i);
        free_text = free_text || is_free(r, c + i, &m.steady);
    }
    m.steady = m.steady && n <= 2;
    m.count = n_quotes + 1 == n ? m.count : NULL; /* otherwise something else may accept longer tokens */
    if (free_text) {
        bool alone = are_within_string(r, c, n);
        m.base = BASE_BODY;
        m.beside = alone ? &v->quoted : &v->all;
        m.steady = m.steady && alone;
        m.count = alone ? m.count : NULL;
    } else if (m.count != NULL) {
        m.base = BASE_WITHIN + (count_left(&m) < VOCAB_PLAIN ? count_left(&m) : VOCAB_PLAIN);
    } else if (room == VOCAB_PLAIN) {
        m.base = BASE_PLAIN + VOCAB_PLAIN;
        m.beside = &v->rest;
    } else if (m.spaces > 0 && !other_spaces) {
        m.beside = &v->others;
    }
    return m;
}

/* Adds the tokens that leave a string after `least` to `most` characters, if its quote
 * may follow state s. */
static bool add_leaving(run_core *r, uint32_t s, uint32_t least, uint32_t most, mask_out *o) {
    o->before = r->v->before;
    o->least = least;
    o->most = most;
    bool ok = run_walk_trie(r, &r->v->tails, r->v->same_tail, s, o);
    o->before = NULL;
    return ok;
}

/* Adds what a counted string accepts besides its base. At this place, the quote may also
 * belong to another text (one of an enum); but after the first further character at which
 * the string may end, what follows the quote is always the same. */
static bool add_counted(run_core *r, uint32_t s, const mask_shape *m, mask_out *o) {
    const grammar_vocab *v = r->v;
    uint32_t left = count_left(m), first = m->chars + 1 < m->count->min ? m->count->min - m->chars : 1,
             later = s;
    for (uint32_t i = 0; m->base != BASE_BODY && i < v->n_longer && v->longer[i].chars <= left; i++) {
        mask_set(o, v->longer[i].token);
    }
    bool goes_on = first <= left && first <= v->most_before, ok = true;
    for (uint32_t i = 0; goes_on && i < first && later >= MACHINE_FIRST; i++) {
        later = machine_next(&r->m, later, 'x');
    }
    uint32_t here = machine_next(&r->m, s, '"'), there = machine_next(&r->m, later, '"');
    if (goes_on && first == 1 && here == there) {
        ok = add_leaving(r, s, 0, left, o);
    } else {
        ok = add_leaving(r, s, 0, 0, o) &&
             (!goes_on || (later != MACHINE_FULL && add_leaving(r, later, first, left, o)));
    }
    return ok && here != MACHINE_FULL && there != MACHINE_FULL && run_walk_trie(r, &v->odd, v->same, s, o);
}

/* Builds the mask in o. *base: the number of the precomputed mask that it includes. */
static bool build_mask(run_core *r, uint32_t s, mask_out *o, uint32_t *base) {
    const grammar_vocab *v = r->v;
    mask_shape m = mask_shape_of(r, s);
    *base = m.base;
    begin_mask(v, m.base, o->bits);
    for (int32_t i = 0; machine_state_at(&r->m, s)->final && i < v->n_ends; i++) {
        mask_set(o, v->ends[i]);
    }
    if (m.base == BASE_BODY && m.steady && machine_next(&r->m, s, 'x') == s) {
        return run_walk_trie(r, &v->tails, v->same_tail, s, o) && run_walk_trie(r, &v->odd, v->same, s, o);
    }
    if (m.count != NULL) {
        return add_counted(r, s, &m, o);
    }
    if (m.beside == &v->others) {
        add_spaces(v, m.spaces, o);
    }
    return run_walk_trie(r, m.beside, v->same, s, o);
}

/* ---- kept masks: a word with the base and the number of further tokens, then these
 * tokens; or NO_LIST, then bits ---- */

#define NO_LIST    UINT32_MAX
#define BASE_SHIFT 26

static void mask_keep(run_core *r, uint32_t s, const mask_out *o, uint32_t base) {
    size_t words = 1 + (o->n <= o->max ? o->n : r->v->n_words * 2),
           bytes = (r->n_mask_words + words) * sizeof(uint32_t);
    area_result kept = area_use(&r->masks, &r->mask_budget, bytes);
    r->wants_masks = kept == AREA_PAST_RESERVE ? bytes : 0;
    if (kept != AREA_USED) {
        return;
    }
    uint32_t *to = (uint32_t *)r->masks.p + r->n_mask_words;
    machine_state_at(&r->m, s)->mask = r->n_mask_words + 1;
    r->n_mask_words += (uint32_t)words;
    *to++ = o->n <= o->max ? base << BASE_SHIFT | o->n : NO_LIST;
    if (o->n <= o->max) {
        mem_copy(to, o->list, o->n * sizeof *to);
    } else {
        memcpy(to, o->bits, r->v->n_words * sizeof *o->bits);
    }
}

static void read_kept(const run_core *r, uint32_t mask, uint64_t *bits) {
    const uint32_t *from = (const uint32_t *)r->masks.p + mask - 1;
    uint32_t head = *from++;
    if (head == NO_LIST) {
        memcpy(bits, from, r->v->n_words * sizeof *bits);
        return;
    }
    begin_mask(r->v, head >> BASE_SHIFT, bits);
    for (uint32_t i = 0, n = head & ((1u << BASE_SHIFT) - 1); i < n; i++) {
        bits[from[i] / 64] |= (uint64_t)1 << (from[i] % 64);
    }
}

/* `at`, or an equivalent position with fewer characters if no token reaches a limit of t
 * from `at`. */
static uint32_t fewer_read(const run_core *r, const nfa_text *t, uint32_t at) {
    uint32_t count = at / t->n, from = count < t->min ? 0 : t->min, until = count < t->min ? t->min : t->max;
    /* character counts from which it can be completed in any state */
    uint32_t reach = r->v->longest + 1, needed = count < t->min ? t->rich : t->far;
    bool can_end = needed != NFA_NONE &&
                   (t->max == NFA_NONE || (t->max - count > reach && t->max - count - reach > needed));
    bool is_far = can_end && (until == NFA_NONE || until - count > reach);
    return is_far ? from * t->n + at % t->n : at;
}

/* A state with the same mask: common to all positions in a text of limited length from
 * which no token reaches a limit. */
static uint32_t state_alike(run_core *r, uint32_t s) {
    enum { FEW = 8 };
    const nfa *a = r->m.a;
    machine_config set[FEW];
    uint32_t n = machine_state_at(&r->m, s)->n;
    bool differs = false;
    if (a->texts.n == 0 || n > FEW) {
        return s;
    }
    for (uint32_t i = 0; i < n; i++) {
        set[i] = machine_configs(&r->m, s)[i];
        const nfa_node *node = &a->nodes.p[set[i].node];
        uint32_t at = node->op == NFA_TEXT ? fewer_read(r, &a->texts.p[node->arg], set[i].at) : set[i].at;
        differs = differs || at != set[i].at;
        set[i].at = at;
    }
    uint32_t alike = differs ? machine_state_of(&r->m, set, n) : s;
    if (alike == MACHINE_FULL && machine_error(&r->m) != QUIRE_BUSY) {
        r->m.why = MACHINE_FINE; /* use s itself */
    }
    return alike == MACHINE_FULL ? s : alike;
}

quire_err run_mask(run_core *r, uint32_t s, uint64_t *bits) {
    uint32_t base;
    s = state_alike(r, s);
    if (machine_state_at(&r->m, s)->mask == 0) {
        mask_out o = {.bits = bits, .list = r->list, .max = (uint32_t)r->v->n_tokens / RUN_LIST_PART};
        r->m.account = s;
        if (!work_add(&r->m.meter, machine_state_at(&r->m, s)->n)) {
            machine_fail(&r->m, MACHINE_LATER);
        }
        bool built = r->m.why == MACHINE_FINE && build_mask(r, s, &o, &base) && r->m.why == MACHINE_FINE;
        r->m.account = 0;
        if (!built) {
            return machine_error(&r->m);
        }
        r->stats.n_masks++;
        mask_keep(r, s, &o, base);
        return QUIRE_OK;
    }
    read_kept(r, machine_state_at(&r->m, s)->mask, bits);
    return QUIRE_OK;
}

/* The only token in a mask; -1: there is none, or more than one. */
static int32_t only_bit(const grammar_vocab *v, const uint64_t *bits) {
    int32_t only = -1;
    for (size_t i = 0; i < v->n_words; i++) {
        if (bits[i] != 0) {
            if (only >= 0 || (bits[i] & (bits[i] - 1)) != 0) {
                return -1;
            }
            only = (int32_t)(i * 64) + __builtin_ctzll(bits[i]);
        }
    }
    return only;
}

/* The only token that the mask of state s allows; -1: there is none, or more than one, or
 * the budget is used up. */
static int32_t run_only_token(run_core *r, uint32_t s) {
    uint32_t mask = machine_state_at(&r->m, s)->mask;
    const uint32_t *kept = mask != 0 ? (const uint32_t *)r->masks.p + mask - 1 : NULL;
    if (kept != NULL && *kept >> BASE_SHIFT == BASE_NONE) {
        return *kept == 1 ? (int32_t)kept[1] : -1;
    }
    return run_mask(r, s, r->scratch) == QUIRE_OK ? only_bit(r->v, r->scratch) : -1;
}

/* The bytes and tokens that must follow a state, or are likely to. */

/* machine_state.only: not computed; no single byte; byte 0, byte 1, .. */
enum { ONLY_UNKNOWN, ONLY_NONE, ONLY_FIRST };

static uint16_t find_only(run_core *r, uint32_t s) {
    int32_t only = -1;
    const uint8_t *byte_class = r->m.a->byte_class;
    for (int32_t i = 0; i < 256 && !machine_state_at(&r->m, s)->final; i++) {
        bool repeats = i > 0 && byte_class[i] == byte_class[i - 1];
        uint32_t to = repeats && only != i - 1 ? MACHINE_DEAD : machine_next(&r->m, s, (uint8_t)i);
        if (to == MACHINE_FULL || (to >= MACHINE_FIRST && only >= 0)) {
            return to == MACHINE_FULL ? ONLY_UNKNOWN : ONLY_NONE;
        }
        only = to >= MACHINE_FIRST ? i : only;
    }
    return (uint16_t)(only < 0 ? ONLY_NONE : ONLY_FIRST + only);
}

/* The only byte that may follow; -1: none or several may, or the text may end. Cached in
 * the state. */
static int32_t only_byte(run_core *r, uint32_t s) {
    machine_state *state = machine_state_at(&r->m, s);
    state->only = state->only == ONLY_UNKNOWN ? find_only(r, s) : state->only;
    return state->only < ONLY_FIRST ? -1 : state->only - ONLY_FIRST;
}

/* The forced tokens that an operation collects. */
typedef struct forced_tokens {
    uint32_t s;
    int32_t *tokens, n, max;
} forced_tokens;

static quire_err forced_op(run_core *r, void *context) {
    forced_tokens *f = context;
    /* names that came only remove continuations, so a single one is not affected */
    uint32_t s = run_base(r, f->s);
    f->n = 0;
    while (f->n < f->max && only_byte(r, s) >= 0) {
        size_t taken;
        int32_t token = run_only_token(r, s);
        uint32_t to = token < 0 ? MACHINE_DEAD : run_walk(r, s, vocab_text(r->v, token), &taken);
        if (to < MACHINE_FIRST) {
            break;
        }
        f->tokens[f->n++] = token;
        s = to;
    }
    return r->m.why != MACHINE_FINE ? machine_error(&r->m) : QUIRE_OK;
}

int32_t grammar_forced(grammar_run *run, grammar_state s, int32_t *tokens, int32_t max) {
    assert(max >= 0);
    forced_tokens f = {s.id, tokens, 0, max};
    (void)run_do(run, forced_op, &f);
    return f.n;
}

/* ---- guesses ---- */

#define GUESS_BYTES 512 /* most known bytes */
#define GUESS_POOL  (GRAMMAR_MAX_GUESSES * GRAMMAR_GUESS_WIDTH)

/* A token that may be added to a guess. */
typedef struct spelling {
    float probability; /* joint probability with its ancestors */
    int32_t token, parent;
    size_t end;    /* offset after it in the known bytes */
    bool is_alone; /* no other token spells this */
} spelling;

/* The known bytes, and the candidates. */
typedef struct guess {
    const grammar_vocab *v;
    const grammar_guess_bounds *bounds;
    uint8_t bytes[GUESS_BYTES];
    size_t n_bytes;
    spelling pool[GUESS_POOL];
    int32_t n_pool;
} guess;

/* Lists the tokens that spell known bytes from `at` on, longest last. */
static int32_t list_tokens(const guess *g, size_t at, spelling *list) {
    const vocab_trie *t = &g->v->all;
    uint32_t node = 0, end = t->n_roots;
    int32_t n = 0;
    while (at < g->n_bytes && node < end) {
        const trie_node *x = &t->nodes[node];
        if (x->byte != g->bytes[at]) {
            node++;
            continue;
        }
        at++;
        if (x->token >= 0 && n == GRAMMAR_GUESS_WIDTH) {
            memmove(list, list + 1, (size_t)--n * sizeof *list);
        }
        if (x->token >= 0) {
            list[n++] = (spelling){.token = x->token, .end = at};
        }
        node = x->child;
        end = x->child + x->n;
    }
    return n;
}

/* Adds the tokens that may follow a node to the candidates, longest first. */
static void add_spellings(guess *g, int32_t parent, size_t at, float probability) {
    spelling list[GRAMMAR_GUESS_WIDTH];
    int32_t n = list_tokens(g, at, list);
    for (int32_t i = n - 1; i >= 0 && g->n_pool < GUESS_POOL; i--) {
        float share = (1.0f - g->bounds->first) / (float)n + (i == n - 1 ? g->bounds->first : 0.0f);
        list[i].parent = parent;
        list[i].is_alone = n == 1;
        list[i].probability = probability * share;
        g->pool[g->n_pool++] = list[i];
    }
}

/* Takes the likeliest candidate, of equals the first. False: none is likely enough. */
static bool forced_take_likeliest(guess *g, spelling *out) {
    int32_t best = 0;
    for (int32_t i = 1; i < g->n_pool; i++) {
        best = g->pool[i].probability > g->pool[best].probability ? i : best;
    }
    if (g->n_pool == 0 || g->pool[best].probability < g->bounds->least) {
        return false;
    }
    *out = g->pool[best];
    g->n_pool--;
    memmove(g->pool + best, g->pool + best + 1, (size_t)(g->n_pool - best) * sizeof *g->pool);
    return true;
}

/* How many tokens from `at` on are without alternative, up to as many as may be
 * guessed. */
static int32_t count_alone(const guess *g, size_t at) {
    spelling list[GRAMMAR_GUESS_WIDTH];
    int32_t n = 0;
    while (n < g->bounds->nodes && list_tokens(g, at, list) == 1) {
        at = list[0].end;
        n++;
    }
    return n;
}

/* Whether guessing a token is expected to save more than it costs: a wrong guess wastes
 * its row and those of the forced tokens after it. */
static bool is_worth(const guess *g, const spelling *x) {
    float wrong = 1.0f - x->probability;
    return x->is_alone || x->probability >= wrong * g->bounds->row * (float)(1 + count_alone(g, x->end));
}

/* The bytes with which every continuation begins. */
typedef struct known_bytes {
    uint32_t s;
    guess *g;
} known_bytes;

static quire_err bytes_op(run_core *r, void *context) {
    const known_bytes *k = context;
    guess *g = k->g;
    int32_t byte = 0;
    uint32_t s = run_base(r, k->s);
    g->n_bytes = 0;
    while (g->n_bytes < GUESS_BYTES && (byte = only_byte(r, s)) >= 0) {
        s = machine_next(&r->m, s, (uint8_t)byte);
        if (s < MACHINE_FIRST) {
            break;
        }
        g->bytes[g->n_bytes++] = (uint8_t)byte;
    }
    return r->m.why != MACHINE_FINE ? machine_error(&r->m) : QUIRE_OK;
}

int32_t grammar_guess(grammar_run *r, grammar_state s, const grammar_guess_bounds *bounds, int32_t *tokens,
                      int32_t *parents) {
    assert(bounds != NULL);
    guess g;
    spelling next;
    int32_t n = 0, most = bounds->nodes < GRAMMAR_MAX_GUESSES ? bounds->nodes : GRAMMAR_MAX_GUESSES;
    g.v = r->core->v;
    g.bounds = bounds;
    g.n_bytes = 0;
    g.n_pool = 0;
    known_bytes known = {s.id, &g};
    (void)run_do(r, bytes_op, &known);
    add_spellings(&g, -1, 0, 1.0f);
    while (n < most && forced_take_likeliest(&g, &next)) {
        if (is_worth(&g, &next)) {
            tokens[n] = next.token;
            parents[n] = next.parent;
            add_spellings(&g, n++, next.end, next.probability);
        }
    }
    return n;
}
