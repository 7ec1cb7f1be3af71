#include "text/charsmap.h"

#include "base/base64.h"
#include "base/mem.h"
#include "base/turn.h"

/* A unit: bits 0..7 its byte, bit 8 whether a rule ends here, bit 9 and 10..30 the offset
 * of its children, bit 31 set for a value. */
static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static uint32_t label_of(uint32_t unit) {
    return unit & ((1u << 31) | 0xFF);
}

quire_err charsmap_open(str blob, charsmap *out) {
    uint32_t n_bytes;
    *out = (charsmap){0};
    if (blob.n == 0) {
        return QUIRE_OK;
    }
    if (blob.n < sizeof n_bytes) {
        return QUIRE_BAD_FILE;
    }
    memcpy(&n_bytes, blob.p, sizeof n_bytes);
    if (n_bytes == 0 || n_bytes % sizeof *out->units != 0 || n_bytes > blob.n - sizeof n_bytes) {
        return QUIRE_BAD_FILE;
    }
    out->n_texts = blob.n - sizeof n_bytes - n_bytes;
    out->units = (void *)mem_dup(blob.p + sizeof n_bytes, n_bytes);
    out->texts = mem_dup(blob.p + sizeof n_bytes + n_bytes, out->n_texts);
    if (out->units == NULL || out->texts == NULL) {
        charsmap_deinit(out);
        return QUIRE_NO_MEMORY;
    }
    out->n_units = n_bytes / sizeof *out->units;
    return QUIRE_OK;
}

quire_err charsmap_open_base64(str text, charsmap *out) {
    strbuf blob = {0};
    quire_err e = base64_decode(text, &blob);
    e = e != QUIRE_OK ? e : charsmap_open((str){blob.p, blob.n}, out);
    strbuf_deinit(&blob);
    return e;
}

void charsmap_deinit(charsmap *m) {
    mem_free(m->units);
    mem_free(m->texts);
    *m = (charsmap){0};
}

bool charsmap_find(const charsmap *m, str text, charsmap_rule which, size_t *n, str *to) {
    bool found = false;
    size_t at = m->n_units > 0 ? offset_of(m->units[0]) : 0, i = 0;
    for (; i < text.n; i++) {
        uint8_t byte = (uint8_t)text.p[i];
        at ^= byte;
        if (at >= m->n_units || label_of(m->units[at]) != byte) {
            break;
        }
        uint32_t unit = m->units[at];
        at ^= offset_of(unit);
        if ((unit & (1u << 8)) == 0) {
            continue;
        }
        size_t value = at < m->n_units ? m->units[at] & 0x7FFFFFFF : SIZE_MAX;
        if (value <= m->n_texts) {
            *n = i + 1;
            *to = str_of(m->texts + value);
            found = true;
        }
        if (which == CHARSMAP_SHORTEST) {
            break;
        }
    }
    (void)turn_poll((uint32_t)(i / 16)); /* the caller's next poll has the error too */
    return found;
}
