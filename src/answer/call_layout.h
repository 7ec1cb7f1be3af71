/* How a call is laid out in a format, as data: what a grammar of calls writes, and the
 * parser of that format (output_format.h) reads.
 *
 *   open before NAME name_end ARGUMENTS end [between NAME name_end ARGUMENTS end]* close
 *
 * In these texts ~ is a space and ^ a newline that may be missing, # a number, $ a word,
 * and % an id of nine letters and digits. */
#ifndef ANSWER_CALL_LAYOUT_H
#define ANSWER_CALL_LAYOUT_H

#include "answer/output_format.h"
#include "base/str.h"

typedef enum layout_arguments { LAYOUT_JSON, LAYOUT_TAGS, LAYOUT_GEMMA, LAYOUT_PYTHON } layout_arguments;

enum {
    LAYOUT_FIRST = 1 << 0,      /* counts as a call only where the answer begins with it */
    LAYOUT_ONCE = 1 << 1,       /* the answer ends behind it */
    LAYOUT_ENDS_EARLY = 1 << 2, /* the answer may end before `close` */
    LAYOUT_GAPS = 1 << 3,       /* tags: between two parameters nothing may stand, too */
    /* tags: `behind` goes on with the parameter's name and >; objects and lists inside
     * are tags too */
    LAYOUT_ELEMENTS = 1 << 5,
    /* the answer begins behind `open`; where it has the line "all", text follows */
    LAYOUT_HEAD_FIRST = 1 << 4
};

/* The texts around a parameter. */
typedef struct layout_tag {
    const char *before, *middle, *behind, *between;
    const char *string_middle; /* in place of middle before strings; NULL: the same */
} layout_tag;

typedef struct call_layout {
    const char *format; /* its name; a format may have several layouts */
    const char *open;   /* begins the calls; a trigger in free text */
    const char *before, *name_end, *end, *between, *close;
    layout_arguments arguments;
    unsigned flags;
    const layout_tag *tag; /* of LAYOUT_TAGS */
} call_layout;

/* Row i of the formats' layouts; NULL: past the last. */
const call_layout *call_layout_at(size_t i);
/* Whether some format writes and reads a function of that name: at most 256 bytes without
 * white space, quotes, brackets and = , ; | \ ` */
bool call_layout_is_name(str name);
/* Whether the format writes and reads a function of that name. */
bool call_layout_takes(const call_layout *l, str name);
/* Text i, of any number, that no value between tags contains; *first: that none begins
 * with it. NULL: past the last. */
const char *call_layout_never(const call_format *f, size_t i, bool *first);

#endif
