/* Opens the store of the adapters that an engine's options name, and loads adapters for
 * the engine's model. */
#include "setup/engine_parts.h"

#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "setup/adapter_store.h"

#define MOST_FILE_BYTES ((int64_t)16 << 30) /* limit for the tensors of an adapter */

/* ---- loading ---- */

/* Tokenises the text that activates an adapter as if it stood inside a prompt. */
static quire_err engine_adapters_tokenise(const tokenizer *t, const char *path, model_adapter *a,
                                          quire_error *err) {
    token_list ids = {0};
    if (a->invocation_text == NULL) {
        return QUIRE_OK;
    }
    if (t == NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: its invocation_string needs a tokenizer, which this model lacks; set "
                       "alora_invocation_tokens in its config",
                       path);
    }
    TRY(tokenizer_encode(t, str_of(a->invocation_text), (encode_options){.special = ENCODE_PARSE}, &ids,
                         err));
    if (ids.n == 0 || ids.n > INT32_MAX) {
        token_list_deinit(&ids);
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: invocation_string has no tokens in this vocabulary",
                       path);
    }
    a->invocation = ids.ids;
    a->n_invocation = (int32_t)ids.n;
    return QUIRE_OK;
}

static quire_err engine_adapters_load(void *context, const char *path, loaded_adapter *out,
                                      quire_error *err) {
    const engine_adapters *l = context;
    model_adapter *own = mem_new(1, sizeof *own);
    TRY(mem_check_for(own, "an adapter", err));
    quire_err e = model_adapter_open(l->m, l->b, path, &l->limits, own, err);
    TRY_DONE(e, engine_adapters_tokenise(l->text, path, own, err));
done:
    if (e != QUIRE_OK) {
        model_adapter_close(l->b, own);
        mem_free(own);
        return e;
    }
    *out = (loaded_adapter){.weights = own->weights,
                            .rank = own->rank,
                            .n_bytes = own->n_bytes,
                            .invocation = own->invocation,
                            .n_invocation = own->n_invocation,
                            .own = own};
    memcpy(out->digest, own->digest, sizeof out->digest);
    return QUIRE_OK;
}

static quire_err engine_adapters_blend(void *context, const adapter *const *parts, const float *scales,
                                       int32_t n, adapter **out, quire_error *err) {
    const engine_adapters *l = context;
    return l->b->ops->adapter_blend(l->b, parts, scales, n, out, err);
}

static void engine_adapters_free(void *context, loaded_adapter *a) {
    const engine_adapters *l = context;
    if (a->own != NULL) {
        model_adapter_close(l->b, a->own);
        mem_free(a->own);
    } else {
        l->b->ops->adapter_free(l->b, a->weights);
    }
}

/* ---- options ---- */

/* Copies text, 0-terminated, to *out. */
static quire_err engine_adapters_text(str text, strbuf *out, quire_error *err) {
    strbuf_clear(out);
    return err_set(err, strbuf_add(out, text.p, text.n), -1, "out of memory for adapters");
}

/* Checks that a file or directory exists. */
static quire_err check_path(const char *flag, const char *path, quire_error *err) {
    struct stat about;
    return stat(path, &about) == 0 ? QUIRE_OK
                                   : err_set(err, QUIRE_INVALID, -1,
                                             "%s: %.300s does not exist; an adapter is a directory such as "
                                             "PEFT writes, or a GGUF file",
                                             flag, path);
}

static quire_err engine_adapters_add_named(const quire_options *o, adapter_store *s, quire_error *err) {
    const char *lines = o->lora_modules;
    strbuf own = {0}, name = {0}, path = {0};
    adapter_listed one;
    quire_err e = QUIRE_OK;
    err->code = QUIRE_OK;
    while (adapter_names_next(&lines, &own, &one, err)) {
        TRY_DONE(e, engine_adapters_text(one.name, &name, err));
        TRY_DONE(e, engine_adapters_text(one.path, &path, err));
        TRY_DONE(e, check_path("--lora-modules", path.p, err));
        TRY_DONE(e, adapter_store_add(s, name.p, path.p, true, err));
    }
done:
    strbuf_deinit(&own);
    strbuf_deinit(&name);
    strbuf_deinit(&path);
    return err->code;
}

static quire_err engine_adapters_add_numbered(const quire_options *o, adapter_store *s, quire_error *err) {
    const char *lines = o->loras;
    strbuf path = {0};
    adapter_listed one;
    quire_err e = QUIRE_OK;
    for (int32_t n = 0; adapter_paths_next(&lines, &one); n++) {
        TRY_DONE(e, engine_adapters_text(one.path, &path, err));
        TRY_DONE(e, check_path("--lora", path.p, err));
        TRY_DONE(e, adapter_store_add(s, path.p, path.p, false, err));
        if (!o->lora_init_without_apply) {
            TRY_DONE(e, adapter_store_scale(s, n, one.scale, err));
        }
    }
done:
    strbuf_deinit(&path);
    return e;
}

quire_err engine_adapters_open(const model *m, backend *b, const tokenizer *t, const quire_options *o,
                               engine_adapters *out, quire_error *err) {
    *out = (engine_adapters){.m = m, .b = b, .text = t, .limits = {o->max_lora_rank, MOST_FILE_BYTES}};
    if (!options_have_adapters(o)) {
        return QUIRE_OK;
    }
    const adapter_loader ops = {engine_adapters_load, engine_adapters_blend, engine_adapters_free, out};
    const adapter_store_options so = {
        .max_resident = options_max_loaded(o), .max_rank = options_batch_rank(o), .dir = o->lora_dir};
    TRY(adapter_store_open(&so, &ops, &out->store, err));
    TRY(engine_adapters_add_named(o, out->store, err));
    return engine_adapters_add_numbered(o, out->store, err);
}

void engine_adapters_close(engine_adapters *a) {
    adapter_store_close(a->store);
    *a = (engine_adapters){0};
}
