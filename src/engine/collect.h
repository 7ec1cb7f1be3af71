/* What a forward pass has computed is taken in: rows are committed, pages published, next tokens sampled. The engine thread. */
#ifndef ENGINE_COLLECT_H
#define ENGINE_COLLECT_H

#include "engine/state.h"

/* Takes in every planned item of the step, whose forward pass is over. */
void collect_items(engine *e);

#endif
