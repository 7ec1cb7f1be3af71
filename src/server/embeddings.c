/* The dialects of rows: POST /v1/embeddings, vLLM's /pooling, llama.cpp's /embedding,
 * Ollama's /api/embed and /api/embeddings: writes their responses. A row is kept as the
 * JSON that shows it. */
#include <string.h>

#include "base/clock.h"
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

/* The numbers' bytes as base64, the lowest byte of each first. */
static quire_err embeddings_add_base64(const quire_event *ev, strbuf *to) {
    enum { GROUP = 3 * 64 }; /* numbers whose base64 has no padding */
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
        return err_set_param(err, QUIRE_BAD_REQUEST, "dimensions",
                             "dimensions is %d; this model's files do not say that its rows of %d may be "
                             "cut: leave it out, or start the server with --hf-overrides "
                             "'{\"is_matryoshka\": true}'",
                             (int)more->dimensions, (int)rows->n_row);
    }
    return is_listed ? QUIRE_OK
                     : err_set_param(err, QUIRE_BAD_REQUEST, "dimensions",
                                     "dimensions is %d; this model's rows may be cut to some widths only, "
                                     "the first of which is %d (matryoshka_dimensions)",
                                     (int)more->dimensions, (int)rows->widths[0]);
}

/* ---- responses ---- */

static void embeddings_write_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, a->writer->object, o);
    json_begin(json_name(o, "data"), '[');
}

/* Begins row i's object up to its value. */
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

/* llama.cpp's: a list of the rows that pooling leaves, of which there is one. */
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
