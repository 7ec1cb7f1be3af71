#include "request/read_turns.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "json/json_out.h"

/* ---- signatures ---- */

_Static_assert(QUIRE_SIGNATURE_BYTES == 2 * SHA256_BYTES, "two digits a byte");

void thought_key(const char *given, uint8_t key[SHA256_BYTES]) {
    if (given != NULL) {
        sha256(given, strlen(given), key);
        return;
    }
    for (size_t i = 0; i < SHA256_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = rng_os_seed();
        memcpy(key + i, &word, sizeof word);
    }
}

void thought_sign(const uint8_t key[SHA256_BYTES], const uint8_t digest[SHA256_BYTES],
                  char out[QUIRE_SIGNATURE_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t made[SHA256_BYTES];
    hmac_sha256(key, SHA256_BYTES, digest, SHA256_BYTES, made);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[made[i] >> 4];
        out[2 * i + 1] = digits[made[i] & 15];
    }
    out[QUIRE_SIGNATURE_BYTES] = '\0';
}

bool thought_is_signed(const uint8_t key[SHA256_BYTES], str text, str signature) {
    uint8_t digest[SHA256_BYTES];
    char right[QUIRE_SIGNATURE_BYTES + 1];
    unsigned differs = signature.n != QUIRE_SIGNATURE_BYTES;
    sha256(text.p, text.n, digest);
    thought_sign(key, digest, right);
    for (size_t i = 0; i < QUIRE_SIGNATURE_BYTES && i < signature.n; i++) {
        differs |= (unsigned char)(right[i] ^ signature.p[i]); /* compare all characters, for constant time */
    }
    return differs == 0;
}

/* Where a block may occur. */
enum { IN_SYSTEM = 1, IN_USER = 2, IN_ASSISTANT = 4, IN_RESULT = 8 };

/* A tool_use of the last assistant turn. */
typedef struct turns_call {
    str id;
    bool is_answered;
} turns_call;

typedef struct turns {
    const quire_request *r;
    quire_error *err;
    json_out o;
    /* position of the current block: message (-1: the field system), block in it, block
     * in that; -1: none */
    int64_t i, j, k;
    int role;              /* role of the turn being read; 0: none */
    strbuf text;           /* text of the turn or result being read */
    bool has_text;         /* a text block was read */
    strbuf thought, calls; /* of an assistant turn: reasoning; array items of tool_calls */
    str signature;         /* signature of the turn's first thinking block, which identifies the answer */
    turns_call *open;      /* calls of the last assistant turn, until the turn after it has ended */
    size_t n_open, cap_open, n_answered;
} turns;

/* ---- errors ---- */

/* Writes the path of the current block or message, or of its member. */
static void turns_name(const turns *t, const char *member, char *out, size_t size) {
    char block[32] = "", inside[48] = "";
    if (t->j >= 0 && t->i < 0) {
        snprintf(block, sizeof block, "[%lld]", (long long)t->j);
    } else if (t->j >= 0) {
        snprintf(block, sizeof block, ".content[%lld]", (long long)t->j);
    }
    if (t->k >= 0) {
        snprintf(inside, sizeof inside, ".content[%lld]", (long long)t->k);
    }
    if (t->i < 0) {
        snprintf(out, size, "system%s%s%s%s", block, inside, *member ? "." : "", member);
    } else {
        snprintf(out, size, "messages[%lld]%s%s%s%s", (long long)t->i, block, inside, *member ? "." : "",
                 member);
    }
}

/* Sets an error: the member's path, followed by the formatted text. */
static quire_err turns_refuse(const turns *t, const char *member, const char *format, ...) {
    char name[160], words[sizeof t->err->message - sizeof name];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    turns_name(t, member, name, sizeof name);
    return err_set_param(t->err, QUIRE_BAD_REQUEST, name, "%s %s", name, words);
}

/* Reads a member that must be a string. */
static quire_err turns_get_text(const turns *t, const json_value *block, const char *member, str *out) {
    char brief[JSON_BRIEF_BYTES];
    const json_value *v = json_get(block, member);
    if (!json_is(v, JSON_KIND_TEXT)) {
        return json_has(block, member)
                   ? turns_refuse(t, member, "is %s; it must be a string", json_brief(v, brief))
                   : turns_refuse(t, member, "is missing; give a string");
    }
    *out = json_str(v);
    return QUIRE_OK;
}

/* ---- texts ---- */

static quire_err turns_add_text(turns *t, str text) {
    if (text.n == 0) {
        return QUIRE_OK;
    }
    if (t->has_text) {
        TRY(strbuf_add_char(&t->text, '\n'));
    }
    t->has_text = true;
    return strbuf_add(&t->text, text.p, text.n);
}

/* Whether it is the system line of a client's billing header, which differs in every
 * request and would prevent prefix hits. */
static bool turns_is_header(const turns *t, str text) {
    return t->i < 0 && str_begins(text, "x-anthropic-billing-header:");
}

static quire_err turns_read_text(turns *t, const json_value *block) {
    str text;
    TRY(turns_get_text(t, block, "text", &text));
    return turns_is_header(t, text) ? QUIRE_OK : turns_add_text(t, text);
}

static quire_err turns_read_content(turns *t, const json_value *content, int where);

/* Reads a document: title, context and text. */
static quire_err turns_read_document(turns *t, const json_value *block) {
    const json_value *source = json_get(block, "source");
    str type = json_get_str(source, "type"), data;
    TRY(turns_add_text(t, json_get_str(block, "title")));
    TRY(turns_add_text(t, json_get_str(block, "context")));
    if (str_is(type, "text")) {
        if (!json_is(json_get(source, "data"), JSON_KIND_TEXT)) {
            return turns_refuse(t, "source.data", "must be a string");
        }
        data = json_get_str(source, "data");
        return turns_add_text(t, data);
    }
    if (str_is(type, "content") && t->k < 0) {
        return turns_read_content(t, json_get(source, "content"), IN_RESULT);
    }
    return turns_refuse(t, "source.type", "is not one of \"text\" and \"content\"; only text is read here");
}

static quire_err turns_read_search_result(turns *t, const json_value *block) {
    str source, title;
    TRY(turns_get_text(t, block, "source", &source));
    TRY(turns_get_text(t, block, "title", &title));
    TRY(turns_add_text(t, title));
    TRY(turns_add_text(t, source));
    const json_value *content = json_get(block, "content");
    for (size_t n = 0; n < json_length(content); n++) {
        if (!json_is(json_get(json_at(content, n), "text"), JSON_KIND_TEXT)) {
            return turns_refuse(t, "content", "must be an array of text blocks");
        }
        TRY(turns_add_text(t, json_get_str(json_at(content, n), "text")));
    }
    return QUIRE_OK;
}

/* ---- assistant blocks ---- */

static turns_call *turns_find_call(turns *t, str id) {
    /* results usually come in the order of their calls */
    turns_call *next = t->n_answered < t->n_open ? &t->open[t->n_answered] : NULL;
    if (next != NULL && str_eq(next->id, id)) {
        return next;
    }
    for (size_t n = 0; n < t->n_open; n++) {
        if (str_eq(t->open[n].id, id)) {
            return &t->open[n];
        }
    }
    return NULL;
}

static quire_err turns_keep_call(turns *t, str id) {
    if (turns_find_call(t, id) != NULL) {
        return turns_refuse(t, "id", "is also the id of another tool_use in this turn");
    }
    if (t->n_open >= REQUEST_MAX_TOOLS) {
        return turns_refuse(t, "", "is one of more than %d calls in one turn", REQUEST_MAX_TOOLS);
    }
    TRY(mem_grow(&t->open, &t->cap_open, t->n_open + 1, sizeof *t->open));
    t->open[t->n_open++] = (turns_call){.id = id};
    return QUIRE_OK;
}

static quire_err turns_read_call(turns *t, const json_value *block) {
    str id, name;
    json_out calls = {.to = &t->calls};
    TRY(turns_get_text(t, block, "id", &id));
    TRY(turns_get_text(t, block, "name", &name));
    if (id.n == 0 || name.n == 0) {
        return turns_refuse(t, id.n == 0 ? "id" : "name", "is empty");
    }
    if (!json_is(json_get(block, "input"), JSON_KIND_OBJECT)) {
        return turns_refuse(t, "input", "must be an object");
    }
    TRY(turns_keep_call(t, id));
    json_raw(&calls, t->calls.n > 0 ? "," : "");
    json_begin(&calls, '{');
    json_text(json_name(&calls, "id"), id.p, id.n);
    json_cstr(json_name(&calls, "type"), "function");
    json_begin(json_name(&calls, "function"), '{');
    json_text(json_name(&calls, "name"), name.p, name.n);
    json_add(json_name(&calls, "arguments"), json_get(block, "input"));
    json_end(&calls, '}');
    json_end(&calls, '}');
    return calls.err;
}

static quire_err turns_read_thinking(turns *t, const json_value *block) {
    str thought, signature;
    TRY(turns_get_text(t, block, "thinking", &thought));
    TRY(turns_get_text(t, block, "signature", &signature));
    if (!thought_is_signed(t->r->context.thought_key, thought, signature)) {
        return turns_refuse(t, "signature",
                            "does not belong to this text: Invalid `signature` in `thinking` block; send it "
                            "back unchanged, or leave the block out");
    }
    t->signature = t->signature.n == 0 ? signature : t->signature;
    if (t->thought.n > 0) {
        TRY(strbuf_add_char(&t->thought, '\n'));
    }
    return strbuf_add(&t->thought, thought.p, thought.n);
}

/* Checks redacted reasoning and drops it: another server encrypted it. */
static quire_err turns_read_redacted(turns *t, const json_value *block) {
    str data;
    return turns_get_text(t, block, "data", &data);
}

/* ---- tool results ---- */

/* Writes a tool message from t->text and clears the text. */
static quire_err turns_write_result(turns *t, str id, bool is_error) {
    json_out *o = &t->o;
    bool is_marked = is_error && !(t->text.n > 0 && str_begins((str){t->text.p, t->text.n}, "Error"));
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), "tool");
    json_text(json_name(o, "tool_call_id"), id.p, id.n);
    json_texts(json_name(o, "content"), str_of(is_marked ? "Error: " : ""),
               (str){t->text.n > 0 ? t->text.p : "", t->text.n});
    json_end(o, '}');
    strbuf_clear(&t->text);
    t->has_text = false;
    return o->err;
}

static quire_err turns_read_result(turns *t, const json_value *block) {
    str id;
    const json_value *is_error = json_get(block, "is_error");
    TRY(turns_get_text(t, block, "tool_use_id", &id));
    turns_call *call = turns_find_call(t, id);
    if (call == NULL || call->is_answered) {
        return turns_refuse(t, "tool_use_id", "is \"%.*s\", which is no tool_use of the turn before%s",
                            (int)(id.n < 60 ? id.n : 60), id.p, call != NULL ? " that is unanswered" : "");
    }
    if (is_error != NULL && !json_is(is_error, JSON_KIND_BOOL)) {
        return turns_refuse(t, "is_error", "must be true or false");
    }
    if (t->has_text) {
        return turns_refuse(t, "", "comes after text; tool_result blocks must come first in their turn");
    }
    call->is_answered = true;
    t->n_answered++;
    if (json_get(block, "content") != NULL) {
        TRY(turns_read_content(t, json_get(block, "content"), IN_RESULT));
    }
    return turns_write_result(t, id, json_truth(is_error));
}

/* ---- blocks ---- */

typedef struct block_kind {
    const char *type;
    int where; /* IN_.. flags: where it may occur */
    quire_err (*read)(turns *t, const json_value *block);
} block_kind;

static const block_kind block_kinds[] = {
    {"text", IN_SYSTEM | IN_USER | IN_ASSISTANT | IN_RESULT, turns_read_text},
    {"document", IN_USER | IN_RESULT, turns_read_document},
    {"search_result", IN_USER | IN_RESULT, turns_read_search_result},
    {"tool_result", IN_USER, turns_read_result},
    {"tool_use", IN_ASSISTANT, turns_read_call},
    {"thinking", IN_ASSISTANT, turns_read_thinking},
    {"redacted_thinking", IN_ASSISTANT, turns_read_redacted},
};

static quire_err turns_refuse_type(const turns *t, str type, int where) {
    const char *allowed = where == IN_SYSTEM      ? "text"
                          : where == IN_ASSISTANT ? "text, tool_use, thinking and redacted_thinking"
                          : where == IN_RESULT    ? "text, search_result and text documents"
                                                  : "text, tool_result, search_result and text documents";
    return turns_refuse(t, "type", "is \"%.*s\"; this server reads %s here", (int)(type.n < 60 ? type.n : 60),
                        type.p, allowed);
}

static quire_err turns_read_block(turns *t, const json_value *block, int where) {
    str type;
    char brief[JSON_BRIEF_BYTES];
    if (!json_is(block, JSON_KIND_OBJECT)) {
        return turns_refuse(t, "", "is %s; it must be an object with a type", json_brief(block, brief));
    }
    TRY(turns_get_text(t, block, "type", &type));
    for (size_t n = 0; n < sizeof block_kinds / sizeof *block_kinds; n++) {
        if (str_is(type, block_kinds[n].type) && (block_kinds[n].where & where) != 0) {
            return block_kinds[n].read(t, block);
        }
    }
    return turns_refuse_type(t, type, where);
}

/* Reads a text or an array of blocks: the content of a message, or of a block
 * (IN_RESULT). */
static quire_err turns_read_content(turns *t, const json_value *content, int where) {
    char brief[JSON_BRIEF_BYTES];
    int64_t *at = where == IN_RESULT ? &t->k : &t->j;
    if (json_is(content, JSON_KIND_TEXT)) {
        return turns_is_header(t, json_str(content)) ? QUIRE_OK : turns_add_text(t, json_str(content));
    }
    if (!json_is(content, JSON_KIND_ARRAY)) {
        return turns_refuse(t, where == IN_SYSTEM ? "" : "content",
                            "is %s; it must be a string or an array of blocks", json_brief(content, brief));
    }
    for (size_t n = 0; n < json_length(content); n++) {
        *at = (int64_t)n;
        TRY(turns_read_block(t, json_at(content, n), where));
    }
    *at = -1;
    return QUIRE_OK;
}

/* ---- turns ---- */

static void turns_write_text(turns *t, const char *role) {
    json_begin(json_item(&t->o), '{');
    json_cstr(json_name(&t->o, "role"), role);
    json_text(json_name(&t->o, "content"), t->text.n > 0 ? t->text.p : "", t->text.n);
    json_end(&t->o, '}');
}

static void turns_write_assistant(turns *t) {
    json_out *o = &t->o;
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), "assistant");
    json_name(o, "content");
    if (t->text.n == 0 && t->n_open > 0) {
        json_raw(o, "null");
    } else {
        json_text(o, t->text.n > 0 ? t->text.p : "", t->text.n);
    }
    if (t->thought.n > 0) {
        json_text(json_name(o, "id"), t->signature.p, t->signature.n);
        json_text(json_name(o, "reasoning_content"), t->thought.p, t->thought.n);
    }
    if (t->n_open > 0) {
        json_begin(json_name(o, "tool_calls"), '[');
        json_raw_part(o, (str){t->calls.p, t->calls.n});
        json_end(o, ']');
    }
    json_end(o, '}');
}

/* Refuses a turn that leaves calls unanswered. */
static quire_err turns_check_answered(turns *t) {
    for (size_t n = 0; n < t->n_open; n++) {
        str id = t->open[n].id;
        if (!t->open[n].is_answered) {
            t->j = t->k = -1;
            return turns_refuse(t, "",
                                "must answer each tool_use of the turn before it: there is no tool_result "
                                "for \"%.*s\"",
                                (int)(id.n < 60 ? id.n : 60), id.p);
        }
    }
    t->n_open = t->n_answered = 0;
    return QUIRE_OK;
}

/* Writes the turn that was read. */
static quire_err turns_end(turns *t) {
    if (t->role == IN_SYSTEM && t->text.n > 0) {
        turns_write_text(t, "system");
    } else if (t->role == IN_USER) {
        if (t->text.n > 0 || t->n_answered == 0) {
            turns_write_text(t, "user");
        }
        TRY(turns_check_answered(t));
    } else if (t->role == IN_ASSISTANT) {
        turns_write_assistant(t);
    }
    strbuf_clear(&t->text);
    strbuf_clear(&t->thought);
    strbuf_clear(&t->calls);
    t->signature = (str){0};
    t->has_text = false;
    t->role = 0;
    return t->o.err;
}

static quire_err turns_read_message(turns *t, const json_value *message) {
    char brief[JSON_BRIEF_BYTES];
    str role;
    if (!json_is(message, JSON_KIND_OBJECT)) {
        return turns_refuse(t, "", "is %s; it must be an object", json_brief(message, brief));
    }
    TRY(turns_get_text(t, message, "role", &role));
    int is = str_is(role, "user")        ? IN_USER
             : str_is(role, "assistant") ? IN_ASSISTANT
             : str_is(role, "system")    ? IN_SYSTEM
                                         : 0;
    if (is == 0) {
        return turns_refuse(t, "role", "is %s; it must be \"user\" or \"assistant\"",
                            json_brief(json_get(message, "role"), brief));
    }
    if (is != t->role) {
        TRY(turns_end(t));
        if (is == IN_ASSISTANT) {
            TRY(turns_check_answered(t));
        }
    }
    t->role = is;
    if (!json_has(message, "content")) {
        return turns_refuse(t, "content", "is missing; give a string or an array of blocks");
    }
    return turns_read_content(t, json_get(message, "content"), is);
}

/* Ends the last turn. An assistant turn is continued by the answer. */
static quire_err turns_end_last(turns *t, turns_written *out) {
    out->is_continued = t->role == IN_ASSISTANT;
    if (out->is_continued && t->n_open > 0) {
        return turns_refuse(t, "content", "ends with tool_use; give their results in a user's message");
    }
    if (out->is_continued && t->text.n == 0) {
        return turns_refuse(t, "content",
                            "has no text that the answer could continue; end with a user's message");
    }
    return turns_end(t);
}

static quire_err turns_read_all(turns *t, const json_value *system, const json_value *messages,
                                turns_written *out) {
    json_begin(&t->o, '[');
    if (system != NULL) {
        t->i = -1;
        t->role = IN_SYSTEM;
        TRY(turns_read_content(t, system, IN_SYSTEM));
        TRY(turns_end(t));
    }
    for (size_t n = 0; n < json_length(messages); n++) {
        t->i = (int64_t)n;
        TRY(turns_read_message(t, json_at(messages, n)));
    }
    TRY(turns_end_last(t, out));
    json_end(&t->o, ']');
    return t->o.err;
}

quire_err turns_write(const quire_request *r, const json_value *system, const json_value *messages,
                      turns_written *out, quire_error *err) {
    turns t = {.r = r, .err = err, .o = {.to = &out->json}, .j = -1, .k = -1};
    quire_err e = turns_read_all(&t, system, messages, out);
    strbuf_deinit(&t.text);
    strbuf_deinit(&t.thought);
    strbuf_deinit(&t.calls);
    mem_free(t.open);
    return e == QUIRE_OK || e == QUIRE_BAD_REQUEST ? e : err_set(err, e, -1, "out of memory for messages");
}
