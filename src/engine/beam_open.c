/* Makes a beam search: checks that it fits, and allocates all its memory. */
#include "base/mem.h"
#include "engine/beam.h"
#include "sample/constraint.h"

static bool has_windows(const engine *e) {
    bool some = false;
    for (int32_t g = 0; g < e->layout.n_groups && !some; g++) {
        some = e->layout.groups[g].kind == LAYER_WINDOW;
    }
    return some;
}

/* Pages of one group that all beams always share: the whole pages of the prompt. 0 with
 * windows or states, which each beam may have to compute again, and without fork
 * sharing. */
static int32_t beam_pages_shared(const engine *e, int32_t n_prompt) {
    return has_windows(e) || e->kv.n_state_pages > 0 || e->options.ablations.no_fork_sharing
               ? 0
               : n_prompt / e->options.page_tokens;
}

int64_t beam_pages_own(const engine *e, int32_t n_prompt, int32_t n_max) {
    return kv_most_pages(&e->sched.limits.most, n_max) -
           (int64_t)beam_pages_shared(e, n_prompt) * e->kv.n_token_groups;
}

/* The most tokens of each of `width` beams that fit into e's guaranteed pages. */
static int64_t beam_open_most_tokens(const engine *e, int32_t width, int32_t n_prompt) {
    int64_t shared = (int64_t)beam_pages_shared(e, n_prompt) * e->kv.n_token_groups;
    return kv_most_tokens(&e->sched.limits.most, shared + (engine_sure_pages(e) - shared) / width);
}

quire_err beam_check(const engine *e, const engine_request *r, int32_t n, int32_t *n_max, quire_error *err) {
    const beam_params *p = &r->beams;
    if (p->width < n || p->n_groups < 1 || p->width % p->n_groups != 0) {
        return err_set(err, QUIRE_INVALID, -1, "%d results of %d beams in %d groups", (int)n, (int)p->width,
                       (int)p->n_groups);
    }
    if (p->width > e->sched.limits.max_seqs) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "beam_width",
                             "beam_width is %d; this server runs at most %d sequences at once", (int)p->width,
                             (int)e->sched.limits.max_seqs);
    }
    int64_t fits = beam_open_most_tokens(e, p->width, r->n_tokens);
    if (r->sampling.max_tokens < 0 && fits < *n_max) {
        *n_max = (int32_t)fits;
    }
    if (*n_max <= r->n_tokens || *n_max > fits) {
        return err_set_param(err, QUIRE_TOO_LARGE, "beam_width",
                             "%d beams of up to %d tokens may need more than the %d KV pages of this server; "
                             "lower beam_width or max_tokens",
                             (int)p->width, (int)*n_max, (int)engine_sure_pages(e));
    }
    return QUIRE_OK;
}

static void *alloc(bool *whole, size_t n, size_t size) {
    void *p = mem_new(n, size);
    *whole = *whole && p != NULL;
    return p;
}

/* Allocates g's arrays, sized by the counts in g. */
static bool alloc_stores(beams *g) {
    size_t n_beams = (size_t)g->n_beams, n = (size_t)g->rules.n, list = (size_t)g->list_length,
           width = (size_t)g->width;
    size_t max_new = (size_t)g->rules.max_new;
    bool whole = true;
    g->beams = alloc(&whole, n_beams, sizeof *g->beams);
    g->sets = alloc(&whole, (size_t)g->n_sets, sizeof *g->sets);
    g->lists = alloc(&whole, n_beams * list, sizeof *g->lists);
    g->tops = alloc(&whole, n_beams * width, sizeof *g->tops);
    g->best = alloc(&whole, list, sizeof *g->best);
    g->lives = alloc(&whole, n_beams, sizeof *g->lives);
    g->results = alloc(&whole, n_beams, sizeof *g->results);
    g->result_order = alloc(&whole, n_beams, sizeof *g->result_order);
    g->result_tokens = alloc(&whole, n_beams * max_new, sizeof *g->result_tokens);
    g->result_logprobs = alloc(&whole, n_beams * max_new, width * sizeof *g->result_logprobs);
    g->ends = alloc(&whole, (size_t)g->rules.n_ends, sizeof *g->ends);
    g->chosen = alloc(&whole, n_beams, sizeof *g->chosen);
    g->choices = alloc(&whole, n * list + 1, sizeof *g->choices);
    g->outcome.next = alloc(&whole, n, sizeof *g->outcome.next);
    g->outcome.ended = alloc(&whole, n, sizeof *g->outcome.ended);
    g->children = alloc(&whole, n_beams, sizeof *g->children);
    return whole;
}

static void beams_free(beams *g) {
    for (int32_t i = 0; g->beams != NULL && i < g->n_beams; i++) {
        mem_free(g->beams[i].spare);
    }
    void *blocks[] = {g->beams,         g->sets,
                      g->lists,         g->tops,
                      g->best,          (void *)g->lives,
                      g->results,       (void *)g->result_order,
                      g->result_tokens, g->result_logprobs,
                      g->ends,          g->chosen,
                      g->choices,       g->outcome.next,
                      g->outcome.ended, g->children};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
    mem_free(g);
}

/* Points beams, sets and results to their parts of these arrays. */
static void connect(beams *g, sequence *first) {
    size_t max_new = (size_t)g->rules.max_new, width = (size_t)g->width;
    sequence *s = first;
    for (int32_t i = 0; i < g->n_beams; i++, s = s->next_child) {
        size_t at = (size_t)i;
        g->beams[i] = (beam){.seq = s,
                             .spare = i > 0 ? s->explain : NULL,
                             .list = g->lists + at * (size_t)g->list_length,
                             .tops = g->tops + at * width};
        g->results[i] =
            (beam_result){.tokens = g->result_tokens + at * max_new,
                          .logprobs = width > 0 ? g->result_logprobs + at * max_new * width : NULL};
        g->result_order[i] = &g->results[i];
        s->explain = i > 0 ? NULL : s->explain;
        s->beams = g;
        s->drop_beams = beams_drop;
        s->beam = i;
    }
    for (int32_t i = 0; i < g->n_sets; i++) {
        g->sets[i] = (beam_set){.is_open = true,
                                .live = g->lives + i * g->rules.n,
                                .finished = {.list = g->result_order + i * g->rules.n}};
        g->sets[i].live[g->sets[i].n_live++] = &g->beams[0];
    }
    g->beams[0].is_live = true;
    g->listed = g->reporter = first;
}

quire_err beam_open(const engine *e, const engine_request *r, int32_t n, sequence *first) {
    beams *g = mem_new(1, sizeof *g);
    TRY(mem_check(g));
    const sampling_params *p = &first->sampling;
    g->params = r->beams;
    g->n_results = n;
    g->n_beams = r->beams.width;
    g->n_sets = r->beams.n_groups;
    g->width = r->logprobs_width;
    g->rules = (beam_rules){.n = g->n_beams / g->n_sets,
                            .max_new = first->task.n_max - first->task.n_prompt,
                            .length_penalty = (double)r->beams.length_penalty,
                            .stopping = r->beams.stopping,
                            .n_ends = end_tokens_list(p, e->desc, NULL)};
    g->ending = r->ending;
    if (g->ending.is_over != NULL) {
        g->rules.ends_too = beam_ending;
        g->rules.context = g;
    }
    /* long enough if some of its tokens end beams or are penalised */
    int32_t length = g->n_beams * (g->ending.is_over != NULL ? 2 : 1) + g->rules.n_ends;
    g->list_length = length < e->desc->n_vocab ? length : e->desc->n_vocab;
    if (!alloc_stores(g)) {
        beams_free(g);
        return QUIRE_NO_MEMORY;
    }
    (void)end_tokens_list(p, e->desc, g->ends);
    g->rules.ends = g->ends;
    atomic_init(&g->holders, g->n_beams);
    connect(g, first);
    return QUIRE_OK;
}

void beam_unchain(sequence *first) {
    for (sequence *s = first, *next; s != NULL; s = next) {
        next = s->next_child;
        s->next_child = NULL;
    }
}

void beams_drop(beams *g) {
    if (g != NULL && atomic_fetch_sub(&g->holders, 1) == 1) {
        beams_free(g);
    }
}
