#include "answer/output_events.h"

#include "base/mem.h"

void output_events_clear(output_events *e) {
    e->n = 0;
    strbuf_clear(&e->text);
}

void output_events_deinit(output_events *e) {
    mem_free(e->items);
    strbuf_deinit(&e->text);
    *e = (output_events){0};
}

quire_err output_events_add(output_events *e, output_kind kind, int32_t call, str text, str id) {
    output_event *last = e->n > 0 ? &e->items[e->n - 1] : NULL;
    bool joins = last != NULL && last->kind == kind && kind != OUTPUT_CALL_BEGIN && kind != OUTPUT_CALL_END;
    if (!joins) {
        TRY(mem_grow(&e->items, &e->cap, e->n + 1, sizeof *e->items));
    }
    output_event made = {
        .kind = kind, .call = call, .text = e->text.n, .n = text.n, .id = e->text.n + text.n, .n_id = id.n};
    TRY(strbuf_reserve(&e->text, text.n + id.n));
    TRY(strbuf_add(&e->text, text.p, text.n));
    TRY(strbuf_add(&e->text, id.p, id.n));
    if (joins) {
        e->items[e->n - 1].n += text.n;
    } else {
        e->items[e->n++] = made;
    }
    return QUIRE_OK;
}
