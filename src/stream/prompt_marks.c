#include "stream/prompt_marks.h"

#define MARK_GAP  8  /* tokens between control tokens of one place, */
#define MARK_SPAN 24 /* and between its first and its last one */

int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks) {
    int32_t n_marks = 0, last = 0;
    for (int32_t p = t != NULL ? n - 1 : 0; p > 0; p--) {
        if (!tokenizer_is_special(t, ids[p])) {
            continue;
        }
        if (n_marks > 0 && marks[n_marks - 1] - p <= MARK_GAP && last - p <= MARK_SPAN) {
            marks[n_marks - 1] = p;
            continue;
        }
        if (n_marks == most) {
            break;
        }
        last = p;
        marks[n_marks++] = p;
    }
    return n_marks;
}
