/* Looks at the engine's pages from other threads: who wants one asks and goes on, the engine's thread fills it between two steps and rings.
 *
 *   engine_view_open -> engine_view_ask -> (rung) engine_view_get -> engine_view_ask ... -> engine_view_close
 *
 * A look has two holders while it is asked for, its owner and the engine's thread; the last one frees it, so closing never waits. Owner:
 * one thread; between ask and get its content is the engine thread's. */
#ifndef ENGINE_ENGINE_VIEW_H
#define ENGINE_ENGINE_VIEW_H

#include "engine/engine.h"
#include "kv/view.h"

typedef struct engine_view engine_view;

/* Room for the pages, sequences and tree of e, up to 65,536 pages. */
quire_err engine_view_open(engine *e, engine_view **out);
/* At any time; before the engine is closed or after. NULL does nothing. */
void engine_view_close(engine_view *w);
/* Rung when what was asked for is there: the owner waits on its descriptor. */
const wake *engine_view_reader(const engine_view *w);
/* Asks for the present state, the tokens of one page (-1: none's) and the events behind a number. Does nothing while another ask is under
 * way. Never waits. */
void engine_view_ask(engine_view *w, int32_t page, uint64_t after);
/* What was asked for last, or NULL while that is under way, or before the first. Takes the ring back. */
const quire_kv_view *engine_view_get(engine_view *w);

/* Fills what was asked for. The engine's thread, between steps. */
void engine_view_response(engine *e);

#endif
