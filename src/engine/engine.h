/* The engine: sequences, scheduler and steps on one thread; token ids in, token ids out. It never sees text.
 *
 * Requests arrive through one in-ring (any thread may submit), tokens leave through the out-ring that the request names; the engine never waits for
 * a reader: an out-ring is sized so that each of its streams always has room (see engine_out_open). One thread owns every sequence, page and device buffer. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/ring.h"
#include "base/wake.h"
#include "core/params.h"
#include "model/model.h"

typedef struct engine engine;
typedef struct engine_out engine_out;

typedef struct engine_options {
    int32_t page_tokens, n_pages, max_model_len;
    int32_t max_batched_tokens, max_seqs, prefill_chunk;
    int32_t max_requests; /* waiting and running together; more are QUIRE_BUSY */
} engine_options;

typedef enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR } finish_reason;

/* A request's name: which entry of the engine's table, and which use of it. */
typedef struct request_id {
    uint32_t index, generation;
} request_id;

/* One token, or an end. */
typedef struct engine_event {
    void *user;            /* as given at submit */
    int32_t token;         /* -1: none (an end without a token) */
    int32_t position;      /* of the token in the sequence */
    uint8_t finish;        /* finish_reason */
    uint8_t error;         /* quire_err when finish is FINISH_ERROR */
    bool stopped_by_eos;   /* FINISH_STOP: by the model's eos rather than a stop token of the request */
    int64_t time_us;       /* when it was sampled */
} engine_event;

typedef struct engine_request {
    int32_t *tokens;       /* the prompt, at least one; mem_new'd, owned by the engine from submit on */
    int32_t n_tokens;
    sampling_params sampling; /* has_seed is true: api gives a seed to requests without one */
    uint32_t sample_index; /* which sample of the request this is: part of the noise's key */
    float *logits_out;     /* [n_tokens, n_vocab] for prompt logits, or NULL; the caller's, alive until the end event */
    engine_out *out;
    void *user;
} engine_request;

quire_err engine_open(model *m, backend *b, const engine_options *o, engine **out, quire_error *err);
/* Stops the thread; running requests end with FINISH_CANCELLED. */
void engine_close(engine *e);

/* An out-ring for one reader, with the wake call that tells it. */
quire_err engine_out_open(engine *e, wake *reader, engine_out **out);
void engine_out_close(engine_out *o);
bool engine_out_pop(engine_out *o, engine_event *event);

/* Hands a request over. QUIRE_TOO_LARGE when it can never fit (prompt plus one token over the length limit or the pool), QUIRE_BUSY when the
 * engine is full: r->tokens then stays the caller's. Any thread. */
quire_err engine_submit(engine *e, const engine_request *r, request_id *id, quire_error *err);
/* Ends a request; unknown or finished ids are ignored. Any thread. */
void engine_cancel(engine *e, request_id id);

#endif
