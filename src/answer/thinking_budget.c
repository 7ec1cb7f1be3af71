#include "answer/thinking_budget.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "base/text_pattern.h"
#include "core/params.h"
#include "sample/constraint.h"

#define MAX_MARKS    REASONING_SPELLINGS
#define MAX_SPELT    256   /* bytes of one mark */
#define MAX_FORCED   64    /* tokens of the closing mark */
#define LINE_LEAST   0.51f /* least probability of a guess: over half, so that guesses form a line */
#define MOST_WAITING 4     /* most tokens in CLOSING before the closing mark */

typedef enum phase { BEFORE, INSIDE, CLOSING, DONE } phase;

typedef struct budget_state {
    int32_t count; /* tokens of the reasoning so far */
    uint8_t phase;
    uint8_t n_forced;       /* the index of the next token of the closing mark */
    uint8_t waited;         /* tokens in CLOSING before the mark's first */
    uint8_t missing;        /* bytes still missing from the output's last character */
    uint16_t at[MAX_MARKS]; /* for each mark, how many of its bytes end the output */
} budget_state;

typedef struct thinking_budget {
    constraint head;
    constraint *inner; /* constraint whose state follows a budget_state, or NULL */
    grammar_vocab *vocab;
    int32_t budget;
    bool begins_inside;
    bool reopens; /* an opening mark begins reasoning anywhere; false: only at the beginning */
    text_pattern open[MAX_MARKS], close[MAX_MARKS]; /* empty pattern: no mark */
    int32_t forced[MAX_FORCED];
    int32_t n_forced;
} thinking_budget;

enum {
    INNER_AT = (sizeof(budget_state) + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t)
};

static const thinking_budget *budget_of(const constraint *c) {
    return (const thinking_budget *)c;
}

static void *inner_state(void *state) {
    return (char *)state + INNER_AT;
}

static const void *inner_const(const void *state) {
    return (const char *)state + INNER_AT;
}

/* ---- marks ---- */

/* Advances the match of a mark by a byte; true if the mark is complete. */
static bool thinking_budget_find(const text_pattern *p, uint16_t *at, uint8_t byte) {
    *at = (uint16_t)text_pattern_step(p, *at, (char)byte);
    return p->n > 0 && *at == p->n;
}

static bool thinking_budget_is_space(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Reads a byte before the reasoning. If a mark must come first, other bytes are the
 * answer. */
static void read_before(const thinking_budget *b, budget_state *s, uint8_t byte) {
    bool may_come = false, is_first = s->at[0] == 0 && s->at[1] == 0;
    for (int i = 0; i < MAX_MARKS; i++) {
        const text_pattern *f = &b->open[i];
        bool goes_on = b->reopens ||
                       (f->n > s->at[i] && (uint8_t)f->text[s->at[i]] == byte && (is_first || s->at[i] > 0));
        if (goes_on ? thinking_budget_find(f, &s->at[i], byte) : false) {
            *s = (budget_state){.count = s->count, .phase = INSIDE};
            return;
        }
        s->at[i] = goes_on ? s->at[i] : 0;
        may_come = may_come || goes_on;
    }
    s->phase = may_come || (is_first && thinking_budget_is_space(byte)) ? BEFORE : DONE;
}

static void end_reasoning(const thinking_budget *b, budget_state *s) {
    *s = (budget_state){.count = s->count, .phase = b->reopens ? BEFORE : DONE};
}

static void read_byte(const thinking_budget *b, budget_state *s, uint8_t byte) {
    if (s->phase == BEFORE) {
        read_before(b, s, byte);
    } else if (s->phase == INSIDE) {
        s->missing = byte >= 0xF8                     ? 0
                     : byte >= 0xF0                   ? 3
                     : byte >= 0xE0                   ? 2
                     : byte >= 0xC0                   ? 1
                     : byte >= 0x80 && s->missing > 0 ? (uint8_t)(s->missing - 1)
                                                      : 0;
        for (int i = 0; i < MAX_MARKS; i++) {
            if (thinking_budget_find(&b->close[i], &s->at[i], byte)) {
                end_reasoning(b, s);
                return;
            }
        }
    }
}

/* ---- the state ---- */

static void spend(const thinking_budget *b, budget_state *s) {
    if (s->phase == INSIDE && s->count >= b->budget) {
        *s = (budget_state){.count = s->count, .phase = CLOSING, .missing = s->missing};
    }
}

static void thinking_budget_read_bytes(const thinking_budget *b, budget_state *s, int32_t token) {
    str text =
        token >= 0 && token < grammar_vocab_size(b->vocab) ? grammar_vocab_text(b->vocab, token) : (str){0};
    for (size_t i = 0; i < text.n; i++) {
        read_byte(b, s, (uint8_t)text.p[i]);
    }
}

static void read_token(const thinking_budget *b, budget_state *s, int32_t token) {
    bool inside = s->phase == INSIDE;
    thinking_budget_read_bytes(b, s, token);
    s->count += inside && s->phase == INSIDE;
    spend(b, s);
}

static void thinking_budget_init(const constraint *c, void *state) {
    const thinking_budget *b = budget_of(c);
    budget_state *s = state;
    memset(state, 0, c->state_bytes);
    s->phase = b->begins_inside ? INSIDE : BEFORE;
    spend(b, s);
    if (b->inner != NULL) {
        b->inner->ops->init(b->inner, inner_state(state));
    }
}

/* How many of the mark's next `most` tokens the inner constraint accepts in a row. */
static int32_t thinking_budget_n_taken(const thinking_budget *b, const void *state, int32_t most) {
    alignas(max_align_t) uint8_t trial[CONSTRAINT_MAX_STATE_BYTES];
    int32_t from = ((const budget_state *)state)->n_forced, n = 0;
    most = most < b->n_forced - from ? most : b->n_forced - from;
    if (b->inner == NULL) {
        return most;
    }
    memcpy(trial, inner_const(state), b->inner->state_bytes);
    while (n < most && b->inner->ops->accept(b->inner, trial, b->forced[from + n]) == QUIRE_OK) {
        n++;
    }
    return n;
}

/* Whether the closing mark's next token is the only one allowed. It is in the phase
 * CLOSING once the mark has begun; to begin, the last character must be complete or, with
 * an inner constraint, that must accept the mark's first token. */
static bool is_forcing(const thinking_budget *b, const void *state) {
    const budget_state *s = state;
    if (s->phase != CLOSING || s->n_forced > 0) {
        return s->phase == CLOSING;
    }
    return b->inner == NULL ? s->missing == 0 || s->waited >= MOST_WAITING
                            : thinking_budget_n_taken(b, state, 1) > 0;
}

/* Counts a token of the closing mark. The reasoning ends with the last token that the
 * inner constraint accepts; it may require another header after that. */
static void take_forced(const thinking_budget *b, void *state) {
    budget_state *s = state;
    int32_t n = ++s->n_forced;
    if (thinking_budget_n_taken(b, state, 1) == 0) {
        end_reasoning(b, s);
        for (int32_t i = 0; i < n; i++) {
            thinking_budget_read_bytes(b, s, b->forced[i]); /* these bytes may begin an opening mark */
        }
    }
}

static quire_err thinking_budget_mask(const constraint *c, const void *state, uint64_t *bits) {
    const thinking_budget *b = budget_of(c);
    size_t n = (size_t)constraint_words(c->n_vocab) * sizeof *bits;
    if (is_forcing(b, state)) {
        int32_t id = b->forced[((const budget_state *)state)->n_forced];
        memset(bits, 0, n);
        bits[id / 64] = (uint64_t)1 << (id % 64);
        return QUIRE_OK;
    }
    if (b->inner != NULL) {
        return b->inner->ops->mask(b->inner, inner_const(state), bits);
    }
    memset(bits, 0xFF, n);
    return QUIRE_OK;
}

static quire_err thinking_budget_accept(const constraint *c, void *state, int32_t token) {
    const thinking_budget *b = budget_of(c);
    budget_state *s = state;
    bool forcing = is_forcing(b, state);
    if (forcing && token != b->forced[s->n_forced]) {
        return QUIRE_INVALID;
    }
    if (b->inner != NULL) {
        TRY(b->inner->ops->accept(b->inner, inner_state(state), token));
    }
    if (forcing) {
        take_forced(b, state);
    } else if (s->phase == CLOSING) {
        s->missing = s->missing > 0 ? (uint8_t)(s->missing - 1) : 0;
        /* an inner constraint that still rejects the mark has left the reasoning */
        s->phase = b->inner != NULL && ++s->waited > MOST_WAITING ? DONE : CLOSING;
    } else {
        read_token(b, s, token);
    }
    return QUIRE_OK;
}

/* How many of ids[0..n) are accepted before the budget begins to close the reasoning. */
static int32_t thinking_budget_cut(const constraint *c, const void *state, const int32_t *ids, int32_t n) {
    alignas(max_align_t) uint8_t trial[CONSTRAINT_MAX_STATE_BYTES];
    int32_t i = 0;
    memcpy(trial, state, c->state_bytes);
    while (i < n && ((const budget_state *)(const void *)trial)->phase != CLOSING &&
           thinking_budget_accept(c, trial, ids[i]) == QUIRE_OK) {
        i++;
    }
    return i;
}

static int32_t thinking_budget_forced(const constraint *c, const void *state, int32_t *ids, int32_t most) {
    const thinking_budget *b = budget_of(c);
    const budget_state *s = state;
    if (is_forcing(b, state)) {
        int32_t n = thinking_budget_n_taken(b, state, most);
        memcpy(ids, b->forced + s->n_forced, (size_t)n * sizeof *ids);
        return n;
    }
    if (b->inner == NULL || b->inner->ops->forced == NULL) {
        return 0;
    }
    return thinking_budget_cut(c, state, ids, b->inner->ops->forced(b->inner, inner_const(state), ids, most));
}

/* Guesses by the inner constraint. Until the reasoning is over they form a line, without
 * branches, which can be cut. */
static int32_t thinking_budget_guess(const constraint *c, const void *state, const guess_bounds *bounds,
                                     int32_t *ids, int32_t *parents) {
    const thinking_budget *b = budget_of(c);
    bool is_over = ((const budget_state *)state)->phase == DONE;
    guess_bounds own = *bounds;
    if (b->inner == NULL || b->inner->ops->guess == NULL || is_forcing(b, state)) {
        return 0;
    }
    own.least = is_over || own.least > LINE_LEAST ? own.least : LINE_LEAST;
    int32_t n = b->inner->ops->guess(b->inner, inner_const(state), &own, ids, parents);
    return is_over ? n : thinking_budget_cut(c, state, ids, n);
}

/* False while the closing mark is due. An inner constraint that rejects the mark has no
 * reasoning around it, and decides alone. */
static bool thinking_budget_is_final(const constraint *c, const void *state) {
    const thinking_budget *b = budget_of(c);
    if (b->inner == NULL) {
        return ((const budget_state *)state)->phase != CLOSING;
    }
    return !is_forcing(b, state) && b->inner->ops->is_final(b->inner, inner_const(state));
}

static void close_budget(constraint *c) {
    thinking_budget *b = (thinking_budget *)c;
    constraint_drop(b->inner);
    grammar_vocab_drop(b->vocab);
    for (int i = 0; i < MAX_MARKS; i++) {
        text_pattern_deinit(&b->open[i]);
        text_pattern_deinit(&b->close[i]);
    }
    mem_free(b);
}

/* ---- opening ---- */

static str thinking_budget_trimmed(str s) {
    while (s.n > 0 && thinking_budget_is_space((uint8_t)s.p[0])) {
        s = (str){s.p + 1, s.n - 1};
    }
    while (s.n > 0 && thinking_budget_is_space((uint8_t)s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

/* Tokenises a text: *bytes gets its tokens' bytes in the vocabulary, *plain their
 * texts. */
static quire_err spell(const tokenizer *t, const grammar_vocab *v, str text, strbuf *bytes, strbuf *plain,
                       quire_error *err) {
    token_list ids = {0};
    quire_err e = tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE}, &ids, err);
    for (size_t i = 0; i < ids.n && e == QUIRE_OK; i++) {
        str part = ids.ids[i] < grammar_vocab_size(v) ? grammar_vocab_text(v, ids.ids[i]) : (str){"", 0};
        bool is_mark = part.n > 0 && tokenizer_is_added(t, ids.ids[i]);
        TRY_DONE(e, strbuf_add(bytes, part.p, part.n));
        part = is_mark ? tokenizer_piece(t, ids.ids[i]) : part;
        TRY_DONE(e, strbuf_add(plain, part.p, part.n));
    }
done:
    token_list_deinit(&ids);
    return e;
}

/* Makes the patterns of a mark's spellings; one that the vocabulary cannot write stays
 * empty. White space at the ends, which the tokenizer may add, is ignored. */
static quire_err thinking_budget_fill(text_pattern *to, const str *texts, int n, const tokenizer *t,
                                      const grammar_vocab *v, quire_error *err) {
    quire_err e = QUIRE_OK;
    for (int i = 0; i < n && e == QUIRE_OK; i++) {
        strbuf bytes = {0}, plain = {0};
        e = spell(t, v, texts[i], &bytes, &plain, err);
        str spelt = thinking_budget_trimmed((str){bytes.p, bytes.n});
        if (e == QUIRE_OK && spelt.n <= MAX_SPELT &&
            str_eq(thinking_budget_trimmed((str){plain.p, plain.n}), thinking_budget_trimmed(texts[i]))) {
            e = text_pattern_init(&to[i], spelt);
        }
        strbuf_deinit(&bytes);
        strbuf_deinit(&plain);
    }
    return e;
}

/* Tokenises the closing mark, and checks that its tokens are recognised as the mark. */
static quire_err fill_forced(thinking_budget *b, str text, const tokenizer *t, quire_error *err) {
    token_list ids = {0};
    quire_err e = tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE}, &ids, err);
    bool ends = false, has_rows = true; /* has_rows: each token has a logit */
    uint16_t at = 0;
    for (size_t i = 0; e == QUIRE_OK && has_rows && i < ids.n && i < MAX_FORCED; i++) {
        has_rows = ids.ids[i] < grammar_vocab_size(b->vocab);
        str part = has_rows ? grammar_vocab_text(b->vocab, ids.ids[i]) : (str){0};
        b->forced[b->n_forced++] = ids.ids[i];
        for (size_t k = 0; k < part.n; k++) {
            ends = thinking_budget_find(&b->close[0], &at, (uint8_t)part.p[k]) || ends;
        }
    }
    if (e == QUIRE_OK && (!ends || !has_rows || ids.n > MAX_FORCED)) {
        e = err_set_param(err, QUIRE_UNSUPPORTED, "thinking_token_budget",
                          "this model's vocabulary cannot spell %.*s, which ends the reasoning", (int)text.n,
                          text.p);
    }
    token_list_deinit(&ids);
    return e;
}

/* Sets the tokens that a spent budget forces: the closing mark, in harmony up to the
 * beginning of the answer. */
static quire_err fill_closing(thinking_budget *b, const reasoning_marks *m, const tokenizer *t,
                              quire_error *err) {
    strbuf text = {0};
    quire_err e = strbuf_add(&text, m->close[0].p, m->close[0].n);
    if (b->reopens) {
        TRY_DONE(e, strbuf_add(&text, m->next.p, m->next.n));
        TRY_DONE(e, strbuf_add(&text, m->before[0].p, m->before[0].n));
    }
    TRY_DONE(e, fill_forced(b, (str){text.p, text.n}, t, err));
done:
    strbuf_deinit(&text);
    return e;
}

static quire_err fill_marks(thinking_budget *b, const answer_format *f, const tokenizer *t,
                            quire_error *err) {
    reasoning_marks m;
    reasoning_format_marks(f, &m);
    b->reopens = f->syntax == REASONING_HARMONY;
    TRY(thinking_budget_fill(b->open, m.open, m.n, t, b->vocab, err));
    TRY(thinking_budget_fill(b->close, m.close, m.n, t, b->vocab, err));
    return fill_closing(b, &m, t, err);
}

static const char *thinking_budget_why(const constraint *c) {
    const constraint *inner = budget_of(c)->inner;
    return inner != NULL ? constraint_why(inner) : NULL;
}

static const constraint_ops ops = {thinking_budget_init,   thinking_budget_mask,  thinking_budget_accept,
                                   thinking_budget_forced, thinking_budget_guess, thinking_budget_is_final,
                                   close_budget,           thinking_budget_why};

const constraint *thinking_budget_inner(const constraint *c) {
    assert(c != NULL);
    return c->ops == &ops ? budget_of(c)->inner : c;
}

const int32_t *thinking_budget_mark(const constraint *c, int32_t *n) {
    *n = budget_of(c)->n_forced;
    return budget_of(c)->forced;
}

quire_err thinking_budget_open(const reasoning_frame *frame, int32_t budget, const tokenizer *t,
                               const marked_vocab *v, constraint *inner, constraint **out, quire_error *err) {
    assert(frame->format != NULL && budget >= 0);
    size_t bytes = INNER_AT + (inner != NULL ? inner->state_bytes : 0);
    thinking_budget *b = bytes <= CONSTRAINT_MAX_STATE_BYTES ? mem_new(1, sizeof *b) : NULL;
    if (b == NULL) {
        constraint_drop(inner);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for thinking_token_budget");
    }
    constraint_init(&b->head, &ops, grammar_vocab_size(v->vocab), bytes);
    b->inner = inner;
    b->vocab = grammar_vocab_share(v->vocab);
    b->budget = budget;
    b->begins_inside = reasoning_begins(frame) ||
                       (frame->format->syntax == REASONING_KEPT && frame->start == OUTPUT_START_REASONING);
    quire_err e = fill_marks(b, frame->format, t, err);
    if (e != QUIRE_OK) {
        constraint_drop(&b->head);
        return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for thinking_token_budget") : e;
    }
    *out = &b->head;
    return QUIRE_OK;
}

/* ---- what keeps a mark from being written ---- */

static bool has_bad_word(const token_seqs *words, const int32_t *mark, int32_t n) {
    for (int32_t i = 0; i < words->n; i++) {
        int32_t length = words->starts[i + 1] - words->starts[i];
        for (int32_t at = 0; at + length <= n; at++) {
            if (memcmp(mark + at, words->tokens + words->starts[i], (size_t)length * sizeof *mark) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool has_all(const int32_t *allowed, int32_t n_allowed, const int32_t *mark, int32_t n) {
    int32_t i = 0;
    while (i < n && end_token_is_one_of(mark[i], allowed, n_allowed)) {
        i++;
    }
    return i == n;
}

/* Whether the answer may end after the mark. If the inner constraint rejects the mark at
 * the start, that is decided only when the mark comes. */
static bool may_end(const constraint *inner, const int32_t *mark, int32_t n) {
    alignas(max_align_t) uint8_t state[CONSTRAINT_MAX_STATE_BYTES];
    if (inner == NULL) {
        return true;
    }
    inner->ops->init(inner, state);
    for (int32_t i = 0; i < n; i++) {
        if (inner->ops->accept(inner, state, mark[i]) != QUIRE_OK) {
            return true;
        }
    }
    return inner->ops->is_final(inner, state);
}

quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d,
                                quire_error *err) {
    int32_t n;
    const int32_t *mark = thinking_budget_mark(c, &n);
    for (int32_t i = 0; i + 1 < n; i++) { /* the last token may end the answer */
        end_kind end = end_token_kind(p, d, mark[i]);
        if (end != END_NONE) {
            return err_set_param(err, QUIRE_BAD_REQUEST,
                                 end == END_EOS ? "thinking_token_budget" : "stop_token_ids",
                                 "token %d ends the answer inside the mark that ends the reasoning at its "
                                 "thinking_token_budget",
                                 (int)mark[i]);
        }
    }
    if (end_token_kind(p, d, mark[n - 1]) != END_NONE && !may_end(thinking_budget_inner(c), mark, n)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "stop_token_ids",
                             "token %d ends the answer together with the reasoning, at its "
                             "thinking_token_budget, before the text that its rule requires",
                             (int)mark[n - 1]);
    }
    if (p->lists != NULL && has_bad_word(&p->lists->bad_words, mark, n)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "bad_words",
            "a bad word is in the mark that ends the reasoning at its thinking_token_budget");
    }
    if (p->lists != NULL && p->lists->has_allowed &&
        !has_all(p->lists->allowed, p->lists->n_allowed, mark, n)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "allowed_token_ids",
            "the mark that ends the reasoning at its thinking_token_budget has a token that is not allowed");
    }
    return QUIRE_OK;
}
