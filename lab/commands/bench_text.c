/* `quire bench text`: the speed of tokenising, detokenising and rendering conversations.
 * docs/text.md explains the figures. */

#include "base/clock.h"
#include "chat/chat_form.h"
#include "cli/files.h"
#include "file/model_file.h"
#include "lab/bench/text_samples.h"
#include "lab/commands/lab_commands.h"
#include "setup/engine_config.h"
#include "text/added.h"
#include "text/detok.h"
#include "json/json_out.h"

typedef struct bench_text_options {
    cli_options cli;  /* without a model: the built-in one, and a tokenizer of each kind made from it */
    const char *file; /* a text to measure besides the generated ones; NULL: none */
    int32_t n_kib;    /* size of each generated text */
    int32_t n_runs;   /* runs per figure, for mean and spread */
} bench_text_options;

enum { N_MESSAGES = 100 };

#define CHATML                                                                                               \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

LAB_DEFAULTS(bench_text, .n_kib = 1024, .n_runs = 3)

/* A tokenizer, and the text or chat at hand. */
typedef struct text_run {
    const bench_text_options *options;
    const bench_table *table;
    str file; /* text of options->file; empty: none */
    const tokenizer *t;
    const char *kind; /* of the tokenizer */
    str text;
    token_list ids;
    strbuf out;
    const chat_template *template;
    chat_messages messages;
} text_run;

typedef quire_err step_fn(text_run *r, quire_error *err);

/* Measures microseconds of CPU time of the calling thread for a step. */
static quire_err commands_bench_text_measure(text_run *r, step_fn *step, figure *us, quire_error *err) {
    double values[FIGURES_MAX_RUNS];
    for (int32_t run = -1; run < r->options->n_runs; run++) { /* run -1 warms up */
        int64_t start = clock_thread_us();
        TRY(step(r, err));
        if (run >= 0) {
            int64_t took = clock_thread_us() - start;
            values[run] = took > 0 ? (double)took : 1;
        }
    }
    *us = figure_of(values, r->options->n_runs);
    return QUIRE_OK;
}

static quire_err bench_text_no_memory(quire_err e, quire_error *err) {
    return err_set(err, e, -1, "measuring texts: %s", quire_err_text(e));
}

static quire_err bench_text_encode(text_run *r, quire_error *err) {
    r->ids.n = 0;
    return tokenizer_encode(r->t, r->text, (encode_options){.special = ENCODE_PARSE}, &r->ids, err);
}

static quire_err bench_text_decode(text_run *r, quire_error *err) {
    strbuf_clear(&r->out);
    return bench_text_no_memory(tokenizer_decode(r->t, r->ids.ids, r->ids.n, false, &r->out), err);
}

static quire_err stream_ids(text_run *r, detok *d) {
    strbuf_clear(&r->out);
    for (size_t i = 0; i < r->ids.n; i++) {
        TRY(detok_add(d, r->ids.ids[i], &r->out));
    }
    return detok_flush(d, &r->out);
}

static quire_err bench_text_stream(text_run *r, quire_error *err) {
    detok *d;
    TRY(bench_text_no_memory(detok_open(r->t, false, &d), err));
    quire_err e = stream_ids(r, d);
    detok_close(d);
    return bench_text_no_memory(e, err);
}

static quire_err measure_text(text_run *r, const char *name, str text, quire_error *err) {
    figure encoding, decoding, streaming;
    r->text = text;
    TRY(commands_bench_text_measure(r, bench_text_encode, &encoding, err));
    TRY(commands_bench_text_measure(r, bench_text_decode, &decoding, err));
    TRY(commands_bench_text_measure(r, bench_text_stream, &streaming, err));
    double n_bytes = (double)text.n, n_ids = r->ids.n > 0 ? (double)r->ids.n : 1,
           speed = n_bytes / encoding.mean;
    TABLE_ROW(r->table, TXT(r->kind), TXT(name), NUM(n_bytes / n_ids), NUM(speed),
              NUM(speed * encoding.spread / encoding.mean), NUM(n_bytes / decoding.mean),
              NUM(streaming.mean / n_ids), NUM(TABLE_ABSENT));
    return QUIRE_OK;
}

static quire_err measure_tokenizer(text_run *r, const tokenizer *t, const char *kind, quire_error *err) {
    quire_err e = QUIRE_OK;
    r->t = t;
    r->kind = kind;
    for (sample_kind sample = 0; sample < N_SAMPLES && e == QUIRE_OK; sample++) {
        strbuf text = {0};
        e = bench_text_no_memory(sample_make(sample, (size_t)r->options->n_kib << 10, &text), err);
        if (e == QUIRE_OK) {
            e = measure_text(r, sample_name(sample), (str){text.p, text.n}, err);
        }
        strbuf_deinit(&text);
    }
    return e == QUIRE_OK && r->file.n > 0 ? measure_text(r, "file", r->file, err) : e;
}

/* ---- rendering ---- */

static quire_err bench_text_render(text_run *r, quire_error *err) {
    const chat_prompt p = {.messages = &r->messages, .add_generation_prompt = true};
    text_marks marks = {0};
    strbuf_clear(&r->out);
    quire_err e = chat_render(r->template, &p, &r->out, &marks, err);
    text_marks_deinit(&marks);
    return e;
}

/* Makes messages of two sentences, alternating between user and assistant. */
static quire_err make_messages(const chat_traits *traits, chat_messages *out, quire_error *err) {
    strbuf json = {0}, text = {0};
    json_out o = {.to = &json};
    quire_err e = sample_make(SAMPLE_ENGLISH, (size_t)N_MESSAGES * 200, &text);
    json_begin(&o, '[');
    for (size_t i = 0; i < N_MESSAGES && e == QUIRE_OK; i++) {
        json_begin(json_item(&o), '{');
        json_cstr(json_name(&o, "role"), i % 2 == 0 ? "user" : "assistant");
        json_text(json_name(&o, "content"), text.p + i * 200, 200);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    strbuf_deinit(&text);
    json_value *array = e == QUIRE_OK && o.err == QUIRE_OK ? json_document((str){json.p, json.n}) : NULL;
    e = array == NULL ? bench_text_no_memory(QUIRE_NO_MEMORY, err)
                      : chat_messages_read(array, traits, "messages", out, err);
    json_drop(array);
    strbuf_deinit(&json);
    return e;
}

static quire_err measure_render(text_run *r, const tokenizer *t, const char *kind, str source,
                                quire_error *err) {
    chat_template *template;
    figure us;
    chat_tokens tokens = {.tokenizer = t, .bos = tokenizer_bos_text(t), .eos = tokenizer_eos_text(t)};
    TRY(chat_template_open(source.n > 0 ? source : str_of(CHATML), &tokens, &template, err));
    r->template = template;
    quire_err e = make_messages(chat_template_traits(template), &r->messages, err);
    TRY_DONE(e, commands_bench_text_measure(r, bench_text_render, &us, err));
    TABLE_ROW(r->table, TXT(kind), TXT(source.n > 0 ? "its template" : "ChatML"), NUM(TABLE_ABSENT),
              NUM(TABLE_ABSENT), NUM(TABLE_ABSENT), NUM(TABLE_ABSENT), NUM(TABLE_ABSENT), NUM(us.mean));
done:
    chat_messages_deinit(&r->messages);
    chat_template_close(template);
    return e;
}

/* ---- all ---- */

static const char *bench_text_kind_of(const vocab *v) {
    return v->source == VOCAB_TOKENIZER_JSON  ? "tokenizer.json"
           : v->source == VOCAB_SENTENCEPIECE ? ".model"
           : v->source == VOCAB_RANKS         ? "ranks"
           : v->source == VOCAB_TEKKEN        ? "tekken"
                                              : "GGUF";
}

static quire_err measure_open(text_run *r, const model_file *f, const tokenizer *t, quire_error *err) {
    const bool is_given = r->options->cli.engine.model != NULL;
    const char *kind = is_given ? bench_text_kind_of(model_file_vocab(f)) : "byte-level BPE";
    TRY(measure_tokenizer(r, t, kind, err));
    for (made_kind made = 0; made < N_MADE && !is_given; made++) {
        tokenizer *own;
        TRY(made_open(made, t, &own, err));
        quire_err e = measure_tokenizer(r, own, made_name(made), err);
        tokenizer_close(own);
        TRY(e);
    }
    return measure_render(r, t, kind, model_file_chat_template(f), err);
}

static quire_err bench_text_measure_all(text_run *r, quire_error *err) {
    size_t n = 0;
    model_file *f;
    tokenizer *t;
    const char *path = r->options->cli.engine.model != NULL ? r->options->cli.engine.model : "builtin";
    const void *bytes = options_builtin_model(path, &n);
    TRY(bytes != NULL ? model_file_open_memory(bytes, n, path, &f, err)
                      : model_file_open_vocabulary(path, &f, err));
    quire_err e = tokenizer_open(model_file_vocab(f), &t, err);
    if (e == QUIRE_OK) {
        e = measure_open(r, f, t, err);
        tokenizer_close(t);
    }
    model_file_close(f);
    return e;
}

#define AT(member) .offset = offsetof(bench_text_options, member)

static const flag bench_text_flags[] = {
    {"--file -f", "PATH", "a text of your own, beside the made ones", TEXT(file)},
    {"--size", "KIB", "size of each made text", COUNT(n_kib, 1, 65536)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, FIGURES_MAX_RUNS)},
    {0},
};

static quire_err bench_text_run(const cli_options *cli, quire_error *err) {
    const bench_text_options *o = (const void *)cli;
    TABLE(s, "text", cli->json, WORD("tokenizer", "tokenizer", -16), WORD("text", "text", -12),
          FIGURE("bytes", "bytes/token", 11, 2, "bytes/token"),
          FIGURE("encode", "encode MB/s", 11, 2, "MB/s"), FIGURE("encode_spread", "+-", 6, 2, "MB/s"),
          FIGURE("decode", "decode MB/s", 11, 2, "MB/s"),
          FIGURE("stream", "stream us/token", 15, 3, "us/token"), FIGURE("render", "render us", 9, 0, "us"));
    text_run r = {.options = o, .table = &s};
    strbuf text = {0};
    quire_err e = o->file != NULL ? files_read(o->file, &text, err) : QUIRE_OK;
    if (e == QUIRE_OK && o->file != NULL && text.n == 0) {
        e = err_set(err, QUIRE_INVALID, -1, "--file %s: the file is empty; give one with text", o->file);
    }
    if (e == QUIRE_OK) {
        table_begin(&s, NULL);
    }
    r.file = (str){text.p, text.n};
    TRY_DONE(e, bench_text_measure_all(&r, err));
    table_note(&s,
               "Texts of %d KiB, one thread's processor time, mean of %d runs; a chat of %d messages of 200 "
               "bytes is rendered.",
               (int)o->n_kib, (int)o->n_runs, N_MESSAGES);
done:
    token_list_deinit(&r.ids);
    strbuf_deinit(&r.out);
    strbuf_deinit(&text);
    return e;
}

LAB_COMMAND(bench_text, "bench text", " [MODEL|TOKENIZER]", ARGUMENT_MODEL_OR_NONE,
            "how fast texts are tokenised, tokens decoded and chats rendered",
            "  quire bench text\n"
            "  quire bench text tokenizer.json --file book.txt --json\n",
            FLAGS_MODEL, bench_text_flags, flags_json, flags_help, flags_help_all);
