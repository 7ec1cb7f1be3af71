/* Has the texts and turns of states tokenised by the engine's text threads. */
#include "base/mem.h"

#include "execute/engine_call.h"
#include <assert.h>

/* ---- text to tokens ---- */

/* Makes a request from a JSON body that is tokenised as the continuation of ids; frees
 * the body's memory. chat: further fields of a chat, or NULL. */
static quire_err exec_new_text(const engine_executor *x, quire_endpoint kind, json_out *body,
                               const program_steps *chat, const quire_continuation *from, quire_request **out,
                               quire_error *err) {
    quire_request *r = NULL;
    quire_err e = err_set(err, body->err, -1, "out of memory for a text");
    if (e == QUIRE_OK) {
        e = quire_request_parse(x->e, kind, body->to->p, body->to->n, &r, err);
    }
    strbuf_deinit(body->to);
    TRY(e);
    if (chat != NULL && chat->chat != NULL) {
        TRY_DONE(e, quire_request_set_all(r, chat->chat, chat->n_chat, err));
    }
    TRY_DONE(e, quire_request_continue(r, from, err));
done:
    if (e != QUIRE_OK) {
        quire_request_free(r);
    }
    *out = r;
    return e;
}

quire_err exec_join_text(program_text *to, const program_text *t) {
    assert(to != NULL && t != NULL);
    TRY(mem_grow(&to->plain, &to->cap_plain, 2 * (to->n_plain + t->n_plain), sizeof *to->plain));
    for (size_t i = 0; i < 2 * t->n_plain; i++) {
        to->plain[2 * to->n_plain + i] = to->text.n + t->plain[i];
    }
    to->n_plain += t->n_plain;
    return strbuf_add(&to->text, t->text.p, t->text.n);
}

quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                             quire_error *err) {
    assert(k != NULL);
    const engine_state *es = exec_state_of(k->c->state);
    strbuf body = {0};
    json_out o = {.to = &body};
    json_begin(&o, '{');
    json_text(json_name(&o, "prompt"), t->text.n > 0 ? t->text.p : "", t->text.n);
    json_end(&o, '}');
    const quire_continuation from = {.size = sizeof from,
                                     .ids = n_ids > 0 ? es->ids->ids : NULL,
                                     .n_ids = n_ids,
                                     .plain = t->plain,
                                     .n_plain = t->n_plain};
    quire_request *r;
    TRY(exec_new_text(k->x, QUIRE_TOKENIZE, &o, NULL, &from, &r, err));
    return exec_submit(k, r, index, false, err);
}

quire_err exec_take_texts(engine_call *k, quire_error *err) {
    assert(k != NULL);
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    program_text all = {0};
    const size_t rest[] = {0, es->rest.n};
    const program_text before = {
        .text = es->rest, .plain = (size_t *)rest, .n_plain = es->rest.n > 0 ? 1 : 0};
    quire_err e = exec_join_text(&all, &before);
    for (k->upto = es->n_taken; e == QUIRE_OK && k->upto < s->n_parts && s->parts[k->upto].kind == PART_TEXT;
         k->upto++) {
        e = exec_join_text(&all, s->parts[k->upto].text);
    }
    e = e == QUIRE_OK ? exec_begin_stage(k, ENGINE_TEXT, 1, err)
                      : err_set(err, e, -1, "out of memory for a text");
    TRY_DONE(e, exec_submit_joined(k, &all, exec_n_ids(es), 0, err));
done:
    strbuf_deinit(&all.text);
    mem_free(all.plain);
    return e;
}

/* ---- turns ---- */

/* Finds the parts of the turn that begins at `from`. *end: one past them. */
static size_t exec_turn_end(const quire_state *s, size_t from) {
    size_t end = from + 1;
    while (end < s->n_parts && s->parts[end].kind != PART_TURN) {
        end++;
    }
    return end;
}

/* Writes a message's content: its turn's texts and values, the mark, or both. */
typedef enum exec_content { CONTENT_TEXT = 1, CONTENT_MARK = 2, CONTENT_BOTH = 3 } exec_content;

static quire_err exec_write_message(const engine_call *k, size_t from, exec_content has, json_out *o,
                                    quire_error *err) {
    const quire_state *s = k->c->state;
    strbuf content = {0};
    quire_err e = QUIRE_OK;
    const size_t end = exec_turn_end(s, from);
    for (size_t i = from + 1; has != CONTENT_MARK && e == QUIRE_OK && i < end; i++) {
        const program_part *p = &s->parts[i];
        const strbuf *text = p->text != NULL ? &p->text->text : p->value != NULL ? &p->value->text : NULL;
        e = text != NULL ? strbuf_add(&content, text->p, text->n)
            : p->kind != PART_TOKENS
                ? QUIRE_OK
                : err_set(err, QUIRE_UNSUPPORTED, -1,
                          "a turn cannot have token ids, since the chat template writes it; give its text");
    }
    if (e == QUIRE_OK && has != CONTENT_TEXT) {
        e = strbuf_add_str(&content, k->x->mark);
    }
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), s->parts[from].role);
    json_text(json_name(o, "content"), content.n > 0 ? content.p : "", content.n);
    json_end(o, '}');
    strbuf_deinit(&content);
    return e;
}

quire_err exec_take_turns(engine_call *k, quire_error *err) {
    assert(k != NULL);
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    size_t begun = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i < s->n_parts; i++) {
        bool is_turn = s->parts[i].kind == PART_TURN;
        begun = is_turn && i < es->n_taken ? i : begun;
        last = is_turn ? i : last;
    }
    bool is_whole = s->parts[s->n_parts - 1].kind == PART_END; /* its end is left to the next turn */
    bool is_asked = begun == last || (!is_whole && strcmp(s->parts[last].role, "assistant") == 0);
    strbuf body = {0};
    json_out o = {.to = &body};
    quire_err e = QUIRE_OK;
    json_begin(&o, '{');
    json_begin(json_name(&o, "messages"), '[');
    for (size_t i = 0; e == QUIRE_OK && i <= last; i = exec_turn_end(s, i)) {
        exec_content has = i == begun ? CONTENT_MARK
                           : i < last ? CONTENT_TEXT
                           : is_whole ? CONTENT_BOTH
                                      : CONTENT_MARK;
        e = i == last && i != begun && is_asked ? QUIRE_OK : exec_write_message(k, i, has, &o, err);
    }
    json_end(&o, ']');
    json_bool(json_name(&o, "add_generation_prompt"), is_asked);
    json_end(&o, '}');
    if (e == QUIRE_OK) {
        e = exec_begin_stage(k, begun == last ? ENGINE_ANSWER : ENGINE_TEXT, 1, err);
    }
    if (e != QUIRE_OK) {
        strbuf_deinit(&body);
        return e;
    }
    k->upto = is_whole ? s->n_parts - 1 : last + 1;
    es->n_turn = begun != last ? exec_n_ids(es) : es->n_turn;
    const quire_continuation from = {.size = sizeof from,
                                     .ids = es->ids != NULL ? es->ids->ids : NULL,
                                     .n_ids = exec_n_ids(es),
                                     .after = begun != SIZE_MAX ? k->x->mark : NULL,
                                     .before = is_asked ? NULL : k->x->mark};
    quire_request *r;
    TRY(exec_new_text(k->x, QUIRE_TOKENIZE_CHAT, &o, &s->root->program, &from, &r, err));
    return exec_submit(k, r, 0, false, err);
}
