/* Sampling stages that change single logits, by the request's lists and the history. */
#include <math.h>
#include <string.h>

#include "sample/sampler_parts.h"

static void allow_only(sampler *s, float *logits, const sampling_lists *l) {
    sampler_unmark(s);
    for (int32_t i = 0; i < l->n_allowed; i++) {
        sampler_mark(s, l->allowed[i]);
    }
    for (int32_t id = 0; id < s->n_vocab; id++) {
        if (s->marks[id] != s->mark) {
            logits[id] = -INFINITY;
        }
    }
}

/* Whether the n tokens before the end of tokens[0..n_tokens) are these. */
static bool ends_with(const int32_t *tokens, int32_t n_tokens, const int32_t *these, int32_t n) {
    return n <= n_tokens && (n == 0 || memcmp(tokens + n_tokens - n, these, (size_t)n * sizeof *these) == 0);
}

static void ban_words(float *logits, const sample_context *c) {
    const token_seqs *words = &c->params->lists->bad_words;
    for (int32_t i = 0; i < words->n; i++) {
        const int32_t *word = words->tokens + words->starts[i];
        int32_t before = words->starts[i + 1] - words->starts[i] - 1;
        if (ends_with(c->tokens, c->n_tokens, word, before)) {
            logits[word[before]] = -INFINITY;
        }
    }
}

static void keep_going(float *logits, const sample_context *c) {
    for (int32_t i = 0; i < c->n_eos; i++) {
        logits[c->eos[i]] = -INFINITY;
    }
    for (int32_t i = 0; i < c->params->n_stop_tokens; i++) {
        logits[c->params->stop_tokens[i]] = -INFINITY;
    }
}

/* how far a penalty moves a logit: it stays finite, so that what is allowed may still
 * come */
#define CHANGED_MAX 1e30f

/* The first token that penalties count; usual: where the request does not say how
 * many. */
static int32_t first_counted(const sample_context *c, int32_t usual) {
    int32_t n = c->params->penalty_last_n;
    return n == SAMPLING_PENALTIES_USUAL ? usual : n < 0 || n > c->n_tokens ? 0 : c->n_tokens - n;
}

static void penalise_seen(sampler *s, float *logits, const sample_context *c) {
    float r = c->params->repetition_penalty;
    sampler_unmark(s);
    for (int32_t i = first_counted(c, 0); i < c->n_tokens; i++) {
        float *l = &logits[c->tokens[i]];
        if (sampler_mark(s, c->tokens[i])) {
            *l = *l > 0.0f ? fminf(*l / r, CHANGED_MAX) : *l > -INFINITY ? fmaxf(*l * r, -CHANGED_MAX) : *l;
        }
    }
}

static void penalise_output(sampler *s, float *logits, const sample_context *c) {
    int32_t first = first_counted(c, c->n_prompt);
    sampler_unmark(s);
    for (int32_t i = first; i < c->n_tokens; i++) {
        int32_t id = c->tokens[i];
        s->counts[id] = sampler_mark(s, id) ? 1 : s->counts[id] + 1;
    }
    for (int32_t i = first; i < c->n_tokens; i++) {
        int32_t id = c->tokens[i];
        if (s->counts[id] > 0) {
            logits[id] -= c->params->frequency_penalty * (float)s->counts[id];
            logits[id] -= c->params->presence_penalty;
            s->counts[id] = 0; /* done */
        }
    }
}

/* ---- DRY: penalises tokens that would prolong a repeat ---- */

/* Marks what breakers begin with, and counts 1 for those that are one token. How many
 * breakers there are up to the last of several tokens: requests have these first. */
static int32_t mark_breakers(sampler *s, const token_seqs *breakers) {
    int32_t n_long = 0;
    sampler_unmark(s);
    for (int32_t i = 0; i < breakers->n; i++) {
        int32_t first = breakers->tokens[breakers->starts[i]];
        bool is_new = sampler_mark(s, first), is_one = breakers->starts[i + 1] - breakers->starts[i] == 1;
        s->counts[first] = is_one || (!is_new && s->counts[first] != 0);
        n_long = is_one ? n_long : i + 1;
    }
    return n_long;
}

/* How many tokens of the window come after the newest whole breaker; n when there is
 * none. */
static int32_t since_breaker(sampler *s, const int32_t *window, int32_t n, const token_seqs *breakers) {
    int32_t n_long = mark_breakers(s, breakers);
    for (int32_t distance = 0; distance < n; distance++) {
        int32_t at = n - 1 - distance;
        if (s->marks[window[at]] != s->mark) {
            continue;
        }
        int32_t longest = s->counts[window[at]] != 0 ? 0 : -1;
        for (int32_t i = 0; i < n_long; i++) {
            const int32_t *b = breakers->tokens + breakers->starts[i];
            int32_t tail = breakers->starts[i + 1] - breakers->starts[i] - 1;
            if (tail > longest && tail <= distance &&
                memcmp(window + at, b, ((size_t)tail + 1) * sizeof *b) == 0) {
                longest = tail;
            }
        }
        if (longest >= 0) {
            return distance - longest;
        }
    }
    return n;
}

/* repeats[k], 1 <= k < n: length of the longest common suffix of window[0..n) and
 * window[0..n - k) (the Z function, Gusfield 1997, read from the end). */
static void measure_repeats(const int32_t *window, int32_t n, int32_t *repeats) {
    int32_t left = 0, right = 0; /* the match that reaches furthest: [left, right) */
    for (int32_t k = 1; k < n; k++) {
        int32_t m = 0;
        if (k < right) {
            m = repeats[k - left] < right - k ? repeats[k - left] : right - k;
        }
        while (k + m < n && window[n - 1 - m] == window[n - 1 - k - m]) {
            m++;
        }
        repeats[k] = m;
        if (k + m > right) {
            left = k;
            right = k + m;
        }
    }
}

/* Bans what followed an earlier copy of the last n - 1 tokens. */
static void ban_repeats(sampler *s, float *logits, const sample_context *c) {
    int32_t before = c->params->no_repeat_ngram_size - 1, n = c->n_tokens;
    if (before >= n) {
        return;
    }
    measure_repeats(c->tokens, n, s->repeats);
    s->repeats[n] = 0;
    for (int32_t k = 1; k <= n - before; k++) {
        if (s->repeats[k] >= before) {
            logits[c->tokens[n - k]] = -INFINITY;
        }
    }
}

static void penalise_repeats(sampler *s, float *logits, const sample_context *c) {
    static const token_seqs none = {0};
    const sampling_params *p = c->params;
    const token_seqs *breakers = p->lists != NULL ? &p->lists->dry_breakers : &none;
    int32_t n = p->dry_penalty_last_n >= 0 && p->dry_penalty_last_n < c->n_tokens ? p->dry_penalty_last_n
                                                                                  : c->n_tokens;
    const int32_t *window = c->tokens + c->n_tokens - n;
    if (p->dry_base < 1.0f || n <= p->dry_allowed_length) {
        return;
    }
    int32_t limit = since_breaker(s, window, n, breakers);
    if (limit < p->dry_allowed_length) {
        return;
    }
    measure_repeats(window, n, s->repeats);
    sampler_unmark(s);
    for (int32_t k = 1; k < n; k++) {
        int32_t length = s->repeats[k] < limit ? s->repeats[k] : limit, next = window[n - k];
        if (length >= p->dry_allowed_length && (sampler_mark(s, next) || length > s->counts[next])) {
            s->counts[next] = length;
        }
    }
    for (int32_t i = 0; i < breakers->n; i++) { /* breakers of one token take no search */
        if (breakers->starts[i + 1] - breakers->starts[i] == 1) {
            s->counts[breakers->tokens[breakers->starts[i]]] = -1;
        }
    }
    /* exp(88.72) is the largest float */
    double most = p->dry_base > 1.0f ? 88.7228391 / log((double)p->dry_base) : (double)n;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = window[i];
        if (s->marks[id] == s->mark && s->counts[id] >= 0) {
            double exponent = (double)(s->counts[id] - p->dry_allowed_length);
            double penalty =
                (double)p->dry_multiplier * pow((double)p->dry_base, exponent < most ? exponent : most);
            logits[id] -= (float)fmin(penalty, (double)CHANGED_MAX);
            s->counts[id] = -1; /* done */
        }
    }
}

bool sampler_may_change(const sampling_params *p, int32_t n_output) {
    return p->lists != NULL || p->no_repeat_ngram_size > 0 || n_output < p->min_tokens ||
           p->repetition_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f ||
           p->dry_multiplier != 0.0f;
}

bool sampler_change(sampler *s, float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    if (!sampler_may_change(p, c->n_tokens - c->n_prompt)) {
        return false;
    }
    if (p->lists != NULL && p->lists->has_allowed) {
        allow_only(s, logits, p->lists);
    }
    if (p->lists != NULL) {
        ban_words(logits, c);
    }
    if (p->no_repeat_ngram_size > 0 && c->n_tokens >= p->no_repeat_ngram_size - 1) {
        ban_repeats(s, logits, c);
    }
    if (c->n_tokens - c->n_prompt < p->min_tokens && (c->constraint == NULL || s->goes_on)) {
        keep_going(logits, c);
    }
    for (int32_t i = 0; p->lists != NULL && i < p->lists->n_bias; i++) {
        logits[p->lists->bias_ids[i]] += p->lists->bias[i];
    }
    if (p->repetition_penalty != 1.0f) {
        penalise_seen(s, logits, c);
    }
    if (p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f) {
        penalise_output(s, logits, c);
    }
    if (p->dry_multiplier != 0.0f && c->n_tokens > 0) {
        penalise_repeats(s, logits, c);
    }
    return true;
}
