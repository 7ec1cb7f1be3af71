/* Snapshots of the engine's pages for other threads. A thread requests one without
 * blocking; the engine thread fills it between two steps and wakes the requester.
 *
 *   engine_view_open -> engine_view_ask -> (wake) engine_view_get -> engine_view_ask ... -> engine_view_close
 *
 * While a snapshot is under way it has two references, its owner's and the engine
 * thread's. The last one frees it, so closing never blocks. Owner: one thread. Between
 * ask and get the content is the engine thread's. */
#ifndef ENGINE_ENGINE_VIEW_H
#define ENGINE_ENGINE_VIEW_H

#include "engine/engine.h"
#include "kv/view.h"

typedef struct engine_view engine_view;

/* Allocates room for the pages, sequences and tree of e, up to 65,536 pages. */
quire_err engine_view_open(engine *e, engine_view **out);
/* Closes the view at any time, before the engine is closed or after. NULL does
 * nothing. */
void engine_view_close(engine_view *w);
/* The wake that fires when a snapshot is filled: the owner polls its descriptor. */
const wake *engine_view_reader(const engine_view *w);
/* Requests a snapshot of the present state, with the tokens of one page (-1: of none) and
 * the events after number `after`. Does nothing while another request is under way. Never
 * blocks. */
void engine_view_ask(engine_view *w, int32_t page, uint64_t after);
/* The snapshot that was requested last, or NULL while it is under way or before the
 * first. Clears the wake. */
const quire_kv_view *engine_view_get(engine_view *w);

/* Fills the requested snapshots. The engine thread, between steps. */
void engine_view_response(engine *e);

#endif
