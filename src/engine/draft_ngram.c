#include "engine/draft_ngram.h"

#include "base/mem.h"
#include "engine/sequence.h"

typedef struct ngram_drafter {
    drafter head;
    int32_t lookup_min, lookup_max;
} ngram_drafter;

int32_t draft_ngram(int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max, int32_t wanted) {
    int32_t best = 0, from = 0; /* length of the longest match, and what follows it */
    for (int32_t end = n - 1; end >= lookup_min && best < lookup_max; end--) {
        int32_t length = 0;
        while (length < lookup_max && length < end && tokens[end - 1 - length] == tokens[n - 1 - length]) {
            length++;
        }
        if (length > best) {
            best = length;
            from = end;
        }
    }
    if (best < lookup_min) {
        return 0;
    }
    for (int32_t i = 0; i < wanted; i++) {
        tokens[n + i] = tokens[from + i]; /* past n these are guesses already */
    }
    return wanted;
}

static void propose(drafter *d, engine *e, sequence *const *seqs, int32_t n) {
    const ngram_drafter *self = (const ngram_drafter *)d;
    (void)e;
    for (int32_t i = 0; i < n; i++) {
        sequence *s = seqs[i];
        s->draft.n = draft_ngram(s->tokens, s->n_known, self->lookup_min, self->lookup_max, s->draft.wanted);
    }
}

static void ngram_close(drafter *d) {
    mem_free(d);
}

quire_err draft_ngram_open(const draft_options *o, drafter **out) {
    static const draft_ops ops = {.propose = propose, .close = ngram_close};
    ngram_drafter *d = mem_new(1, sizeof *d);
    if (!d) {
        return QUIRE_NO_MEMORY;
    }
    *d = (ngram_drafter){.head = {&ops}, .lookup_min = o->lookup_min, .lookup_max = o->lookup_max};
    *out = &d->head;
    return QUIRE_OK;
}
