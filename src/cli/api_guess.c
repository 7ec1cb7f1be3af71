/* Text that an API generated past the end of a gen, and what later gens take from it:
 * pure functions of texts and responses.
 *
 * A gen that is followed by constant text and another gen is sent without its stop
 * strings and with more tokens than its own. The text that comes is cut as the API
 * would have cut each gen: at the first token with which a stop string is complete, at
 * its most tokens, or at the model's end. What follows the cut is a guess of the
 * constant text and the later gens. As far as it agrees with the constant text, and a
 * token ends where that ends, it is what the API would (greedily) generate there, so
 * no call is needed. */
#include "cli/api_executor.h"

#include <assert.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- responses ---- */

api_text *api_text_share(api_text *t) {
    if (t != NULL) {
        t->refs++;
    }
    return t;
}

void api_text_drop(api_text *t) {
    if (t != NULL && --t->refs == 0) {
        strbuf_deinit(&t->text);
        mem_free(t->ends);
        mem_free(t);
    }
}

static quire_err api_text_add_end(api_text *t, size_t end) {
    TRY(mem_grow(&t->ends, &t->cap_tokens, t->n_tokens + 1, sizeof *t->ends));
    t->ends[t->n_tokens++] = end < t->text.n ? end : t->text.n;
    return QUIRE_OK;
}

/* Where token i begins, in characters; 0 if the API does not say. */
static int64_t api_offset_at(const json_value *offsets, size_t i) {
    int64_t at = json_int64(json_at(offsets, i));
    return at >= 0 && at <= INT32_MAX ? at : 0;
}

/* A completion's tokens by their text_offset, which counts characters: token i ends where
 * the next one begins. */
static quire_err api_text_read_offsets(api_text *t, const json_value *offsets) {
    size_t at = 0, n = json_length(offsets);
    int64_t first = n > 0 ? api_offset_at(offsets, 0) : 0, chars = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t next = i + 1 < n ? api_offset_at(offsets, i + 1) - first : INT64_MAX;
        for (size_t len; at < t->text.n && chars < next; chars++, at += len) {
            utf8_next(t->text.p + at, &len);
        }
        TRY(api_text_add_end(t, at));
    }
    t->has_tokens = n > 0;
    return QUIRE_OK;
}

/* A chat's tokens by their bytes or, where those are not given, by their texts. */
static quire_err api_text_read_content(api_text *t, const json_value *tokens) {
    size_t at = 0, n = json_length(tokens);
    for (size_t i = 0; i < n; i++) {
        const json_value *token = json_at(tokens, i), *bytes = json_get(token, "bytes");
        at += json_is(bytes, JSON_KIND_ARRAY) ? json_length(bytes) : json_get_str(token, "token").n;
        TRY(api_text_add_end(t, at));
    }
    t->has_tokens = n > 0 && at >= t->text.n;
    return QUIRE_OK;
}

quire_err api_text_read(const json_value *choice, bool is_chat, api_text **out) {
    const json_value *holder = is_chat ? json_get(choice, "message") : choice,
                     *logprobs = json_get(choice, "logprobs");
    const char *name = is_chat ? "content" : "text";
    *out = NULL;
    if (!json_is(holder, JSON_KIND_OBJECT)) {
        return QUIRE_IO;
    }
    api_text *t = mem_new(1, sizeof *t);
    TRY(mem_check(t));
    t->refs = 1;
    str text = json_get_str(holder, name), reason = json_get_str(choice, "finish_reason");
    t->is_whole = !str_is(reason, "length");
    quire_err e = strbuf_add(&t->text, text.p, text.n);
    if (e == QUIRE_OK) {
        e = is_chat ? api_text_read_content(t, json_get(logprobs, "content"))
                    : api_text_read_offsets(t, json_get(logprobs, "text_offset"));
    }
    if (e != QUIRE_OK) {
        api_text_drop(t);
        return e;
    }
    *out = t;
    return QUIRE_OK;
}

/* ---- rules ---- */

bool api_rule_read(const json_value *fields, api_rule *out) {
    const json_value *max = json_get(fields, "max_tokens"), *stop = json_get(fields, "stop");
    size_t n = json_is(stop, JSON_KIND_TEXT) ? 1 : json_length(stop);
    *out = (api_rule){.max_tokens = json_get_int32(fields, "max_tokens", -1)};
    bool is_fine = (max == NULL || out->max_tokens >= 0) && n <= sizeof out->stops / sizeof *out->stops;
    for (size_t i = 0; i < n && is_fine; i++) {
        const json_value *one = json_is(stop, JSON_KIND_TEXT) ? stop : json_at(stop, i);
        is_fine = json_is(one, JSON_KIND_TEXT) && json_str(one).n > 0;
        out->stops[out->n_stops++] = json_str(one);
    }
    return is_fine;
}

/* ---- cuts ---- */

/* The number of tokens for the bytes in [from, to); where tokens are not known an
 * upper bound, a token a byte. */
static size_t api_text_tokens(const api_text *t, size_t from, size_t to) {
    size_t n = 0;
    if (!t->has_tokens) {
        return to - from;
    }
    for (size_t i = 0; i < t->n_tokens && t->ends[i] < to; i++) {
        n += t->ends[i] > from ? 1 : 0;
    }
    return to > from ? n + 1 : 0;
}

/* Finds the stop string that is complete first; of several that end together, the
 * longest. */
static bool api_text_find_stop(const api_text *t, size_t from, const api_rule *rule, size_t *begin,
                               size_t *end) {
    for (size_t at = from + 1; at <= t->text.n; at++) {
        size_t longest = 0;
        for (size_t i = 0; i < rule->n_stops; i++) {
            str stop = rule->stops[i];
            bool is_here = stop.n <= at - from && memcmp(t->text.p + at - stop.n, stop.p, stop.n) == 0;
            longest = is_here && stop.n > longest ? stop.n : longest;
        }
        if (longest > 0) {
            *begin = at - longest;
            *end = at;
            return true;
        }
    }
    return false;
}

bool api_text_cut(const api_text *t, size_t from, const api_rule *rule, api_cut *out) {
    assert(t != NULL && rule != NULL);
    size_t begin = t->text.n, end = t->text.n;
    bool stops = api_text_find_stop(t, from, rule, &begin, &end);
    size_t n = api_text_tokens(t, from, end),
           most = rule->max_tokens < 0 ? SIZE_MAX : (size_t)rule->max_tokens;
    if ((stops || t->is_whole) && n <= most) {
        *out = (api_cut){begin, n, QUIRE_FINISH_STOP};
        return true;
    }
    if (!t->has_tokens) {
        return false;
    }
    size_t i = 0, left = most;
    while (i < t->n_tokens && t->ends[i] <= from) {
        i++;
    }
    if (left > t->n_tokens - i) {
        return false;
    }
    *out = (api_cut){left > 0 ? t->ends[i + left - 1] : from, left, QUIRE_FINISH_LENGTH};
    return true;
}

bool api_text_agrees(const api_text *t, size_t from, str text) {
    size_t to = from + text.n;
    bool is_boundary = to == 0;
    if (!t->has_tokens || text.n > t->text.n - from || !str_eq((str){t->text.p + from, text.n}, text)) {
        return false;
    }
    for (size_t i = 0; i < t->n_tokens && t->ends[i] <= to; i++) {
        is_boundary = is_boundary || t->ends[i] == to;
    }
    return is_boundary;
}

/* ---- responses ---- */

const json_value *api_choice_at(const json_value *response, size_t index) {
    const json_value *all = json_get(response, "choices");
    for (size_t i = 0; i < json_length(all); i++) {
        if (json_get_int32(json_at(all, i), "index", 0) == (int32_t)index) {
            return json_at(all, i);
        }
    }
    return NULL;
}

quire_finish api_finish_of(const json_value *choice) {
    return str_is(json_get_str(choice, "finish_reason"), "length") ? QUIRE_FINISH_LENGTH : QUIRE_FINISH_STOP;
}

int64_t api_count_of(const json_value *usage, const char *name) {
    int64_t n = json_int64(json_get(usage, name));
    return n >= 0 && n <= INT32_MAX ? n : 0;
}
