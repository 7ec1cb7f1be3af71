#include "base/c_locale.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t made = PTHREAD_ONCE_INIT;
static locale_t plain; /* 0, which changes nothing, if it could not be made */

static void c_locale_make(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t c_locale_enter(void) {
    (void)pthread_once(&made, c_locale_make);
    return uselocale(plain);
}

void c_locale_leave(locale_t before) {
    (void)uselocale(before);
}

double c_locale_strtod(const char *text, char **end) {
    locale_t before = c_locale_enter();
    double v = strtod(text, end);
    c_locale_leave(before);
    return v;
}

int c_locale_snprintf(char *out, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    locale_t before = c_locale_enter();
    int n = vsnprintf(out, size, format, arguments);
    c_locale_leave(before);
    va_end(arguments);
    return n;
}
