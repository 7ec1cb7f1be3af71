#include "stream/beam_stop_matcher.h"

#include <string.h>

#include "base/mem.h"
#include "text/token_texts.h"

struct beam_stop_matcher {
    const generation *asked;
    const tokenizer *tokenizer;
    const token_texts *texts;
    size_t cap;
    char tail[]; /* [cap] the end of a text */
};

/* The engine's table of token texts, made at first use. */
static quire_err texts_of(stream_engine *e, const token_texts **out) {
    token_texts *have = atomic_load(&e->texts), *made;
    if (have == NULL) {
        TRY(token_texts_open(e->tokenizer, &made));
        if (atomic_compare_exchange_strong(&e->texts, &have, made)) {
            have = made;
        } else {
            token_texts_close(made);
        }
    }
    *out = have;
    return QUIRE_OK;
}

quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out) {
    const token_texts *texts;
    TRY(texts_of(e, &texts));
    size_t longest_stop = 0;
    for (int32_t i = 0; i < g->n_stops; i++) {
        longest_stop = g->stops[i].n > longest_stop ? g->stops[i].n : longest_stop;
    }
    size_t cap = longest_stop + token_texts_longest(texts);
    *out = mem_new(1, sizeof **out + cap);
    TRY(mem_check(*out));
    **out = (beam_stop_matcher){.asked = g, .tokenizer = e->tokenizer, .texts = texts, .cap = cap};
    return QUIRE_OK;
}

void beam_stop_matcher_close(beam_stop_matcher *w) {
    mem_free(w);
}

static str text_of(const beam_stop_matcher *w, int32_t token) {
    bool hidden = w->asked->skip_special && tokenizer_is_special(w->tokenizer, token);
    return hidden ? (str){"", 0} : token_texts_of(w->texts, token);
}

/* Writes the end of the text to the buffer's end; returns its length. */
static size_t write_tail(beam_stop_matcher *w, const int32_t *tokens, int32_t from, int32_t n) {
    size_t length = 0;
    for (int32_t i = n - 1; i >= from && length < w->cap; i--) {
        str text = text_of(w, tokens[i]);
        size_t part = text.n < w->cap - length ? text.n : w->cap - length;
        length += part;
        memcpy(w->tail + w->cap - length, text.p + text.n - part, part);
    }
    return length;
}

/* Whether a stop string ends in the last n_last bytes of the tail. */
static bool ends_in(const beam_stop_matcher *w, str stop, size_t length, size_t n_last) {
    const char *end = w->tail + w->cap;
    for (size_t behind = 0; behind < n_last && behind + stop.n <= length; behind++) {
        if (memcmp(end - behind - stop.n, stop.p, stop.n) == 0) {
            return true;
        }
    }
    return false;
}

bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n) {
    beam_stop_matcher *w = watch;
    size_t n_last = text_of(w, tokens[n - 1]).n, length = n_last > 0 ? write_tail(w, tokens, n_prompt, n) : 0;
    bool is_over = false;
    for (int32_t i = 0; i < w->asked->n_stops && !is_over; i++) {
        is_over = ends_in(w, w->asked->stops[i], length, n_last);
    }
    return is_over;
}
