/* A chat request's prompt text, by its template. */
#include "api/request_read.h"

/* Put behind the last message's content to find where that ends in the rendered text; the space tells whether the template trims. */
#define CONTINUE_TAG "QUIRE_CONTINUES_HERE"

static quire_err add_json_text(strbuf *b, str text) {
    json_object *s = json_object_new_string_len(text.n > 0 ? text.p : "", (int)text.n);
    const char *json = s == NULL ? NULL : json_object_to_json_string_ext(s, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    quire_err e = json == NULL ? QUIRE_NO_MEMORY : strbuf_add_str(b, json);
    json_object_put(s);
    return e;
}

/* The last message's text: its content, or its last part's text; NULL when it has none. *holder[key] is where it stands. */
static json_object *last_text(json_object *messages, json_object **holder, const char **key) {
    *holder = json_object_array_get_idx(messages, json_object_array_length(messages) - 1);
    *key = "content";
    json_object *content = json_object_object_get(*holder, "content");
    if (json_object_is_type(content, json_type_array) && json_object_array_length(content) > 0) {
        *holder = json_object_array_get_idx(content, json_object_array_length(content) - 1);
        *key = "text";
        content = json_object_object_get(*holder, "text");
    }
    return json_object_is_type(content, json_type_string) ? content : NULL;
}

/* Appends the messages with the tag behind the last one's text. */
static quire_err add_tagged(const quire_request *r, strbuf *b, quire_error *err) {
    json_object *messages, *holder;
    const char *key;
    TRY(json_read(r->messages, r->n_messages, &messages, err));
    json_object *text = last_text(messages, &holder, &key);
    if (text == NULL) {
        json_object_put(messages);
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message", "the last message has no text to continue");
    }
    strbuf tagged = {0};
    quire_err e = strbuf_add(&tagged, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    e = e == QUIRE_OK ? strbuf_add_str(&tagged, CONTINUE_TAG " ") : e;
    if (e == QUIRE_OK && json_object_object_add(holder, key, json_object_new_string_len(tagged.p, (int)tagged.n)) != 0) {
        e = QUIRE_NO_MEMORY;
    }
    const char *json =
        e == QUIRE_OK ? json_object_to_json_string_ext(messages, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
    e = e != QUIRE_OK ? e : json == NULL ? QUIRE_NO_MEMORY : strbuf_add_str(b, json);
    strbuf_deinit(&tagged);
    json_object_put(messages);
    return e;
}

/* {"messages": ..., "add_generation_prompt": ..., ...}; of equal names the last counts, so template_kwargs come last. */
static quire_err add_variables(const quire_request *r, str bos, str eos, strbuf *b, quire_error *err) {
    TRY(strbuf_add_str(b, "{\"messages\":"));
    TRY(r->continue_final_message ? add_tagged(r, b, err) : strbuf_add(b, r->messages, r->n_messages));
    TRY(strbuf_addf(
        b, ",\"add_generation_prompt\":%s,\"tools\":null,\"documents\":null,\"bos_token\":", r->add_generation_prompt ? "true" : "false"));
    TRY(add_json_text(b, bos));
    TRY(strbuf_add_str(b, ",\"eos_token\":"));
    TRY(add_json_text(b, eos));
    if (r->template_kwargs != NULL && strcmp(r->template_kwargs, "{}") != 0) {
        TRY(strbuf_add_char(b, ','));
        return strbuf_add_str(b, r->template_kwargs + 1); /* its closing brace is ours */
    }
    return strbuf_add_char(b, '}');
}

/* The last place of the tag in text, or text.n. */
static size_t find_tag(str text) {
    size_t n = strlen(CONTINUE_TAG);
    for (size_t i = text.n >= n ? text.n - n + 1 : 0; i-- > 0;) {
        if (memcmp(text.p + i, CONTINUE_TAG, n) == 0) {
            return i;
        }
    }
    return text.n;
}

/* Appends text up to the tag. Where the template trimmed the space behind the tag, it would have trimmed the text too. */
static quire_err add_until_tag(str text, strbuf *out, quire_error *err) {
    size_t end = find_tag(text), after = end + strlen(CONTINUE_TAG);
    if (end == text.n) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "the chat template leaves the last message out, so it cannot be continued");
    }
    if (after >= text.n || text.p[after] != ' ') {
        while (end > 0 && strchr(" \t\n\r\v\f", text.p[end - 1]) != NULL) {
            end--;
        }
    }
    return strbuf_add(out, text.p, end);
}

quire_err request_render(const quire_request *r, const chat_template *t, str bos, str eos, strbuf *out, quire_error *err) {
    strbuf variables = {0}, text = {0};
    quire_err e = add_variables(r, bos, eos, &variables, err);
    if (e == QUIRE_NO_MEMORY) {
        err_set(err, e, -1, "out of memory for the chat template's variables");
    }
    if (e == QUIRE_OK) {
        str v = {variables.p, variables.n};
        e = chat_template_render(t, v, r->continue_final_message ? &text : out, err);
    }
    if (e == QUIRE_OK && r->continue_final_message) {
        e = add_until_tag((str){text.p, text.n}, out, err);
    }
    strbuf_deinit(&text);
    strbuf_deinit(&variables);
    return e;
}
