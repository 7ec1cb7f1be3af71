/* Prints the tables of bench/results/models.txt: each architecture's name, its largest
 * difference from the reference, and its operations with fast kernels here. */
#ifndef CHECK_CHECK_TABLE_H
#define CHECK_CHECK_TABLE_H

#include "check/check.h"

/* Records that the model at path ran with a difference from the reference, and prints its
 * row. runs_as NULL: the model returns rows. */
void check_table_add(const char *where, const char *path, const char *runs_as, double difference);
/* Prints the head of the table of test models; check_table_add prints its rows. */
void check_table_begin(void);
/* Prints the table of architectures. */
void check_table_end(void);
/* Returns a reason without the path before it, since tables do not show paths. */
const char *check_table_reason(const char *why, const char *path);

#endif
