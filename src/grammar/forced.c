/* What must come behind a state, and what is likely to. */
#include "grammar/grammar_run.h"

/* machine_state.only: nobody has asked; there is no only byte; it is the byte 0, and so on. */
enum { ONLY_UNKNOWN, ONLY_NONE, ONLY_FIRST };

static uint16_t find_only(run_core *r, uint32_t s) {
    int32_t only = -1;
    const uint8_t *byte_class = r->m.a->byte_class;
    for (int32_t i = 0; i < 256 && !machine_state_at(&r->m, s)->final; i++) {
        bool repeats = i > 0 && byte_class[i] == byte_class[i - 1];
        uint32_t to = repeats && only != i - 1 ? MACHINE_DEAD : machine_next(&r->m, s, (uint8_t)i);
        if (to == MACHINE_FULL || (to >= MACHINE_FIRST && only >= 0)) {
            return to == MACHINE_FULL ? ONLY_UNKNOWN : ONLY_NONE;
        }
        only = to >= MACHINE_FIRST ? i : only;
    }
    return (uint16_t)(only < 0 ? ONLY_NONE : ONLY_FIRST + only);
}

/* The only byte that may follow; -1: there may be others, or the text may end. Remembered with the state. */
static int32_t only_byte(run_core *r, uint32_t s) {
    machine_state *state = machine_state_at(&r->m, s);
    state->only = state->only == ONLY_UNKNOWN ? find_only(r, s) : state->only;
    return state->only < ONLY_FIRST ? -1 : state->only - ONLY_FIRST;
}

int32_t grammar_forced(grammar_run *run, grammar_state s, int32_t *tokens, int32_t max) {
    int32_t n = 0;
    run_core *r = run_enter(run);
    while (n < max && only_byte(r, s.id) >= 0) {
        size_t taken;
        int32_t token = run_only_token(r, s.id);
        uint32_t to = token < 0 ? MACHINE_DEAD : run_walk(r, s.id, vocab_text(r->v, token), &taken);
        if (to < MACHINE_FIRST) {
            break;
        }
        tokens[n++] = token;
        s.id = to;
    }
    run_leave(run);
    return n;
}

/* The longest token that begins with known bytes p[0..n); -1: none. */
static int32_t longest_token(const grammar_vocab *v, const uint8_t *p, size_t n, size_t *length) {
    int32_t best = -1;
    uint32_t at = 0, end = v->all.n_roots;
    for (size_t depth = 0; depth < n && at < end;) {
        const trie_node *node = &v->all.nodes[at];
        if (node->byte != p[depth]) {
            at++;
            continue;
        }
        depth++;
        if (node->token >= 0) {
            best = node->token;
            *length = depth;
        }
        at = node->child;
        end = node->child + node->n;
    }
    return best;
}

#define GUESS_BYTES 512

int32_t grammar_guess(grammar_run *run, grammar_state s, int32_t *tokens, int32_t max) {
    uint8_t bytes[GUESS_BYTES];
    size_t n = 0, at = 0, length = 0;
    int32_t n_tokens = 0, byte = 0;
    run_core *r = run_enter(run);
    while (n < sizeof bytes && (byte = only_byte(r, s.id)) >= 0) {
        uint32_t to = machine_next(&r->m, s.id, (uint8_t)byte);
        if (to < MACHINE_FIRST) {
            break;
        }
        bytes[n++] = (uint8_t)byte;
        s.id = to;
    }
    run_leave(run);
    while (n_tokens < max && at < n) {
        int32_t token = longest_token(r->v, bytes + at, n - at, &length);
        if (token < 0) {
            break;
        }
        tokens[n_tokens++] = token;
        at += length;
    }
    return n_tokens;
}
