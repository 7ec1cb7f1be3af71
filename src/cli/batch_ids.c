#include "cli/batch_ids.h"

#include <string.h>

#include "base/mem.h"
#include "json/json_check.h"
#include "json/json_scan.h"

/* A custom_id by its digest's first bytes, without known collisions. Line 0: none. */
typedef struct seen_id {
    uint8_t digest[12];
    uint32_t line;
} seen_id;

typedef struct seen_ids {
    seen_id *slots;
    size_t n, n_slots; /* n_slots: a power of two, or 0 */
} seen_ids;

static seen_id *batch_ids_slot_of(const seen_ids *s, const uint8_t *digest) {
    uint64_t at;
    memcpy(&at, digest, sizeof at);
    at &= s->n_slots - 1;
    while (s->slots[at].line != 0 && memcmp(s->slots[at].digest, digest, sizeof s->slots[at].digest) != 0) {
        at = (at + 1) & (s->n_slots - 1);
    }
    return &s->slots[at];
}

/* Makes room for one more; two thirds are used at most. */
static quire_err batch_ids_grow(seen_ids *s) {
    if (3 * (s->n + 1) <= 2 * s->n_slots) {
        return QUIRE_OK;
    }
    seen_ids larger = {.n = s->n, .n_slots = s->n_slots > 0 ? 2 * s->n_slots : 64};
    larger.slots = mem_new(larger.n_slots, sizeof *larger.slots);
    TRY(mem_check(larger.slots));
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].line != 0) {
            *batch_ids_slot_of(&larger, s->slots[i].digest) = s->slots[i];
        }
    }
    mem_free(s->slots);
    *s = larger;
    return QUIRE_OK;
}

/* Finds the id of a line, decoded where it is a string. Empty: it has none. */
static quire_err find_id(str line, strbuf *scratch, str *out) {
    json_fault fault;
    str span;
    *out = (str){"", 0};
    bool may = str_contains(line, str_of("custom_id")) || str_contains(line, str_of("\\u"));
    quire_err e = may ? json_check(line, &json_limits_file, NULL, &fault) : QUIRE_NOT_FOUND;
    bool is_object = e == QUIRE_OK && json_scan_peek(&(json_scan){.text = line}) == '{';
    if (e == QUIRE_NO_MEMORY || !is_object || json_scan_member(line, "custom_id", &span) != QUIRE_OK ||
        str_is(span, "null")) {
        return e == QUIRE_NO_MEMORY ? e : QUIRE_OK;
    }
    if (span.p[0] != '"') {
        *out = span;
        return QUIRE_OK;
    }
    return json_scan_string(&(json_scan){.text = span}, scratch, out);
}

/* Adds the id of the line that was read last. *earlier: the line that has it already, or
 * 0. */
static quire_err batch_ids_add_line(seen_ids *s, str line, size_t number, str *id, strbuf *scratch,
                                    uint32_t *earlier) {
    uint8_t digest[SHA256_BYTES];
    *earlier = 0;
    TRY(find_id(line, scratch, id));
    if (id->n == 0) {
        return QUIRE_OK;
    }
    if (number > UINT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    TRY(batch_ids_grow(s));
    sha256(id->p, id->n, digest);
    seen_id *slot = batch_ids_slot_of(s, digest);
    *earlier = slot->line;
    if (slot->line == 0) {
        memcpy(slot->digest, digest, sizeof slot->digest);
        slot->line = (uint32_t)number;
        s->n++;
    }
    return QUIRE_OK;
}

quire_err batch_ids_check(batch_input *in, quire_error *err) {
    enum { SHOWN = 60 };
    seen_ids s = {0};
    strbuf scratch = {0};
    quire_err e = QUIRE_OK;
    while (e == QUIRE_OK && in->n_read < in->n_lines) {
        str line, id;
        uint32_t earlier;
        e = batch_input_next(in, &line, err);
        if (e != QUIRE_OK) {
            break;
        }
        e = batch_ids_add_line(&s, line, in->number, &id, &scratch, &earlier);
        if (e != QUIRE_OK) {
            err_set(err, e, -1, "%s: line %zu: %s", in->path, in->number, quire_err_text(e));
        } else if (earlier != 0) {
            e = err_set(err, QUIRE_BAD_FILE, -1,
                        "%s: line %zu has the custom_id of line %u, \"%.*s\"; give each line its own",
                        in->path, in->number, (unsigned)earlier, id.n < SHOWN ? (int)id.n : SHOWN, id.p);
        }
    }
    strbuf_deinit(&scratch);
    mem_free(s.slots);
    batch_input_rewind(in);
    return e;
}
