/* The tables of bench/results/models.txt: what each architecture is called, how far it is from the
 * reference, and which of its operations have a fast kernel on this processor. */
#ifndef CHECK_CHECK_TABLE_H
#define CHECK_CHECK_TABLE_H

#include "check/check.h"

/* Notes that the model at path ran with this difference, and prints its row. runs_as
 * NULL: it gives rows. */
void check_table_add(const char *where, const char *path, const char *runs_as, double difference);
/* The head of the table of test models; what check_table_add prints follows. */
void check_table_begin(void);
/* The table of architectures. */
void check_table_end(void);
/* A reason without the path that it begins with: tables say nothing about where models
 * lie. */
const char *check_table_reason(const char *why, const char *path);

#endif
