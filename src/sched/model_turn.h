/* Turns of several models on one engine thread: whose step runs next, as a pure function
 * of times.
 *
 * A step is of one model. The model that was served least goes first, so that each gets
 * an equal share of the time as long as it has work, whatever the others ask for. A model
 * whose request would miss its deadline after another's step goes before that, as long
 * as it is not too far ahead of its share. */
#ifndef SCHED_MODEL_TURN_H
#define SCHED_MODEL_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* Microseconds by which a model may be ahead of the least served one and still go first
 * because of a deadline. */
#define TURN_MOST_AHEAD_US 500000.0

/* A model that has work. */
typedef struct turn_claim {
    /* time that its steps took, on a clock that all models share: a model that comes back
     * from a pause begins where the others are (turn_resume) */
    double served_us;
    double step_us;      /* time of its last step; 0: unknown */
    int64_t deadline_us; /* the earliest deadline of a first token that waits (clock_us); 0: none */
} turn_claim;

/* The number of the model whose step runs next, of n >= 1. Ties go to the lowest
 * number. */
int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us);
/* served_us of a model that has work again, beside n others that have work: its own,
 * but at least the minimum of theirs. If n is 0: at least most_us, the largest of any
 * model, so that a new one does not get back the time that another was alone. */
double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us);
/* served_us of a model that had the turn but no step to run, since its sequences wait for
 * something outside of steps; a model that was served taken_us ran instead. A turn that
 * was passed is not made up for later. */
double turn_pass(double served_us, double taken_us);

#endif
