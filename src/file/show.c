#include "file/show.h"

#include <stdio.h>

shown show_count(uint64_t v) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    shown s;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) {
            s.text[at++] = ',';
        }
        s.text[at++] = digits[i];
    }
    s.text[at] = 0;
    return s;
}

shown show_name(str name) {
    static const char more[] = "...";
    shown s;
    size_t limit = SHOW_BYTES - sizeof more;
    size_t n = name.n < limit ? name.n : limit;
    for (size_t i = 0; i < n; i++) {
        char c = name.p[i];
        s.text[i] = c;
        if (c < ' ' || c > '~') {
            s.text[i] = '?';
        }
    }
    memcpy(s.text + n, name.n > n ? more : "", name.n > n ? sizeof more : 1);
    return s;
}
