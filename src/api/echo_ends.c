#include "api/echo_ends.h"

#include <string.h>

#include "base/utf8.h"
#include "text/detok.h"

static bool begins_with(str s, str with) {
    return with.n > 0 && s.n >= with.n && memcmp(s.p, with.p, with.n) == 0;
}

/* The bytes of the beginning of s that has as many characters as text. */
static size_t as_long(str s, str text) {
    size_t n = 0, len;
    for (size_t i = 0; i < text.n && n < s.n; i += len) {
        (void)utf8_decode(text.p + i, text.n - i, &len);
        size_t here;
        (void)utf8_decode(s.p + n, s.n - n, &here);
        n += here;
    }
    return n;
}

/* How many bytes of `left` are the text of an ordinary token. A space before a word may be in one of the two only: decoders drop it from a
 * text's first word. */
static size_t shown_bytes(str left, str text) {
    if (text.n == 0 || begins_with(left, text)) {
        return text.n;
    }
    str rest = {text.p + 1, text.n - 1};
    if (text.p[0] == ' ' && (rest.n == 0 || begins_with(left, rest))) {
        return rest.n;
    }
    bool is_behind = left.n > 0 && left.p[0] == ' ' && begins_with((str){left.p + 1, left.n - 1}, text);
    return is_behind ? text.n + 1 : as_long(left, text);
}

quire_err echo_ends(const tokenizer *t, const int32_t *ids, size_t n, str echo, size_t *ends) {
    detok *d;
    strbuf text = {0};
    size_t at = 0;
    TRY(detok_open(t, false, &d));
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        str left = {echo.p + at, echo.n - at};
        if (tokenizer_is_special(t, ids[i])) {
            str piece = tokenizer_piece(t, ids[i]);
            at += begins_with(left, piece) ? piece.n : 0;
        } else {
            strbuf_clear(&text);
            e = detok_add(d, ids[i], &text);
            at += shown_bytes(left, (str){text.n > 0 ? text.p : "", text.n});
        }
        ends[i] = i + 1 < n ? at : echo.n;
    }
    strbuf_deinit(&text);
    detok_close(d);
    return e;
}
