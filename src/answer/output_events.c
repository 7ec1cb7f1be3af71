#include "answer/output_events.h"

#include <assert.h>

#include "base/mem.h"

void output_events_clear(output_events *e) {
    assert(e != NULL);
    e->n = 0;
    strbuf_clear(&e->text);
}

void output_events_deinit(output_events *e) {
    mem_free(e->items);
    strbuf_deinit(&e->text);
    *e = (output_events){0};
}

quire_err output_events_add(output_events *e, output_kind kind, int32_t call, str text, str id) {
    assert(e != NULL);
    output_event *last = e->n > 0 ? &e->items[e->n - 1] : NULL;
    bool joins = last != NULL && last->kind == kind && kind != OUTPUT_CALL_BEGIN && kind != OUTPUT_CALL_END;
    if (!joins) {
        TRY(mem_grow(&e->items, &e->cap, e->n + 1, sizeof *e->items));
    }
    output_event made = {
        .kind = kind, .call = call, .text = e->text.n, .n = text.n, .id = e->text.n + text.n, .n_id = id.n};
    TRY(strbuf_reserve(&e->text, text.n + id.n));
    TRY(strbuf_add(&e->text, text.p, text.n));
    TRY(strbuf_add(&e->text, id.p, id.n));
    if (joins) {
        e->items[e->n - 1].n += text.n;
    } else {
        e->items[e->n++] = made;
    }
    return QUIRE_OK;
}

/* ---- how many calls an answer has ---- */

void call_limit_deinit(call_limit *l) {
    assert(l != NULL);
    for (size_t i = 0; i < l->n_earlier; i++) {
        strbuf_deinit(&l->earlier[i]);
    }
    mem_free(l->earlier);
    strbuf_deinit(&l->now);
    output_events_deinit(&l->held);
    output_events_deinit(&l->passed);
    *l = (call_limit){.most = l->most, .is_distinct = l->is_distinct};
}

static str call_limit_read_text(const strbuf *b) {
    return (str){b->n > 0 ? b->p : "", b->n};
}

static quire_err add_all(output_events *to, const output_events *from) {
    for (size_t i = 0; i < from->n; i++) {
        const output_event *e = &from->items[i];
        TRY(output_events_add(to, e->kind, e->call, output_event_text(from, i),
                              (str){from->text.p + e->id, e->n_id}));
    }
    return QUIRE_OK;
}

/* Adds a piece of the arguments to l->now, without white space outside strings. */
static quire_err add_arguments(call_limit *l, str piece) {
    for (size_t i = 0; i < piece.n; i++) {
        char c = piece.p[i];
        bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r', begins = !l->in_string && c == '"';
        if (!is_space || l->in_string) {
            TRY(strbuf_add_char(&l->now, c));
        }
        l->in_string = begins || (l->in_string && (c != '"' || l->is_escaped));
        l->is_escaped = l->in_string && !begins && c == '\\' && !l->is_escaped;
    }
    return QUIRE_OK;
}

/* Whether an earlier call begins with the text in l->now. *is_same: one equals it. */
static bool is_like_earlier(const call_limit *l, bool *is_same) {
    bool is_like = false;
    *is_same = false;
    for (size_t i = 0; i < l->n_earlier; i++) {
        str one = call_limit_read_text(&l->earlier[i]);
        is_like = is_like || (one.n >= l->now.n && memcmp(one.p, l->now.p, l->now.n) == 0);
        *is_same = *is_same || str_eq(one, call_limit_read_text(&l->now));
    }
    return is_like;
}

static quire_err begin_call(call_limit *l, str name) {
    l->is_over = l->most > 0 && l->n == l->most;
    l->n += !l->is_over;
    l->in_string = l->is_escaped = false;
    strbuf_clear(&l->now);
    TRY(strbuf_add(&l->now, name.p, name.n));
    return strbuf_add_char(&l->now, '\n');
}

/* Adds a call that has ended to the earlier ones. */
static quire_err keep_call(call_limit *l) {
    TRY(mem_grow(&l->earlier, &l->cap_earlier, l->n_earlier + 1, sizeof *l->earlier));
    l->earlier[l->n_earlier++] = l->now;
    l->now = (strbuf){0};
    return QUIRE_OK;
}

/* Passes on the held events and this one; while is_held, holds it too. */
static quire_err hand_out(call_limit *l, const output_event *e, str text, str id) {
    if (l->is_held) {
        return output_events_add(&l->held, e->kind, e->call, text, id);
    }
    TRY(add_all(&l->passed, &l->held));
    output_events_clear(&l->held);
    return output_events_add(&l->passed, e->kind, e->call, text, id);
}

static quire_err pass_one(call_limit *l, const output_events *found, size_t i) {
    const output_event *e = &found->items[i];
    str text = output_event_text(found, i), id = {found->text.p + e->id, e->n_id};
    bool is_same = false, ends = e->kind == OUTPUT_CALL_END;
    TRY(e->kind == OUTPUT_CALL_BEGIN  ? begin_call(l, text)
        : e->kind == OUTPUT_ARGUMENTS ? add_arguments(l, text)
                                      : QUIRE_OK);
    bool is_like = l->is_distinct && e->kind >= OUTPUT_CALL_BEGIN && is_like_earlier(l, &is_same);
    l->is_over = l->is_over || (ends && is_like && is_same);
    if (l->is_over) { /* this call is not part of the answer */
        l->n -= e->kind != OUTPUT_CALL_BEGIN;
        l->is_held = false;
        output_events_clear(&l->held);
        return QUIRE_OK;
    }
    l->is_held = is_like && !ends;
    TRY(hand_out(l, e, text, id));
    return ends ? keep_call(l) : QUIRE_OK;
}

quire_err call_limit_pass(call_limit *l, output_events *found) {
    assert(found != NULL);
    output_events_clear(&l->passed);
    for (size_t i = 0; i < found->n && !l->is_over; i++) {
        TRY(pass_one(l, found, i));
    }
    output_events passed = l->passed;
    l->passed = *found;
    *found = passed;
    return QUIRE_OK;
}

quire_err call_limit_flush(call_limit *l, output_events *found) {
    assert(l != NULL);
    l->is_held = false;
    TRY(add_all(found, &l->held));
    output_events_clear(&l->held);
    return QUIRE_OK;
}
