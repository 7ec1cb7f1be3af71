/* The dialects of scores: POST /v1/score and /v1/rerank in vLLM's form, /reranking in
 * llama.cpp's: writes their responses. A choice keeps the bytes of its row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/response.h"

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

/* The cosine of two rows of length 1. */
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

/* The score of document i. For a head of one score without a function in the model's
 * files that is a sigmoid, as in sentence-transformers and vLLM; with as_logit the raw
 * value. */
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

/* The best first; equal ones keep their order. */
static int scores_compare(const void *p, const void *q) {
    const scored *x = p, *y = q;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : (x->index > y->index) - (x->index < y->index);
}

/* Writes "results", with the documents' texts where they are wanted. */
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
