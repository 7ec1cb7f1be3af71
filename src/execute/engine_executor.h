/* Executes programs on an engine, over quire.h. Gens and selects are requests by ids;
 * the engine's text threads tokenise. */
#ifndef EXECUTE_ENGINE_EXECUTOR_H
#define EXECUTE_ENGINE_EXECUTOR_H

#include "program/program_state.h"

extern const program_ops engine_ops;

/* Opens an executor with a queue of its own; *out is for programs_open with engine_ops.
 * NO_MEMORY. */
quire_err engine_executor_open(quire_engine *e, void **out);

#endif
