/* Writes responses with rows: of POST /v1/embeddings, vLLM's /pooling, llama.cpp's
 * /embedding, Ollama's /api/embed and /api/embeddings. A row is kept as JSON text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "server/response.h"
#include "server/routes.h"

static quire_err embeddings_add_numbers(const quire_event *ev, strbuf *to) {
    json_out o = {.to = to};
    json_begin(&o, '[');
    for (int32_t i = 0; i < ev->n_row; i++) {
        json_number(json_item(&o), (double)ev->row[i]);
    }
    json_end(&o, ']');
    return o.err;
}

/* Appends an event's numbers as base64 of their bytes, little-endian. */
static quire_err embeddings_add_base64(const quire_event *ev, strbuf *to) {
    enum { GROUP = 3 * 64 }; /* count of numbers whose base64 needs no padding */
    char bytes[GROUP * sizeof(float)];
    TRY(strbuf_add_char(to, '"'));
    for (int32_t first = 0; first < ev->n_row; first += GROUP) {
        int32_t n = ev->n_row - first < GROUP ? ev->n_row - first : GROUP;
        for (int32_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &ev->row[first + i], sizeof bits);
            for (int k = 0; k < 4; k++) {
                bytes[4 * i + k] = (char)(bits >> 8 * k & 0xFF);
            }
        }
        TRY(base64_encode((str){bytes, (size_t)n * 4}, to));
    }
    return strbuf_add_char(to, '"');
}

quire_err embeddings_take_row(const response *a, response_choice *c, const quire_event *ev) {
    return a->more->rows_base64 ? embeddings_add_base64(ev, &c->text) : embeddings_add_numbers(ev, &c->text);
}

static quire_err embeddings_check(const quire_row_info *rows, const quire_request_more *more,
                                  quire_error *err) {
    bool is_listed = rows->n_widths == 0;
    if (more->dimensions == 0 || more->dimensions == rows->n_row) {
        return QUIRE_OK;
    }
    for (int32_t i = 0; i < rows->n_widths; i++) {
        is_listed = is_listed || rows->widths[i] == more->dimensions;
    }
    if (!rows->is_matryoshka) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "dimensions",
            "dimensions is %d; this model's files do not say that its embeddings of %d elements may be "
            "truncated: leave it out, or start the server with --hf-overrides '{\"is_matryoshka\": true}'",
            (int)more->dimensions, (int)rows->n_row);
    }
    return is_listed ? QUIRE_OK
                     : err_set_param(err, QUIRE_BAD_REQUEST, "dimensions",
                                     "dimensions is %d; this model's embeddings may be truncated only to the "
                                     "widths in matryoshka_dimensions, the first of which is %d",
                                     (int)more->dimensions, (int)rows->widths[0]);
}

/* ---- responses ---- */

static void embeddings_write_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, a->writer->object, o);
    json_begin(json_name(o, "data"), '[');
}

/* Writes row i's object up to the row itself. */
static void embeddings_begin_row(int32_t i, const char *object, const char *name, json_out *o) {
    json_raw(o, i > 0 ? "," : "");
    json_begin(o, '{');
    if (object != NULL) {
        json_cstr(json_name(o, "object"), object);
    }
    json_int(json_name(o, "index"), i);
    json_name(o, name);
}

static str embeddings_row(const response *a, int32_t i) {
    const strbuf *row = &a->choices[a->shown[i]].text;
    return (str){row->p, row->n};
}

static void embeddings_write_row(const response *a, int32_t i, json_out *o) {
    embeddings_begin_row(i, "embedding", "embedding", o);
    json_raw_part(o, embeddings_row(a, i));
    json_end(o, '}');
}

static void pooling_write_row(const response *a, int32_t i, json_out *o) {
    embeddings_begin_row(i, "pooling", "data", o);
    json_raw_part(o, embeddings_row(a, i));
    json_end(o, '}');
}

/* Writes a row in llama.cpp's form: a list of pooled rows, of which there is one. */
static void embedding_write_row(const response *a, int32_t i, json_out *o) {
    embeddings_begin_row(i, NULL, "embedding", o);
    json_begin(o, '[');
    json_raw_part(o, embeddings_row(a, i));
    json_end(o, ']');
    json_end(o, '}');
}

static void embedding_write_begin(const response *a, json_out *o) {
    (void)a;
    json_begin(o, '[');
}

static void embedding_write_end(const response *a, json_out *o) {
    (void)a;
    json_end(o, ']');
}

static void embeddings_write_end(const response *a, json_out *o) {
    json_end(o, ']');
    response_write_input_usage(a, o);
    json_end(o, '}');
}

static void ollama_embed_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "model"), response_model(a));
    json_begin(json_name(o, "embeddings"), '[');
}

static void ollama_embed_row(const response *a, int32_t i, json_out *o) {
    json_raw(o, i > 0 ? "," : "");
    json_raw_part(o, embeddings_row(a, i));
}

static void ollama_embed_end(const response *a, json_out *o) {
    json_end(o, ']');
    json_int(json_name(o, "total_duration"), (clock_us() - a->conn->record.begun_us) * 1000);
    json_int(json_name(o, "load_duration"), 0);
    json_int(json_name(o, "prompt_eval_count"), a->prompt_tokens);
    json_end(o, '}');
}

static void ollama_embeddings_begin(const response *a, json_out *o) {
    (void)a;
    json_begin(o, '{');
    json_name(o, "embedding");
}

static void ollama_embeddings_end(const response *a, json_out *o) {
    (void)a;
    json_end(o, '}');
}

#define OLLAMA_ROWS_WRITER(write_begin, write_end)                                                           \
    {                                                                                                        \
        .id_prefix = "ollama-", .object = "", .begin = write_begin, .choice = ollama_embed_row,              \
        .end = write_end, .row = embeddings_take_row, .error_body = ollama_error                             \
    }

const response_writer ollama_embed_writer = OLLAMA_ROWS_WRITER(ollama_embed_begin, ollama_embed_end);
const response_writer ollama_embeddings_writer =
    OLLAMA_ROWS_WRITER(ollama_embeddings_begin, ollama_embeddings_end);

#define ROWS_WRITER(prefix, write_begin, write_row, write_end)                                               \
    {                                                                                                        \
        .id_prefix = prefix, .object = "list", .begin = write_begin, .choice = write_row, .end = write_end,  \
        .row = embeddings_take_row, .check = embeddings_check                                                \
    }

const response_writer embeddings_writer =
    ROWS_WRITER("embd-", embeddings_write_begin, embeddings_write_row, embeddings_write_end);
const response_writer pooling_writer =
    ROWS_WRITER("pool-", embeddings_write_begin, pooling_write_row, embeddings_write_end);
const response_writer embedding_writer =
    ROWS_WRITER("embd-", embedding_write_begin, embedding_write_row, embedding_write_end);

/* Writes responses with scores: of POST /v1/score and /v1/rerank in vLLM's form,
 * /reranking in llama.cpp's. A choice keeps the bytes of its row. */

static quire_err scores_take_row(const response *a, response_choice *c, const quire_event *ev) {
    (void)a;
    return strbuf_add(&c->text, (const char *)ev->row, (size_t)ev->n_row * sizeof *ev->row);
}

/* Element i of a choice's row. */
static double scores_element(const response_choice *c, size_t i) {
    float x;
    memcpy(&x, c->text.p + i * sizeof x, sizeof x);
    return (double)x;
}

/* The cosine of two normalised rows. */
static double scores_cosine(const response_choice *x, const response_choice *y) {
    double sum = 0.0;
    for (size_t i = 0; i < x->text.n / sizeof(float); i++) {
        sum += scores_element(x, i) * scores_element(y, i);
    }
    return sum;
}

static int32_t scores_count(const response *a) {
    return a->n_choices - a->more->n_queries;
}

/* The choice of document i. */
static const response_choice *scores_document(const response *a, int32_t i) {
    return &a->choices[a->more->n_queries + i];
}

/* The score of document i. If the head gives one score and the model's files name no
 * function for it, that is a sigmoid, as in sentence-transformers and vLLM; with as_logit
 * it is the raw value. */
static double scores_of(const response *a, int32_t i, bool as_logit) {
    if (a->more->n_queries > 0) {
        return scores_cosine(&a->choices[a->more->n_queries > 1 ? i : 0], scores_document(a, i));
    }
    double x = scores_element(scores_document(a, i), 0);
    bool is_logit = quire_engine_rows(response_engine(a))->scores_are_logits;
    return is_logit && !as_logit ? 1.0 / (1.0 + exp(-x)) : x;
}

static void scores_write_nothing(const response *a, json_out *o) {
    (void)a, (void)o;
}

static void scores_write_no_choice(const response *a, int32_t i, json_out *o) {
    (void)a, (void)i, (void)o;
}

static void scores_write_list(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, "list", o);
    json_begin(json_name(o, "data"), '[');
    for (int32_t i = 0; i < scores_count(a); i++) {
        json_begin(json_item(o), '{');
        json_int(json_name(o, "index"), i);
        json_cstr(json_name(o, "object"), "score");
        json_number(json_name(o, "score"), scores_of(a, i, false));
        json_end(o, '}');
    }
    json_end(o, ']');
    response_write_input_usage(a, o);
    json_end(o, '}');
}

/* ---- reranking ---- */

typedef struct scored {
    int32_t index;
    double score;
} scored;

/* Orders by descending score; equal scores keep their order. */
static int scores_compare(const void *p, const void *q) {
    const scored *x = p, *y = q;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : (x->index > y->index) - (x->index < y->index);
}

/* Writes "results", with the documents' texts if requested. */
static void scores_write_results(const response *a, bool as_logits, json_out *o) {
    int32_t n = scores_count(a), n_shown = a->more->top_n > 0 && a->more->top_n < n ? a->more->top_n : n;
    scored *list = mem_new((size_t)n, sizeof *list);
    if (list == NULL) {
        o->err = QUIRE_NO_MEMORY;
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        list[i] = (scored){i, scores_of(a, i, as_logits)};
    }
    qsort(list, (size_t)n, sizeof *list, scores_compare);
    json_begin(json_name(o, "results"), '[');
    for (int32_t k = 0; k < n_shown; k++) {
        const response_prompt *p = response_prompt_of(a, scores_document(a, list[k].index));
        json_begin(json_item(o), '{');
        json_int(json_name(o, "index"), list[k].index);
        if (a->more->return_documents && !as_logits) {
            json_begin(json_name(o, "document"), '{');
            json_text(json_name(o, "text"), p->text.p, p->text.n);
            json_raw(json_name(o, "multi_modal"), "null");
            json_end(o, '}');
        }
        json_number(json_name(o, "relevance_score"), list[k].score);
        json_end(o, '}');
    }
    json_end(o, ']');
    mem_free(list);
}

static void scores_write_rerank(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_id(a, json_name(o, "id"));
    json_cstr(json_name(o, "model"), response_model(a));
    response_write_input_usage(a, o);
    scores_write_results(a, false, o);
    json_end(o, '}');
}

static void scores_write_reranking(const response *a, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "model"), response_model(a));
    json_cstr(json_name(o, "object"), "list");
    response_write_input_usage(a, o);
    scores_write_results(a, true, o);
    json_end(o, '}');
}

#define SCORES_WRITER(prefix, write_end)                                                                     \
    {                                                                                                        \
        .id_prefix = prefix, .object = "list", .is_at_once = true, .begin = scores_write_nothing,            \
        .choice = scores_write_no_choice, .end = write_end, .row = scores_take_row                           \
    }

const response_writer score_writer = SCORES_WRITER("score-", scores_write_list);
const response_writer rerank_writer = SCORES_WRITER("rerank-", scores_write_rerank);
const response_writer reranking_writer = SCORES_WRITER("rerank-", scores_write_reranking);
