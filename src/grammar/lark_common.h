/* The terminals of Lark's module `common`. Private to this room. */
#ifndef GRAMMAR_LARK_COMMON_H
#define GRAMMAR_LARK_COMMON_H

#include "base/str.h"

/* The regex of a terminal, or NULL: there is none of that name. */
const char *lark_common(str name);

#endif
