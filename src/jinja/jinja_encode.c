/* Methods between texts and bytes: encode, decode, hex. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja_methods.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* An encoding: one byte a character up to a top, or units of 1, 2 or 4 bytes of Unicode. */
typedef struct codec {
    const char *name;    /* as Python writes it */
    const char *aliases; /* in lower case, with '_' for what is neither letter nor digit; a space before and behind each */
    int32_t top;         /* the largest character of one byte; 0: all of Unicode */
    uint8_t unit;
    bool is_big, has_mark; /* the high byte first; a mark of the order of bytes stands before the text */
    const uint16_t *high;  /* [32] characters of the bytes from 0x80, 0: none; or NULL */
} codec;

static const uint16_t cp1252_high[32] = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
                                         0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
                                         0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

static const codec codecs[] = {
    {"utf-8", " utf_8 utf8 u8 utf cp65001 ", 0, 1, false, false, NULL},
    {"utf-8-sig", " utf_8_sig utf8_sig ", 0, 1, false, true, NULL},
    {"ascii", " ascii us_ascii us 646 ansi_x3_4_1968 iso646_us ", 0x7f, 1, false, false, NULL},
    {"latin-1", " latin_1 latin1 latin l1 8859 cp819 iso8859 iso8859_1 iso_8859_1 iso_8859_1_1987 ", 0xff, 1, false, false, NULL},
    {"cp1252", " cp1252 1252 windows_1252 ", 0xff, 1, false, false, cp1252_high},
    {"utf-16", " utf_16 utf16 u16 ", 0, 2, false, true, NULL},
    {"utf-16-le", " utf_16_le utf_16le unicodelittleunmarked ", 0, 2, false, false, NULL},
    {"utf-16-be", " utf_16_be utf_16be unicodebigunmarked ", 0, 2, true, false, NULL},
    {"utf-32", " utf_32 utf32 u32 ", 0, 4, false, true, NULL},
    {"utf-32-le", " utf_32_le utf_32le ", 0, 4, false, false, NULL},
    {"utf-32-be", " utf_32_be utf_32be ", 0, 4, true, false, NULL},
};

/* Writes a name as aliases have it: ' ', the name, ' '. False: it is longer than any. */
static bool write_alias(str name, char *out, size_t n_out) {
    size_t n = 0;
    out[n++] = ' ';
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool is_upper = c >= 'A' && c <= 'Z', is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (n + 3 > n_out) {
            return false;
        }
        if (is_upper || is_plain) {
            out[n++] = (char)(is_upper ? c - 'A' + 'a' : c);
        } else if (n > 1 && out[n - 1] != '_') {
            out[n++] = '_';
        }
    }
    n -= out[n - 1] == '_';
    out[n++] = ' ';
    out[n] = '\0';
    return n > 2;
}

static quire_err find_codec(jrun *r, jvalue given, const codec **out) {
    char alias[48];
    str name;
    TRY(jarg_text(r, given, "the encoding", &name));
    *out = &codecs[0];
    if (!jgiven(given)) {
        return QUIRE_OK;
    }
    for (size_t i = 0; write_alias(name, alias, sizeof alias) && i < sizeof codecs / sizeof *codecs; i++) {
        if (strstr(codecs[i].aliases, alias) != NULL) {
            *out = &codecs[i];
            return QUIRE_OK;
        }
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST, "unknown encoding: %.*s (there are UTF-8, -16 and -32, ASCII, Latin-1 and cp1252)",
                     (int)(name.n < 80 ? name.n : 80), name.p);
}

/* How a character or byte that the encoding lacks is treated: strict, which is an error, ignore or replace; for characters also by name. */
static quire_err add_misfit(jrun *r, const codec *k, jvalue errors, int32_t c, bool is_char, uint8_t origin) {
    char text[16] = "";
    str how = str_of("strict");
    TRY(jgiven(errors) ? jrun_want_text(r, errors, "errors", &how) : QUIRE_OK);
    if (str_is(how, "strict")) {
        const char *what = is_char ? "encode character" : "decode byte";
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' codec can't %s 0x%02x", k->name, what, (unsigned)c);
    }
    if (str_is(how, "replace")) {
        return jrun_add_as(r, str_of(is_char ? "?" : REPLACEMENT), origin);
    }
    if (str_is(how, "backslashreplace") && is_char) {
        snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    } else if (str_is(how, "xmlcharrefreplace") && is_char) {
        snprintf(text, sizeof text, "&#%d;", (int)c);
    } else if (!str_is(how, "ignore")) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "unknown error handler name '%.*s'", (int)(how.n < 40 ? how.n : 40), how.p);
    }
    return jrun_add_as(r, str_of(text), origin);
}

/* ---- encode ---- */

static quire_err add_unit(jrun *r, const codec *k, uint32_t unit, uint8_t origin) {
    char bytes[4];
    for (size_t i = 0; i < k->unit; i++) {
        bytes[i] = (char)(unit >> 8 * (k->is_big ? k->unit - 1 - i : i));
    }
    return jrun_add_as(r, (str){bytes, k->unit}, origin);
}

static quire_err add_unicode(jrun *r, const codec *k, int32_t c, uint8_t origin) {
    uint32_t u = (uint32_t)c;
    if (k->unit == 2 && u > 0xffff) {
        TRY(add_unit(r, k, 0xd800 + ((u - 0x10000) >> 10), origin));
        u = 0xdc00 + ((u - 0x10000) & 0x3ff);
    }
    return add_unit(r, k, u, origin);
}

/* The byte of a character, or -1. */
static int32_t byte_of(const codec *k, int32_t c) {
    if (k->high == NULL || c < 0x80 || (c >= 0xa0 && c <= 0xff)) {
        return c <= k->top ? c : -1;
    }
    for (int32_t i = 0; i < 32; i++) {
        if (k->high[i] == c) {
            return 0x80 + i;
        }
    }
    return -1;
}

static quire_err encode_char(jrun *r, const codec *k, jvalue errors, int32_t c, uint8_t origin) {
    int32_t byte = k->top > 0 ? byte_of(k, c) : 0;
    if (c < 0 || byte < 0) {
        return add_misfit(r, k, errors, c, true, origin);
    }
    return k->top > 0 ? jrun_add_as(r, (str){&(char){(char)byte}, 1}, origin) : add_unicode(r, k, c, origin);
}

JFUNCTION(str_encode) {
    str s;
    const codec *k;
    TRY(jarg_self(r, args, &s));
    TRY(find_codec(r, args[1], &k));
    TRY(jrun_step(r, s.n / 4));
    jout_clear(&r->scratch);
    bool is_utf8 = k->top == 0 && k->unit == 1;
    if (k->has_mark) {
        TRY(is_utf8 ? jrun_add_as(r, str_of("\xef\xbb\xbf"), JINJA_TEMPLATE) : add_unit(r, k, 0xfeff, JINJA_TEMPLATE));
    }
    for (size_t i = 0, size; i < s.n && !is_utf8; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        TRY(encode_char(r, k, args[2], c, jrun_origin(r, s, i)));
    }
    *out = jstring(s);
    TRY(is_utf8 && k->has_mark ? jrun_add(r, s) : QUIRE_OK);
    TRY(!is_utf8 || k->has_mark ? jrun_scratch(r, out) : QUIRE_OK);
    out->kind = J_BYTES;
    out->is_input = jarena_is_input(&r->arena, out->u.s);
    return QUIRE_OK;
}

/* ---- decode ---- */

/* The unit at s.p[at], which lies in s. */
static uint32_t unit_at(const codec *k, str s, size_t at) {
    uint32_t unit = 0;
    for (size_t i = 0; i < k->unit; i++) {
        unit |= (uint32_t)(unsigned char)s.p[at + i] << 8 * (k->is_big ? k->unit - 1 - i : i);
    }
    return unit;
}

/* The character at s.p[at] and its bytes; -1: none begins there. */
static int32_t decode_char(const codec *k, str s, size_t at, size_t *size) {
    *size = k->unit;
    if (k->top > 0) {
        int32_t byte = (unsigned char)s.p[at];
        int32_t c = k->high != NULL && byte >= 0x80 && byte < 0xa0 ? k->high[byte - 0x80] : byte;
        return byte <= k->top && (c > 0 || byte == 0) ? c : -1;
    }
    if (k->unit == 1) {
        return utf8_decode(s.p + at, s.n - at, size);
    }
    if (s.n - at < k->unit) {
        *size = s.n - at;
        return -1;
    }
    uint32_t u = unit_at(k, s, at);
    if (k->unit == 2 && u >= 0xd800 && u < 0xdc00 && s.n - at >= 4) {
        uint32_t low = unit_at(k, s, at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *size = 4;
            return (int32_t)(0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00));
        }
    }
    return u > 0x10ffff || (u >= 0xd800 && u < 0xe000) ? -1 : (int32_t)u;
}

/* Takes the mark of the order of bytes that s may begin with. */
static codec take_mark(codec k, str *s) {
    size_t n = k.unit == 1 ? 3 : k.unit;
    if (!k.has_mark || s->n < n) {
        return k;
    }
    codec big = k;
    big.is_big = true;
    bool is_big = k.unit > 1 && unit_at(&big, *s, 0) == 0xfeff;
    bool is_mark = k.unit == 1 ? memcmp(s->p, "\xef\xbb\xbf", 3) == 0 : is_big || unit_at(&k, *s, 0) == 0xfeff;
    *s = is_mark ? (str){s->p + n, s->n - n} : *s;
    return is_big ? big : k;
}

JFUNCTION(bytes_decode) {
    str s = args[0].u.s;
    const codec *found;
    TRY(find_codec(r, args[1], &found));
    TRY(jrun_step(r, s.n / 4));
    jout_clear(&r->scratch);
    codec k = take_mark(*found, &s);
    for (size_t i = 0, size; i < s.n; i += size) {
        char bytes[4];
        int32_t c = decode_char(&k, s, i, &size);
        uint8_t origin = jrun_origin(r, s, i);
        TRY(c >= 0 ? jrun_add_as(r, (str){bytes, jchar_put(c, bytes)}, origin)
                   : add_misfit(r, &k, args[2], (unsigned char)s.p[i], false, origin));
    }
    return jrun_scratch(r, out);
}

JFUNCTION(bytes_hex) {
    str s = args[0].u.s;
    TRY(jrun_step(r, s.n));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < s.n; i++) {
        static const char digits[] = "0123456789abcdef";
        char both[] = {digits[(unsigned char)s.p[i] >> 4], digits[(unsigned char)s.p[i] & 15]};
        TRY(jrun_add_as(r, (str){both, 2}, jrun_origin(r, s, i)));
    }
    return jrun_scratch(r, out);
}
