#include "file/cursor.h"

#include "file/show.h"

quire_err cursor_take(cursor *c, uint64_t n, const char *what, const uint8_t **out) {
    if (n > c->n - c->at) {
        return err_set(c->err, QUIRE_BAD_FILE, (int64_t)c->at,
                       "%s: %s at byte %s takes %s bytes, the file has %s: it is cut short or damaged; "
                       "download it again",
                       c->file, what, show_count(c->at).text, show_count(n).text, show_count(c->n).text);
    }
    *out = c->p + c->at;
    c->at += (size_t)n;
    return QUIRE_OK;
}

static quire_err cursor_copy(cursor *c, const char *what, void *out, size_t n) {
    const uint8_t *p;
    TRY(cursor_take(c, n, what, &p));
    memcpy(out, p, n);
    return QUIRE_OK;
}

quire_err cursor_u32(cursor *c, const char *what, uint32_t *out) {
    return cursor_copy(c, what, out, sizeof *out);
}

quire_err cursor_u64(cursor *c, const char *what, uint64_t *out) {
    return cursor_copy(c, what, out, sizeof *out);
}

quire_err cursor_str(cursor *c, const char *what, str *out) {
    uint64_t n;
    const uint8_t *p;
    TRY(cursor_u64(c, what, &n));
    TRY(cursor_take(c, n, what, &p));
    *out = (str){(const char *)p, (size_t)n};
    return QUIRE_OK;
}
