/* Flags that several commands share, and the texts that are scored. */
#include "lab/commands/measures.h"

#include "base/err.h"
#include "model/model.h"

#define SWITCH(member) FLAG_SWITCH, .offset = offsetof(ablated_options, off.member), .rare = true

const flag flags_ablations[] = {
    {"--no-fork-sharing", NULL, "samples of one prompt share nothing", SWITCH(no_fork_sharing)},
    {"--no-jump-forward", NULL, "compute forced tokens one by one", SWITCH(no_jump_forward)},
    {"--fixed-draft-length", NULL, "always guess num_speculative_tokens", SWITCH(fixed_draft_length)},
    {0},
};

#define AT(member) .offset = offsetof(experiment_options, member)

const flag flags_experiment[] = {
    {"--runs", "N", "runs per measured figure", COUNT(n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model that is run", TEXT(cli.engine.model)},
    {0},
};
const flag flags_experiment_page[] = {
    {"--page-size", "N", "tokens a page holds", PAGE_SIZE(cli.engine.page_tokens)},
    {0},
};

void experiment_defaults(cli_options *o) {
    quire_options_init(&o->engine);
    o->engine.model = "builtin";
    ((experiment_options *)(void *)o)->type = "q4_0";
}

quire_err shaped_open(const cli_options *o, const char *shape, const char *type, shaped_use use,
                      quire_options *e, synthetic *out, quire_error *err) {
    *out = (synthetic){.fd = -1};
    if (use == SHAPED_NOT) {
        return unused_flags_refuse(o, "--type --shape",
                                   shape == NULL ? "without --shape: a model has weights of its own"
                                                 : "with a MODEL, which has weights and a shape of its own",
                                   err);
    }
    TRY(unused_flags_refuse(o, "--model --hf-repo", "with --shape, whose model is run", err));
    TRY(unused_flags_refuse(o, "--compute --quantization",
                            "with --shape, whose --type says how products are computed", err));
    if (use == SHAPED_TEXTS && o->engine.tokenizer == NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--shape %s: a random model has no vocabulary; give one with --tokenizer FILE", shape);
    }
    return synthetic_open_named(shape, type, e, out, err);
}

static quire_err scored_encode(const char *path, const model_file *f, token_list *ids, quire_error *err) {
    strbuf text = {0};
    tokenizer *t = NULL;
    quire_error why;
    quire_err e = QUIRE_OK;
    TRY_DONE(e, files_read_text(path, &text, err));
    e = tokenizer_open(model_file_vocab(f), &t, &why);
    if (e != QUIRE_OK) {
        (void)err_set(err, e, -1,
                      "%s: the model's vocabulary cannot be used (%s); give the text as ids with --ids-file",
                      path, e == QUIRE_NOT_FOUND ? "it has none" : why.message);
        goto done;
    }
    e = tokenizer_encode(t, (str){text.n > 0 ? text.p : "", text.n},
                         (encode_options){.special = ENCODE_PARSE, .add_special = true}, ids, err);
done:
    tokenizer_close(t);
    strbuf_deinit(&text);
    return e;
}

static quire_err scored_copy(const char *path, const model_desc *d, token_list *ids, quire_error *err) {
    id_list given = {0};
    quire_err e = id_list_read(path, &given, err);
    for (size_t i = 0; e == QUIRE_OK && i < given.n; i++) {
        e = given.ids[i] >= 0 && given.ids[i] < d->n_vocab
                ? err_set(err, token_list_add(ids, given.ids[i]), -1, "%s: out of memory", path)
                : err_set(err, QUIRE_INVALID, (int64_t)i,
                          "%s: id %d at place %zu; the model has tokens 0 to %d", path, (int)given.ids[i], i,
                          (int)d->n_vocab - 1);
    }
    id_list_deinit(&given);
    return e;
}

quire_err scored_tokens(const cli_options *o, const char *name, const model_file *f, model_desc *d,
                        token_list *ids, quire_error *err) {
    if (!o->argument == !o->ids_file) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire %s needs a text: MODEL FILE, or MODEL --ids-file FILE, one of them", name);
    }
    TRY(model_describe(f, d, err));
    if (!desc_gives_tokens(d)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s gives rows, no tokens: it predicts no text", d->name);
    }
    return o->ids_file ? scored_copy(o->ids_file, d, ids, err) : scored_encode(o->argument, f, ids, err);
}
