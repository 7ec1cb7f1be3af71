/* What the fake engine (fake_quire.h) lacks: requests of programs, branches of streams,
 * adapters. */
#include "server/fake_quire.h"

#include "base/err.h"

/* ---- requests of programs ---- */

quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out,
                            quire_error *err) {
    (void)e, (void)ids, (void)n, (void)out;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_request_set(quire_request *r, const char *field, const char *json, quire_error *err) {
    (void)r, (void)field, (void)json;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_request_continue(quire_request *r, const quire_continuation *c, quire_error *err) {
    (void)r, (void)c;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_prepare(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    (void)q, (void)user;
    quire_request_free(r);
    *out = NULL;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_stream_start(quire_stream *s, const int32_t *ids, size_t n, quire_error *err) {
    (void)s, (void)ids, (void)n;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

void quire_request_step(quire_request *r, uint64_t program, int32_t depth) {
    (void)r, (void)program, (void)depth;
}

quire_err quire_park_open(quire_engine *e, quire_park **out) {
    (void)e;
    *out = NULL;
    return QUIRE_UNSUPPORTED;
}

void quire_park_close(quire_park *p) {
    (void)p;
}

quire_err quire_request_park(quire_request *r, int32_t choice, quire_park *p) {
    (void)r, (void)choice, (void)p;
    return QUIRE_UNSUPPORTED;
}

/* ---- branches of streams ---- */

quire_err quire_request_set_all(quire_request *r, const char *json, size_t n, quire_error *err) {
    (void)r, (void)json, (void)n;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_stream_fork(quire_stream *s, int32_t choice, int32_t position, quire_request **out,
                            quire_error *err) {
    (void)s, (void)choice, (void)position;
    *out = NULL;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_stream_rollback(quire_stream *s, int32_t choice, int32_t position, const char *fields,
                                size_t n_fields, quire_error *err) {
    (void)s, (void)choice, (void)position, (void)fields, (void)n_fields;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_stream_steer(quire_stream *s, int32_t choice, int32_t position, const quire_tail *tail,
                             const char *fields, size_t n_fields, quire_error *err) {
    (void)s, (void)choice, (void)position, (void)tail, (void)fields, (void)n_fields;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "not here");
}

quire_err quire_stream_recall(quire_stream *s, int32_t choice, const char *call_id) {
    (void)s, (void)choice, (void)call_id;
    return QUIRE_OK;
}

quire_err quire_stream_progress(const quire_stream *s, int32_t choice, quire_progress *out) {
    (void)s, (void)choice, (void)out;
    return QUIRE_OK;
}

const quire_explain_more *quire_stream_explain(const quire_stream *s, int32_t choice) {
    (void)s, (void)choice;
    return NULL;
}

void quire_stream_prediction(const quire_stream *s, int32_t choice, int32_t *n_accepted,
                             int32_t *n_rejected) {
    (void)s, (void)choice;
    *n_accepted = *n_rejected = 0;
}

void quire_engine_turns(const quire_engine *e, quire_turn_stats *out) {
    (void)e, (void)out;
}

void quire_engine_page_memory(const quire_engine *e, quire_page_memory *out) {
    (void)e, (void)out;
}

void quire_engine_parked(const quire_engine *e, quire_parked_stats *out) {
    (void)e, (void)out;
}

void quire_engine_snapshots(const quire_engine *e, quire_snapshot_stats *out) {
    (void)e, (void)out;
}

/* ---- adapters ---- */

quire_err quire_request_adapter(quire_request *r, const char *name) {
    (void)r, (void)name;
    return QUIRE_OK;
}

quire_err quire_adapters(const quire_engine *e, quire_adapter ***list, size_t *n) {
    (void)e;
    *list = NULL;
    *n = 0;
    return QUIRE_OK;
}

quire_err quire_adapter_start(quire_queue *q, const char *name, const char *path, bool in_place, void *user,
                              quire_parse **out) {
    (void)q, (void)name, (void)path, (void)in_place, (void)user;
    *out = NULL;
    return QUIRE_NO_MEMORY;
}

quire_err quire_adapter_unload(quire_engine *e, const char *name, quire_error *err) {
    (void)e;
    return err_set(err, QUIRE_NOT_FOUND, -1, "The lora adapter '%s' cannot be found.", name);
}

quire_err quire_adapter_scale(quire_engine *e, int32_t number, float scale, quire_error *err) {
    (void)e, (void)scale;
    return err_set(err, QUIRE_BAD_REQUEST, -1, "there is no adapter %d", (int)number);
}

bool quire_adapter_known(const quire_engine *e, const char *name) {
    (void)e, (void)name;
    return false;
}

void quire_adapter_count(const quire_engine *e, quire_adapter_stats *out) {
    (void)e;
    *out = (quire_adapter_stats){.size = out->size};
}
