/* Masks of sequences under a rule: what may come next is computed ahead of the step that
 * needs it, and by a text thread outside the step if it takes too long.
 *
 *   token taken --fits into the step--> ready --planned--> sampled from
 *        `--does not fit--> outside: the sequence sits out, with its pages --made--> back --> ready
 *
 * A sequence is planned only where the mask after its last token is ready (sample_rule).
 * A step has a budget for rules: a number of configurations per call, and an amount of
 * processor time in all. The budget decides when a token comes, never which. While a
 * sequence's rule is outside, the constraint's state and the sample_rule belong to the
 * thread there; the sequence may be preempted or end meanwhile, and that thread has a
 * reference of its own.
 *
 * Owner: the engine thread, except for rule_step_prepare. */
#ifndef ENGINE_RULE_STEP_H
#define ENGINE_RULE_STEP_H

#include "engine/state.h"

#define RULE_STEP_MOST 200000u /* configurations that a call in a step visits */
#define RULE_STEP_US   2000    /* processor time of a step, on all threads together */

/* Resets the budget for a new step. */
void rule_step_begin(engine *e);
/* Before a step is planned: takes back what was made outside, makes what is missing or
 * hands it out, and finds which sequences sit out. */
void rule_step_planning(engine *e);
/* Whether the rule of a waiting sequence allows its admission; gives a missing mask to
 * a text thread. */
bool rule_step_may_run(engine *e, sequence *s);
/* Computes what may come after s's last token, if the budget allows. False: it did not, or
 * the computation failed, which the next step finds. Within a step, on any thread that has
 * s and may use the step's budget. */
bool rule_step_prepare(sequence *s);
/* Call when s ends: what a text thread makes for it is no longer needed. */
void rule_step_ended(engine *e, sequence *s);

#endif
