/* Fill-in-the-middle: the tokens by which a model is told what stands before and after a
 * gap, and generates what fills it. Found by the keys of a GGUF file or, where those do
 * not name them, by the spellings that are published. */
#ifndef TEXT_FIM_H
#define TEXT_FIM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/vocab.h"
#include "text/added.h"
#include "text/piece_table.h"

typedef struct fim_marks {
    int32_t pre, suf;   /* tokens before the prefix and before the suffix; -1: the model has none */
    int32_t mid;        /* after both; -1: it has none, and the text before the gap comes last */
    bool suffix_first;  /* the text after the gap comes first */
    int32_t repo, file; /* before a repository's name, and a file's; -1: none */
} fim_marks;

/* Finds those of v, among its tokenizer's added tokens and pieces. O(1) look-ups. */
fim_marks fim_find(const vocab *v, const added_set *added, const piece_table *pieces);
/* Whether an id is one of them. */
bool fim_is_mark(const fim_marks *m, int32_t id);

#endif
