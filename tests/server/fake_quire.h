/* A fake implementation of quire.h: streams produce one token per tick of a timer, on the
 * queue's own thread.
 *
 * Beside OpenAI's fields a request may have "fail": "look" | "parse" | "submit" | "start"
 * | "middle"; "stop_at": n with "stop_kind": "string" | "token"; "burst": tokens per
 * tick; "text_bytes": bytes of a token, all x; "rollback_at": n, the number of tokens
 * after which the stream is rolled back to the prompt's end, and tokens are y;
 * "pause_at": n, the number of tokens after which the stream pauses until fake_resume. */
#ifndef TESTS_SERVER_FAKE_QUIRE_H
#define TESTS_SERVER_FAKE_QUIRE_H

#include "quire.h"

#define FAKE_SPECIAL 25 /* id of the special token */

quire_engine *fake_open(int64_t tick_us);
void fake_close(quire_engine *e);
/* Returns the number of open engines that were opened beside another one. Models for such
 * engines: "broken" cannot be read; "big" is out of memory while one of them is open;
 * "sick" is not healthy; "slow" takes 100 ms to open, "endless" until it is cancelled. */
int32_t fake_beside(void);
int64_t fake_opened(void); /* engines ever opened beside another one */
/* Returns how many queues had to wait at closing for their streams' last events. */
int32_t fake_waits(void);
void fake_set_healthy(quire_engine *e, bool healthy);
void fake_hold(quire_engine *e, bool held);    /* held: no stream produces events */
void fake_resume(void);                        /* ends all pauses, also later ones */
bool fake_has_history(const quire_engine *e);  /* quire_engine_history has set a callback */
int64_t fake_running(const quire_engine *e);   /* streams that are neither done nor released */
int64_t fake_produced(const quire_engine *e);  /* tokens produced so far */
int64_t fake_drops(const quire_engine *e);     /* calls of quire_engine_drop_cache */
int64_t fake_cancelled(const quire_engine *e); /* streams released before they were done */

int64_t fake_parses(const quire_engine *e); /* bodies given to a text thread */
int64_t fake_looks(const quire_engine *e);  /* beginnings of bodies given to a text thread */

#endif
