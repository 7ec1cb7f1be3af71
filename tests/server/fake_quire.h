/* A stand-in for the engine behind quire.h: streams produce one token a tick of a timer,
 * on the queue's own thread.
 *
 * Beside OpenAI's fields a request may say "fail": "look" | "parse" | "submit" | "start"
 * | "middle", "stop_at": n with "stop_kind": "string" | "token", "burst": tokens a tick,
 * "text_bytes": of one token, "rollback_at": n tokens, after which it is rolled back to
 * its prompt's end, and texts of "text_bytes" are of y instead of x, "pause_at": n tokens,
 * after which it says nothing until fake_resume. */
#ifndef TESTS_SERVER_FAKE_QUIRE_H
#define TESTS_SERVER_FAKE_QUIRE_H

#include "quire.h"

#define FAKE_SPECIAL 25 /* the id of its special token */

quire_engine *fake_open(int64_t tick_us);
void fake_close(quire_engine *e);
/* Engines that were opened beside another one and not closed. A model "broken" cannot be
 * read; "big" has no memory while one of these is open; "sick" is not healthy; "slow" takes
 * 100 ms; "endless" ends only when it is cancelled. */
int32_t fake_beside(void);
int64_t fake_opened(void); /* how many were ever opened beside another one */
/* How often a queue was closed that had to wait for the last events of its streams. */
int32_t fake_waits(void);
void fake_set_healthy(quire_engine *e, bool healthy);
void fake_hold(quire_engine *e, bool held);    /* held: no stream says anything */
void fake_resume(void);                        /* no stream pauses any more */
bool fake_has_history(const quire_engine *e);  /* quire_engine_history was told where, and not to forget it */
int64_t fake_running(const quire_engine *e);   /* streams submitted and neither done nor released */
int64_t fake_produced(const quire_engine *e);  /* tokens so far */
int64_t fake_drops(const quire_engine *e);     /* calls of quire_engine_drop_cache */
int64_t fake_cancelled(const quire_engine *e); /* streams released before their end */

int64_t fake_parses(const quire_engine *e); /* bodies handed to a text thread */
int64_t fake_looks(const quire_engine *e);  /* beginnings handed to one */

#endif
