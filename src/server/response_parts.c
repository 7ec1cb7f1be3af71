/* Reasoning and tool calls of a chat's response. */
#include "base/mem.h"
#include "server/response.h"

/* The call that an event's part is of: the last one, or a new entry. NULL: no memory. */
static response_call *call_of(response_parts *p, int32_t index) {
    if (p->n_calls > 0 && p->calls[p->n_calls - 1].index == index) {
        return &p->calls[p->n_calls - 1];
    }
    if (mem_grow(&p->calls, &p->cap_calls, p->n_calls + 1, sizeof *p->calls) != QUIRE_OK) {
        return NULL;
    }
    response_call *call = &p->calls[p->n_calls++];
    *call = (response_call){.index = index};
    return call;
}

static quire_err take_call(response_choice *c, const quire_part *part) {
    response_call *call = call_of(&c->parts, part->call);
    TRY(mem_check(call));
    call->is_custom = part->is_custom;
    if (part->kind == QUIRE_PART_CALL) {
        call->begins = true;
        c->parts.n_bytes += sizeof *call;
        return strbuf_add(&call->name, part->text, part->n_text);
    }
    return strbuf_add(&call->arguments, part->text, part->n_text);
}

quire_err response_take_parts(const response *a, response_choice *c, const quire_event *ev) {
    for (int32_t i = 0; i < ev->n_parts; i++) {
        const quire_part *part = &ev->parts[i];
        if (part->kind == QUIRE_PART_CONTENT) {
            TRY(strbuf_add(&c->text, part->text, part->n_text));
        } else if (part->kind == QUIRE_PART_REASONING) {
            TRY(strbuf_add(&c->parts.reasoning, part->text, part->n_text));
            c->parts.n_bytes += part->n_text;
        } else if (part->kind != QUIRE_PART_CALL_END) {
            TRY(take_call(c, part));
            c->chose_calls = !a->info->names_call;
            c->parts.n_bytes += part->n_text;
        }
    }
    return QUIRE_OK;
}

void response_clear_parts(response_parts *p) {
    for (size_t i = 0; i < p->n_calls; i++) {
        strbuf_deinit(&p->calls[i].name);
        strbuf_deinit(&p->calls[i].arguments);
    }
    p->n_calls = p->n_bytes = 0;
    strbuf_clear(&p->reasoning);
}

void response_deinit_parts(response_parts *p) {
    response_clear_parts(p);
    mem_free(p->calls);
    strbuf_deinit(&p->reasoning);
    *p = (response_parts){0};
}

#define CALL_ID_BYTES 9 /* letters and digits: the templates of some models take no other ids */

/* The id of a call: of the response's id, the choice and the call, so that it is the same in each chunk. */
static void write_id(const response *a, const response_choice *c, int32_t index, json_out *o) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char id[CALL_ID_BYTES];
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (const char *p = a->id; *p != 0; p++) {
        sum = (sum ^ (uint8_t)*p) * 1099511628211u;
    }
    sum = (sum ^ (uint64_t)(c - a->choices)) * 1099511628211u;
    sum = (sum ^ (uint64_t)index) * 1099511628211u;
    sum ^= sum >> 32;
    for (int i = 0; i < CALL_ID_BYTES; i++) {
        id[i] = digits[sum % 62];
        sum /= 62;
    }
    json_text(json_name(o, "id"), id, sizeof id);
}

static void write_text(json_out *o, const char *name, const strbuf *text) {
    json_text(json_name(o, name), text->n > 0 ? text->p : "", text->n);
}

/* The function or custom tool with what it is called with; the name only where the call begins. */
static void write_called(const response_call *call, json_out *o) {
    json_begin(o, '{');
    if (call->begins) {
        write_text(o, "name", &call->name);
    }
    write_text(o, call->is_custom ? "input" : "arguments", &call->arguments);
    json_end(o, '}');
}

/* {"id":..,"type":"function","function":{..}}; in a delta with the index, and the id only where the call begins. */
static void write_call(const response *a, const response_choice *c, const response_call *call, bool is_delta, json_out *o) {
    const char *type = call->is_custom ? "custom" : "function";
    json_begin(json_item(o), '{');
    if (call->begins) {
        write_id(a, c, call->index, o);
        json_cstr(json_name(o, "type"), type);
    }
    if (is_delta) {
        json_int(json_name(o, "index"), call->index);
    }
    write_called(call, json_name(o, type));
    json_end(o, '}');
}

static void write_calls(const response *a, const response_choice *c, bool is_delta, json_out *o) {
    if (c->parts.n_calls == 0) {
        return;
    }
    if (a->info->old_calls) {
        write_called(&c->parts.calls[0], json_name(o, "function_call"));
        return;
    }
    json_begin(json_name(o, "tool_calls"), '[');
    for (size_t i = 0; i < c->parts.n_calls; i++) {
        write_call(a, c, &c->parts.calls[i], is_delta, o);
    }
    json_end(o, ']');
}

static void write_reasoning(const response_choice *c, json_out *o) {
    write_text(o, "reasoning", &c->parts.reasoning);
    write_text(o, "reasoning_content", &c->parts.reasoning);
}

void response_write_parts(const response *a, const response_choice *c, json_out *o) {
    write_calls(a, c, false, o);
    if (c->parts.reasoning.n > 0) {
        write_reasoning(c, o);
    } else {
        json_raw(json_name(o, "reasoning"), "null");
    }
}

void response_write_parts_delta(const response *a, const response_choice *c, json_out *o) {
    if (c->parts.reasoning.n > 0) {
        write_reasoning(c, o);
    }
    write_calls(a, c, true, o);
}
