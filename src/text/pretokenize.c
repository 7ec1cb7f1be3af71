#include "text/pretokenize.h"

#include <assert.h>

#include "base/mem.h"
#include "base/turn.h"
#include "base/utf8.h"
#include "text/chars.h"

void pretokenizer_deinit(pretokenizer *p) {
    assert(p != NULL);
    for (int32_t i = 0; i < p->n; i++) {
        matcher_deinit(&p->steps[i].match);
    }
    *p = (pretokenizer){0};
}

bool pretokenizer_deletes(const pretokenizer *p) {
    assert(p != NULL);
    for (int32_t i = 0; i < p->n; i++) {
        bool splits = p->steps[i].kind == PRE_SPLIT || p->steps[i].kind == PRE_CHARS;
        if (p->steps[i].kind == PRE_SCRIPTS || (splits && p->steps[i].behavior == SPLIT_REMOVED)) {
            return true;
        }
    }
    return false;
}

bool pretokenizer_asks_front(const pretokenizer *p) {
    assert(p != NULL);
    for (int32_t i = 0; i < p->n; i++) {
        if (p->steps[i].kind == PRE_METASPACE && p->steps[i].prepend == PREPEND_FIRST) {
            return true;
        }
    }
    return false;
}

void pre_scratch_deinit(pre_scratch *s) {
    mem_free(s->a.pieces);
    mem_free(s->b.pieces);
    strbuf_deinit(&s->texts[0]);
    strbuf_deinit(&s->texts[1]);
    strbuf_deinit(&s->spaced);
    mem_free(s->cuts);
    *s = (pre_scratch){0};
}

/* Appends a piece unless it is empty. */
static quire_err pretokenize_list_add(piece_list *l, size_t at, size_t n) {
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&l->pieces, &l->cap, l->n + 1, sizeof *l->pieces));
    l->pieces[l->n++] = (text_span){at, n};
    return QUIRE_OK;
}

static quire_err add_cut(pre_scratch *s, size_t start, size_t end, bool match) {
    if (s->max_cuts > 0 && s->n_cuts >= s->max_cuts) {
        return QUIRE_NO_ROOM;
    }
    TRY(mem_grow(&s->cuts, &s->cap_cuts, s->n_cuts + 1, sizeof *s->cuts));
    s->cuts[s->n_cuts++] = (struct cut){start, end, match};
    return QUIRE_OK;
}

/* Cuts text into matches and the text between them (s->cuts). */
static quire_err cut_by_matches(const matcher *m, str text, pre_scratch *s, regex_scratch *rs) {
    match_iter it = {.subject = text};
    size_t done = 0;
    bool found;
    for (;;) {
        TRY(matcher_next(m, rs, &it, &found));
        size_t upto = found ? it.start : text.n;
        if (done < upto) {
            TRY(add_cut(s, done, upto, false));
        }
        if (!found) {
            return QUIRE_OK;
        }
        TRY(add_cut(s, it.start, it.end, true));
        done = it.end;
    }
}

static bool in_class(const pre_step *step, int32_t c) {
    switch (step->class) {
    case CLASS_SPACE:
        return char_is_space(c);
    case CLASS_NUMERIC:
        return char_is_numeric(c);
    case CLASS_PUNCTUATION:
        return char_is_punctuation(c);
    default:
        return c == step->delimiter;
    }
}

static quire_err cut_by_chars(const pre_step *step, str text, pre_scratch *s) {
    size_t done = 0, len;
    for (size_t i = 0; i < text.n; i += len) {
        TRY(turn_poll(1));
        if (in_class(step, utf8_next(text.p + i, &len))) {
            if (done < i) {
                TRY(add_cut(s, done, i, false));
            }
            done = i + len;
            TRY(add_cut(s, i, done, true));
        }
    }
    return done < text.n ? add_cut(s, done, text.n, false) : QUIRE_OK;
}

/* Joins adjacent cuts by the behaviour; keeps their order. */
static void merge_cuts(pre_scratch *s, split_behavior behavior) {
    struct cut *c = s->cuts;
    size_t n = 0;
    if (behavior == SPLIT_MERGED_WITH_NEXT) {
        bool before = false; /* the next cut to the right is a match */
        n = s->n_cuts;
        for (size_t i = s->n_cuts; i-- > 0;) {
            bool match = c[i].match;
            if (match && !before && n < s->n_cuts) {
                c[n].start = c[i].start;
            } else {
                c[--n] = c[i];
            }
            before = match;
        }
        memmove(c, c + n, (s->n_cuts - n) * sizeof *c);
        s->n_cuts -= n;
        return;
    }
    bool before = false;
    for (size_t i = 0; i < s->n_cuts; i++) {
        bool match = c[i].match;
        bool join = behavior == SPLIT_CONTIGUOUS ? match == before : match && !before;
        if (join && n > 0) {
            c[n - 1].end = c[i].end;
        } else {
            c[n++] = c[i];
        }
        before = match;
    }
    s->n_cuts = n;
}

/* Appends s->cuts as pieces; `offset` is where the cut text begins in out's text. */
static quire_err keep_cuts(pre_scratch *s, split_behavior behavior, bool invert, size_t offset,
                           piece_list *out) {
    for (size_t i = 0; invert && i < s->n_cuts; i++) {
        s->cuts[i].match = !s->cuts[i].match;
    }
    if (behavior != SPLIT_REMOVED && behavior != SPLIT_ISOLATED) {
        merge_cuts(s, behavior);
    }
    for (size_t i = 0; i < s->n_cuts; i++) {
        if (i % 16 == 0) {
            TRY(turn_poll(1));
        }
        if (behavior != SPLIT_REMOVED || !s->cuts[i].match) {
            TRY(pretokenize_list_add(out, offset + s->cuts[i].start, s->cuts[i].end - s->cuts[i].start));
        }
    }
    return QUIRE_OK;
}

static quire_err cut_fixed(const pre_step *step, str text, size_t offset, piece_list *out) {
    size_t start = 0, len;
    int32_t n = 0;
    for (size_t i = 0; i < text.n; i += len) {
        (void)utf8_next(text.p + i, &len);
        if (i % 16 == 0) {
            TRY(turn_poll(1));
        }
        if (++n == step->length) {
            TRY(pretokenize_list_add(out, offset + start, i + len - start));
            start = i + len;
            n = 0;
        }
    }
    return pretokenize_list_add(out, offset + start, text.n - start);
}

static quire_err cut_scripts(str text, size_t offset, piece_list *out) {
    size_t start = text.n, len;
    int32_t last = 0;
    for (size_t i = 0; i < text.n; i += len) {
        TRY(turn_poll(1));
        int32_t script = char_script(utf8_next(text.p + i, &len));
        if (script != 0 && script != last) {
            if (start < i) {
                TRY(pretokenize_list_add(out, offset + start, i - start));
            }
            start = i;
            last = script;
        }
    }
    return pretokenize_list_add(out, offset + start, text.n - start);
}

/* Counts the first n_chars characters written from `start` on as those that stand for the
 * input's first character. */
static void note_front(pre_scratch *s, const strbuf *own, size_t start, size_t n_chars) {
    size_t len;
    for (s->front = start; n_chars > 0 && s->front < own->n; n_chars--) {
        (void)utf8_next(own->p + s->front, &len);
        s->front += len;
    }
}

/* Appends the text in *own from `start` on as pieces, cut before every mark; an empty
 * mark does not cut. */
static quire_err cut_before(str mark, const strbuf *own, size_t start, piece_list *out) {
    for (size_t i = start; mark.n > 0 && own->n - i >= mark.n;) {
        const char *at = memchr(own->p + i, mark.p[0], own->n - i - mark.n + 1);
        if (at == NULL) {
            break;
        }
        i = (size_t)(at - own->p);
        TRY(turn_poll(1));
        bool cut = memcmp(at, mark.p, mark.n) == 0;
        if (cut) {
            TRY(pretokenize_list_add(out, start, i - start));
            start = i;
        }
        i += cut ? mark.n : 1;
    }
    return pretokenize_list_add(out, start, own->n - start);
}

/* Appends text to *own with metaspace marks for spaces, cut before every mark. */
static quire_err metaspace_piece(const pre_step *step, str text, size_t front, bool continues, pre_scratch *s,
                                 strbuf *own, piece_list *out) {
    char mark[4];
    size_t n_mark = utf8_encode(step->delimiter, mark), start = own->n;
    bool marked = text.p[0] == ' ' || (text.n >= n_mark && memcmp(text.p, mark, n_mark) == 0);
    bool prepends = !marked && !continues &&
                    (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && front > 0));
    if (prepends) {
        TRY(strbuf_add(own, mark, n_mark));
    }
    for (size_t i = 0; i < text.n;) {
        const char *space = memchr(text.p + i, ' ', text.n - i);
        size_t upto = space != NULL ? (size_t)(space - text.p) : text.n;
        TRY(strbuf_add(own, text.p + i, upto - i));
        TRY(turn_poll((uint32_t)((upto - i) / 16 + 1)));
        if (space != NULL) {
            TRY(strbuf_add(own, mark, n_mark));
        }
        i = upto + (space != NULL);
    }
    if (front > 0) {
        note_front(s, own, start, utf8_count((str){text.p, front}) + prepends);
    }
    return cut_before(step->split ? (str){mark, n_mark} : (str){mark, 0}, own, start, out);
}

/* Appends text to *own in the byte-level alphabet, and its pieces to out. */
static quire_err byte_level_piece(const pre_step *step, str text, size_t front, bool continues,
                                  pre_scratch *s, regex_scratch *rs, strbuf *own, piece_list *out) {
    size_t before = own->n;
    bool prepends = step->prepend == PREPEND_ALWAYS && text.p[0] != ' ' && !continues;
    if (prepends) {
        strbuf_clear(&s->spaced);
        TRY(strbuf_add_char(&s->spaced, ' '));
        TRY(strbuf_add(&s->spaced, text.p, text.n));
        text = (str){s->spaced.p, s->spaced.n};
    }
    TRY(step->split ? cut_by_matches(&step->match, text, s, rs) : add_cut(s, 0, text.n, true));
    for (size_t i = 0; i < s->n_cuts; i++) {
        size_t start = own->n;
        TRY(byte_level_add(own, (str){text.p + s->cuts[i].start, s->cuts[i].end - s->cuts[i].start}));
        TRY(pretokenize_list_add(out, start, own->n - start));
    }
    if (front > 0) {
        note_front(s, own, before, front + prepends);
    }
    return QUIRE_OK;
}

static quire_err run_piece(const pre_step *step, const piece_list *in, size_t i, pre_scratch *s,
                           regex_scratch *rs, strbuf *own, piece_list *out) {
    size_t at = in->pieces[i].at, front = in->front > at ? in->front - at : 0;
    str text = {in->text.p + at, in->pieces[i].n};
    front = front < text.n ? front : text.n;
    bool continues = s->continues && i == 0;
    /* each cut becomes a piece */
    bool each = step->kind == PRE_BYTE_LEVEL || step->behavior == SPLIT_ISOLATED;
    s->n_cuts = 0;
    s->max_cuts = each ? s->max_pieces : 0;
    switch (step->kind) {
    case PRE_SPLIT:
        TRY(cut_by_matches(&step->match, text, s, rs));
        return keep_cuts(s, step->behavior, step->invert, at, out);
    case PRE_CHARS:
        TRY(cut_by_chars(step, text, s));
        return keep_cuts(s, step->behavior, false, at, out);
    case PRE_FIXED:
        return cut_fixed(step, text, at, out);
    case PRE_SCRIPTS:
        return cut_scripts(text, at, out);
    case PRE_METASPACE:
        return metaspace_piece(step, text, front, continues, s, own, out);
    default:
        return byte_level_piece(step, text, front, continues, s, rs, own, out);
    }
}

static quire_err pretokenize_run_step(const pre_step *step, const piece_list *in, pre_scratch *s,
                                      regex_scratch *rs, strbuf *own, piece_list *out) {
    out->n = 0;
    s->front = 0;
    strbuf_clear(own);
    for (size_t i = 0; i < in->n; i++) {
        TRY(run_piece(step, in, i, s, rs, own, out));
        if (s->max_pieces > 0 && out->n > s->max_pieces) {
            return QUIRE_NO_ROOM;
        }
    }
    bool rewrites = own->n > 0;
    out->text = rewrites ? (str){own->p, own->n} : in->text;
    out->front = rewrites ? s->front : in->front;
    return QUIRE_OK;
}

quire_err pretokenizer_run(const pretokenizer *p, str text, size_t front, pre_scratch *s, regex_scratch *rs,
                           const piece_list **out) {
    piece_list *in = &s->a, *to = &s->b;
    int free_text = 0;
    *in = (piece_list){.text = text, .front = front, .pieces = in->pieces, .cap = in->cap};
    TRY(pretokenize_list_add(in, 0, text.n));
    for (int32_t i = 0; i < p->n; i++) {
        TRY(pretokenize_run_step(&p->steps[i], in, s, rs, &s->texts[free_text], to));
        free_text = s->texts[free_text].n > 0 ? 1 - free_text : free_text;
        piece_list *done = to;
        to = in;
        in = done;
    }
    *out = in;
    return QUIRE_OK;
}
