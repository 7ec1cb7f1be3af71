/* Methods of strings, lists, dictionaries and loops, in three files; jinja_methods.c has
 * the tables. args[0] is the object. */
#ifndef JINJA_JINJA_METHODS_H
#define JINJA_JINJA_METHODS_H

#include "jinja/jinja_run.h"

/* The object's text; an escaped one is not supported. */
quire_err jarg_self(jrun *r, const jvalue *args, str *s);
/* An optional argument; `what` is its name in an error. */
quire_err jarg_text(jrun *r, jvalue v, const char *what, str *s);
quire_err jarg_integer(jrun *r, jvalue v, const char *what, int64_t fallback, int64_t *out);
/* A maximum count; -1: no limit. */
quire_err jarg_count(jrun *r, jvalue v, const char *what, int64_t *out);
/* The first or last offset of needle in s, or SIZE_MAX. */
quire_err jstr_find_either(jrun *r, str s, str needle, bool last, size_t *at);

JFUNCTION(str_split);
JFUNCTION(str_splitlines);
JFUNCTION(str_partition);
JFUNCTION(str_join);
JFUNCTION(str_replace);
JFUNCTION(str_pad);
JFUNCTION(str_zfill);
JFUNCTION(str_expandtabs);

#endif
