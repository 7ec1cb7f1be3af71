#include "engine/beam.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "engine/fork.h"
#include "engine/output.h"
#include "engine/step_sample.h"
#include "sample/constraint.h"

/* ---- beams and lists ---- */

static bool has_pages(const beam *b) {
    return b->seq->task.state == TASK_PREFILL || b->seq->task.state == TASK_DECODE;
}

static bool beam_is_ready(const beam *b) {
    return has_pages(b) && b->seq->task.kv.n_computed == b->seq->task.n_known;
}

static bool some_run(const beams *g) {
    bool some = false;
    for (int32_t i = 0; i < g->n_beams && !some; i++) {
        some = has_pages(&g->beams[i]);
    }
    return some;
}

/* Releases the pages of s, which is in no list, and its path in the prefix cache. */
static void beam_let_go(engine *e, sequence *s, kv_keep keep) {
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, keep);
    kv_seq_close(&e->kv, &s->task.kv);
    s->task.state = TASK_WAITING;
}

/* Makes s the search's reporter: moves the report to it. */
static void let_tell(beams *g, sequence *s) {
    if (s != g->reporter) {
        s->explain = g->reporter->explain;
        g->reporter->explain = NULL;
        g->reporter = s;
    }
}

void beam_enter(const sequence *first) {
    for (int32_t i = 0; i < first->beams->n_beams; i++) {
        sequence *s = first->beams->beams[i].seq;
        s->task.group = (int32_t)first->id.index + 1;
        s->task.tenant_slot = first->task.tenant_slot;
        s->task.priority = first->task.priority;
    }
}

bool beam_is_cancelled(const engine *e, const beams *g) {
    assert(g != NULL);
    bool some = false;
    for (int32_t i = 0; i < g->n_results && !some; i++) {
        request_id id = g->beams[i].seq->id;
        some = atomic_load(&e->entries[id.index].cancel) == id.generation;
    }
    return some;
}

/* ---- the end ---- */

/* Copies n tokens after the prompt, and their log-probabilities if they are reported. */
static void beam_copy_tokens(const beams *g, int32_t n, const int32_t *tokens, const token_logprob *logprobs,
                             int32_t *to, token_logprob *to_logprobs) {
    memcpy(to, tokens, (size_t)n * sizeof *to);
    mem_copy(to_logprobs, logprobs, (size_t)n * (size_t)g->width * sizeof *to_logprobs);
}

/* Takes the best remaining result of all sets, or NULL. at[i]: results taken from set
 * i. */
static const beam_result *next_best(const beams *g, int32_t *at) {
    int32_t best = -1;
    for (int32_t i = 0; i < g->n_sets; i++) {
        const beam_finished *f = &g->sets[i].finished;
        if (at[i] < f->n_kept &&
            (best < 0 || f->list[at[i]]->score > g->sets[best].finished.list[at[best]]->score)) {
            best = i;
        }
    }
    return best < 0 ? NULL : g->sets[best].finished.list[at[best]++];
}

/* Stores result r in s for its reader; an empty result if r is NULL. */
static finish_reason deliver(engine *e, beams *g, sequence *s, const beam_result *r) {
    const sequence *first = g->beams[0].seq;
    s->task.n_known = s->task.n_prompt;
    if (s != first) { /* another reader may be reading these members */
        s->task.n_cached = first->task.n_cached;
        s->task.n_admitted = first->task.n_admitted;
        s->task.queue_us = first->task.queue_us;
        s->retry_after_s = first->retry_after_s;
    }
    s->stopped_by_eos = true;
    if (g->beams[s->beam].spare != NULL) {
        s->explain = g->beams[s->beam].spare;
        g->beams[s->beam].spare = NULL;
        s->explain->report = first->explain->report;
        s->explain->n_ahead = first->explain->n_ahead;
        s->explain->order = first->explain->order;
    }
    if (s != first && s->prompt_logprobs) {
        size_t n = (size_t)(s->task.n_prompt - s->prompt_logprobs_start);
        memcpy(s->prompt_logprobs, first->prompt_logprobs,
               n * (size_t)s->prompt_logprobs_width * sizeof *s->prompt_logprobs);
    }
    if (r == NULL) {
        return FINISH_STOP;
    }
    beam_copy_tokens(g, r->n_tokens, r->tokens, r->logprobs, s->task.tokens + s->task.n_prompt, s->logprobs);
    s->task.n_known += r->n_tokens;
    s->beam_score = r->score;
    s->beam_sum = r->sum;
    stats_token(e, s, g->reporter->ended_us);
    e->stats.generation_tokens += r->n_tokens - 1;
    end_kind end = end_token_kind(&s->sampling, e->desc, r->tokens[r->n_tokens - 1]);
    if (end != END_NONE) {
        s->stopped_by_eos = end == END_EOS;
        return FINISH_STOP;
    }
    return r->n_tokens < g->rules.max_new ? FINISH_STOP : FINISH_LENGTH;
}

/* Whether the tokens that s has computed are the beginning of a result. */
static bool beam_is_wanted(const beams *g, const sequence *s) {
    int32_t at[PARAMS_MAX_BEAMS] = {0}, n = s->task.kv.n_computed - s->task.n_prompt;
    bool wanted = false;
    for (int32_t k = 0; k < g->n_results && !wanted; k++) {
        const beam_result *r = next_best(g, at);
        wanted = r != NULL && n >= 0 && n <= r->n_tokens &&
                 memcmp(s->task.tokens + s->task.n_prompt, r->tokens, (size_t)n * sizeof *r->tokens) == 0;
    }
    return wanted;
}

void beam_finish(engine *e, beams *g, finish_reason reason, quire_err error) {
    if (g->is_over) {
        return;
    }
    g->is_over = true;
    /* keeps g until the end of this function, even if its sequences are freed */
    atomic_fetch_add(&g->holders, 1);
    bool is_listed[PARAMS_MAX_BEAMS], waits = !some_run(g);
    for (int32_t i = 0; i < g->n_beams; i++) { /* must precede deliver, which overwrites the tokens */
        sequence *s = g->beams[i].seq;
        is_listed[i] = has_pages(&g->beams[i]) || (waits && s == g->listed);
        kv_tiering_forget(e->tiering, &s->task.kv);
        beam_let_go(e, s, reason == FINISH_LENGTH && beam_is_wanted(g, s) ? KV_KEEP : KV_DROP);
    }
    service_counters_leave(&e->sched.service, g->beams[0].seq->task.tenant_slot);
    let_tell(g, g->beams[0].seq);
    int64_t now_us = clock_us();
    g->reporter->ended_us = now_us;
    explain_ended(e, g->reporter);
    int32_t at[PARAMS_MAX_BEAMS] = {0};
    finish_reason reasons[PARAMS_MAX_BEAMS];
    /* deliver copies from other beams, so it runs for all before any beam is dropped */
    for (int32_t i = 0; i < g->n_results; i++) {
        sequence *s = g->beams[i].seq;
        finish_reason r = deliver(e, g, s, reason == FINISH_LENGTH ? next_best(g, at) : NULL);
        reasons[i] = reason == FINISH_LENGTH ? r : reason;
        s->error = error;
    }
    for (int32_t i = 0; i < g->n_beams; i++) {
        sequence *s = g->beams[i].seq;
        s->task.state = TASK_DONE;
        if (i < g->n_results) {
            s->ended_us = now_us;
            out_publish(s, reasons[i]);
        } else {
            sequence_drop(s); /* no reader has s, so this drops the reader's reference */
        }
        if (!is_listed[i]) {
            sequence_drop(s);
        }
    }
    beams_drop(g);
}

/* ---- choosing ---- */

/* Fills b's list with the likeliest continuations, from the logits of its row. */
static quire_err fill_list(engine *e, beams *g, beam *b, float *logits) {
    int32_t n_vocab = e->desc->n_vocab;
    float *raw = e->step.raw;
    sample_result result = NOT_SAMPLED;
    sample_row row = {
        .goal = SAMPLE_ADJUST, .logits = logits, .context = step_sample_context(b->seq), .result = &result};
    double normalizer = logprobs_normalizer(logits, n_vocab);
    if (g->width > 0) {
        memcpy(raw, logits, (size_t)n_vocab * sizeof *raw);
        logprobs_top(raw, n_vocab, normalizer, g->width - 1, b->tops);
    }
    sample_batch(&e->samples, &row, 1);
    TRY(result.error);
    logprobs_top(logits, n_vocab, normalizer, g->list_length, g->best);
    b->n_list = 0;
    for (int32_t i = 0; i < g->list_length; i++) {
        int32_t token = g->best[i].id;
        double logprob = (double)logits[token] - normalizer;
        if (isfinite(logprob)) {
            b->list[b->n_list++] = (beam_candidate){
                token, logprob,
                g->width > 0 ? logprobs_of(raw, n_vocab, normalizer, token) : (token_logprob){0}};
        }
    }
    return QUIRE_OK;
}

/* The diversity penalty for a token: proportional to the number of beams of earlier sets
 * that chose it in this step. */
static double penalty(const beams *g, int32_t token) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_chosen; i++) {
        n += g->chosen[i] == token;
    }
    return (double)g->params.diversity_penalty * n;
}

static int32_t fill_choices(const beams *g, const beam_set *set) {
    int32_t n = 0;
    for (int32_t i = 0; i < set->n_live; i++) {
        const beam *b = set->live[i];
        for (int32_t k = 0; k < b->n_list; k++) {
            double logprob = b->list[k].logprob - penalty(g, b->list[k].token);
            g->choices[n++] =
                (beam_choice){.from = i, .place = k, .token = b->list[k].token, .score = b->score + logprob};
        }
    }
    return n;
}

/* Writes entry `entry` of b's list, with its log-probabilities, as the token after its
 * `n` generated ones. */
static void beam_write_token(const beams *g, const beam *b, int32_t entry, int32_t n, int32_t *tokens,
                             token_logprob *logprobs) {
    tokens[n] = b->list[entry].token;
    if (g->width > 0) {
        token_logprob *to = logprobs + (size_t)n * (size_t)g->width;
        to[0] = b->list[entry].own;
        memcpy(to + 1, b->tops, (size_t)(g->width - 1) * sizeof *to);
    }
}

static void keep_result(const beams *g, beam_set *set, const beam_choice *choice) {
    const beam *b = set->live[choice->from];
    const sequence *s = b->seq;
    beam_result *r =
        beam_keep(&g->rules, &set->finished, beam_score(&g->rules, choice->score, g->n_generated));
    if (r != NULL) {
        r->sum = b->sum + b->list[choice->place].logprob;
        r->n_tokens = g->n_generated;
        beam_copy_tokens(g, r->n_tokens - 1, s->task.tokens + s->task.n_prompt, s->logprobs, r->tokens,
                         r->logprobs);
        beam_write_token(g, b, choice->place, r->n_tokens - 1, r->tokens, r->logprobs);
    }
}

bool beam_ending(void *context, const beam_choice *choice) {
    beams *g = context;
    sequence *s = g->choosing->live[choice->from]->seq;
    /* the array has room: a search ends when its beams have n_max tokens */
    s->task.tokens[s->task.n_known] = choice->token;
    return g->n_generated > s->sampling.min_tokens &&
           g->ending.is_over(g->ending.context, s->task.tokens, s->task.n_prompt, s->task.n_known + 1);
}

/* Chooses for one set: stores results, and adds the kept continuations to g->children. */
static void choose_set(beams *g, beam_set *set) {
    beam_outcome *o = &g->outcome;
    g->choosing = set;
    beam_choose(&g->rules, g->n_generated, g->choices, fill_choices(g, set), o);
    bool takes = !beam_is_full(&g->rules, &set->finished);
    for (int32_t i = 0; i < o->n_ended && takes; i++) {
        keep_result(g, set, &o->ended[i]);
    }
    set->is_open = !beam_is_over(&g->rules, &set->finished, g->n_generated, o);
    for (int32_t i = 0; i < o->n_next; i++) {
        const beam_choice *choice = &o->next[i];
        beam *b = set->live[choice->from];
        g->chosen[g->n_chosen++] = choice->token;
        if (set->is_open) {
            double sum = b->sum + b->list[choice->place].logprob;
            g->children[g->n_children++] = (beam_child){
                .parent = b, .set = set, .entry = choice->place, .score = choice->score, .sum = sum};
        }
    }
    set->n_live = 0;
}

/* Pages of s that other sequences hold too, without those that all n_all beams share. */
static int32_t beam_shared_pages(const engine *e, const sequence *s, int32_t n_all) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        for (int32_t i = 0; i < s->task.kv.tables[g].n_pages; i++) {
            int32_t count = kv_seq_holders(&e->kv, &s->task.kv, g, i);
            n += count > 1 && count != n_all;
        }
    }
    return n;
}

/* With ablations.no_fork_sharing: replaces s's shared pages by copies, if there is room
 * for all of them. */
static void stop_sharing(engine *e, sequence *s) {
    int32_t n = e->options.ablations.no_fork_sharing ? beam_shared_pages(e, s, 0) : 0;
    kv_cache_make_free(&e->kv, n);
    if (kv_pool_counts(e->kv.pool).n_free < n) {
        return;
    }
    for (int32_t g = 0; g < s->task.kv.n_tables && n > 0; g++) {
        kv_table *t = &s->task.kv.tables[g];
        for (int32_t i = 0; i < t->n_pages; i++) {
            page_id own;
            if (kv_seq_holders(&e->kv, &s->task.kv, g, i) > 1 &&
                kv_pool_reserve(e->kv.pool, 1, &own) == QUIRE_OK) {
                kv_copy_pair pair = {kv_table_replace(e->kv.pool, t, i, own).v, own.v};
                e->b->ops->kv_copy(e->b, &pair, 1);
            }
        }
    }
}

/* Makes `to` a copy of the beam `from`: it runs if a place is free, or resumes later. */
static void fork_beam(engine *e, const beams *g, const beam *from, beam *to) {
    sequence *s = to->seq;
    const sequence *f = from->seq;
    beam_copy_tokens(g, f->task.n_known - f->task.n_prompt, f->task.tokens + f->task.n_prompt, f->logprobs,
                     s->task.tokens + s->task.n_prompt, s->logprobs);
    s->task.n_known = f->task.n_known;
    if (f->constraint != NULL) {
        memcpy(s->constraint_states, f->constraint_states, f->constraint->state_bytes);
        sample_rule_copy(&f->context, &s->context);
    }
    if (e->sched.n_running < e->sched.limits.max_seqs) {
        fork_share(e, f, s);
        stop_sharing(e, s);
        scheduler_run(&e->sched, &s->task);
        s->task.state = TASK_DECODE;
    }
}

/* Assigns a beam to every child: the first child of a parent keeps its beam, the others
 * get beams without children. Beams without children release their pages before anything
 * is forked. */
static void place_children(engine *e, beams *g) {
    for (int32_t i = 0; i < g->n_beams; i++) {
        g->beams[i].is_taken = g->beams[i].is_live = false;
    }
    for (int32_t i = 0; i < g->n_children; i++) {
        beam_child *c = &g->children[i];
        c->place = c->parent->is_taken ? NULL : c->parent;
        c->parent->is_taken = true;
    }
    let_tell(g, g->children[0].parent->seq); /* a beam that continues keeps the report */
    for (int32_t i = 0; i < g->n_beams; i++) {
        sequence *s = g->beams[i].seq;
        if (!g->beams[i].is_taken && has_pages(&g->beams[i])) {
            scheduler_stop(&e->sched, &s->task);
            beam_let_go(e, s, KV_DROP);
        }
    }
    int32_t free_place = 0;
    for (int32_t i = 0; i < g->n_children; i++) {
        beam_child *c = &g->children[i];
        if (c->place == NULL) {
            while (g->beams[free_place].is_taken) {
                free_place++;
            }
            c->place = &g->beams[free_place];
            c->place->is_taken = true;
            fork_beam(e, g, c->parent, c->place);
        }
    }
}

/* Appends each child's token to its beam, while the parents' lists are still valid.
 * Errors come from constraints, which must allow the tokens. */
static quire_err write_children(beams *g) {
    for (int32_t i = 0; i < g->n_children; i++) {
        const beam_child *c = &g->children[i];
        sequence *s = c->place->seq;
        TRY(sample_accept(&s->context, c->parent->list[c->entry].token));
        beam_write_token(g, c->parent, c->entry, s->task.n_known - s->task.n_prompt,
                         s->task.tokens + s->task.n_prompt, s->logprobs);
        s->task.n_known++;
        c->place->score = c->score;
        c->place->sum = c->sum;
        c->place->is_live = true;
        c->set->live[c->set->n_live++] = c->place;
    }
    return QUIRE_OK;
}

/* Chooses the next tokens of all live beams, which all have their logits. */
static void engine_beam_choose(engine *e, beams *g) {
    g->n_generated++;
    g->is_short = false;
    g->n_chosen = g->n_children = 0;
    for (int32_t i = 0; i < g->n_sets; i++) {
        if (g->sets[i].is_open) {
            choose_set(g, &g->sets[i]);
        }
    }
    if (g->n_children == 0) {
        bool found = false;
        for (int32_t i = 0; i < g->n_sets; i++) {
            found = found || g->sets[i].finished.n_kept > 0;
        }
        /* the request's rules left no token: QUIRE_BAD_REQUEST, as in sampler_sample */
        const sequence *first = g->beams[0].seq;
        bool has_rules = first->constraint != NULL || first->sampling.lists != NULL ||
                         first->sampling.no_repeat_ngram_size > 0 || first->sampling.min_tokens > 0;
        quire_err none = has_rules ? QUIRE_BAD_REQUEST : QUIRE_NUMERIC;
        beam_finish(e, g, found ? FINISH_LENGTH : FINISH_ERROR, found ? QUIRE_OK : none);
        return;
    }
    place_children(e, g);
    quire_err written = write_children(g);
    if (written != QUIRE_OK) {
        beam_finish(e, g, FINISH_ERROR, written == QUIRE_INVALID ? QUIRE_INTERNAL : written);
        return;
    }
    explain_token(e, g->reporter, clock_us());
    service_counters_add(&e->sched.service, g->beams[0].seq->task.tenant_slot,
                         SERVICE_OUTPUT_WEIGHT * (double)g->n_children);
}

void beam_take(engine *e, sequence *s, float *logits) {
    beams *g = s->beams;
    quire_err err = fill_list(e, g, &g->beams[s->beam], logits);
    if (err != QUIRE_OK) {
        beam_finish(e, g, FINISH_ERROR, err);
        return;
    }
    bool all = true;
    for (int32_t i = 0; i < g->n_beams && all; i++) {
        all = !g->beams[i].is_live || beam_is_ready(&g->beams[i]);
    }
    if (all) {
        engine_beam_choose(e, g);
    }
}

/* ---- pages lost and found ---- */

/* Length of the common beginning of two beams, at most `most`, and without s's last
 * token, which must be computed for its logits. */
static int32_t common_tokens(const sequence *from, const sequence *s, int32_t most) {
    int32_t n = s->task.n_known - 1 < most ? s->task.n_known - 1 : most, at = s->task.n_prompt;
    while (at < n && from->task.tokens[at] == s->task.tokens[at]) {
        at++;
    }
    return at < n ? at : n;
}

/* Resumes s with the pages of `from`'s first n tokens; NULL: with cached pages. */
static void beam_join(engine *e, const beam *from, sequence *s, int32_t n) {
    if (from == NULL) {
        cache_enter(e, s);
        scheduler_admit(&e->sched, &s->task);
    } else {
        fork_share(e, from->seq, s);
        kv_seq_truncate(&e->kv, &s->task.kv, n);
        stop_sharing(e, s);
    }
    scheduler_run(&e->sched, &s->task);
}

/* Resumes the beam without pages that shares most tokens with a beam that has pages. */
static void join_next(engine *e, beams *g) {
    const beam *best_from = NULL;
    sequence *best = NULL;
    int32_t best_n = -1;
    for (int32_t i = 0; i < g->n_beams; i++) {
        sequence *s = g->beams[i].seq;
        if (!g->beams[i].is_live || has_pages(&g->beams[i])) {
            continue;
        }
        best = best == NULL ? s : best;
        for (int32_t k = 0; k < g->n_beams; k++) {
            const beam *from = &g->beams[k];
            int32_t n = beam_is_ready(from) ? common_tokens(from->seq, s, from->seq->task.kv.n_computed) : -1;
            if (n > best_n && kv_seq_can_truncate(&e->kv, &from->seq->task.kv, n)) {
                best_from = from;
                best = s;
                best_n = n;
            }
        }
    }
    beam_join(e, best_from, best, best_n);
}

/* Whether s's next row, which writes page i of table t, copies that page first: others
 * hold it too, and no beam of this search copies it before s. */
static bool copies_page(const engine *e, const sequence *s, int32_t t, int32_t i) {
    const beams *g = s->beams;
    page_id page = s->task.kv.tables[t].pages[i];
    int32_t n_here = 0;
    /* beams before s in the order of planning have made copies by then */
    bool is_last = true, others = false;
    for (int32_t k = 0; k < g->n_beams; k++) {
        const kv_table *other = &g->beams[k].seq->task.kv.tables[t];
        bool here = other->n_pages > i && other->pages[i].v == page.v;
        n_here += here;
        is_last = is_last && (!here || k <= s->beam);
        others = others || (here && beam_is_ready(&g->beams[k]));
    }
    return others || kv_pool_count(e->kv.pool, page) > n_here || (!is_last && n_here > 1);
}

/* Pages that s's next row needs to copy shared ones (a part-filled last page, and all
 * pages of states). Of beams that alone hold a page, the last does not copy it. */
static int32_t copies(const engine *e, const sequence *s) {
    int32_t n = 0;
    for (int32_t t = 0; t < s->task.kv.n_tables && s->task.kv.n_computed < s->task.n_known; t++) {
        const kv_table *table = &s->task.kv.tables[t];
        int32_t first = t >= e->kv.n_token_groups                     ? 0
                        : table->n_tokens % e->layout.page_tokens > 0 ? table->n_pages - 1
                                                                      : table->n_pages;
        for (int32_t i = first; i < table->n_pages; i++) {
            n += copies_page(e, s, t, i);
        }
    }
    return n;
}

/* Pages that the other live beams need in addition to those of s. Each shares what it can
 * with an earlier beam. */
static int32_t pages_behind(const engine *e, const beams *g, const sequence *s) {
    const kv_most *whole = &e->sched.limits.most;
    int64_t n = 0;
    for (int32_t i = 0; i < g->n_beams; i++) {
        const sequence *one = g->beams[i].seq;
        if (!g->beams[i].is_live || one == s) {
            continue;
        }
        int32_t most = common_tokens(s, one, one->task.n_known);
        for (int32_t k = 0; k < i; k++) {
            int32_t common = g->beams[k].is_live ? common_tokens(g->beams[k].seq, one, one->task.n_known) : 0;
            most = common > most ? common : most;
        }
        int64_t own = (kv_pages_for(one->task.n_known + 1, whole->page_tokens) - most / whole->page_tokens) *
                          e->kv.n_token_groups +
                      e->kv.n_state_pages;
        int64_t alone = kv_most_pages(whole, one->task.n_known + 1);
        n += own < alone ? own : alone;
    }
    return (int32_t)n; /* fits: it is at most the number for which the search was admitted */
}

/* The most pages that n other beams of the search can ever take. */
static int32_t most_behind(const engine *e, const sequence *s, int32_t n) {
    return (int32_t)(beam_pages_own(e, s->task.n_prompt, s->task.n_max) * n);
}

void beam_describe(const engine *e, const sequence *s, sched_seq *d) {
    const beams *g = s->beams;
    int32_t n_running = 0, first = -1, n_most = 0;
    for (int32_t i = 0; i < g->n_beams; i++) {
        bool runs = has_pages(&g->beams[i]);
        n_running += runs;
        first = runs && first < 0 ? i : first;
    }
    for (int32_t i = 0; i < g->n_sets; i++) {
        n_most += g->sets[i].is_open ? g->rules.n : 0;
    }
    bool is_first = n_running == 0 || s == g->beams[first].seq;
    d->n_shared = beam_shared_pages(e, s, is_first ? n_running : 0);
    int32_t n_copies = copies(e, s); /* not counted, since the next row replaces them by copies */
    d->n_pages -= n_copies;
    d->n_shared -= n_copies < d->n_shared ? n_copies : d->n_shared;
    if (!is_first) {
        return; /* the first beam counts for those without pages */
    }
    d->n_beside = n_most - (n_running > 0 ? n_running : 1);
    d->n_behind = s->task.n_preempted >= e->sched.limits.max_preemptions ? most_behind(e, s, d->n_beside)
                  : n_running == 0                                       ? g->n_behind
                                                                         : 0;
}

/* Releases the pages of s, the last beam with pages, which then waits for the whole
 * search. When it resumes, all its tokens but the last are computed or swapped in
 * again. */
static void list_beam(engine *e, beams *g, sequence *s) {
    g->n_behind = pages_behind(e, g, s);
    let_tell(g, s);
    explain_preempted(e, s);
    if (s->task.kv.n_computed == s->task.n_known &&
        kv_seq_can_truncate(&e->kv, &s->task.kv, s->task.n_known - 1)) {
        kv_seq_truncate(&e->kv, &s->task.kv, s->task.n_known - 1);
    }
    if (s->task.kv.n_computed < s->task.n_known) {
        swap_out(e, s);
    }
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, KV_KEEP);
    kv_tiering_forget(e->tiering, &s->task.kv);
    s->task.state = TASK_WAITING;
    g->listed = s;
    scheduler_wait(&e->sched, &s->task);
}

void beam_preempt(engine *e, sequence *s) {
    beams *g = s->beams;
    g->is_short = true;
    s->task.state = TASK_WAITING;
    s->n_preempted++;
    e->sched.counts.preemptions++;
    if (some_run(g)) {
        beam_let_go(e, s, KV_KEEP);
        return;
    }
    list_beam(e, g, s);
    for (int32_t i = 0; i < g->n_beams; i++) { /* computed tokens of all beams, for the report */
        g->beams[i].seq->task.n_preempted++;
    }
}

/* Releases the pages of all of g's beams. */
static void beam_give_up(engine *e, beams *g) {
    for (int32_t i = 0; i < g->n_beams; i++) {
        if (has_pages(&g->beams[i])) {
            scheduler_stop(&e->sched, &g->beams[i].seq->task);
            beam_preempt(e, g->beams[i].seq);
        }
    }
}

static bool is_planned(const engine *e, const beams *g) {
    bool some = false;
    for (int32_t i = 0; i < e->sched.plan.n_items && !some; i++) {
        some = planned_at(e, i)->beams == g;
    }
    return some;
}

void beam_settle(engine *e) {
    for (int32_t i = 0; i < e->sched.n_running;) {
        beams *g = running_at(e, i)->beams;
        if (g != NULL && g->is_short && !is_planned(e, g)) {
            beam_give_up(e, g);
            i = 0;
        } else {
            i++;
        }
    }
}

void beam_resume(engine *e) {
    assert(e != NULL);
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        beams *g = running_at(e, i)->beams;
        bool some_lack = false, all_ready = g != NULL;
        for (int32_t k = 0; g != NULL && k < g->n_beams; k++) {
            const beam *b = &g->beams[k];
            some_lack = some_lack || (b->is_live && !has_pages(b));
            all_ready = all_ready && (!has_pages(b) || beam_is_ready(b));
        }
        if (some_lack && all_ready && e->sched.n_running < e->sched.limits.max_seqs) {
            join_next(e, g);
        }
    }
}
