/* Scores the choices of a select from the log-probabilities of their tokens: a pure
 * function. The formulas are those of the choice methods in SGLang's front end. */
#ifndef PROGRAM_SELECT_SCORE_H
#define PROGRAM_SELECT_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "quire_program.h"

/* The tokens of a choice: n >= 1 log-probabilities, and those of the same tokens without
 * anything before them, the first of which is 0; NULL where the method has no use for
 * them. */
typedef struct select_choice {
    const double *logprobs, *alone;
    size_t n;
} select_choice;

/* Scores n >= 1 choices and returns the number of the one that is chosen; of equal ones
 * the first. scores: [n]. By greedy_token_selection the scores are means, which do not
 * decide. O(tokens of all). */
int32_t select_score(const select_choice *choices, size_t n, quire_select_method method, double *scores);

#endif
