/* What a file or directory is that Quire does not read as a model, and what to download in its place. Any thread. */
#ifndef FILE_NOT_A_MODEL_H
#define FILE_NOT_A_MODEL_H

#include "base/str.h"

/* A kind of checkpoint. {.what = NULL}: unknown. */
typedef struct foreign {
    const char *what;    /* "a LoRA adapter, not a model" */
    const char *instead; /* what to do, as an order */
} foreign;

/* By the content of a file, which may be cut. */
foreign foreign_of_content(str content);
/* By the name of a file, alone or in a directory or repository. */
foreign foreign_of_name(str path);
/* The one of two kinds that says more about a directory that has both. */
foreign foreign_stronger(foreign a, foreign b);
/* By the names in a directory. */
foreign foreign_of_directory(const char *dir);

#endif
