#include "engine/draft.h"

#include "base/mem.h"
#include "engine/draft_model.h"
#include "engine/draft_ngram.h"
#include "engine/draft_suffix.h"
#include "engine/jump_forward.h"
#include "engine/state.h"

#define MAX_PAUSES 5 /* doublings of a pause: 1, 2, 4, 8, 16 steps */

static int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows) {
    int64_t n = (int64_t)max_seqs * (1 + o->n_tokens);
    return n <= max_rows ? (int32_t)n : max_rows > max_seqs ? max_rows : max_seqs;
}

/* Whether tokens can be truncated: a recurrent state cannot be rolled back. */
static quire_err check_layers(const kv_layout *l, quire_error *err) {
    for (int32_t g = 0; g < l->n_groups; g++) {
        layer_kind kind = l->groups[g].kind;
        if (kind != LAYER_FULL && kind != LAYER_WINDOW) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "speculation needs layers that can go back to an earlier token; this model keeps a state");
        }
    }
    return QUIRE_OK;
}

quire_err draft_open(engine *e, quire_error *err) {
    const draft_options *o = &e->options.draft;
    e->drafted = mem_new((size_t)e->sched.limits.max_seqs, sizeof(sequence *));
    if (!e->drafted) {
        return QUIRE_NO_MEMORY;
    }
    if (o->rule == DRAFT_RULE_STANDARD && !(e->draft_scratch = mem_new(2 * (size_t)e->desc->n_vocab, sizeof(float)))) {
        return QUIRE_NO_MEMORY;
    }
    if (o->method == DRAFT_METHOD_NONE) {
        return QUIRE_OK;
    }
    if (o->tree_width < 0 || o->tree_width > DRAFT_MAX_WIDTH) {
        return err_set(err, QUIRE_INVALID, -1, "draft trees of width %d: must be from 1 to %d", (int)o->tree_width, DRAFT_MAX_WIDTH);
    }
    if (o->n_tokens < 1 || o->n_tokens > DRAFT_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "%d speculative tokens: must be from 1 to %d", (int)o->n_tokens, DRAFT_MAX);
    }
    TRY(check_layers(&e->layout, err));
    switch (o->method) {
    case DRAFT_METHOD_MODEL:
        TRY(check_layers(o->model.layout, err));
        return draft_model_open(e, &e->drafter, err);
    case DRAFT_METHOD_SUFFIX: return draft_suffix_open(o, &e->drafter);
    default: return draft_ngram_open(o, &e->drafter);
    }
}

void draft_close(engine *e) {
    if (e->drafter) {
        e->drafter->ops->close(e->drafter);
    }
    mem_free((void *)e->drafted);
    mem_free(e->draft_scratch);
}

/* Whether s's next step computes one token of its own after sampled ones: then drafts can follow it. Not with a beam, whose next token the
 * search chooses, nor where children are forked from s in that step: they get its pages as they are, which would contain s's drafts. */
static bool can_draft(const sequence *s) {
    return s->beams == NULL && s->next_child == NULL && s->task.n_known - s->task.kv.n_computed == 1 && s->task.n_known > s->task.n_prompt;
}

/* The bounds of the next draft: as deep as s's length, and as many nodes as its branches take. */
static draft_bounds bounds_of(const draft_options *o, draft_seq *d, int32_t room) {
    int32_t width = o->tree_width > 1 ? o->tree_width : 1;
    d->length = d->length == 0 ? o->n_tokens : d->length;
    return (draft_bounds){
        .nodes = min_i32(room, min_i32(o->n_tokens, d->length * width)), .depth = min_i32(room, d->length), .width = width};
}

void draft_propose(engine *e) {
    int32_t n_asked = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        sequence *s = running_at(e, i);
        draft_seq *d = &s->draft;
        int32_t room = s->task.n_max - s->task.n_known - 1; /* the last token is not computed */
        d->tree.n = d->n_jump_forward = 0;
        d->wanted = (draft_bounds){0};
        d->distributions = NULL;
        if (!can_draft(s) || room <= 0) {
            continue;
        }
        if (!e->options.draft.no_jump_forward && jump_forward_propose(e, s, min_i32(room, DRAFT_MAX))) {
            continue;
        }
        if (e->drafter && d->pause > 0) {
            d->pause--;
        } else if (e->drafter) {
            d->wanted = bounds_of(&e->options.draft, d, room);
            e->drafted[n_asked++] = s;
        }
    }
    if (n_asked > 0) {
        e->drafter->ops->propose(e->drafter, e, e->drafted, n_asked);
    }
}

/* Sets the depth of the next draft. */
static void adapt(draft_seq *d, int32_t most, const draft_outcome *o) {
    if (o->n_accepted > 0) {
        d->n_misses = d->n_pauses = 0;
        d->length = min_i32(most, o->to_end ? 2 * d->length : o->n_accepted + 1);
        return;
    }
    d->length = 1;
    d->n_misses++;
    if (d->n_misses >= DRAFT_PATIENCE) {
        d->pause = 1 << d->n_pauses;
        d->n_pauses = min_i32(d->n_pauses + 1, MAX_PAUSES - 1);
    }
}

void draft_report(engine *e, sequence *s, const draft_outcome *o) {
    engine_stats *st = &e->stats;
    if (o->is_jump_forward) {
        st->jump_forward_tokens += o->n_accepted;
        return;
    }
    st->drafts++;
    st->draft_tokens += o->n;
    st->draft_accepted += o->n_accepted;
    for (int32_t i = 0; i < o->n_accepted; i++) {
        st->draft_accepted_at[i]++;
    }
    s->draft.n_agreed += o->n_first;
    if (!e->options.draft.fixed_length) {
        adapt(&s->draft, e->options.draft.n_tokens, o);
    }
}

void draft_forget(engine *e, sequence *s, bool over) {
    s->draft.tree.n = s->draft.n_jump_forward = 0;
    if (e->drafter && e->drafter->ops->forget) {
        e->drafter->ops->forget(e->drafter, s, over);
    }
}

bool draft_by_rejection(const engine *e, const sequence *s) {
    return e->options.draft.rule == DRAFT_RULE_STANDARD && s->sampling.mirostat == MIROSTAT_OFF;
}
