/* One automaton per string (base/text_pattern.h). Its state is the number of bytes to
 * withhold. */
#include "text/stop_matcher.h"

#include <assert.h>

#include "base/text_pattern.h"

typedef struct automaton {
    text_pattern text;
    size_t state;
} automaton;

struct stop_matcher {
    automaton *automata;
    size_t n;
    strbuf held; /* held.p[shown..] is withheld */
    size_t shown;
    bool matched;
};

quire_err stop_matcher_open(const str *stops, size_t n, stop_matcher **out) {
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        if (stops[i].n == 0) {
            return QUIRE_INVALID;
        }
    }
    stop_matcher *s = mem_new(1, sizeof *s);
    TRY(mem_check(s));
    s->automata = mem_new(n, sizeof *s->automata);
    if (s->automata == NULL) {
        stop_matcher_close(s);
        return QUIRE_NO_MEMORY;
    }
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        if (text_pattern_init(&s->automata[i].text, stops[i]) != QUIRE_OK) {
            stop_matcher_close(s);
            return QUIRE_NO_MEMORY;
        }
    }
    *out = s;
    return QUIRE_OK;
}

void stop_matcher_close(stop_matcher *s) {
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        text_pattern_deinit(&s->automata[i].text);
    }
    mem_free(s->automata);
    strbuf_deinit(&s->held);
    mem_free(s);
}

/* Shows withheld text up to `end` (an offset in held). Moves the rest down once it is the
 * smaller part, so that the total work is linear. */
static quire_err show_until(stop_matcher *s, size_t end, strbuf *out) {
    TRY(strbuf_add(out, s->held.p + s->shown, end - s->shown));
    s->shown = end;
    size_t rest = s->held.n - s->shown;
    if (s->shown > rest) {
        memmove(s->held.p, s->held.p + s->shown, rest);
        s->held.n = rest;
        s->shown = 0;
    }
    return QUIRE_OK;
}

/* Feeds a byte to every automaton. Returns the longest string that it completes; -1:
 * none. */
static int32_t step_all(stop_matcher *s, char c) {
    int32_t best = -1;
    for (size_t i = 0; i < s->n; i++) {
        automaton *a = &s->automata[i];
        a->state = text_pattern_step(&a->text, a->state, c);
        if (a->state == a->text.n && (best < 0 || a->text.n > s->automata[best].text.n)) {
            best = (int32_t)i;
        }
    }
    return best;
}

/* Length of the longest suffix of the text that begins a stop string. */
static size_t longest_begun(const stop_matcher *s) {
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        longest = s->automata[i].state > longest ? s->automata[i].state : longest;
    }
    return longest;
}

quire_err stop_matcher_feed(stop_matcher *s, str piece, bool include, strbuf *out, int32_t *match) {
    assert(s != NULL);
    *match = -1;
    if (s->matched || piece.n == 0) {
        return QUIRE_OK;
    }
    if (s->n == 0) {
        return strbuf_add(out, piece.p, piece.n);
    }
    size_t base = s->held.n;
    TRY(strbuf_add(&s->held, piece.p, piece.n));
    for (size_t i = 0; i < piece.n; i++) {
        int32_t found = step_all(s, piece.p[i]);
        if (found >= 0) {
            size_t end = base + i + 1;
            s->matched = true;
            *match = found;
            return show_until(s, include ? end : end - s->automata[found].text.n, out);
        }
    }
    return show_until(s, s->held.n - longest_begun(s), out);
}

quire_err stop_matcher_pass(stop_matcher *s, str piece, strbuf *out) {
    assert(s != NULL);
    if (s->matched || piece.n == 0) {
        return QUIRE_OK;
    }
    TRY(strbuf_add(&s->held, piece.p, piece.n));
    for (size_t i = 0; i < piece.n; i++) {
        (void)step_all(s, piece.p[i]);
    }
    for (size_t i = 0; i < s->n; i++) {
        automaton *a = &s->automata[i];
        a->state = a->state == a->text.n ? a->text.border[a->text.n - 1] : a->state;
    }
    return show_until(s, s->held.n - longest_begun(s), out);
}

quire_err stop_matcher_flush(stop_matcher *s, strbuf *out) {
    return s->matched || s->held.n == 0 ? QUIRE_OK : show_until(s, s->held.n, out);
}

quire_err stop_matcher_restart(stop_matcher *s, strbuf *out) {
    TRY(stop_matcher_flush(s, out));
    s->held.n = s->shown = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->automata[i].state = 0;
    }
    return QUIRE_OK;
}
