#include "text/turn_ends.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

/* The texts of tokens that end generation, as in llama.cpp. The last lines are for models
 * that fill in the middle of a file: padding, a repository's name and a border between
 * files end the text. */
static const char *const texts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "[EOS]",
    "</s>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

static bool turn_ends_is_listed(str text) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (str_is(text, texts[i])) {
            return true;
        }
    }
    return false;
}

static void turn_ends_add(turn_ends *ends, int32_t id, turn_end_reason reason) {
    if (ends->n < TURN_ENDS_MAX) {
        ends->tokens[ends->n].id = id;
        ends->tokens[ends->n++].reason = reason;
    }
}

/* The text of a token; in a packed GGUF model only the tokenizer has it. */
static str turn_ends_text_of(const vocab *v, const tokenizer *t, int32_t id) {
    return v->tokens != NULL ? v->tokens[id] : t != NULL ? tokenizer_piece(t, id) : (str){"", 0};
}

/* The token with this text among those found; -1: none. */
static int32_t found(const turn_ends *ends, const vocab *v, const tokenizer *t, const char *text) {
    for (int32_t i = 0; i < ends->n; i++) {
        if (str_is(turn_ends_text_of(v, t, ends->tokens[i].id), text)) {
            return ends->tokens[i].id;
        }
    }
    return -1;
}

static void turn_ends_drop(turn_ends *ends, int32_t id) {
    int32_t n = 0;
    for (int32_t i = 0; i < ends->n; i++) {
        if (ends->tokens[i].id != id) {
            ends->tokens[n++] = ends->tokens[i];
        }
    }
    ends->n = n;
}

/* Drops tokens that do not end an answer: <|end|> where a turn has several messages
 * (gpt-oss, Solar Open), and </s> in Gemma 4's vocabulary, an ordinary piece of
 * markup. */
static void drop_those_that_go_on(turn_ends *ends, const vocab *v, const tokenizer *t) {
    bool calls = found(ends, v, t, "<|call|>") >= 0 || found(ends, v, t, "<|calls|>") >= 0;
    bool has_messages =
        calls && (found(ends, v, t, "<|return|>") >= 0 || found(ends, v, t, "<|flush|>") >= 0);
    bool is_markup = found(ends, v, t, "<|tool_response>") >= 0;
    ends->goes_on[0] = has_messages ? found(ends, v, t, "<|end|>") : -1;
    ends->goes_on[1] = is_markup ? found(ends, v, t, "</s>") : -1;
    turn_ends_drop(ends, ends->goes_on[0]);
    turn_ends_drop(ends, ends->goes_on[1]);
}

turn_ends turn_ends_find(const vocab *v, const tokenizer *t) {
    turn_ends ends = {.goes_on = {-1, -1}};
    bool has_types = v->source == VOCAB_GGUF && v->types != NULL;
    for (int32_t i = 0; has_types && i < v->n_tokens; i++) {
        bool counts = v->types[i] == VOCAB_CONTROL || v->types[i] == VOCAB_USER_DEFINED;
        if (counts && turn_ends_is_listed(turn_ends_text_of(v, t, i))) {
            turn_ends_add(&ends, i, TURN_END_BY_TEXT);
        }
    }
    if (has_types) {
        drop_those_that_go_on(&ends, v, t);
    }
    int32_t eos = v->source != VOCAB_GGUF && t != NULL ? tokenizer_eos(t) : -1;
    if (eos >= 0) {
        turn_ends_add(&ends, eos, TURN_END_BY_NAME);
    }
    return ends;
}

/* Writes a token's text in printable form. */
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
