/* Flags that several commands have, and the texts that are scored. */
#include "lab/commands/measures.h"

#include "base/err.h"
#include "model/model.h"

#define AT(member) .offset = offsetof(served_options, member)

const flag flags_served_by[] = {
    {"--described", "MODEL,DEVICE", "what serves, by data sheet, as in opt-13b,a100-40gb",
     TEXT(server.described)},
    {"--cost", "FILE", "what serves, as `quire bench calibrate` measured it", TEXT(server.cost)},
    {0},
};
const flag flags_served[] = {
    {"--slo", "BOUNDS", "find the highest rate within first=S,gap=S,token=S seconds", TEXT(server.slo)},
    {"--cost-per-hour", "DOLLARS", "of the device: what a million tokens cost", FLAG_PART,
     AT(server.cost_per_hour), .minimum = 0, .maximum = 1e9},
    {"--speed", "N", "the trace's clock runs that many times as fast", FLAG_PART, AT(server.speed),
     .minimum = 1e-6, .maximum = 1e9},
    {"--shrink", "N", "prompts and answers become an Nth as long", COUNT(server.shrink, 1, 1 << 20)},
    {"--kv-tokens", "N", "tokens that the memory holds; 0: what the device has room for", FLAG_BYTES,
     AT(server.kv_tokens)},
    {"--max-num-seqs", "N", "sequences running at once; without: 64, described 256",
     COUNT(server.max_seqs, 1, 1 << 16), .rare = true},
    {"--swap-space", "GIB", "host memory for preempted requests", FLAG_GIB, AT(server.swap_bytes)},
    {"--preemption-mode", NULL,
     "what becomes of preempted requests where there is some: auto is what costs less", FLAG_CHOICE,
     AT(server.preemption_mode), .choices = choices_preemption, .rare = true},
    {"--acceptance", "LIST", "guesses are verified: chances that the first, second .. of a step is right",
     TEXT(server.acceptance)},
    {"--draft-us", "N", "with --acceptance: microseconds that making a step's guesses takes", FLAG_PART,
     AT(server.draft_us), .minimum = 0, .maximum = 1e9, .rare = true},
    {"--max-num-batched-tokens", "N", "rows a step; without: 512, described 2048",
     COUNT(server.max_rows, 1, 1 << 20), .rare = true},
    {"--chunk", "N", "most prompt tokens of one sequence in a step; 0: as many as fit",
     COUNT(server.max_chunk, 0, INT32_MAX), .rare = true},
    {"--max-model-len", "N", "tokens a sequence may have; without: the model's",
     COUNT(server.max_model_len, 1, 1 << 24), .rare = true},
    {"--step-target-ms", "MS", "longest step while streams run", FLAG_MILLISECONDS, AT(server.step_target_us),
     .minimum = 0, .maximum = 1e7, .rare = true},
    {0},
};

#define SWITCH(member) FLAG_SWITCH, .offset = offsetof(ablated_options, off.member), .rare = true

const flag flags_ablations[] = {
    {"--no-fork-sharing", NULL, "samples of one prompt share nothing", SWITCH(no_fork_sharing)},
    {"--no-jump-forward", NULL, "compute forced tokens one by one", SWITCH(no_jump_forward)},
    {"--fixed-draft-length", NULL, "always guess num_speculative_tokens", SWITCH(fixed_draft_length)},
    {0},
};

#undef AT
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
