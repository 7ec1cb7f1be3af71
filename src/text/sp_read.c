/* Reads SentencePiece's .model files: a small reader of protocol buffers, bounded by the
 * file's bytes. */
#include "base/mem.h"
#include "text/sp_model.h"

#define MAX_PIECES ((size_t)1 << 24)

/* Wire types. */
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* of a varint */
    float f;        /* of 32 bits */
    str bytes;
} field;

typedef struct cursor {
    str rest;
    const char *start; /* of the file */
} cursor;

static quire_err read_varint(cursor *c, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->rest.n == 0) {
            return QUIRE_BAD_FILE;
        }
        uint8_t byte = (uint8_t)*c->rest.p;
        c->rest = (str){c->rest.p + 1, c->rest.n - 1};
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return QUIRE_OK;
        }
    }
    return QUIRE_BAD_FILE;
}

static quire_err sp_read_take(cursor *c, uint64_t n, str *out) {
    if (n > c->rest.n) {
        return QUIRE_BAD_FILE;
    }
    *out = (str){c->rest.p, (size_t)n};
    c->rest = (str){c->rest.p + n, c->rest.n - (size_t)n};
    return QUIRE_OK;
}

static quire_err read_field(cursor *c, field *f) {
    uint64_t key, n;
    *f = (field){0};
    TRY(read_varint(c, &key));
    f->wire = key & 7;
    f->number = (uint32_t)(key >> 3);
    if (key >> 3 == 0 || key >> 3 > UINT32_MAX) {
        return QUIRE_BAD_FILE;
    }
    switch (f->wire) {
    case WIRE_VARINT:
        return read_varint(c, &f->value);
    case WIRE_64:
        return sp_read_take(c, 8, &f->bytes);
    case WIRE_BYTES:
        TRY(read_varint(c, &n));
        return sp_read_take(c, n, &f->bytes);
    case WIRE_32:
        TRY(sp_read_take(c, 4, &f->bytes));
        memcpy(&f->f, f->bytes.p, 4);
        return QUIRE_OK;
    default: /* groups, which are not written any more */
        return QUIRE_BAD_FILE;
    }
}

typedef quire_err read_field_fn(sp_model *m, const field *f);

/* Reads all fields of a message. On a failure *at is where it is. */
static quire_err read_message(sp_model *m, str message, const char *start, read_field_fn *read, size_t *at) {
    cursor c = {message, start};
    while (c.rest.n > 0) {
        field f;
        *at = (size_t)(c.rest.p - start);
        TRY(read_field(&c, &f));
        TRY(read(m, &f));
    }
    return QUIRE_OK;
}

static quire_err read_piece_field(sp_model *m, const field *f) {
    sp_piece *p = &m->pieces[m->n - 1];
    if (f->number == 1 && f->wire == WIRE_BYTES) {
        p->text = f->bytes;
    } else if (f->number == 2 && f->wire == WIRE_32) {
        p->score = f->f;
    } else if (f->number == 3 && f->wire == WIRE_VARINT) {
        p->type = (vocab_type)f->value;
        return f->value >= VOCAB_NORMAL && f->value <= VOCAB_BYTE ? QUIRE_OK : QUIRE_BAD_FILE;
    }
    return QUIRE_OK;
}

static quire_err read_trainer_field(sp_model *m, const field *f) {
    static const uint32_t name_fields[4] = {46, 47, 45, 48};
    for (int i = 0; i < 4 && f->wire == WIRE_BYTES; i++) {
        m->names[i] = f->number == name_fields[i] ? f->bytes : m->names[i];
    }
    if (f->number == 44 && f->wire == WIRE_BYTES) {
        m->unk_surface = f->bytes;
    }
    if (f->wire == WIRE_VARINT && f->number == 3) {
        m->kind = (sp_kind)f->value;
        return f->value >= SP_UNIGRAM && f->value <= SP_CHAR ? QUIRE_OK : QUIRE_BAD_FILE;
    }
    bool *flag = f->number == 24 ? &m->suffix : f->number == 35 ? &m->byte_fallback : NULL;
    if (f->wire == WIRE_VARINT && flag != NULL) {
        *flag = f->value != 0;
    }
    return QUIRE_OK;
}

static quire_err read_normalizer_field(sp_model *m, const field *f) {
    bool *flag = f->number == 3   ? &m->dummy_prefix
                 : f->number == 4 ? &m->remove_extra
                 : f->number == 5 ? &m->escape
                                  : NULL;
    if (f->wire == WIRE_VARINT && flag != NULL) {
        *flag = f->value != 0;
    }
    if (f->wire == WIRE_BYTES && f->number == 2) {
        m->charsmap = f->bytes;
    }
    return QUIRE_OK;
}

static int32_t find_control(const sp_model *m, str name, vocab_type type) {
    for (size_t i = 0; i < m->n; i++) {
        if (m->pieces[i].type == type && str_eq(m->pieces[i].text, name)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static quire_err sp_read_model(sp_model *m, str file, size_t *at) {
    cursor c = {file, file.p};
    while (c.rest.n > 0) {
        field f;
        *at = (size_t)(c.rest.p - file.p);
        TRY(read_field(&c, &f));
        if (f.wire != WIRE_BYTES) {
            continue;
        }
        if (f.number == 1) {
            if (m->n == MAX_PIECES) {
                return QUIRE_TOO_LARGE;
            }
            TRY(mem_grow(&m->pieces, &m->cap, m->n + 1, sizeof *m->pieces));
            m->pieces[m->n++] = (sp_piece){.text = {"", 0}, .type = VOCAB_NORMAL};
        }
        read_field_fn *read = f.number == 1   ? read_piece_field
                              : f.number == 2 ? read_trainer_field
                              : f.number == 3 ? read_normalizer_field
                                              : NULL;
        TRY(read != NULL ? read_message(m, f.bytes, file.p, read, at) : QUIRE_OK);
    }
    return m->n > 0 ? QUIRE_OK : QUIRE_BAD_FILE;
}

void sp_model_init(sp_model *m, const char *file) {
    *m = (sp_model){.kind = SP_UNIGRAM,
                    .dummy_prefix = true,
                    .remove_extra = true,
                    .escape = true,
                    .file = file,
                    .unk_surface = str_of(" \xE2\x81\x87 "),
                    .bos = -1,
                    .eos = -1,
                    .unk = -1,
                    .pad = -1};
    m->names[0] = str_of("<s>");
    m->names[1] = str_of("</s>");
    m->names[2] = str_of("<unk>");
    m->names[3] = str_of("<pad>");
}

void sp_model_deinit(sp_model *m) {
    mem_free(m->pieces);
    m->pieces = NULL;
}

quire_err sp_model_read(sp_model *m, str file, quire_error *err) {
    size_t at = 0;
    quire_err e = sp_read_model(m, file, &at);
    if (e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE) {
        return err_set(err, e, (int64_t)at, "%s: %s at byte %zu: no SentencePiece model, or a damaged one",
                       m->file, e == QUIRE_TOO_LARGE ? "too many pieces" : "malformed", at);
    }
    TRY(e);
    m->bos = find_control(m, m->names[0], VOCAB_CONTROL);
    m->eos = find_control(m, m->names[1], VOCAB_CONTROL);
    m->pad = find_control(m, m->names[3], VOCAB_CONTROL);
    for (size_t i = m->n; i-- > 0;) { /* the first piece of the unknown type, whatever its name is */
        m->unk = m->pieces[i].type == VOCAB_UNKNOWN ? (int32_t)i : m->unk;
    }
    return QUIRE_OK;
}
