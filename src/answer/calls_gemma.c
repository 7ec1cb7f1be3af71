/* Calls in Gemma's notation: call:NAME{KEY:VALUE,..}, with bare keys, strings between two
 * equal marks, and nested objects and lists. */
#include "answer/call_reader.h"

enum { HEAD, STRUCTURE, KEY, BARE, STRING, QUOTED_KEY, TYPED, JSON_STRING };
enum { HEAD_BYTES = 512 };

static quire_err calls_gemma_begin(call_reader *r) {
    r->u.g = (gemma_calls){.state = HEAD};
    r->json = (json_stream){0};
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

/* Adds JSON to the arguments. *fits false: it is not valid there. */
static quire_err calls_gemma_put(call_reader *r, str json, bool *fits) {
    json_stream_result result;
    size_t n_read;
    TRY(json_stream_add(&r->json, json, &r->arguments, &result, &n_read));
    *fits = n_read == json.n && (result == JSON_STREAM_MORE || result == JSON_STREAM_DONE);
    return QUIRE_OK;
}

static quire_err put_char(call_reader *r, char c, bool *fits) {
    return calls_gemma_put(r, (str){&c, 1}, fits);
}

static quire_err put_escaped(call_reader *r, const char *p, size_t n, bool *fits) {
    strbuf_clear(&r->special);
    TRY(escape_add(&r->special, p, n));
    return calls_gemma_put(r, call_str(&r->special), fits);
}

static quire_err end_key(call_reader *r, bool *fits) {
    str key = call_trim(call_str(&r->text));
    if (key.n >= 2 && key.p[0] == '"' && key.p[key.n - 1] == '"') {
        key = (str){key.p + 1, key.n - 2};
    }
    r->u.g.is_typed = (r->flags & FORMAT_TYPED_QUOTES) != 0 && r->json.depth == 1;
    typed_begin(&r->value, schema_types(schema_member(r->schema, r->schema, key), r->schema));
    TRY(put_char(r, '"', fits));
    if (*fits) {
        TRY(put_escaped(r, key.p, key.n, fits));
    }
    if (*fits) {
        TRY(put_char(r, '"', fits));
    }
    strbuf_clear(&r->text);
    r->u.g.state = STRUCTURE;
    return QUIRE_OK;
}

/* Ends the value in r->text: one without quotes, or one whose type the schema gives. */
static quire_err end_typed(call_reader *r, unsigned types, bool *fits) {
    strbuf_clear(&r->special);
    typed_begin(&r->value, types);
    TRY(typed_add(&r->value, r->text.p, r->text.n, &r->special));
    TRY(typed_end(&r->value, &r->special));
    strbuf_clear(&r->text);
    r->u.g.state = STRUCTURE;
    return calls_gemma_put(r, call_str(&r->special), fits);
}

static quire_err in_bare(call_reader *r, char c, bool *fits) {
    if (c != ',' && c != '}' && c != ']') {
        return strbuf_add_char(&r->text, c);
    }
    str bare = call_trim(call_str(&r->text));
    r->text.n = bare.n; /* the value has no white space at its beginning, so only its end is cut */
    TRY(end_typed(r, 0, fits));
    return *fits ? put_char(r, c, fits) : QUIRE_OK;
}

static quire_err in_structure(call_reader *r, char c, bool *fits) {
    gemma_calls *g = &r->u.g;
    bool wants_name = json_stream_wants_name(&r->json), wants_value = json_stream_wants_value(&r->json);
    if (call_space(c)) {
        return QUIRE_OK;
    }
    if (c == '"' && wants_value) {
        g->state = JSON_STRING;
        return put_char(r, c, fits);
    }
    if (strchr("{}[],:", c) != NULL) {
        return put_char(r, c, fits);
    }
    *fits = wants_name || wants_value;
    g->state = wants_name ? KEY : BARE;
    return *fits ? strbuf_add_char(&r->text, c) : QUIRE_OK;
}

static quire_err calls_gemma_in_head(call_reader *r, char c, bool *fits) {
    if (c != '{') {
        *fits = r->text.n < HEAD_BYTES;
        return *fits ? strbuf_add_char(&r->text, c) : QUIRE_OK;
    }
    call_writing w;
    (void)call_writing_at(r->format, 0, &w);
    str head = call_trim(call_str(&r->text)), before = call_trim(w.before); /* before: "call:" */
    *fits = head.n >= before.n && memcmp(head.p, before.p, before.n) == 0;
    if (!*fits) {
        return QUIRE_OK;
    }
    str name = call_trim((str){head.p + before.n, head.n - before.n});
    *fits = call_is_name(name);
    if (*fits) {
        TRY(call_set(&r->name, name));
    }
    if (*fits) {
        TRY(call_begin(r));
    }
    strbuf_clear(&r->text);
    r->u.g.state = STRUCTURE;
    return *fits ? put_char(r, c, fits) : QUIRE_OK;
}

static quire_err calls_gemma_text_byte(call_reader *r, char c, bool *fits) {
    switch (r->u.g.state) {
    case HEAD:
        return calls_gemma_in_head(r, c, fits);
    case STRUCTURE:
        return in_structure(r, c, fits);
    case KEY:
        TRY(c == ':' ? end_key(r, fits) : strbuf_add_char(&r->text, c));
        return c == ':' && *fits ? put_char(r, c, fits) : QUIRE_OK;
    case BARE:
        return in_bare(r, c, fits);
    case STRING:
        return put_escaped(r, &c, 1, fits);
    case JSON_STRING:
        TRY(put_char(r, c, fits));
        r->u.g.state = json_stream_is_in_string(&r->json) ? JSON_STRING : STRUCTURE;
        return QUIRE_OK;
    default: /* QUOTED_KEY, TYPED */
        return strbuf_add_char(&r->text, c);
    }
}

static quire_err at_quote(call_reader *r, bool *fits) {
    gemma_calls *g = &r->u.g;
    switch (g->state) {
    case STRUCTURE:
        *fits = json_stream_wants_name(&r->json) || json_stream_wants_value(&r->json);
        if (json_stream_wants_name(&r->json) ||
            (g->is_typed && r->json.depth == 1 && r->value.types != TYPE_STRING)) {
            g->state = json_stream_wants_name(&r->json) ? QUOTED_KEY : TYPED;
            return QUIRE_OK;
        }
        g->state = STRING;
        return *fits ? put_char(r, '"', fits) : QUIRE_OK;
    case STRING:
        g->state = STRUCTURE;
        return put_char(r, '"', fits);
    case QUOTED_KEY:
        return end_key(r, fits);
    case TYPED:
        return end_typed(r, r->value.types, fits);
    default:
        *fits = false;
        return QUIRE_OK;
    }
}

/* Completes the open value and ends the call. */
static quire_err calls_gemma_finish_call(call_reader *r) {
    uint8_t state = r->u.g.state;
    bool fits = true;
    if (state == BARE || state == TYPED) {
        /* the value has no white space at its beginning */
        r->text.n = state == BARE ? call_trim(call_str(&r->text)).n : r->text.n;
        TRY(end_typed(r, state == BARE ? 0 : r->value.types, &fits));
    }
    TRY(json_stream_close(&r->json, &r->arguments));
    return call_end(r);
}

/* Ends the call after its arguments, then reads behind[0..n) as text outside calls. */
static quire_err complete(call_reader *r, const char *behind, size_t n) {
    char bytes[2 * MARK_BYTES];
    memcpy(bytes, behind, n);
    n += mark_take(&r->match, bytes + n);
    TRY(call_end(r));
    call_leave(r);
    for (size_t i = 0; i < n; i++) {
        TRY(call_reader_push(r, bytes[i]));
    }
    return QUIRE_OK;
}

static quire_err calls_gemma_byte(call_reader *r, char c) {
    char text[MARK_BYTES];
    size_t n;
    bool fits = true;
    int found = mark_push(&r->match, &r->marks, call_roles(ROLE(QUOTE), ROLE(CLOSE)), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        TRY(calls_gemma_text_byte(r, text[i], &fits));
        if (!fits) {
            if (r->in_call) {
                TRY(calls_gemma_finish_call(r));
            }
            return call_reject_match(r, text + i, n - i);
        }
        if (r->in_call && r->json.depth == 0) {
            return complete(r, text + i + 1, n - i - 1);
        }
    }
    const mark *m = found >= 0 ? &r->marks.marks[found] : NULL;
    if (m != NULL && m->role == ROLE_QUOTE) {
        TRY(at_quote(r, &fits));
    }
    if (!fits || (m != NULL && m->role == ROLE_CLOSE)) {
        if (r->in_call) {
            TRY(calls_gemma_finish_call(r));
        }
        return call_reject(r, m->text, m->n);
    }
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err calls_gemma_end(call_reader *r, bool cut_off) {
    if (!r->in_call) {
        return QUIRE_OK;
    }
    return cut_off ? call_end(r) : calls_gemma_finish_call(r);
}

const call_machine gemma_machine = {calls_gemma_begin, calls_gemma_byte, calls_gemma_end, false};
