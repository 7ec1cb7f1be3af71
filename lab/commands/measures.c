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

quire_err scored_text_read(const cli_options *o, const char *name, scored_text *memory, score_text *out,
                           quire_error *err) {
    *memory = (scored_text){.text = {0}};
    if (!o->argument == !o->ids_file) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire %s needs a text: MODEL FILE, or MODEL --ids-file FILE, one of them", name);
    }
    *out = (score_text){.name = o->ids_file ? o->ids_file : o->argument};
    if (o->ids_file) {
        TRY(id_list_read(o->ids_file, &memory->ids, err));
        out->ids = memory->ids.ids;
        out->n_ids = memory->ids.n;
        return QUIRE_OK;
    }
    TRY(files_read_text(o->argument, &memory->text, err));
    out->text = (str){memory->text.n > 0 ? memory->text.p : "", memory->text.n};
    return QUIRE_OK;
}

void scored_text_deinit(scored_text *memory) {
    strbuf_deinit(&memory->text);
    id_list_deinit(&memory->ids);
}

static quire_err score_text_encode(const score_text *s, const model_file *f, token_list *ids,
                                   quire_error *err) {
    tokenizer *t;
    quire_error why;
    quire_err e = tokenizer_open(model_file_vocab(f), &t, &why);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1,
                       "%s: the model's vocabulary cannot be used (%s); give the text as ids with --ids-file",
                       s->name, e == QUIRE_NOT_FOUND ? "it has none" : why.message);
    }
    e = tokenizer_encode(t, s->text, (encode_options){.special = ENCODE_PARSE, .add_special = true}, ids,
                         err);
    tokenizer_close(t);
    return e;
}

static quire_err score_text_copy_ids(const score_text *s, const model_desc *d, token_list *ids,
                                     quire_error *err) {
    for (size_t i = 0; i < s->n_ids; i++) {
        if (s->ids[i] < 0 || s->ids[i] >= d->n_vocab) {
            return err_set(err, QUIRE_INVALID, (int64_t)i,
                           "%s: id %d at place %zu; the model has tokens 0 to %d", s->name, (int)s->ids[i], i,
                           (int)d->n_vocab - 1);
        }
        if (token_list_add(ids, s->ids[i]) != QUIRE_OK) {
            TRY(err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", s->name));
        }
    }
    return QUIRE_OK;
}

quire_err score_text_read(const score_text *t, const model_file *f, model_desc *d, token_list *ids,
                          quire_error *err) {
    TRY(model_describe(f, d, err));
    if (!desc_gives_tokens(d)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s gives rows, no tokens: it predicts no text", d->name);
    }
    return t->ids != NULL ? score_text_copy_ids(t, d, ids, err) : score_text_encode(t, f, ids, err);
}
