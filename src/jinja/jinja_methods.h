/* Methods of strings, lists, dictionaries and loops, in two files; jinja_methods.c has the tables. args[0] is the object. */
#ifndef JINJA_JINJA_METHODS_H
#define JINJA_JINJA_METHODS_H

#include "jinja/jinja_run.h"

#define METHOD(name) quire_err name(jrun *r, const jvalue *args, const jargs *rest, jvalue *out)
#define UNUSED_REST  (void)rest

/* True when the argument is present and not none. */
bool jarg_given(jvalue v);
/* The object's text; an escaped one is not supported. */
quire_err jarg_self(jrun *r, const jvalue *args, str *s);
/* An optional argument; `what` is its name in an error. */
quire_err jarg_text(jrun *r, jvalue v, const char *what, str *s);
quire_err jarg_integer(jrun *r, jvalue v, const char *what, int64_t fallback, int64_t *out);
/* A maximum count; -1: no limit. */
quire_err jarg_count(jrun *r, jvalue v, const char *what, int64_t *out);
/* The first or last offset of needle in s, or SIZE_MAX. */
quire_err jstr_find_either(jrun *r, str s, str needle, bool last, size_t *at);

METHOD(str_split);
METHOD(str_rsplit);
METHOD(str_splitlines);
METHOD(str_partition);
METHOD(str_rpartition);
METHOD(str_join);
METHOD(str_replace);
METHOD(str_center);
METHOD(str_ljust);
METHOD(str_rjust);
METHOD(str_zfill);
METHOD(str_expandtabs);

#endif
