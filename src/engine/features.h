/* Events of a step and of a sequence, and the features that handle them. The table of
 * handlers is in features.c.
 *
 *   a step:      polled -> planning -> planned
 *   a sequence:  entered -> admitted -> computed .. -> token .. -> ended
 *                              ^ preempted <-'
 *
 * Steps raise the events, on the engine thread. The use of an item's last row is no
 * event: it is decided while the batch is filled (row_use in state.h). */
#ifndef ENGINE_FEATURES_H
#define ENGINE_FEATURES_H

#include "engine/state.h"

/* Called when the engine thread looks for work, whether or not there is any. */
void event_polled(engine *e);
/* A step is about to be planned. */
void event_planning(engine *e);
/* The step was planned: tasks were admitted and preempted. */
void event_planned(engine *e);

/* The engine thread has taken s from the in-ring. */
void event_entered(engine *e, sequence *s);
/* s has its pages from the prefix cache and is about to run. */
void event_admitted(engine *e, sequence *s);
/* s is about to release its pages and wait again. */
void event_preempted(engine *e, sequence *s);
/* n known tokens of s were computed; s->task.kv already counts them. */
void event_computed(engine *e, sequence *s, int32_t n);
/* A token was appended, at now_us. */
void event_token(engine *e, sequence *s, int64_t now_us);
/* s is about to end, at ended_us; it still holds its pages. */
void event_ended(engine *e, sequence *s);

#endif
