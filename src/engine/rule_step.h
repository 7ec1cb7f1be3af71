/* Masks of sequences under a rule: the mask after the last token is computed before the
 * step that needs it, and on a text thread outside the step if it takes too long.
 *
 *   token taken --fits into the step--> ready --planned--> sampled from
 *        `--does not fit--> outside: the sequence sits out, with its pages --made--> back --> ready
 *
 * A sequence is planned only if the mask after its last token is ready (sample_rule). A
 * step has a budget for rules: a number of configurations per call, and an amount of
 * processor time in all. The budget affects when a token comes, never which token. While
 * a sequence's rule is outside, its constraint state and sample_rule belong to the text
 * thread, which holds a reference to the sequence: it may be preempted or end meanwhile.
 *
 * Owner: the engine thread, except for rule_step_prepare. */
#ifndef ENGINE_RULE_STEP_H
#define ENGINE_RULE_STEP_H

#include "engine/state.h"

#define RULE_STEP_MOST 200000u /* most configurations that one call may visit within a step */
#define RULE_STEP_US   2000    /* most processor time a step spends on rules, summed over all threads */

/* Resets the budget for a new step. */
void rule_step_begin(engine *e);
/* Before a step is planned: takes back masks made outside, makes missing masks or passes
 * them to text threads, and determines which sequences sit out. */
void rule_step_planning(engine *e);
/* Whether a waiting sequence has its mask, so that it may be admitted; passes a missing
 * mask to a text thread. */
bool rule_step_may_run(engine *e, sequence *s);
/* Computes the mask after s's last token. False: the budget does not suffice, or the
 * computation failed, which the next step detects. Within a step, on any thread that has
 * s and shares the step's budget. */
bool rule_step_prepare(sequence *s);
/* Call when s ends: cancels the work of a text thread for it. */
void rule_step_ended(engine *e, sequence *s);

#endif
