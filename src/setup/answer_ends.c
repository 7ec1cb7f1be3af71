#include "setup/answer_ends.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

/* Writes a token's text as it may be shown. */
static void answer_ends_show(const vocab *v, const tokenizer *t, answer_end *e) {
    str text = t != NULL                                  ? tokenizer_piece(t, e->id)
               : v->tokens != NULL && e->id < v->n_tokens ? v->tokens[e->id]
                                                          : (str){"", 0};
    visible line = {0};
    strbuf shown = {0};
    bool is_cut = text.n > sizeof e->text / 4 * 3;
    bool ok = visible_add(&line, text.p, is_cut ? sizeof e->text / 2 : text.n, &shown) == QUIRE_OK &&
              visible_end(&line, &shown) == QUIRE_OK;
    e->text[0] = '\0';
    if (ok && shown.n > 0 && shown.n < sizeof e->text - 3) {
        memcpy(e->text, shown.p, shown.n);
        memcpy(e->text + shown.n, is_cut ? "..." : "", is_cut ? 4 : 1);
    }
    strbuf_deinit(&shown);
}

static const char *reason_of(const turn_ends *told, const model_desc *of_files, bool is_gguf, int32_t id) {
    for (int32_t i = 0; i < of_files->n_eos; i++) {
        if (of_files->eos[i] == id) {
            return is_gguf ? "by a key of the file" : "by generation_config.json or config.json";
        }
    }
    for (int32_t i = 0; i < told->n; i++) {
        if (told->tokens[i].id == id) {
            return told->tokens[i].reason == TURN_END_BY_TEXT ? "by its text" : "the tokenizer's eos_token";
        }
    }
    return "";
}

answer_ends answer_ends_find(const vocab *v, const tokenizer *t, const model_desc *d) {
    turn_ends told = turn_ends_find(v, t);
    model_desc all = {.n_vocab = d->n_vocab, .n_eos = d->n_eos};
    memcpy(all.eos, d->eos, sizeof all.eos);
    for (int32_t i = 0; i < told.n; i++) {
        desc_add_eos(&all, told.tokens[i].id);
    }
    for (size_t i = 0; i < sizeof told.goes_on / sizeof *told.goes_on; i++) {
        desc_drop_eos(&all, told.goes_on[i]);
    }
    answer_ends ends = {.n = all.n_eos};
    for (int32_t i = 0; i < ends.n; i++) {
        ends.list[i] = (answer_end){.id = all.eos[i],
                                    .reason = reason_of(&told, d, v->source == VOCAB_GGUF, all.eos[i])};
        answer_ends_show(v, t, &ends.list[i]);
    }
    return ends;
}

void answer_ends_apply(const answer_ends *ends, model_desc *d) {
    assert(ends != NULL && d != NULL);
    d->n_eos = ends->n;
    for (int32_t i = 0; i < ends->n; i++) {
        d->eos[i] = ends->list[i].id;
    }
}

quire_err answer_ends_print(const answer_ends *ends, strbuf *out) {
    assert(ends != NULL);
    for (int32_t i = 0; i < ends->n; i++) {
        const answer_end *e = &ends->list[i];
        TRY(strbuf_addf(out, "%s%s%s(%d, %s)", i > 0 ? ", " : "", e->text, e->text[0] != '\0' ? " " : "",
                        (int)e->id, e->reason));
    }
    return ends->n > 0 ? QUIRE_OK : strbuf_add_str(out, "none");
}

void answer_ends_json(const answer_ends *ends, json_out *o) {
    assert(ends != NULL);
    json_begin(o, '[');
    for (int32_t i = 0; i < ends->n; i++) {
        const answer_end *e = &ends->list[i];
        json_begin(json_item(o), '{');
        json_int(json_name(o, "id"), e->id);
        json_cstr(json_name(o, "text"), e->text);
        json_cstr(json_name(o, "from"), e->reason);
        json_end(o, '}');
    }
    json_end(o, ']');
}
