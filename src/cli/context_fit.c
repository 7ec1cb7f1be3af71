#include "cli/context_fit.h"

enum { MOST_ROOM = 512 }; /* tokens kept free for an answer */

static int32_t positive(int32_t n) {
    return n > 1 ? n : 1;
}

context_fit context_fit_begin(const conversation *c, int32_t context_tokens, int32_t max_tokens) {
    int32_t room = context_tokens / 8 < MOST_ROOM ? context_tokens / 8 : MOST_ROOM;
    room = max_tokens > 0 && max_tokens < room ? max_tokens : room;
    return (context_fit){.from = c->first, .limit = positive(context_tokens - positive(room))};
}

bool context_fit_next(const conversation *c, int32_t context_tokens, context_fit *fit) {
    size_t next = conversation_next_turn(c, fit->from);
    if (next < c->n) {
        *fit = (context_fit){.from = next, .limit = positive(context_tokens - context_tokens / 4)};
        return true;
    }
    bool was_limited = fit->limit > 0;
    fit->limit = 0;
    return was_limited;
}
