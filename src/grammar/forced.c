/* The bytes and tokens that must follow a state, or are likely to. */
#include <assert.h>
#include <string.h>

#include "grammar/grammar_run.h"

/* machine_state.only: not computed yet; there is no only byte; it is the byte 0, and so
 * on. */
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

/* The only byte that may follow; -1: there may be others, or the text may end. Remembered
 * with the state. */
static int32_t only_byte(run_core *r, uint32_t s) {
    machine_state *state = machine_state_at(&r->m, s);
    state->only = state->only == ONLY_UNKNOWN ? find_only(r, s) : state->only;
    return state->only < ONLY_FIRST ? -1 : state->only - ONLY_FIRST;
}

/* What an operation of forced tokens fills. */
typedef struct forced_tokens {
    uint32_t s;
    int32_t *tokens, n, max;
} forced_tokens;

static quire_err forced_op(run_core *r, void *context) {
    forced_tokens *f = context;
    /* names that came leave some way, so they do not matter if there is one */
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

#define GUESS_BYTES 512 /* that are known */
#define GUESS_POOL  (GRAMMAR_MAX_GUESSES * GRAMMAR_GUESS_WIDTH)

/* A token that may be added to a guess. */
typedef struct spelling {
    float probability; /* of it with all before it */
    int32_t token, parent;
    size_t end;    /* of the known bytes, after it */
    bool is_alone; /* there is no other token in its place */
} spelling;

/* Known bytes, and what may be added. */
typedef struct guess {
    const grammar_vocab *v;
    const grammar_guess_bounds *bounds;
    uint8_t bytes[GUESS_BYTES];
    size_t n_bytes;
    spelling pool[GUESS_POOL];
    int32_t n_pool;
} guess;

/* Lists the longest tokens that spell known bytes from `at` on, longest last. */
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

/* Adds the tokens after a node to the candidates, longest first. */
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

/* Takes the likeliest candidate, in a tie the first. False: none is likely enough. */
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

/* How many tokens from `at` on have no other in their place, up to as many as may be
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

/* Whether a token saves more than it, and those that come with it, cost if it is
 * wrong. */
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
