/* Fairness between tenants while they run, under ADMISSION_FAIR: a tenant that floods the
 * server gives places to run, pages and rows back to one that runs less. So a request
 * behind another tenant's flood is computed almost as soon as on an idle server.
 *
 * A task is `first` while it heads the waiting tasks that may be admitted and can take a
 * place, and then until its prompt is computed,
 * if another tenant runs more tasks than its tenant runs besides. The service counters
 * order the waiting tasks. One whose tenant was served more than that of another waiting
 * task takes a place only where its tenant then runs no more than one that has more
 * requests,
 * be the place free or that tenant's: a tenant whose rows come slowly, since their rules
 * take long, is served little however many places it holds. A first task takes places and
 * pages of the tenant that runs most: of its newest tasks, one after the other until
 * there is room. It is admitted before others, and its prefill gets rows before theirs. A
 * task that was preempted is never first, so tenants do not take turns at each other's
 * cost; and one that was preempted often has aged (sched.h) and stays. */
#ifndef SCHED_FAIR_PREEMPT_H
#define SCHED_FAIR_PREEMPT_H

#include "sched/scheduler.h"

/* Sets is_first of the running tasks and of the one that heads the waiting, and preempts
 * for them, before a step is planned. Other policies: nothing. O(waiting + running^2). */
void fair_preempt(scheduler *s);

#endif
