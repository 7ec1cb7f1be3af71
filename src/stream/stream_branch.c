/* Forks, rollbacks and steers of running streams (quire.h): checks and changes on the
 * queue's thread, preparation on a text thread. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "stream/stream.h"

/* ---- checks ---- */

static const quire_request *fields_of(const choice *c) {
    return c->changed != NULL ? c->changed : c->stream->request;
}

/* Finds the running choice with this index. */
static quire_err find_choice(quire_stream *s, int32_t index, choice **out, quire_error *err) {
    if (dialect_of(&s->request->g)->gives_rows) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "an embeddings request has no tokens to branch from");
    }
    if (index < 0 || index >= s->n_choices) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "index", "index is %d; the stream has %d choices",
                             (int)index, (int)s->n_choices);
    }
    choice *c = &s->choices[index];
    if (c->command != NULL) {
        return err_set(err, QUIRE_BUSY, -1, "another rollback or steer of choice %d is under way",
                       (int)index);
    }
    if (s->request->g.info.beam_width > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "beam_width",
                             "a beam search cannot be branched: it keeps and drops beams itself");
    }
    if (s->request->formats.tools != NULL) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "tools",
            "a response that may call tools cannot be branched: a call that was sent cannot be taken back");
    }
    if (s->done || s->cancelled || s->error.code != QUIRE_OK || c->ended || c->finish != QUIRE_FINISH_NONE) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "choice %d of the stream has ended", (int)index);
    }
    if (!s->prepared && !c->started) {
        return err_set(err, QUIRE_BUSY, -1,
                       "the stream is still being prepared; try again when it has begun");
    }
    if (c->prompt_only) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "the request only computes its prompt, so there is no answer to branch from");
    }
    *out = c;
    return QUIRE_OK;
}

static quire_err find_position(const choice *c, int32_t position, int32_t *n_kept, quire_error *err) {
    int32_t n_prompt = (int32_t)c->prompt.n, n = n_prompt + (int32_t)c->history.n;
    position = position == QUIRE_HERE ? n : position;
    if (position < n_prompt || position > n) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "position",
            "position is %d; it must be from %d, the end of the prompt, to %d, the current end of the answer",
            (int)position, (int)n_prompt, (int)n);
    }
    int32_t most = c->sampling.max_tokens;
    if (most >= 0 && position - n_prompt >= most) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "position",
                             "position is %d; the answer has at most %d tokens, so none is left there",
                             (int)position, (int)most);
    }
    *n_kept = position - n_prompt;
    return QUIRE_OK;
}

/* ---- fork ---- */

/* Copies c's prompt and the first n_kept tokens of its response. */
static int32_t *stream_branch_copy_tokens(const choice *c, int32_t n_kept, int32_t n_more) {
    int32_t *ids = mem_new(c->prompt.n + (size_t)n_kept + (size_t)n_more, sizeof *ids);
    if (ids != NULL) {
        memcpy(ids, c->prompt.ids, c->prompt.n * sizeof *ids);
        mem_copy(ids + c->prompt.n, c->history.ids, (size_t)n_kept * sizeof *ids);
    }
    return ids;
}

/* Derives the seed of fork number n. */
static uint64_t forked_seed(uint64_t seed, int32_t n) {
    uint64_t state = seed + (uint64_t)n * 0x9E3779B97F4A7C15u;
    return rng_next(&state);
}

/* Changes r, a copy of c's fields, so that its limits count from after n_kept tokens. */
static void count_from(quire_request *r, const choice *c, int32_t n_kept) {
    r->g.sampling.max_tokens = c->sampling.max_tokens >= 0 ? c->sampling.max_tokens - n_kept : -1;
    r->max_completion_tokens = -1;
    r->g.sampling.min_tokens = c->sampling.min_tokens > n_kept ? c->sampling.min_tokens - n_kept : 0;
}

/* Makes r a fork of c at its present position. */
static quire_err hold_fork(const choice *c, quire_request *r, quire_error *err) {
    stream_fork *f = mem_new(1, sizeof *f);
    TRY(mem_check_for(f, "a request", err));
    *f = (stream_fork){.core = c->e->core, .n_prompt = choice_first_prompt(c), .start = c->start};
    if (engine_fork_acquire(c->e->core, c->current, &f->held) != QUIRE_OK) {
        mem_free(f);
        return err_set(err, QUIRE_NOT_FOUND, -1, "choice %d of the stream has ended", (int)c->index);
    }
    r->fork_from = f;
    return QUIRE_OK;
}

quire_err quire_stream_fork(quire_stream *s, int32_t choice_index, int32_t position, quire_request **out,
                            quire_error *err) {
    choice *c;
    int32_t n_kept;
    quire_request *r;
    *out = NULL;
    TRY(find_choice(s, choice_index, &c, err));
    TRY(find_position(c, position, &n_kept, err));
    TRY(request_copy(fields_of(c), &r, err));
    quire_err e =
        request_take_ids(r, stream_branch_copy_tokens(c, n_kept, 0), (int32_t)c->prompt.n + n_kept, err);
    if (e != QUIRE_OK || (e = hold_fork(c, r, err)) != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    count_from(r, c, n_kept);
    r->g.sampling.has_seed = true;
    r->g.sampling.seed = forked_seed(c->sampling.seed, ++c->n_forks);
    *out = r;
    return QUIRE_OK;
}

/* ---- rollback and steer: on the queue's thread ---- */

void stream_command_free(stream_command *m) {
    if (m != NULL) {
        engine_fork_release(m->fork_from);
        quire_request_free(m->fields);
        strbuf_deinit(&m->tail_text);
        token_list_deinit(&m->kept);
        token_list_deinit(&m->tail);
        choice_text_close(&m->shows);
        strbuf_deinit(&m->text);
        mem_free(m->constraint_state);
        mem_free(m);
    }
}

static quire_err fill_tokens(stream_command *m, int32_t n_kept, const quire_tail *tail) {
    TRY(token_list_add_all(&m->kept, m->c->history.ids, (size_t)n_kept));
    m->has_text = tail != NULL && tail->ids == NULL;
    return tail == NULL  ? QUIRE_OK
           : m->has_text ? strbuf_add(&m->tail_text, tail->text, tail->n_text)
                         : token_list_add_all(&m->tail, tail->ids, tail->n_ids);
}

/* Sets the command's tokens, fields and tail. */
static quire_err fill_command(stream_command *m, int32_t n_kept, const quire_tail *tail, const char *fields,
                              size_t n_fields, quire_error *err) {
    choice *c = m->c;
    TRY(err_set(err, fill_tokens(m, n_kept, tail), -1, "out of memory for a request"));
    if (fields == NULL) {
        return QUIRE_OK;
    }
    TRY(request_copy(fields_of(c), &m->fields, err));
    m->fields->g.sampling.has_seed = true;
    m->fields->g.sampling.seed = c->sampling.seed;
    TRY(request_change(m->fields, fields, n_fields, err));
    if (!m->fields->g.sampling.has_seed) { /* null asks for a new random seed */
        m->fields->g.sampling.seed = rng_os_seed();
        m->fields->g.sampling.has_seed = true;
    }
    return QUIRE_OK;
}

/* Tokenises the tail's text; stops when it does not fit. */
static quire_err tokenise_tail(stream_command *m, const stream_engine *e, quire_error *err) {
    size_t limit = (size_t)e->context.max_model_len,
           least = tokenizer_least_tokens(e->tokenizer, m->tail_text.n);
    encode_options options = {.special = ENCODE_PARSE, .max_tokens = limit};
    quire_err er = least > limit ? QUIRE_NO_ROOM
                                 : tokenizer_encode(e->tokenizer, (str){m->tail_text.p, m->tail_text.n},
                                                    options, &m->tail, err);
    return er != QUIRE_NO_ROOM
               ? er
               : err_set_param(err, QUIRE_BAD_REQUEST, "text",
                               "text has at least %zu tokens; a sequence has at most %zu tokens here",
                               least > limit ? least : limit + 1, limit);
}

/* Advances the constraint's state by the tokens of the new response. Refuses a tail that
 * the constraint forbids. */
static quire_err append_tokens(stream_command *m, quire_error *err) {
    const choice *c = m->c;
    const token_list *parts[] = {&c->prompt, &m->kept, &m->tail};
    token_list all = {0};
    engine_request r = {.n_prompt = choice_first_prompt(c),
                        .sampling = m->fields != NULL ? m->fields->g.sampling : c->sampling,
                        .constraint = c->stream->rule.constraint};
    if (r.constraint == NULL) {
        return QUIRE_OK;
    }
    m->constraint_state = mem_new(1, r.constraint->state_bytes);
    quire_err e = mem_check_for(m->constraint_state, "a request", err);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && e == QUIRE_OK; i++) {
        e = err_set(err, token_list_add_all(&all, parts[i]->ids, parts[i]->n), -1,
                    "out of memory for a request");
    }
    r.tokens = all.ids;
    r.n_tokens = (int32_t)all.n;
    TRY_DONE(e, engine_constraint_state(c->stream->q->e->core, &r, m->constraint_state, err));
done:
    token_list_deinit(&all);
    return e;
}

/* Tokenises the tail, and detokenises the kept tokens again. */
static quire_err make_ready(stream_command *m, quire_error *err) {
    const choice *c = m->c;
    const stream_engine *e = c->stream->q->e;
    if (m->has_text && e->tokenizer == NULL) {
        return err_set_param(err, QUIRE_UNSUPPORTED, "text",
                             "this model has no vocabulary that this server can use; give token ids");
    }
    if (m->has_text) {
        TRY(tokenise_tail(m, e, err));
    }
    TRY(append_tokens(m, err));
    if (m->fields != NULL) {
        TRY(request_tokenize_lists(m->fields, e->tokenizer, &c->stream->released, err));
    }
    quire_err er = choice_open_text(c, &m->shows);
    output_events found = {0}; /* ignored: the client already has these parts */
    for (size_t i = 0; i < m->kept.n && er == QUIRE_OK; i++) {
        int32_t match;
        output_events_clear(&found);
        er = choice_feed(c, &c->sampling, &m->shows, m->kept.ids[i], false, &m->text, &found, &match);
    }
    output_events_deinit(&found);
    return err_set(err, er, -1, "out of memory for a request");
}

/* Runs on a text thread. */
static void run_command(text_job *job) {
    stream_command *m = (stream_command *)job;
    quire_error err = {0};
    if (make_ready(m, &err) != QUIRE_OK) {
        m->verdict = err;
    }
    stream_deliver(m->c->stream->q, job);
}

static quire_err begin_command(quire_stream *s, int32_t index, int32_t position, const quire_tail *tail,
                               const char *fields, size_t n_fields, quire_error *err) {
    choice *c;
    int32_t n_kept;
    TRY(find_choice(s, index, &c, err));
    TRY(find_position(c, position, &n_kept, err));
    const quire_request_info *info = &s->request->g.info;
    if (info->n_samples > info->n_best) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "best_of cannot be steered: its answer is chosen only at the end");
    }
    if (!c->started && (info->prompt_logprobs >= 0 || s->request->logits_out != NULL)) {
        return err_set(err, QUIRE_BUSY, -1,
                       "the prompt is still being computed; try again when the answer has begun");
    }
    stream_command *m = mem_new(1, sizeof *m);
    TRY(mem_check_for(m, "a request", err));
    m->c = c;
    quire_err e = engine_fork_acquire(s->q->e->core, c->current, &m->fork_from);
    e = e != QUIRE_OK ? err_set(err, e, -1, "choice %d of the stream has ended", (int)index)
                      : fill_command(m, n_kept, tail, fields, n_fields, err);
    if (e != QUIRE_OK) {
        stream_command_free(m);
        return e;
    }
    m->job = (text_job){.run = run_command,
                        .take = queue_take_command,
                        .tenant = text_tenant(s->request->g.tenant),
                        .n_bytes = m->tail_text.n,
                        .is_off = &s->released};
    c->command = m;
    s->n_commands++;
    text_pool_add(s->q->e->text, &m->job);
    return QUIRE_OK;
}

quire_err quire_stream_rollback(quire_stream *s, int32_t choice_index, int32_t position, const char *fields,
                                size_t n_fields, quire_error *err) {
    return begin_command(s, choice_index, position, NULL, fields, n_fields, err);
}

quire_err quire_stream_steer(quire_stream *s, int32_t choice_index, int32_t position, const quire_tail *tail,
                             const char *fields, size_t n_fields, quire_error *err) {
    assert(s != NULL && tail != NULL);
    int32_t n_vocab = s->q->e->context.n_vocab;
    for (size_t i = 0; tail->ids != NULL && i < tail->n_ids; i++) {
        if (tail->ids[i] < 0 || tail->ids[i] >= n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "tokens",
                                 "token id %d is out of the vocabulary, which has %d ids", (int)tail->ids[i],
                                 (int)n_vocab);
        }
    }
    return begin_command(s, choice_index, position, tail, fields, n_fields, err);
}

/* Submits the sequence that replaces c's. */
static quire_err submit_branch(stream_command *m, request_id *id, quire_error *err) {
    choice *c = m->c;
    quire_stream *s = c->stream;
    int32_t n_kept = (int32_t)m->kept.n, n_prompt = choice_first_prompt(c),
            generated = (int32_t)c->prompt.n - n_prompt;
    uint8_t namespace[ENGINE_NAMESPACE_BYTES];
    engine_request r =
        stream_engine_request(s, c->index / s->request->g.info.n_samples, c->prompt.ids, n_prompt, namespace);
    r.prompt_logprobs_width = 0;
    r.logits_out = NULL;
    r.deadline_us = 0;
    r.tokens = stream_branch_copy_tokens(c, n_kept, (int32_t)m->tail.n);
    r.n_tokens = (int32_t)c->prompt.n + n_kept + (int32_t)m->tail.n;
    r.n_prompt = n_prompt;
    r.fork_position = (int32_t)c->prompt.n + n_kept;
    r.fork_replaces = true;
    r.sampling = m->fields != NULL ? m->fields->g.sampling : c->sampling;
    r.sampling.max_tokens += r.sampling.max_tokens >= 0 ? generated : 0;
    r.sampling.min_tokens += generated;
    r.sample_index = (uint32_t)(c->index % s->request->g.info.n_samples);
    r.user = c;
    engine_park *park = stream_park_of(s->request, c->index);
    r.parks = &park;
    r.constraint_state = m->constraint_state;
    TRY(mem_check_for(r.tokens, "a prompt", err));
    mem_copy(r.tokens + r.fork_position, m->tail.ids, m->tail.n * sizeof *r.tokens);
    r.fork_from = m->fork_from;
    quire_err e = engine_submit(s->q->e->core, &r, id, err);
    if (e != QUIRE_OK) {
        mem_free(r.tokens);
    }
    return e;
}

quire_err stream_command_do(stream_command *m, quire_error *err) {
    assert(m != NULL);
    choice *c = m->c;
    quire_stream *s = c->stream;
    if (m->verdict.code != QUIRE_OK) {
        *err = m->verdict;
        return err->code;
    }
    if (s->cancelled || s->error.code != QUIRE_OK) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "choice %d of the stream has ended", (int)c->index);
    }
    TRY(submit_branch(m, &c->current, err));
    s->n_replaced++;
    c->n_replaced++;
    choice_truncate(c, m->kept.n, m->shows);
    m->shows = (choice_text){0};
    if (m->fields != NULL) {
        c->sampling = m->fields->g.sampling;
        quire_request_free(c->changed);
        c->changed = m->fields;
        m->fields = NULL;
    }
    return QUIRE_OK;
}
