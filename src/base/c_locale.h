/* Numbers as text in the C locale: a program that embeds Quire may have set one whose
 * decimal point is a comma. Any thread. */
#ifndef BASE_C_LOCALE_H
#define BASE_C_LOCALE_H

#include <locale.h>
#include <stddef.h>

/* strtod and snprintf with a point, whatever the locale. */
double c_locale_strtod(const char *text, char **end);
int c_locale_snprintf(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The calling thread has the C locale from c_locale_enter until c_locale_leave with what
 * that returned. */
locale_t c_locale_enter(void);
void c_locale_leave(locale_t before);

#endif
