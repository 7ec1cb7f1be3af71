#include "engine/branch.h"

#include <assert.h>
#include <string.h>

#include "engine/cache.h"
#include "engine/explain.h"
#include "engine/lists.h"

/* s chooses as the stem did up to where they part: mirostat is the only choice with a memory of its own. */
static void take_mirostat(sequence *s, const sequence *stem) {
    const sampling_params *a = &s->sampling, *b = &stem->sampling;
    bool same = a->mirostat == b->mirostat && a->mirostat_tau == b->mirostat_tau && a->mirostat_eta == b->mirostat_eta;
    if (!s->mus || !same || s->n_prompt != stem->n_prompt) {
        return;
    }
    int32_t n = s->stem_tokens - s->n_prompt;
    memcpy(s->mus, stem->mus, (size_t)n * sizeof *s->mus);
    s->mirostat_mu = s->stem_tokens < stem->n_known ? stem->mus[n] : stem->mirostat_mu;
    for (int32_t i = s->stem_tokens; i < s->n_known; i++) {
        s->mus[i - s->n_prompt] = s->mirostat_mu; /* tokens that were given move nothing */
    }
}

/* Tokens whose pages s can share; 0: none. */
static int32_t shareable(const engine *e, const sequence *s, const sequence *stem) {
    bool runs = stem->state == SEQ_PREFILL || stem->state == SEQ_DECODE;
    bool has_place = e->n_running - (s->replaces_stem ? 1 : 0) < e->limits.max_seqs;
    bool same_space = s->n_space == stem->n_space && memcmp(s->space, stem->space, s->n_space) == 0;
    if (!runs || !has_place || !same_space) {
        return 0;
    }
    int32_t n = s->stem_tokens < stem->n_computed ? s->stem_tokens : stem->n_computed;
    n = n < s->n_known ? n : s->n_known - 1; /* the last one's logits are wanted */
    return cache_can_go_back(e, stem, n) ? n : 0;
}

static void share_pages(engine *e, sequence *s, const sequence *stem, int32_t n) {
    s->cached = stem->cached;
    if (s->cached) {
        s->path = kv_index_fork(e->index, &stem->path);
        kv_index_truncate(e->index, &s->path, n);
    }
    for (int32_t g = 0; g < s->n_tables; g++) {
        quire_err err = kv_table_fork_first(e->pool, &stem->tables[g], n, e->layout.page_tokens, &s->tables[g]);
        assert(err == QUIRE_OK); /* tables were made with room for the whole sequence, of which n tokens are a part */
        (void)err;
    }
    s->n_computed = s->n_reused = n;
    s->n_admitted = 2;
    s->n_cached = s->replaces_stem ? stem->n_cached : n;
    e->stats.known_tokens_queried += s->n_known;
    e->stats.known_tokens_reused += n;
    s->state = s->n_known - n == 1 ? SEQ_DECODE : SEQ_PREFILL;
    list_insert(e->running, &e->n_running, s);
    explain_shared(s, QUIRE_WAIT_TURN);
}

void branch_enter(engine *e, sequence *s) {
    sequence *stem = s->stem;
    for (sequence *f = s; f != NULL; f = f->followers) {
        take_mirostat(f, stem);
    }
    if (s->replaces_stem) { /* it keeps the stem's place among all */
        s->arrival = stem->arrival;
        s->priority = stem->priority;
        s->last_token_us = stem->last_token_us;
    }
    int32_t n = shareable(e, s, stem);
    if (n > 0) {
        share_pages(e, s, stem, n);
    } else {
        s->n_admitted = 1;
        cache_enter(e, s);
        list_insert(e->waiting, &e->n_waiting, s);
    }
    if (s->replaces_stem) {
        if (n > 0) {
            cache_release(e, stem, CACHE_DROP); /* its part-filled page is the branch's alone now, not one to find and to copy */
        }
        engine_cancel(e, stem->id);
    }
    if (s->n_known > s->stem_tokens) {
        out_publish(s, FINISH_NONE); /* the tokens that were given */
    }
    s->stem = NULL;
    sequence_drop(stem);
}
