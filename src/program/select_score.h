/* Scores the choices of a select from the log-probabilities of their tokens: a pure
 * function. The formulas are those of the choice methods in SGLang's front end. */
#ifndef PROGRAM_SELECT_SCORE_H
#define PROGRAM_SELECT_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "quire_program.h"

/* The tokens of a choice: n >= 1 log-probabilities, and, or NULL where the method does
 * not use them, those of the same tokens with nothing before them, of which the first
 * is 0. */
typedef struct select_choice {
    const double *logprobs, *alone;
    size_t n;
} select_choice;

/* Scores n >= 1 choices and returns the index of the best; of equal ones the first.
 * scores: [n]. Under greedy_token_selection they are means, which do not decide. O(all
 * tokens). */
int32_t select_score(const select_choice *choices, size_t n, quire_select_method method, double *scores);

#endif
