/* Writes responses of POST /v1/responses, and keeps them in the store. */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/response.h"
#include "server/response_store.h"

typedef enum item_kind { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL } item_kind;

/* An item of the output. */
typedef struct output_item {
    item_kind kind;
    int32_t call; /* index of the choice's call; -1: the item is no call */
    bool is_custom;
    strbuf space, name;    /* call: its tool's namespace (may be empty) and name */
    strbuf text, logprobs; /* logprobs: only of a message */
} output_item;

/* The writer's state: the output items and what the stream has sent of them. */
typedef struct responses_state {
    output_item *items;
    size_t n_items, cap_items;
    bool is_open;     /* stream: the last item has not ended */
    int64_t sequence; /* stream: number of the next event */
    int64_t completed_s;
    int32_t n_reasoning; /* tokens */
    bool reasons;        /* the last part of an event was reasoning */
    const char *status;  /* NULL: derived from how the response ended */
    const api_error *why;
    response_store *store;
    response_turn *parent; /* turn in the store that it continues; NULL: none */
    quire_err err;
} responses_state;

static responses_state *responses_of(const response *a) {
    return a->state;
}

static const quire_responses_info *responses_info(const response *a) {
    static const quire_responses_info none = {.members = "", .input = ""};
    return a->responses != NULL ? a->responses : &none;
}

/* ---- opening, and taking events ---- */

static quire_err responses_open(response *a, quire_error *err) {
    responses_state *st = a->state;
    server *s = a->loop->server;
    const quire_responses_info *r = responses_info(a);
    st->store = s->responses;
    if (r->is_background && s->options.max_responses_bytes == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "background",
                             "background needs stored responses, which are off (--responses-bytes 0)");
    }
    int64_t left = s->options.max_connections - atomic_load(&s->n_background);
    if (r->is_background && response_store_running(s->responses, a->tenant) >= left) {
        return err_set(err, QUIRE_BUSY, -1,
                       "too many responses are being generated in the background: a tenant may have as many "
                       "as are still free of %d in all (--max-connections); try again later",
                       (int)s->options.max_connections);
    }
    if (r->previous == NULL) {
        return QUIRE_OK;
    }
    st->parent = response_store_turn(s->responses, a->tenant, str_of(r->previous), clock_us());
    return st->parent != NULL ? QUIRE_OK
                              : err_set_param(err, QUIRE_NOT_FOUND, "previous_response_id",
                                              "there is no response %.80s", r->previous);
}

/* Writes the answer's id: the digits of the response's id, which the ids of its items
 * contain (request/response_items.c). */
static bool responses_answer_id(const response *a, const response_choice *c,
                                char out[RESPONSE_ANSWER_ID_BYTES]) {
    (void)c;
    (void)snprintf(out, RESPONSE_ANSWER_ID_BYTES, "%s", a->id);
    return true;
}

static void responses_deinit(void *state) {
    responses_state *st = state;
    for (size_t i = 0; i < st->n_items; i++) {
        strbuf_deinit(&st->items[i].space);
        strbuf_deinit(&st->items[i].name);
        strbuf_deinit(&st->items[i].text);
        strbuf_deinit(&st->items[i].logprobs);
    }
    mem_free(st->items);
    if (st->parent != NULL) {
        response_turn_drop(st->store, st->parent);
    }
}

/* Counts tokens of reasoning: those with reasoning as text, and those without text that
 * follow them. */
static void responses_note(response *a, const quire_event *ev) {
    responses_state *st = a->state;
    for (int32_t i = 0; i < ev->n_parts; i++) {
        st->reasons = ev->parts[i].kind == QUIRE_PART_REASONING;
    }
    st->n_reasoning += st->reasons ? ev->n_tokens : 0;
}

/* The run of the content that an event adds; NULL: it adds none. */
static answer_run *responses_content_run(const answer_parts *p, const quire_event *ev) {
    size_t i = p->n_runs, n = 0;
    for (int32_t k = 0; k < ev->n_parts; k++) {
        n += ev->parts[k].kind == QUIRE_PART_CONTENT ? ev->parts[k].n_text : 0;
    }
    while (n > 0 && p->runs[i - 1].kind != QUIRE_PART_CONTENT) {
        i--;
    }
    return n > 0 ? &p->runs[i - 1] : NULL;
}

/* Appends a list of log-probabilities to another. */
static quire_err responses_join(strbuf *to, str list) {
    if (to->n > 0 && list.n > 0) {
        TRY(strbuf_add_char(to, ','));
    }
    return strbuf_add(to, list.p, list.n);
}

#define FIND_MAX_BYTES ((size_t)1 << 24) /* most bytes compared to find a part */

/* A stretch of text, in bytes. */
typedef struct text_span {
    size_t from, to;
} text_span;

/* Finds a part in the waiting text. Text before it there belongs to a mark. If the part's
 * beginning is not found, it is older text that the parser had held, or a line break that
 * the parser added after a call. Over FIND_MAX_BYTES of work: all waiting text. */
static text_span responses_find(str waiting, str part) {
    size_t work = 0;
    for (; part.n > 0 && work < FIND_MAX_BYTES; part.p++, part.n--) {
        size_t last = waiting.n >= part.n ? waiting.n - part.n + 1 : 0;
        if (last > 0 && memcmp(waiting.p, part.p, part.n) == 0) {
            return (text_span){0, part.n};
        }
        while (last-- > 0 && work < FIND_MAX_BYTES) {
            work += part.n;
            if (memcmp(waiting.p + last, part.p, part.n) == 0) {
                return (text_span){last, last + part.n};
            }
        }
    }
    return (text_span){0, waiting.n}; /* includes marks rather than omit text */
}

/* The span of an event's content in the waiting text, from its first part to its last. */
static text_span responses_find_content(str waiting, const quire_event *ev) {
    text_span all = {waiting.n, 0};
    for (int32_t i = 0; i < ev->n_parts; i++) {
        const quire_part *part = &ev->parts[i];
        if (part->kind == QUIRE_PART_CONTENT && part->n_text > 0) {
            text_span at = responses_find(waiting, (str){part->text, part->n_text});
            all.from = at.from < all.from ? at.from : all.from;
            all.to = at.to > all.to ? at.to : all.to;
        }
    }
    return all;
}

/* Whether the text omits a token, which is special; others may be part of characters. */
static bool responses_is_left_out(const response *a, const quire_event *ev) {
    char *text = NULL;
    size_t n = 0;
    quire_error err;
    if (ev->n_decoded > 0 ||
        quire_detokenize(response_engine(a), ev->tokens, 1, true, &text, &n, &err) != QUIRE_OK) {
        return false;
    }
    quire_free(text);
    return n == 0;
}

/* Adds an event's token and text to the waiting ones. */
static quire_err responses_add_waiting(const response *a, response_logprobs *l, const quire_event *ev) {
    if (ev->n_tokens > 0) {
        TRY(mem_grow(&l->waiting, &l->cap_waiting, l->n_waiting + 1, sizeof *l->waiting));
        if (!responses_is_left_out(a, ev)) {
            TRY(chat_list_numbers(a, &l->values, ev));
        }
        l->waiting[l->n_waiting++] =
            (token_waiting){.n_text = ev->n_decoded, .id = -1, .n_values = l->values.n};
    }
    l->n_shown += ev->n_text;
    return strbuf_add(&l->shown, ev->text, ev->n_text);
}

/* Drops the first n waiting tokens, with their numbers. */
static void responses_drop_waiting(response_logprobs *l, size_t n) {
    size_t cut = n > 0 ? l->waiting[n - 1].n_values : 0;
    cut += cut > 0 && cut < l->values.n; /* the comma */
    if (cut > 0) {
        memmove(l->values.p, l->values.p + cut, l->values.n - cut + 1);
        l->values.n -= cut;
    }
    for (size_t i = n; i < l->n_waiting; i++) {
        l->waiting[i - n] = l->waiting[i];
        l->waiting[i - n].n_values -= l->waiting[i].n_values > cut ? cut : l->waiting[i].n_values;
    }
    l->n_waiting -= n;
}

/* Settles the waiting tokens that begin before byte `to` of the response's text, and
 * lists those of them that end after byte `from`. */
static quire_err responses_settle(response_logprobs *l, size_t from, size_t to) {
    size_t n = 0, done = 0;
    for (; n < l->n_waiting && l->base < to; n++) {
        const token_waiting *w = &l->waiting[n];
        bool is_text = l->base + w->n_text > from || (w->n_text == 0 && l->base == from);
        size_t at = done + (done > 0); /* skips the comma */
        if (is_text && w->n_values > at) {
            TRY(responses_join(&l->content, (str){l->values.p + at, w->n_values - at}));
        }
        done = w->n_values;
        l->base += w->n_text;
    }
    responses_drop_waiting(l, n);
    return QUIRE_OK;
}

/* Lists a token. Only tokens of a message's text are shown, so each token waits in
 * `waiting`, its numbers in `values` and the events' text in `shown`, until parts tell
 * which text is content. Later text waits on, since it may begin a mark. */
static quire_err responses_list_token(const response *a, response_choice *c, const quire_event *ev) {
    response_logprobs *l = &c->logprobs;
    if (!a->info->has_parts) {
        return chat_list_numbers(a, &l->content, ev);
    }
    TRY(responses_add_waiting(a, l, ev));
    if (ev->n_parts == 0) {
        return QUIRE_OK;
    }
    size_t began = l->n_shown - l->shown.n;
    answer_run *run = responses_content_run(&c->parts, ev);
    if (run == NULL) {
        strbuf_clear(&l->shown);
        return responses_settle(l, SIZE_MAX, l->n_shown);
    }
    text_span content = responses_find_content((str){l->shown.p, l->shown.n}, ev);
    TRY(responses_settle(l, began + content.from, began + content.to));
    run->logprobs_end = l->content.n;
    if (content.to > 0) {
        memmove(l->shown.p, l->shown.p + content.to, l->shown.n - content.to + 1);
        l->shown.n -= content.to;
    }
    return QUIRE_OK;
}

/* ---- items ---- */

static void responses_write_strbuf(const char *name, const strbuf *text, json_out *o) {
    json_text(json_name(o, name), text->n > 0 ? text->p : "", text->n);
}

/* Writes the id of item i: the response's with another prefix, and i. */
static void responses_write_item_id(const response *a, const char *name, size_t i, json_out *o) {
    const output_item *item = &responses_of(a)->items[i];
    const char *prefix = item->kind == ITEM_REASONING ? "rs"
                         : item->kind == ITEM_MESSAGE ? "msg"
                         : item->is_custom            ? "ctc"
                                                      : "fc";
    char id[64];
    (void)snprintf(id, sizeof id, "%s_%s%02zx", prefix, strchr(a->id, '_') + 1, i);
    json_cstr(json_name(o, name), id);
}

/* Writes the single part of a message or a reasoning item. */
static void responses_write_part(const output_item *item, bool is_empty, json_out *o) {
    static const strbuf none = {.p = NULL};
    bool is_text = item->kind == ITEM_MESSAGE;
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), is_text ? "output_text" : "reasoning_text");
    responses_write_strbuf("text", is_empty ? &none : &item->text, o);
    if (is_text) {
        json_raw(json_name(o, "annotations"), "[]");
        json_begin(json_name(o, "logprobs"), '[');
        json_raw_part(o, (str){item->logprobs.p, is_empty ? 0 : item->logprobs.n});
        json_end(o, ']');
    }
    json_end(o, '}');
}

static void responses_write_call(const response *a, const output_item *item, bool is_empty, json_out *o) {
    static const strbuf none = {.p = NULL};
    char id[ANSWER_CALL_ID_BYTES + 1];
    answer_call_id(response_place(a, &a->choices[0]), item->call, id);
    json_cstr(json_name(o, "call_id"), id);
    if (item->space.n > 0) {
        responses_write_strbuf("namespace", &item->space, o);
    }
    responses_write_strbuf("name", &item->name, o);
    responses_write_strbuf(item->is_custom ? "input" : "arguments", is_empty ? &none : &item->text, o);
}

/* Writes item i; is_empty: as it is when it begins. */
static void responses_write_item(const response *a, size_t i, bool is_empty, const char *status,
                                 json_out *o) {
    const output_item *item = &responses_of(a)->items[i];
    json_begin(o, '{');
    responses_write_item_id(a, "id", i, o);
    json_cstr(json_name(o, "type"), item->kind == ITEM_REASONING ? "reasoning"
                                    : item->kind == ITEM_MESSAGE ? "message"
                                    : item->is_custom            ? "custom_tool_call"
                                                                 : "function_call");
    json_cstr(json_name(o, "status"), status);
    if (item->kind == ITEM_CALL) {
        responses_write_call(a, item, is_empty, o);
    } else {
        if (item->kind == ITEM_MESSAGE) {
            json_cstr(json_name(o, "role"), "assistant");
        } else {
            json_raw(json_name(o, "summary"), "[]");
            json_raw(json_name(o, "encrypted_content"), "null");
        }
        json_begin(json_name(o, "content"), '[');
        if (!is_empty) {
            responses_write_part(item, false, json_item(o));
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

/* ---- the response ---- */

static bool responses_is_cut(const response *a) {
    return a->choices[0].finish == QUIRE_FINISH_LENGTH;
}

static const char *responses_status(const response *a) {
    const responses_state *st = a->state;
    return st->status != NULL ? st->status : responses_is_cut(a) ? "incomplete" : "completed";
}

/* The status of item i: the last one of a truncated response is incomplete. */
static const char *responses_item_status(const response *a, size_t i) {
    const responses_state *st = a->state;
    bool is_cut = i + 1 == st->n_items && (responses_is_cut(a) || st->why != NULL);
    return is_cut ? "incomplete" : "completed";
}

static void responses_write_usage(const response *a, json_out *o) {
    const responses_state *st = a->state;
    int32_t n_reasoning = st->n_reasoning < a->completion_tokens ? st->n_reasoning : a->completion_tokens;
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "input_tokens"), a->prompt_tokens);
    const json_named_int in[] = {{"cached_tokens", a->cached_tokens}, {"cache_write_tokens", 0}, {NULL, 0}};
    json_named_ints(json_name(o, "input_tokens_details"), in);
    json_int(json_name(o, "output_tokens"), a->completion_tokens);
    const json_named_int out[] = {{"reasoning_tokens", n_reasoning}, {NULL, 0}};
    json_named_ints(json_name(o, "output_tokens_details"), out);
    json_int(json_name(o, "total_tokens"), (int64_t)a->prompt_tokens + a->completion_tokens);
    json_end(o, '}');
}

static void responses_write_ends(const response *a, json_out *o) {
    const responses_state *st = a->state;
    json_name(o, "completed_at"); /* null if incomplete or failed, as at OpenAI */
    if (st->completed_s > 0 && strcmp(responses_status(a), "completed") == 0) {
        json_int(o, st->completed_s);
    } else {
        json_raw(o, "null");
    }
    json_name(o, "error");
    if (st->why != NULL) {
        json_begin(o, '{');
        bool is_prompts = st->why->status < 500 && st->why->status != STATUS_CANCELLED;
        json_cstr(json_name(o, "code"), st->why->status == 429 ? "rate_limit_exceeded"
                                        : is_prompts           ? "invalid_prompt"
                                                               : "server_error");
        json_cstr(json_name(o, "message"), st->why->message);
        json_end(o, '}');
    } else {
        json_raw(o, "null");
    }
    json_name(o, "incomplete_details");
    json_raw(o,
             strcmp(responses_status(a), "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
}

/* Writes a response up to its items. */
static void responses_begin(const response *a, json_out *o) {
    o->err = responses_of(a)->err;
    json_begin(o, '{');
    json_cstr(json_name(o, "id"), a->id);
    json_cstr(json_name(o, "object"), a->writer->object);
    json_int(json_name(o, "created_at"), a->created_s);
    json_cstr(json_name(o, "status"), responses_status(a));
    responses_write_ends(a, o);
    json_cstr(json_name(o, "model"), response_model(a));
    json_begin(json_name(o, "output"), '[');
}

/* Writes the items of a complete response; at once, since long ones are few. */
static void responses_choice(const response *a, int32_t index, json_out *o) {
    (void)index;
    for (size_t i = 0; i < responses_of(a)->n_items; i++) {
        responses_write_item(a, i, false, responses_item_status(a, i), json_item(o));
    }
}

static void responses_end(const response *a, json_out *o) {
    const char *members = responses_info(a)->members;
    json_end(o, ']');
    if (responses_of(a)->completed_s > 0) {
        responses_write_usage(a, o);
    } else {
        json_raw(json_name(o, "usage"), "null");
    }
    json_raw(o, members[0] != '\0' ? "," : "");
    json_raw(o, members);
    json_end(o, '}');
}

static void responses_write_object(const response *a, json_out *o) {
    responses_begin(a, o);
    responses_choice(a, 0, o);
    responses_end(a, o);
}

/* ---- events ---- */

static void responses_begin_event(const response *a, const char *type, json_out *o) {
    json_raw(o, "event: ");
    json_raw(o, type);
    json_raw(o, "\ndata: ");
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), type);
    json_int(json_name(o, "sequence_number"), responses_of(a)->sequence++);
}

static void responses_end_event(json_out *o) {
    json_raw(o, "}\n\n");
}

/* Writes an event about the whole response. */
static void responses_write_event(const response *a, const char *type, json_out *o) {
    responses_begin_event(a, type, o);
    json_name(o, "response");
    responses_write_object(a, o);
    responses_end_event(o);
}

/* Begins an event about the last item, up to the event's own members. */
static void responses_begin_item_event(const response *a, const char *type, json_out *o) {
    const responses_state *st = a->state;
    size_t i = st->n_items - 1;
    bool has_parts = st->items[i].kind != ITEM_CALL;
    responses_begin_event(a, type, o);
    responses_write_item_id(a, "item_id", i, o);
    json_int(json_name(o, "output_index"), (int64_t)i);
    if (has_parts) {
        json_int(json_name(o, "content_index"), 0);
    }
}

/* Writes response.output_item.added or .done. */
static void responses_write_item_event(const response *a, const char *type, bool is_empty, const char *status,
                                       json_out *o) {
    size_t i = responses_of(a)->n_items - 1;
    responses_begin_event(a, type, o);
    json_int(json_name(o, "output_index"), (int64_t)i);
    json_name(o, "item");
    responses_write_item(a, i, is_empty, status, o);
    responses_end_event(o);
}

/* The names of an item's events, and of the member with its text. */
typedef struct item_events {
    const char *delta, *done, *text;
} item_events;

static item_events responses_events_of(const output_item *item) {
    if (item->kind == ITEM_REASONING) {
        return (item_events){"response.reasoning_text.delta", "response.reasoning_text.done", "text"};
    }
    if (item->kind == ITEM_MESSAGE) {
        return (item_events){"response.output_text.delta", "response.output_text.done", "text"};
    }
    if (item->is_custom) {
        return (item_events){"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
                             "input"};
    }
    return (item_events){"response.function_call_arguments.delta", "response.function_call_arguments.done",
                         "arguments"};
}

static void responses_write_logprobs(const char *p, size_t n, json_out *o) {
    json_begin(json_name(o, "logprobs"), '[');
    json_raw_part(o, (str){p, n});
    json_end(o, ']');
}

/* Writes response.content_part.added or .done. */
static void responses_write_part_event(const response *a, const char *type, bool is_empty, json_out *o) {
    const responses_state *st = a->state;
    responses_begin_item_event(a, type, o);
    responses_write_part(&st->items[st->n_items - 1], is_empty, json_name(o, "part"));
    responses_end_event(o);
}

static void responses_write_item_begin(const response *a, json_out *o) {
    const responses_state *st = a->state;
    responses_write_item_event(a, "response.output_item.added", true, "in_progress", o);
    if (st->items[st->n_items - 1].kind != ITEM_CALL) {
        responses_write_part_event(a, "response.content_part.added", true, o);
    }
}

/* Writes the events that end the last item. */
static void responses_close_item(const response *a, const char *status, json_out *o) {
    responses_state *st = a->state;
    if (o == NULL || !st->is_open) {
        return;
    }
    const output_item *item = &st->items[st->n_items - 1];
    item_events events = responses_events_of(item);
    st->is_open = false;
    responses_begin_item_event(a, events.done, o);
    responses_write_strbuf(events.text, &item->text, o);
    if (item->kind == ITEM_MESSAGE) {
        responses_write_logprobs(item->logprobs.p, item->logprobs.n, o);
    } else if (item->kind == ITEM_CALL && !item->is_custom) {
        responses_write_strbuf("name", &item->name, o);
    }
    responses_end_event(o);
    if (item->kind != ITEM_CALL) {
        responses_write_part_event(a, "response.content_part.done", false, o);
    }
    responses_write_item_event(a, "response.output_item.done", false, status, o);
}

/* ---- items from the parts of a choice ---- */

/* Names the tool of a call as the request does. */
static quire_err responses_name_call(const response *a, str called, output_item *item) {
    size_t n = quire_stream_namespace(a->stream, called.p, called.n), skipped = n > 0 ? n + 1 : 0;
    TRY(strbuf_add(&item->space, called.p, n));
    return strbuf_add(&item->name, called.p + skipped, called.n - skipped);
}

/* Ensures that the last item has this kind and call. o NULL: without events. */
static quire_err responses_reach(const response *a, item_kind kind, const answer_call *call, json_out *o) {
    responses_state *st = a->state;
    int32_t index = call != NULL ? call->index : -1;
    const output_item *last = st->n_items > 0 ? &st->items[st->n_items - 1] : NULL;
    if (last != NULL && last->kind == kind && last->call == index) {
        return QUIRE_OK;
    }
    responses_close_item(a, "completed", o);
    TRY(mem_grow(&st->items, &st->cap_items, st->n_items + 1, sizeof *st->items));
    output_item *item = &st->items[st->n_items++];
    *item = (output_item){.kind = kind, .call = index, .is_custom = call != NULL && call->is_custom};
    if (call != NULL) {
        TRY(responses_name_call(a, (str){call->name.p, call->name.n}, item));
    }
    if (o != NULL) {
        st->is_open = true;
        responses_write_item_begin(a, o);
    }
    return QUIRE_OK;
}

/* Adds text to the last item. logprobs: the text's. */
static quire_err responses_add(const response *a, str text, str logprobs, json_out *o) {
    responses_state *st = a->state;
    output_item *item = &st->items[st->n_items - 1];
    TRY(strbuf_add(&item->text, text.p, text.n));
    TRY(responses_join(&item->logprobs, logprobs));
    if (o != NULL) {
        responses_begin_item_event(a, responses_events_of(item).delta, o);
        json_text(json_name(o, "delta"), text.p, text.n);
        if (item->kind == ITEM_MESSAGE) {
            responses_write_logprobs(logprobs.p, logprobs.n, o);
        }
        responses_end_event(o);
    }
    return QUIRE_OK;
}

static quire_err responses_add_call(const response *a, const answer_call *call, json_out *o) {
    const str arguments = {call->arguments.p, call->arguments.n};
    TRY(responses_reach(a, ITEM_CALL, call, o));
    return arguments.n > 0 ? responses_add(a, arguments, (str){0}, o) : QUIRE_OK;
}

/* Adds the parts of the choice, or withheld chunk, to the items; o NULL: without
 * events. */
static quire_err responses_take(const response *a, json_out *o) {
    const response_choice *c = &a->choices[0];
    const strbuf *list = &c->logprobs.content;
    const answer_run *runs;
    answer_run whole;
    size_t n = response_runs(a, c, &whole, &runs), listed = 0;
    for (size_t i = 0; i < n; i++) {
        const answer_run *run = &runs[i];
        if (run->kind == QUIRE_PART_CALL) {
            TRY(responses_add_call(a, &c->parts.calls[run->at], o));
            continue;
        }
        bool is_text = run->kind == QUIRE_PART_CONTENT;
        size_t from = listed + (listed > 0 && run->logprobs_end > listed); /* skips the comma */
        str logprobs = is_text && run->logprobs_end > from ? (str){list->p + from, run->logprobs_end - from}
                                                           : (str){"", 0};
        listed = run->logprobs_end > listed ? run->logprobs_end : listed;
        TRY(responses_reach(a, is_text ? ITEM_MESSAGE : ITEM_REASONING, NULL, o));
        TRY(responses_add(a, response_run_text(c, run), logprobs, o));
    }
    return QUIRE_OK;
}

/* ---- the stream ---- */

static void responses_write_first(const response *a, int32_t choice, json_out *o) {
    (void)choice;
    responses_of(a)->status = "in_progress";
    responses_write_event(a, "response.created", o);
    responses_write_event(a, "response.in_progress", o);
    responses_of(a)->status = NULL;
}

static void responses_write_chunk(const response *a, int32_t choice, json_out *o) {
    (void)choice;
    quire_err e = responses_take(a, o);
    if (o->err == QUIRE_OK) {
        o->err = e;
    }
}

static void responses_write_last(const response *a, json_out *o) {
    responses_state *st = a->state;
    if (st->n_items > 0 && !st->is_open) { /* the answer is an empty message, which is made at the end */
        st->is_open = true;
        responses_write_item_begin(a, o);
    }
    if (st->n_items > 0) {
        responses_close_item(a, responses_item_status(a, st->n_items - 1), o);
    }
    responses_write_event(a, responses_is_cut(a) ? "response.incomplete" : "response.completed", o);
}

static void responses_write_error(const response *a, const api_error *e, json_out *o) {
    responses_state *st = a->state;
    responses_begin_event(a, "error", o);
    json_cstr(json_name(o, "code"), e->code != NULL ? e->code : "server_error");
    json_cstr(json_name(o, "message"), e->message);
    json_cstr(json_name(o, "param"), e->param != NULL && e->param[0] != '\0' ? e->param : NULL);
    responses_end_event(o);
    st->status = "failed";
    st->why = e;
    responses_write_event(a, "response.failed", o);
}

/* ---- keeping ---- */

/* Writes the items of the output, one on each line. */
static void responses_write_lines(const response *a, json_out *o) {
    for (size_t i = 0; i < responses_of(a)->n_items; i++) {
        json_raw(o, i > 0 ? "\n" : "");
        responses_write_item(a, i, false, responses_item_status(a, i), o);
    }
}

static quire_err responses_store_it(const response *a, response_stage stage) {
    const responses_state *st = a->state;
    const quire_responses_info *r = responses_info(a);
    strbuf object = {0}, lines = {0};
    json_out o = {.to = &object}, output = {.to = &lines};
    responses_write_object(a, &o);
    responses_write_lines(a, &output);
    const response_to_keep keep = {.tenant = a->tenant,
                                   .id = a->id,
                                   .object = {object.p, object.n},
                                   .input = {r->input, r->n_input},
                                   .output = {lines.p, lines.n},
                                   .parent = st->parent,
                                   .replaces = a->conn == NULL && stage != RESPONSE_QUEUED,
                                   .in_progress = stage == RESPONSE_QUEUED || stage == RESPONSE_BEGUN};
    quire_err e = o.err != QUIRE_OK ? o.err : output.err;
    TRY_DONE(e, response_store_keep(st->store, &keep, clock_us()));
done:
    strbuf_deinit(&object);
    strbuf_deinit(&lines);
    return e;
}

/* Collects the items of a whole response, at least one, and sets its final state. */
static void responses_complete(response *a) {
    responses_state *st = a->state;
    if (!a->info->stream) {
        st->err = responses_take(a, NULL);
    }
    st->completed_s = clock_unix_s();
    if (st->err == QUIRE_OK && st->n_items == 0) {
        st->err = responses_reach(a, ITEM_MESSAGE, NULL, NULL);
    }
}

static void responses_keep(response *a, response_stage stage, const api_error *why) {
    responses_state *st = a->state;
    if (stage == RESPONSE_COMPLETE) {
        st->status = NULL;
        responses_complete(a);
    } else {
        st->status = stage == RESPONSE_QUEUED ? "queued" : stage == RESPONSE_BEGUN ? "in_progress" : "failed";
        st->why = why;
    }
    if (!responses_info(a)->is_stored) {
        return;
    }
    if (responses_store_it(a, stage) != QUIRE_OK) { /* out of memory: the response will not be found */
        (void)response_store_delete(st->store, a->tenant, str_of(a->id), clock_us());
    }
}

const response_writer responses_writer = {
    .id_prefix = "resp_",
    .object = "response",
    .chunk_object = "response",
    .skips_empty = true,
    .parses_apart = true,
    .is_linear = true,
    .state_bytes = sizeof(responses_state),
    .deinit = responses_deinit,
    .open = responses_open,
    .answer_id = responses_answer_id,
    .note = responses_note,
    .keep = responses_keep,
    .begin = responses_begin,
    .choice = responses_choice,
    .end = responses_end,
    .first = responses_write_first,
    .chunk = responses_write_chunk,
    .last = responses_write_last,
    .error = responses_write_error,
    .logprobs = {.token = responses_list_token, .write = chat_write_logprobs},
};
