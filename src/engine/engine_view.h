/* Views: copies of the state of the engine's pages, for other threads. A thread requests
 * one without blocking; the engine thread fills it between two steps and wakes the
 * thread.
 *
 *   engine_view_open -> engine_view_ask -> (wake) engine_view_get -> engine_view_ask ... -> engine_view_close
 *
 * A requested view has two references, its owner's and the engine thread's; the last one
 * frees it, so closing never blocks. Owner: one thread. From ask until the wake fires,
 * the content is the engine thread's. */
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
/* The wake that fires when the view is filled; the owner polls its descriptor. */
const wake *engine_view_reader(const engine_view *w);
/* Requests the present state, with the tokens of page `page` (-1: of none) and the events
 * after number `after`. Does nothing while another request is pending. Never blocks. */
void engine_view_ask(engine_view *w, int32_t page, uint64_t after);
/* The state that was requested last; NULL before the first request and while one is
 * pending. Clears the wake. */
const quire_kv_view *engine_view_get(engine_view *w);

/* Fills the requested views. The engine thread, between steps. */
void engine_view_response(engine *e);

#endif
