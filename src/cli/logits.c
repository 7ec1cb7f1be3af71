/* `quire logits`: writes every row of a prompt's logits to a file in numpy's format, with
 * unrelated prompts in the same batch if requested. */
#include <stddef.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/files.h"

/* tokens that each stranger decodes, so that batches mix prefill and decode rows */
enum { STRANGER_TOKENS = 8 };

static quire_err submit_ids(session *s, const id_list *l, int max_tokens, float *logits,
                            quire_stream **stream, quire_error *err) {
    quire_request *r;
    char fields[80];
    int n = snprintf(fields, sizeof fields, "{\"max_tokens\": %d, \"temperature\": 0, \"ignore_eos\": true}",
                     max_tokens);
    TRY(quire_request_ids(s->engine, l->ids, l->n, &r, err));
    quire_err e = quire_request_set_all(r, fields, (size_t)n, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    if (logits) {
        quire_request_logits(r, logits);
    }
    return quire_submit(s->queue, r, NULL, stream, err);
}

/* Reads events until n streams have ended; the first error is the result. */
static quire_err await_streams(session *s, size_t n, quire_error *err) {
    quire_err e = QUIRE_OK;
    while (n > 0) {
        quire_event ev;
        if (!quire_queue_next(s->queue, &ev)) {
            quire_queue_wait(s->queue, -1);
            continue;
        }
        if (ev.kind != QUIRE_EVENT_DONE) {
            continue;
        }
        n--;
        if (ev.finish == QUIRE_FINISH_ERROR && e == QUIRE_OK && ev.error) {
            *err = *ev.error;
            e = err->code;
        }
        quire_stream_release(ev.stream);
    }
    return e;
}

/* Submits the strangers (unrelated prompts) first, so that they run when the prompt
 * arrives. Waits for all started streams, even after a failure, since they write to
 * logits. */
static quire_err logits_run_all(session *s, const id_list *prompt, const id_list *strangers,
                                size_t n_strangers, float *logits, quire_error *err) {
    quire_err e = QUIRE_OK;
    quire_stream *stream;
    size_t n_sent = 0;
    for (size_t i = 0; e == QUIRE_OK && i < n_strangers; i++) {
        e = submit_ids(s, &strangers[i], STRANGER_TOKENS, NULL, &stream, err);
        n_sent += e == QUIRE_OK;
    }
    if (e == QUIRE_OK) {
        e = submit_ids(s, prompt, 1, logits, &stream, err);
        n_sent += e == QUIRE_OK;
    }
    quire_error later;
    quire_err end = await_streams(s, n_sent, &later);
    if (e == QUIRE_OK && end != QUIRE_OK) {
        *err = later;
    }
    return e != QUIRE_OK ? e : end;
}

static quire_err logits_of(const cli_options *o, const id_list *prompt, const id_list *strangers,
                           size_t n_strangers, quire_error *err) {
    session s;
    TRY(session_open(o, &s, err));
    size_t n_vocab = (size_t)quire_engine_info(s.engine)->n_vocab, n_values;
    float *logits = size_mul(prompt->n, n_vocab, &n_values) ? mem_new(n_values, sizeof *logits) : NULL;
    quire_err e =
        logits ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "%zu x %zu logits do not fit into memory; use a shorter prompt", prompt->n, n_vocab);
    if (e == QUIRE_OK) {
        e = logits_run_all(&s, prompt, strangers, n_strangers, logits, err);
    }
    if (e == QUIRE_OK) {
        e = npy_write(o->out, logits, prompt->n, n_vocab, err);
    }
    session_close(&s);
    mem_free(logits);
    return e;
}

static quire_err logits_run(const cli_options *o, quire_error *err) {
    if (!o->out) {
        return err_set(err, QUIRE_INVALID, -1, "quire logits needs --out FILE.npy");
    }
    if (!o->ids == !o->ids_file) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire logits needs a prompt: --ids 1,2,3 or --ids-file FILE, one of them");
    }
    TRY(files_check_named("--out", o->out, err));
    id_list prompt = {0}, *strangers = NULL;
    size_t n_strangers = 0;
    quire_err e = o->ids ? id_list_parse(o->ids, &prompt, err) : id_list_read(o->ids_file, &prompt, err);
    if (e == QUIRE_OK && o->batch_with) {
        e = id_lists_read(o->batch_with, &strangers, &n_strangers, err);
    }
    if (e == QUIRE_OK) {
        e = logits_of(o, &prompt, strangers, n_strangers, err);
    }
    for (size_t i = 0; i < n_strangers; i++) {
        id_list_deinit(&strangers[i]);
    }
    mem_free(strangers);
    id_list_deinit(&prompt);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag own_flags[] = {
    {"--ids", "1,2,3", "the prompt", FLAG_TEXT, AT(ids)},
    {"--ids-file", "FILE", "the prompt as JSON: [1,2,3] or {\"prompt\": [1,2,3]}", FLAG_TEXT, AT(ids_file)},
    {"--batch-with", "FILE", "a JSON list of id lists that run in the same batch", FLAG_TEXT, AT(batch_with)},
    {0},
};

static const flag *const groups[] = {
    FLAGS_MODEL, flags_tokenizer, flags_out,   own_flags,        flags_attention,         FLAGS_NUMERIC,
    flags_audit, FLAGS_MACHINE,   FLAGS_BATCH, flags_pack_cache, flags_pack_cache_limits, FLAGS_MEMORY,
    NULL};

const command command_logits = {
    .name = "logits",
    .summary = "write every logit of a prompt to a .npy file",
    .usage = "quire logits MODEL --ids 1,2,3 | --ids-file FILE  --out FILE.npy",
    .examples = "  quire logits model.gguf --ids 1,2,3 --out a.npy --compute f32\n"
                "  quire logits model.gguf --ids 1,2,3 --out b.npy --compute f32 --page-size 1 --chunk 1 "
                "--batch-with others.json\n"
                "  cmp a.npy b.npy                                        they are the same bytes\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .run = logits_run,
};
