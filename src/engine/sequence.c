#include "engine/sequence.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/explain.h"
#include "engine/row_pooling.h"

static void sequence_free(sequence *s) {
    kv_seq_deinit(&s->task.kv);
    if (s->beams != NULL) {
        s->drop_beams(s->beams);
    }
    sampling_lists_drop(s->sampling.lists);
    attn_mods_drop(s->mods);
    adapter_ref_drop(s->adapter);
    constraint_drop(s->constraint);
    mem_free(s->constraint_states);
    mem_free(s->rule.bits);
    mem_free(s->logprobs);
    mem_free(s->predicted);
    prediction_walk_close(s->draft.prediction);
    mem_free(s->explain);
    row_pooling_free(s->pooling);
    mem_free(s->mus);
    engine_park_drop(s->park);
    mem_free(s->last_row);
    if (s->fork_from) {
        sequence_drop(s->fork_from);
    }
    mem_free(s->prompt_logprobs);
    mem_free(s->task.tokens);
    mem_free(s);
}

/* The id of an attention program's measured cost: the first bytes of its digest. */
static uint64_t program_of(const attn_mods *mods) {
    uint64_t id;
    memcpy(&id, mods->digest, sizeof id);
    return id | 1;
}

/* Size in bytes of one constraint state in the array. */
static size_t state_stride(const constraint *c) {
    return (c->state_bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}

/* Gives s a reference to c, a copy of `state`, and a second state for its drafter. */
static void take_constraint(sequence *s, constraint *c, const void *state) {
    s->constraint = constraint_hold(c);
    if (c != NULL) {
        memcpy(s->constraint_states, state, c->state_bytes);
        s->context.constraint = c;
        s->context.constraint_state = s->constraint_states;
        s->context.rule = &s->rule;
        s->rule.pending = SAMPLE_NONE_PENDING;
        s->draft.constraint_state = s->constraint_states + state_stride(c);
    }
}

/* Gives s a walk through r's prediction, and room for its counts. */
static bool take_prediction(sequence *s, const engine_request *r, int32_t n_max) {
    if (r->prediction == NULL) {
        return true;
    }
    s->predicted = mem_new((size_t)(n_max - s->task.n_prompt), sizeof *s->predicted);
    return s->predicted != NULL &&
           prediction_walk_open(r->prediction, s->task.n_prompt, &s->draft.prediction) == QUIRE_OK;
}

/* The first position whose logits r wants besides those for sampling. A token's
 * log-probability comes from the row before it. */
static int32_t sequence_first_wanted(const sequence *s, const engine_request *r) {
    int32_t of_logprobs = s->prompt_logprobs_start - 1;
    return r->prompt_logprobs_width == 0 ? r->logits_first
           : r->logits_out == NULL       ? of_logprobs
                                         : least_i32(of_logprobs, r->logits_first);
}

/* Allocates what r needs besides its tokens. */
static bool alloc_extras(sequence *s, const engine_request *r, int32_t n_max) {
    if (r->explain) {
        s->explain = explain_new();
    }
    if (r->constraint != NULL) {
        s->constraint_states = mem_new(2, state_stride(r->constraint));
        s->rule.bits = mem_new((size_t)constraint_words(r->constraint->n_vocab), sizeof *s->rule.bits);
    }
    if (r->sampling.mirostat != MIROSTAT_OFF) {
        s->mus = mem_new((size_t)(n_max - s->task.n_prompt), sizeof *s->mus);
    }
    s->logprobs_width = r->logprobs_width;
    s->prompt_logprobs_width = r->prompt_logprobs_width;
    s->prompt_logprobs_start =
        least_i32(r->prompt_logprobs_start > 1 ? r->prompt_logprobs_start : 1, s->task.n_prompt);
    if (r->logprobs_width > 0) {
        s->logprobs =
            mem_new((size_t)(n_max - s->task.n_prompt), (size_t)r->logprobs_width * sizeof *s->logprobs);
    }
    if (r->prompt_logprobs_width > 0) {
        s->prompt_logprobs = mem_new((size_t)(r->n_tokens - s->prompt_logprobs_start + 1),
                                     (size_t)r->prompt_logprobs_width * sizeof *s->prompt_logprobs);
    }
    return (!r->explain || s->explain) && (r->constraint == NULL || (s->constraint_states && s->rule.bits)) &&
           (r->sampling.mirostat == MIROSTAT_OFF || s->mus) && (r->logprobs_width == 0 || s->logprobs) &&
           (r->prompt_logprobs_width == 0 || s->prompt_logprobs) && take_prediction(s, r, n_max);
}

quire_err sequence_new(const engine_request *r, const void *constraint_state, const model_desc *desc,
                       int32_t n_max, int32_t n_groups, int32_t cap_pages, sequence **out) {
    sequence *s = mem_new(1, sizeof *s);
    int32_t *tokens = mem_new((size_t)n_max, sizeof *tokens);
    if (!s || !tokens || kv_seq_init(&s->task.kv, n_groups, cap_pages) != QUIRE_OK) {
        mem_free(s);
        mem_free(tokens);
        return QUIRE_NO_MEMORY;
    }
    s->task.tokens = tokens;
    s->task.n_prompt = r->n_prompt > 0 ? r->n_prompt : r->n_tokens;
    if (r->no_tokens && r->parks != NULL) {
        /* without memory for it, the logits are not kept */
        s->last_row = mem_new((size_t)desc->n_vocab, sizeof *s->last_row);
    }
    if (!alloc_extras(s, r, n_max)) {
        sequence_free(s);
        return QUIRE_NO_MEMORY;
    }
    memcpy(tokens, r->tokens, (size_t)r->n_tokens * sizeof *tokens);
    for (int32_t i = 0; i < r->n_marks; i++) {
        (void)kv_snapshot_mark(&s->task.kv.snapshots, r->marks[i]);
    }
    s->task.state = TASK_WAITING;
    s->sampling = r->sampling;
    sampling_lists_hold(s->sampling.lists);
    s->mods = attn_mods_hold(r->mods);
    s->mods_b = r->mods_b;
    s->adapter = adapter_ref_hold(r->adapter);
    s->adapter_from = r->adapter_from;
    s->task.adapter = (uint64_t)(uintptr_t)r->adapter;
    s->task.kv.share_limit = r->adapter != NULL ? r->adapter_from : 0;
    s->task.program = r->mods != NULL && r->mods_are_own ? program_of(r->mods) : 0;
    s->mirostat_mu = 2.0f * s->sampling.mirostat_tau;
    s->task.priority = r->priority;
    s->task.deadline_us = r->deadline_us; /* relative here; submit_enter adds the time of submission */
    s->task.tenant_slot = TENANT_NONE;
    s->logits_out = r->logits_out;
    s->task.wants_prompt_logits = r->logits_out != NULL || r->prompt_logprobs_width > 0;
    s->task.logits_first = sequence_first_wanted(s, r);
    s->n_namespace = r->n_namespace < sizeof s->namespace ? r->n_namespace : sizeof s->namespace;
    mem_copy(s->namespace, r->namespace, s->n_namespace);
    s->context = (sample_context){.params = &s->sampling,
                                  .tokens = tokens,
                                  .n_prompt = s->task.n_prompt,
                                  .sample_index = r->sample_index,
                                  .eos = desc->eos,
                                  .n_eos = desc->n_eos,
                                  .mirostat_mu = &s->mirostat_mu};
    s->draft = (draft_seq){.tokens = tokens,
                           .context = &s->context,
                           .namespace = s->namespace,
                           .n_namespace = s->n_namespace,
                           .samples_each = s->logprobs != NULL,
                           .prediction = s->draft.prediction,
                           .own = {.root = SUFFIX_NONE}};
    take_constraint(s, r->constraint, constraint_state);
    s->outside = r->outside;
    s->no_tokens = r->no_tokens;
    s->task.no_logits = r->no_tokens && s->last_row == NULL;
    s->task.tree = r->tree;
    s->task.depth = r->depth;
    s->retains = r->retains;
    s->retention = r->retention;
    s->task.n_known = s->n_given = r->n_tokens;
    s->n_read = r->fork_from && r->fork_replaces ? r->fork_position : r->n_tokens;
    s->fork_position = r->fork_position;
    s->fork_replaces = r->fork_replaces;
    s->shows_progress = r->shows_progress && !r->fork_replaces;
    s->task.n_max = n_max;
    s->out = r->out;
    s->user = r->user;
    atomic_init(&s->holders, 2);
    *out = s;
    return QUIRE_OK;
}

void sequence_drop(sequence *s) {
    if (atomic_fetch_sub(&s->holders, 1) == 1) {
        sequence_free(s);
    }
}
