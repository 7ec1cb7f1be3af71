/* Checks models that return rows. DIR/NAME/ has hidden.npy [prompt, width], the rows
 * after the last norm, and pooled.npy [3, width]: their mean, the first and the last row,
 * each normalised to length 1. */
#ifndef CHECK_CHECK_ROWS_H
#define CHECK_CHECK_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "check/check.h"

/* Runs the prompt on the model at path. Reports the first error over `tolerance`. */
void check_rows(check_report *r, const char *kind, const char *where, const char *path, const char *dir,
                const int32_t *prompt, size_t n, float tolerance);

#endif
