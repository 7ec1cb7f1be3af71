/* Token masks: the trie of the vocabulary walked through the machine.
 *
 * Inside a string that nothing limits, all tokens that stay inside are allowed: they come as one mask made once for a vocabulary, and only
 * those that may leave it are walked; where the string's state doesn't change, only what they have from the closing quote on. A string in
 * which some characters are limited takes the plain tokens at once, and the rest of the trie is walked. A mask is kept with its state: as
 * one of the vocabulary's masks and a list of tokens where these are few, else as bits. */
#include "grammar/grammar_run.h"

static void set_tokens(const int32_t *same, int32_t token, uint64_t *bits) {
    for (; token >= 0; token = same[token]) {
        bits[token / 64] |= (uint64_t)1 << (token % 64);
    }
}

/* How many plain characters any text of which configuration c takes, whatever they are; at most VOCAB_PLAIN. */
static uint32_t plain_room(const grammar_run *r, const machine_config *c) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0) {
        return 0;
    }
    if (node->op == NFA_STRING && node->mode != NFA_RAW) {
        return a->dstates.p[c->at].roomy ? VOCAB_PLAIN : 0;
    }
    if (node->op != NFA_COUNTED || node->mode == NFA_RAW) {
        return 0;
    }
    const nfa_count *n = &a->counts.p[node->arg];
    return n->max == NFA_NONE || n->max - c->at >= VOCAB_PLAIN ? VOCAB_PLAIN : n->max - c->at;
}

static bool walk(grammar_run *r, const vocab_trie *t, const int32_t *same, uint32_t s, uint64_t *bits) {
    r->path[0] = s;
    for (uint32_t i = 0; i < t->n;) {
        const vocab_node *node = &t->nodes[i];
        uint32_t to = machine_step(&r->m, r->path[node->depth], node->byte);
        if (to < MACHINE_FIRST) {
            if (to == MACHINE_FULL) {
                return false;
            }
            i = node->skip;
            continue;
        }
        r->path[node->depth + 1] = to;
        set_tokens(same, node->token, bits);
        i++;
    }
    return true;
}

/* Whether configuration c stands in a JSON string in which any text may follow; *steady: none changes it. */
static bool is_free(const grammar_run *r, const machine_config *c, bool *steady) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0 || node->mode != NFA_JSON || (node->op != NFA_STRING && node->op != NFA_COUNTED)) {
        return false;
    }
    if (node->op == NFA_STRING) {
        const nfa_dstate *d = &a->dstates.p[c->at];
        *steady = d->n == 0 && d->other == c->at;
        return d->free;
    }
    const nfa_count *n = &a->counts.p[node->arg];
    *steady = c->at >= n->min;
    return n->max == NFA_NONE || n->max - c->at > r->v->longest;
}

/* The masks of a vocabulary by number: 0 is none. */
enum { BASE_NONE, BASE_BODY, BASE_PLAIN };
static const uint64_t *base_mask(const grammar_vocab *v, uint32_t base) {
    return base == BASE_NONE ? NULL : base == BASE_BODY ? v->body : v->plain[base - BASE_PLAIN];
}

static void begin_mask(const grammar_vocab *v, uint32_t base, uint64_t *bits) {
    if (base == BASE_NONE) {
        memset(bits, 0, v->n_words * sizeof *bits);
    } else {
        memcpy(bits, base_mask(v, base), v->n_words * sizeof *bits);
    }
}

/* How many bytes of white space may follow; 0 where no white space of JSON does. */
static uint32_t space_room(const grammar_run *r, const machine_config *c) {
    return r->m.a->nodes.p[c->node].op == NFA_SPACE ? GRAMMAR_SPACE_MAX - c->at : 0;
}

static void add_spaces(const grammar_vocab *v, uint32_t room, uint64_t *bits) {
    for (int32_t i = 0; i < v->n_spaces; i++) {
        int32_t t = v->spaces[i];
        if (vocab_text(v, t).n <= room) {
            bits[t / 64] |= (uint64_t)1 << (t % 64);
        }
    }
}

/* Fills bits from nothing; *base: the mask of the vocabulary that is in them. Where one configuration stands in a JSON string, all do: what
 * came before decides that. */
static bool build_mask(grammar_run *r, uint32_t s, uint64_t *bits, uint32_t *base) {
    const grammar_vocab *v = r->v;
    const machine_state *state = machine_state_at(&r->m, s);
    const machine_config *c = machine_configs(&r->m, s);
    uint32_t room = 0, spaces = 0, n = state->n;
    bool free_text = false, steady = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t one = plain_room(r, c + i);
        room = one > room ? one : room;
        spaces = space_room(r, c + i) > spaces ? space_room(r, c + i) : spaces;
        free_text = free_text || is_free(r, c + i, &steady);
    }
    /* Shorter room answers for all plain tokens only where nothing else may take longer ones. */
    bool sliced = room == VOCAB_PLAIN || (room > 0 && n <= 2);
    *base = free_text ? BASE_BODY : sliced ? BASE_PLAIN + room : BASE_NONE;
    begin_mask(v, *base, bits);
    for (int32_t i = 0; state->final && i < v->n_ends; i++) {
        bits[v->ends[i] / 64] |= (uint64_t)1 << (v->ends[i] % 64);
    }
    if (free_text) {
        bool one = steady && n <= 2 && machine_next(&r->m, s, 'x') == s;
        return one ? walk(r, &v->tails, v->same_tail, s, bits) && walk(r, &v->odd, v->same, s, bits)
                   : walk(r, &v->quoted, v->same, s, bits);
    }
    if (spaces > 0 && !sliced) {
        add_spaces(v, spaces, bits);
        return walk(r, &v->others, v->same, s, bits);
    }
    return walk(r, sliced ? &v->rest : &v->all, v->same, s, bits);
}

/* ---- kept masks: a word of the base's number and the number of tokens beside it, then these; or NO_LIST, then bits ---- */

#define NO_LIST    UINT32_MAX
#define BASE_SHIFT 26

/* Writes the tokens beside the base to list, at most max of them; returns how many there are, or max + 1: too many. */
static uint32_t list_tokens(const grammar_vocab *v, const uint64_t *bits, const uint64_t *base, uint32_t max, uint32_t *list) {
    uint32_t n = 0;
    for (size_t i = 0; i < v->n_words; i++) {
        for (uint64_t w = bits[i] & ~(base != NULL ? base[i] : 0); w != 0; w &= w - 1) {
            if (n == max) {
                return max + 1;
            }
            list[n++] = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(w);
        }
    }
    return n;
}

static void keep(grammar_run *r, uint32_t s, const uint64_t *bits, uint32_t base) {
    uint32_t max = (uint32_t)r->v->n_tokens / RUN_LIST_PART, n = list_tokens(r->v, bits, base_mask(r->v, base), max, r->list);
    size_t words = 1 + (n <= max ? n : r->v->n_words * 2);
    if (r->m.budget.used > r->m.budget.max / 2 || !area_use(&r->masks, &r->m.budget, (r->n_mask_words + words) * sizeof(uint32_t))) {
        return; /* states need the rest of the budget more */
    }
    uint32_t *to = (uint32_t *)r->masks.p + r->n_mask_words;
    machine_state_at(&r->m, s)->mask = r->n_mask_words + 1;
    r->n_mask_words += (uint32_t)words;
    *to++ = n <= max ? base << BASE_SHIFT | n : NO_LIST;
    if (n <= max) {
        mem_copy(to, r->list, n * sizeof *to);
    } else {
        memcpy(to, bits, r->v->n_words * sizeof *bits);
    }
}

static void read_kept(const grammar_run *r, uint32_t mask, uint64_t *bits) {
    const uint32_t *from = (const uint32_t *)r->masks.p + mask - 1;
    uint32_t head = *from++;
    if (head == NO_LIST) {
        memcpy(bits, from, r->v->n_words * sizeof *bits);
        return;
    }
    begin_mask(r->v, head >> BASE_SHIFT, bits);
    for (uint32_t i = 0, n = head & ((1u << BASE_SHIFT) - 1); i < n; i++) {
        bits[from[i] / 64] |= (uint64_t)1 << (from[i] % 64);
    }
}

quire_err run_mask(grammar_run *r, uint32_t s, uint64_t *bits) {
    uint32_t base;
    if (machine_state_at(&r->m, s)->mask == 0) {
        if (!build_mask(r, s, bits, &base)) {
            return QUIRE_TOO_LARGE;
        }
        r->stats.n_masks++;
        keep(r, s, bits, base);
        return QUIRE_OK;
    }
    r->stats.n_mask_hits++;
    read_kept(r, machine_state_at(&r->m, s)->mask, bits);
    return QUIRE_OK;
}
