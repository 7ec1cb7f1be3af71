#include "server/answer_parts.h"

#include <assert.h>

#include "base/mem.h"

/* ---- collecting ---- */

/* The call of an event's part: the last call, or a new one. NULL: out of memory. */
static answer_call *answer_call_of(answer_parts *p, int32_t index) {
    if (p->n_calls > 0 && p->calls[p->n_calls - 1].index == index) {
        return &p->calls[p->n_calls - 1];
    }
    if (mem_grow(&p->calls, &p->cap_calls, p->n_calls + 1, sizeof *p->calls) != QUIRE_OK) {
        return NULL;
    }
    answer_call *call = &p->calls[p->n_calls++];
    *call = (answer_call){.index = index};
    return call;
}

/* Extends the last run by n bytes of text, or adds a run that begins at `at`. */
static quire_err answer_add_run(answer_parts *p, quire_part_kind kind, size_t at, size_t n) {
    answer_run *last = p->n_runs > 0 ? &p->runs[p->n_runs - 1] : NULL;
    bool is_same = last != NULL && last->kind == kind && (kind != QUIRE_PART_CALL || last->at == at);
    if (!is_same && (n > 0 || kind == QUIRE_PART_CALL)) {
        TRY(mem_grow(&p->runs, &p->cap_runs, p->n_runs + 1, sizeof *p->runs));
        last = &p->runs[p->n_runs++];
        *last = (answer_run){.kind = kind, .at = at};
    }
    if (last != NULL) {
        last->n += n;
    }
    return QUIRE_OK;
}

static quire_err answer_take_call(answer_parts *p, const quire_part *part) {
    assert(part->call >= 0);
    answer_call *call = answer_call_of(p, part->call);
    TRY(mem_check(call));
    TRY(answer_add_run(p, QUIRE_PART_CALL, p->n_calls - 1, 0));
    call->is_custom = part->is_custom;
    p->has_calls = true;
    p->n_bytes += part->n_text;
    if (part->kind == QUIRE_PART_CALL) {
        call->begins = true;
        p->n_bytes += sizeof *call;
        return strbuf_add(&call->name, part->text, part->n_text);
    }
    return strbuf_add(&call->arguments, part->text, part->n_text);
}

quire_err answer_parts_take(answer_parts *p, const quire_event *ev, strbuf *content) {
    for (int32_t i = 0; i < ev->n_parts; i++) {
        const quire_part *part = &ev->parts[i];
        if (part->kind == QUIRE_PART_CONTENT) {
            TRY(answer_add_run(p, part->kind, content->n, part->n_text));
            TRY(strbuf_add(content, part->text, part->n_text));
        } else if (part->kind == QUIRE_PART_REASONING) {
            TRY(answer_add_run(p, part->kind, p->reasoning.n, part->n_text));
            TRY(strbuf_add(&p->reasoning, part->text, part->n_text));
            p->n_bytes += part->n_text;
        } else if (part->kind != QUIRE_PART_CALL_END) {
            TRY(answer_take_call(p, part));
        }
    }
    return QUIRE_OK;
}

size_t answer_parts_bytes(const answer_parts *p) {
    return p->n_bytes + p->n_runs * sizeof *p->runs;
}

void answer_parts_clear(answer_parts *p) {
    for (size_t i = 0; i < p->n_calls; i++) {
        strbuf_deinit(&p->calls[i].name);
        strbuf_deinit(&p->calls[i].arguments);
    }
    p->n_calls = p->n_runs = p->n_bytes = 0;
    strbuf_clear(&p->reasoning);
}

void answer_parts_deinit(answer_parts *p) {
    answer_parts_clear(p);
    mem_free(p->calls);
    mem_free(p->runs);
    strbuf_deinit(&p->reasoning);
    *p = (answer_parts){0};
}

const char *answer_parts_finish_name(const answer_parts *p, answer_place at, quire_finish finish) {
    if (finish != QUIRE_FINISH_STOP || !p->has_calls || at.names_call) {
        return NULL;
    }
    return at.old_calls ? "function_call" : "tool_calls";
}

/* ---- writing ---- */

void answer_call_id(answer_place at, int32_t index, char out[ANSWER_CALL_ID_BYTES + 1]) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (const char *p = at.response_id; *p != 0; p++) {
        sum = (sum ^ (uint8_t)*p) * 1099511628211u;
    }
    sum = (sum ^ (uint64_t)at.choice) * 1099511628211u;
    sum = (sum ^ (uint64_t)index) * 1099511628211u;
    sum ^= sum >> 32;
    for (int i = 0; i < ANSWER_CALL_ID_BYTES; i++) {
        out[i] = digits[sum % 62];
        sum /= 62;
    }
    out[ANSWER_CALL_ID_BYTES] = '\0';
}

static void answer_write_text(json_out *o, const char *name, const strbuf *text) {
    json_text(json_name(o, name), text->n > 0 ? text->p : "", text->n);
}

/* Writes the function or custom tool of a call with its arguments; the name only if the
 * call begins. */
static void answer_write_called(const answer_call *call, json_out *o) {
    json_begin(o, '{');
    if (call->begins) {
        answer_write_text(o, "name", &call->name);
    }
    answer_write_text(o, call->is_custom ? "input" : "arguments", &call->arguments);
    json_end(o, '}');
}

/* Writes {"id":..,"type":"function","function":{..}}. In a delta it also has the index,
 * and the id only if the call begins. */
static void answer_write_call(const answer_call *call, answer_place at, bool is_delta, json_out *o) {
    const char *type = call->is_custom ? "custom" : "function";
    json_begin(json_item(o), '{');
    if (call->begins) {
        char id[ANSWER_CALL_ID_BYTES + 1];
        answer_call_id(at, call->index, id);
        json_cstr(json_name(o, "id"), id);
        json_cstr(json_name(o, "type"), type);
    }
    if (is_delta) {
        json_int(json_name(o, "index"), call->index);
    }
    answer_write_called(call, json_name(o, type));
    json_end(o, '}');
}

static void answer_write_calls(const answer_parts *p, answer_place at, bool is_delta, json_out *o) {
    if (p->n_calls == 0) {
        return;
    }
    if (at.old_calls) {
        answer_write_called(&p->calls[0], json_name(o, "function_call"));
        return;
    }
    json_begin(json_name(o, "tool_calls"), '[');
    for (size_t i = 0; i < p->n_calls; i++) {
        answer_write_call(&p->calls[i], at, is_delta, o);
    }
    json_end(o, ']');
}

static void answer_write_reasoning(const answer_parts *p, json_out *o) {
    if (p->reasoning.n > 0) {
        answer_write_text(o, "reasoning", &p->reasoning);
        answer_write_text(o, "reasoning_content", &p->reasoning);
    }
}

void answer_parts_write(const answer_parts *p, answer_place at, json_out *o) {
    answer_write_calls(p, at, false, o);
    answer_write_reasoning(p, o);
}

void answer_parts_write_delta(const answer_parts *p, answer_place at, json_out *o) {
    answer_write_reasoning(p, o);
    answer_write_calls(p, at, true, o);
}

void answer_parts_write_message(const answer_parts *p, answer_place at, str echo, str content, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "role"), "assistant");
    json_name(o, "content");
    if (echo.n + content.n == 0 && p->n_bytes > 0) {
        json_raw(o, "null");
    } else {
        json_texts(o, echo, content);
    }
    json_raw(o, ",\"refusal\":null,\"annotations\":null,\"audio\":null");
    json_raw(o, at.old_calls && p->n_calls > 0 ? "" : ",\"function_call\":null");
    answer_parts_write(p, at, o);
    if (p->reasoning.n == 0) {
        json_raw(json_name(o, "reasoning"), "null");
    }
    json_end(o, '}');
}
