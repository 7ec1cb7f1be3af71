#include "base/base64.h"

static int base64_value_of(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

quire_err base64_decode(str text, strbuf *out) {
    uint32_t bits = 0;
    int n_bits = 0;
    for (int i = 0; i < 2 && text.n > 0 && text.n % 4 == (size_t)(i > 0 ? 3 : 0) && text.p[text.n - 1] == '=';
         i++) {
        text.n--;
    }
    if (text.n % 4 == 1) {
        return QUIRE_BAD_FILE;
    }
    TRY(strbuf_reserve(out, text.n / 4 * 3 + 3));
    for (size_t i = 0; i < text.n; i++) {
        int v = base64_value_of(text.p[i]);
        if (v < 0) {
            return QUIRE_BAD_FILE;
        }
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            TRY(strbuf_add_char(out, (char)(bits >> n_bits & 0xFF)));
        }
    }
    return QUIRE_OK;
}

quire_err base64_encode(str bytes, strbuf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (bytes.n > SIZE_MAX / 4 * 3 - 3) {
        return QUIRE_NO_MEMORY;
    }
    TRY(strbuf_reserve(out, (bytes.n + 2) / 3 * 4 + 1));
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t n = bytes.n - i < 3 ? bytes.n - i : 3;
        uint32_t bits = 0;
        char group[4];
        for (size_t k = 0; k < 3; k++) {
            bits = bits << 8 | (k < n ? (unsigned char)bytes.p[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; k++) {
            group[k] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
        }
        TRY(strbuf_add(out, group, sizeof group));
    }
    return QUIRE_OK;
}
