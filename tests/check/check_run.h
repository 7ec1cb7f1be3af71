/* Reads a prompt, and runs it on an engine. */
#ifndef TESTS_CHECK_RUN_H
#define TESTS_CHECK_RUN_H

#include "base/err.h"
#include "quire.h"
#include "json/json.h"

/* Reads the list of ids `name` of an object; mem_free frees *ids. path: for errors. */
quire_err check_take_ids(json_value *object, const char *name, const char *path, int32_t **ids, size_t *n,
                         quire_error *err);
/* Runs the prompt: returns logits [n_prompt, n_vocab] and up to `most` greedy ids. */
quire_err check_run(quire_engine *engine, const int32_t *prompt, size_t n_prompt, size_t most, float *logits,
                    int32_t *greedy, size_t *n_greedy, quire_error *err);

#endif
