#include "spec/draft.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

#define MAX_PAUSES 5 /* lengths of a pause: 1, 2, 4, 8, 16 steps */

int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows) {
    assert(max_seqs >= 0 && max_rows >= 0);
    int64_t n = (int64_t)max_seqs * (1 + o->n_tokens) + (o->n_tokens > 0 ? 0 : DRAFT_PREDICTED);
    return n <= max_rows ? (int32_t)n : max_rows > max_seqs ? max_rows : max_seqs;
}

bool draft_by_rejection(const draft_options *o, const sampling_params *p) {
    return o->rule == DRAFT_RULE_STANDARD && p->mirostat == MIROSTAT_OFF;
}

quire_err draft_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err) {
    assert(o != NULL);
    *out = NULL;
    if (o->method == DRAFT_METHOD_NONE) {
        return QUIRE_OK;
    }
    if (o->tree_width < 0 || o->tree_width > DRAFT_MAX_WIDTH) {
        return err_set(err, QUIRE_INVALID, -1, "draft trees of width %d: must be from 1 to %d",
                       (int)o->tree_width, DRAFT_MAX_WIDTH);
    }
    if (o->n_tokens < 1 || o->n_tokens > DRAFT_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "%d speculative tokens: must be from 1 to %d",
                       (int)o->n_tokens, DRAFT_MAX);
    }
    switch (o->method) {
    case DRAFT_METHOD_MODEL:
        return draft_model_open(o, t, out, err);
    case DRAFT_METHOD_SUFFIX:
        return draft_suffix_open(o, out);
    default:
        return draft_ngram_open(o, out);
    }
}

bool draft_want(draft_seq *s, const draft_options *o, int32_t room) {
    int32_t width = o->tree_width > 1 ? o->tree_width : 1;
    if (s->pause > 0) {
        s->pause--;
        return false;
    }
    s->length = s->length == 0 ? o->n_tokens : s->length;
    s->wanted = (draft_bounds){.nodes = least_i32(room, least_i32(o->n_tokens, s->length * width)),
                               .depth = least_i32(room, s->length),
                               .width = width};
    return true;
}

#define FIRST_GUESS 0.9f /* draft_seq.guess_first of a new sequence */
#define FIRST_LEAST 0.1f /* lower bound of guess_first; FIRST_MOST is the upper one */
#define FIRST_MOST  0.98f
#define FIRST_PACE  0.125f /* weight of one token in guess_first */
/* guess_first of texts split into tokens at random: many have only one spelling */
#define FIRST_ALONE 0.45f

/* Returns guess_bounds.first for s: guess_first above FIRST_ALONE, scaled to 0..1. */
static float surely_first(const draft_seq *s) {
    float first = s->guess_first > 0.0f ? s->guess_first : FIRST_GUESS;
    return first > FIRST_ALONE ? (first - FIRST_ALONE) / (1.0f - FIRST_ALONE) : 0.0f;
}

void draft_guess(const draft_seq *s, int32_t most, const guess_worth *worth, draft_tree *out) {
    const constraint *k = s->context->constraint;
    int32_t ids[CONSTRAINT_MAX_GUESSES], parents[CONSTRAINT_MAX_GUESSES];
    const guess_bounds bounds = {least_i32(most, DRAFT_MAX), surely_first(s), worth->least, worth->row};
    int32_t n =
        k->ops->guess != NULL ? k->ops->guess(k, s->context->constraint_state, &bounds, ids, parents) : 0;
    for (int32_t i = 0; i < n; i++) {
        draft_tree_add(out, parents[i], ids[i]);
    }
    draft_tree_sort(out);
}

/* Adapts guess_first: n_first guesses on the first branch were right, and the next one
 * was wrong unless the branch ended there. */
static void adapt_guess(draft_seq *s, const draft_outcome *result) {
    float first = s->guess_first > 0.0f ? s->guess_first : FIRST_GUESS;
    for (int32_t i = 0; i < result->n_first; i++) {
        first += FIRST_PACE * (1.0f - first);
    }
    if (!result->to_end || result->n_first < result->n_accepted) {
        first -= FIRST_PACE * first;
    }
    s->guess_first = first < FIRST_LEAST ? FIRST_LEAST : first > FIRST_MOST ? FIRST_MOST : first;
}

void draft_adapt(draft_seq *s, const draft_options *o, const draft_outcome *result) {
    if (s->is_guess) {
        adapt_guess(s, result);
        return;
    }
    if (result->n_accepted > 0) {
        s->n_misses = s->n_pauses = 0;
        s->length = least_i32(o->n_tokens, result->to_end ? 2 * s->length : result->n_accepted + 1);
        return;
    }
    s->length = 1;
    s->n_misses++;
    if (s->n_misses >= DRAFT_PATIENCE) {
        s->pause = 1 << s->n_pauses;
        s->n_pauses = least_i32(s->n_pauses + 1, MAX_PAUSES - 1);
    }
}

void draft_constrain(draft_seq *s, uint8_t *states) {
    draft_tree kept = {0};
    int32_t to[DRAFT_MAX]; /* number in `kept` of each node; DRAFT_ROOT: dropped */
    for (int32_t i = 0; i < s->tree.n; i++) {
        int32_t parent = s->tree.parents[i], at = parent == DRAFT_ROOT ? DRAFT_ROOT : to[parent];
        sample_context c = *s->context;
        c.rule = NULL; /* the rule belongs to the sequence's own state, not to this copy */
        const void *before =
            at == DRAFT_ROOT ? c.constraint_state : states + (size_t)at * CONSTRAINT_MAX_STATE_BYTES;
        to[i] = DRAFT_ROOT;
        if (parent != DRAFT_ROOT && at == DRAFT_ROOT) {
            continue;
        }
        c.constraint_state = states + (size_t)kept.n * CONSTRAINT_MAX_STATE_BYTES;
        memcpy(c.constraint_state, before, c.constraint->state_bytes);
        if (sample_accept(&c, s->tree.tokens[i]) == QUIRE_OK) {
            to[i] = draft_tree_add(&kept, at, s->tree.tokens[i]);
        }
    }
    s->tree = kept;
}

/* ---- prompt lookup ---- */

/* Prompt lookup: guesses what followed the last time that the sequence ended as it does
 * now. It searches for the longest suffix of lookup_min..lookup_max tokens that occurs
 * earlier in the sequence; of equally long ones the latest. The guess is what follows
 * there. If the end of the sequence comes first, the guess repeats from that place. If
 * branches are wanted, the next matches that continue with another token give one branch
 * each: the first branch takes half of the tokens, the next half of what is left, the
 * last all. Keeps no state. Source: Saxena 2023, "Prompt Lookup Decoding". */

typedef struct ngram_drafter {
    drafter head;
    int32_t lookup_min, lookup_max;
} ngram_drafter;

/* A match: earlier tokens that equal the last tokens. */
typedef struct place {
    int32_t length, from; /* number of equal tokens, and the index of the token after them */
} place;

/* Inserts a match into best[0..n), sorted by length with new ones last among equals,
 * unless a better match continues with the same token. Returns the new number. */
static int32_t draft_ngram_enter(const int32_t *tokens, place found, place *best, int32_t n, int32_t most) {
    int32_t at = 0;
    for (; at < n && best[at].length >= found.length; at++) {
        if (tokens[best[at].from] == tokens[found.from]) {
            return n;
        }
    }
    if (at == most) {
        return n;
    }
    /* replaces a match with the same next token, or the worst if there are too many */
    int32_t last = at;
    while (last < n && last < most - 1 && tokens[best[last].from] != tokens[found.from]) {
        last++;
    }
    n = last == n ? n + 1 : n;
    for (; last > at; last--) {
        best[last] = best[last - 1];
    }
    best[at] = found;
    return n;
}

void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                 const draft_bounds *wanted, draft_tree *out) {
    assert(n >= 0 && lookup_min >= 1 && lookup_min <= lookup_max);
    place best[DRAFT_MAX_WIDTH];
    int32_t n_best = 0;
    for (int32_t end = n - 1;
         end >= lookup_min && (n_best < wanted->width || best[n_best - 1].length < lookup_max); end--) {
        int32_t length = draft_agreement(tokens, end, tokens, n, lookup_max);
        if (length >= lookup_min) {
            n_best = draft_ngram_enter(tokens, (place){length, end}, best, n_best, wanted->width);
        }
    }
    for (int32_t k = 0; k < n_best; k++) {
        int32_t left = wanted->nodes - out->n, most = k + 1 < n_best ? (left + 1) / 2 : left,
                period = n - best[k].from, at = DRAFT_ROOT;
        for (int32_t i = 0; i < most && i < wanted->depth; i++) {
            at = draft_tree_add(out, at, tokens[best[k].from + i % period]);
        }
    }
}

static void draft_ngram_propose(drafter *head, draft_seq *const *seqs, int32_t n) {
    const ngram_drafter *d = (const ngram_drafter *)head;
    for (int32_t i = 0; i < n; i++) {
        draft_ngram(seqs[i]->tokens, seqs[i]->n_known, d->lookup_min, d->lookup_max, &seqs[i]->wanted,
                    &seqs[i]->tree);
    }
}

static void ngram_close(drafter *d) {
    mem_free(d);
}

quire_err draft_ngram_open(const draft_options *o, drafter **out) {
    static const draft_ops ops = {.propose = draft_ngram_propose, .close = ngram_close};
    ngram_drafter *d = mem_new(1, sizeof *d);
    TRY(mem_check(d));
    *d = (ngram_drafter){.head = {&ops}, .lookup_min = o->lookup_min, .lookup_max = o->lookup_max};
    *out = &d->head;
    return QUIRE_OK;
}
