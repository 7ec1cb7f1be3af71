#include "answer/call_marks.h"

#include "base/turn.h"
#include "core/params.h"
#include "sample/constraint.h"

/* The longest special token that begins here. */
static const grammar_mark *mark_here(const grammar_marks *marks, str text) {
    const grammar_mark *best = NULL;
    for (size_t i = 0; i < marks->n; i++) {
        const grammar_mark *m = &marks->list[i];
        if (m->text.n > (best != NULL ? best->text.n : 0) && m->text.n <= text.n &&
            memcmp(m->text.p, text.p, m->text.n) == 0) {
            best = m;
        }
    }
    return best;
}

bool mark_scan_next(mark_scan *s, const grammar_marks *marks) {
    s->found = NULL;
    while (s->at < s->text.n && s->found == NULL) {
        (void)turn_poll((uint32_t)marks->n); /* others go on meanwhile */
        s->found = mark_here(marks, (str){s->text.p + s->at, s->text.n - s->at});
        s->at += s->found != NULL ? s->found->text.n : 1;
    }
    return s->found != NULL;
}

/* ---- what the request bans ---- */

static bool is_bad_word(const sampling_params *p, int32_t id) {
    const token_seqs *words = p->lists != NULL ? &p->lists->bad_words : NULL;
    for (int32_t i = 0; words != NULL && i < words->n; i++) {
        if (words->starts[i + 1] - words->starts[i] == 1 && words->tokens[words->starts[i]] == id) {
            return true;
        }
    }
    return false;
}

static bool call_marks_is_left_out(const sampling_params *p, int32_t id) {
    const sampling_lists *l = p->lists;
    return l != NULL && l->has_allowed && !end_token_is_one_of(id, l->allowed, l->n_allowed);
}

typedef struct checker {
    const grammar_marks *marks;
    const sampling_params *p;
    const model_desc *d;
    quire_error *err;
} checker;

/* Whether the tokens of a text are free to come. */
static bool can_come(const checker *k, str text) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, k->marks);) {
        if (is_bad_word(k->p, scan.found->id) || call_marks_is_left_out(k->p, scan.found->id)) {
            return false;
        }
    }
    return true;
}

static quire_err call_marks_check_text(const checker *k, str text, bool is_last) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, k->marks);) {
        int32_t id = scan.found->id;
        bool ends = end_token_kind(k->p, k->d, id) == END_STOP_TOKEN && !(is_last && scan.at == scan.text.n);
        const char *field = is_bad_word(k->p, id)              ? "bad_words"
                            : call_marks_is_left_out(k->p, id) ? "allowed_token_ids"
                            : ends                             ? "stop_token_ids"
                                                               : NULL;
        if (field != NULL) {
            return err_set_param(k->err, QUIRE_BAD_REQUEST, field,
                                 "%s: a tool call is written with %.*s, token %d, which %s", field,
                                 (int)scan.found->text.n, scan.found->text.p, (int)id,
                                 is_bad_word(k->p, id) ? "is banned"
                                 : ends                ? "would end the answer inside it"
                                                       : "is left out");
        }
    }
    return QUIRE_OK;
}

static quire_err check_writing(const checker *k, const call_writing *w, bool is_single) {
    const str texts[] = {w->open, w->before, w->name_end, w->tag_before, w->tag_middle, w->tag_behind};
    bool is_tags = w->format->syntax == SYNTAX_TAGS || w->format->syntax == SYNTAX_ELEMENTS;
    for (size_t i = 0; i < (is_tags ? 6 : 3); i++) {
        TRY(call_marks_check_text(k, texts[i], false));
    }
    TRY(call_marks_check_text(k, w->end, w->close.n == 0));
    if (!is_single && w->repeats) {
        TRY(call_marks_check_text(k, w->separator, false));
        TRY(call_marks_check_text(k, w->again, false));
    }
    return call_marks_check_text(k, w->close, true);
}

quire_err call_marks_check(const call_grammar *c, const grammar_marks *marks, const sampling_params *p,
                           const model_desc *d, quire_error *err) {
    const checker k = {marks, p, d, err};
    call_writing w;
    for (size_t i = 0; call_grammar_next(c, &i, &w);) {
        if (c->is_required || can_come(&k, w.open)) {
            TRY(check_writing(&k, &w, c->is_single));
        }
    }
    return QUIRE_OK;
}
