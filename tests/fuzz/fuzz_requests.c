/* Bodies of requests, of any endpoint, up to what a text thread takes: parsed, bound to a
 * model's formats, rendered and copied. What is accepted is allowed by the endpoint's
 * schema. The first byte chooses the endpoint ('A' is the
 * first), the second the kind of model; the rest is the body. Mutations know the fields
 * of the table. */
#include <stdio.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "base/log.h"
#include "base/mem.h"
#include "endpoints.h"
#include "fuzz.h"
#include "schema_allows.h"

enum { HEAD = 2, MAX_NAME_BYTES = 64, MAX_ENDPOINTS = 64 };
enum {
    GIVES_ROWS = 1,
    TRUSTS_CLIENTS = 2,
    HAS_FORMATS = 4,
    IDS_ONLY = 8,
    GIVES_SCORES = 16,
    COUNTS_ONLY = 32
};

static int32_t count_endpoints(void) {
    int32_t n = 0;
    while (endpoint_facts_of((quire_endpoint)n).path != NULL) {
        n++;
    }
    fuzz_check(n <= MAX_ENDPOINTS);
    return n;
}

static quire_endpoint endpoint_of(const uint8_t *data) {
    return (quire_endpoint)((uint8_t)(data[0] - 'A') % count_endpoints());
}

/* One earlier turn, with a call, for every id but one. */
static quire_err find_history(void *user, const char *tenant, const char *id, char **lines, size_t *n) {
    static const char turn[] = "{\"type\":\"message\",\"role\":\"user\",\"content\":\"Hi\"}\n"
                               "{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c1\",\"name\":"
                               "\"f\",\"arguments\":\"{}\"}\n";
    (void)user, (void)tenant;
    if (strcmp(id, "resp_0") == 0) {
        return QUIRE_NOT_FOUND;
    }
    *lines = mem_dup(turn, sizeof turn);
    *n = sizeof turn - 1;
    return *lines != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* The model's templates, opened once. */
static const chat_form *open_form(void) {
    static const char source[] =
        "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for c in m.content or [] %}{{ c.text }}{% endfor %}{% endif %}{{ m.reasoning_content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor "
        "%}"
        "\n{% endfor %}{{ tools | tojson }}{{ documents | tojson }}{% if add_generation_prompt %}<assistant>"
        "{% endif %}";
    static chat_form form;
    static const chat_tokens tokens = {.bos = {"<s>", 3}, .eos = {"</s>", 4}};
    quire_error refused, err;
    if (form.template == NULL) {
        fuzz_check(chat_form_open(source, (str){0}, &tokens, &form, &refused, &err) == QUIRE_OK);
    }
    return &form;
}

/* A vocabulary of few words, opened once. */
static const tokenizer *open_tokenizer(void) {
    static const char json[] =
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<unk>\",\"vocab\":{\"a\":0,\"b\":1,\"Hi\":2,"
        "\"Once\":3,"
        "\"<unk>\":4,\"</s>\":5}},\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"added_tokens\":[{\"id\":5,"
        "\"content\":\"</s>\",\"special\":true}]}";
    static tokenizer *t;
    const vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {json, sizeof json - 1}};
    quire_error err = {0};
    if (t == NULL) {
        log_set_level(LOG_ERROR);
        fuzz_check(tokenizer_open(&v, &t, &err) == QUIRE_OK);
    }
    return t;
}

static request_context context_of(uint8_t kind) {
    request_context c = {.n_vocab = 2048,
                         .max_model_len = 1024,
                         .max_tool_calls = 16,
                         .has_vocabulary = (kind & IDS_ONLY) == 0,
                         .form = (kind & IDS_ONLY) == 0 ? open_form() : NULL,
                         .tokenizer = (kind & IDS_ONLY) == 0 ? open_tokenizer() : NULL,
                         .bind = answer_bind,
                         .trusts_templates = (kind & TRUSTS_CLIENTS) != 0,
                         .trusts_attention = (kind & TRUSTS_CLIENTS) != 0,
                         .no_tokens = (kind & GIVES_ROWS) != 0,
                         .n_row = 64,
                         .n_token_types = 2,
                         .history = find_history};
    if (kind & GIVES_SCORES) {
        c.pooling.n_scores = 1;
    }
    c.counts_only = (kind & COUNTS_ONLY) != 0;
    if (kind & HAS_FORMATS) {
        c.formats = (output_formats){.tools = "hermes", .reasoning = "qwen3"};
    }
    return c;
}

/* Ends the program if r was accepted and the schema of its endpoint forbids its body. */
static void check_schema(const quire_request *r, str body) {
    static json_value *schemas[2][MAX_ENDPOINTS]; /* without and with a vocabulary; made once */
    quire_endpoint endpoint = r->g.info.endpoint;
    json_value **schema = &schemas[r->context.has_vocabulary][endpoint], *v = json_document(body);
    if (*schema == NULL) {
        strbuf text = {0};
        json_out o = {.to = &text};
        request_schema(&r->context, endpoint, &o);
        *schema = json_document((str){text.p, text.n});
        strbuf_deinit(&text);
        fuzz_check(o.err == QUIRE_OK && *schema != NULL);
    }
    if (v != NULL && !schema_allows(*schema, v)) {
        fprintf(stderr, "endpoint %d accepts what its schema forbids: %.*s\n", (int)endpoint, (int)body.n,
                body.p);
        abort();
    }
    json_drop(v);
}

/* What a text thread and a fork do with a request. */
static void use(quire_request *r) {
    quire_error err = {0};
    quire_request *copy = NULL;
    const quire_request_info *info = quire_request_describe(r);
    fuzz_check(info->n_choices >= 0 && info->n_choices <= REQUEST_MAX_PROMPTS * PARAMS_MAX_CHOICES);
    (void)request_text_bytes(r);
    if (r->context.tokenizer != NULL) {
        quire_err e = request_tokenize_lists(r, r->context.tokenizer, NULL, &err);
        fuzz_check(e == QUIRE_OK || err.message[0] != 0);
    }
    for (int32_t i = 0; dialect_of(&r->g)->is_chat && r->context.form != NULL && i < r->g.n_prompts; i++) {
        strbuf text = {0};
        quire_err e = request_render(r, i, &text, NULL, &err);
        fuzz_check(e == QUIRE_OK || err.message[0] != 0);
        strbuf_deinit(&text);
    }
    if (!dialect_of(&r->g)->gives_rows && !dialect_of(&r->g)->prompt_only) {
        quire_err e = request_copy(r, &copy, &err);
        fuzz_check(e == QUIRE_OK ? copy != NULL : err.message[0] != 0);
        request_free(copy);
    }
    request_drop_texts(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) {
        return 0;
    }
    request_context ctx = context_of(data[1]);
    str body = {(const char *)data + HEAD, size - HEAD};
    quire_endpoint endpoint = endpoint_of(data);
    quire_error err = {0}, early = {0};
    quire_request *r = NULL;
    quire_err e = request_parse(&ctx, endpoint, body.p, body.n, &r, &err);
    fuzz_check((e == QUIRE_OK) == (r != NULL) && (e == QUIRE_OK || (err.code == e && err.message[0] != 0)));
    /* a field that is too large is found in any beginning of the body that has it */
    quire_err look = request_look(endpoint, (str){body.p, body.n / 2}, &early);
    fuzz_check(look == QUIRE_OK || e != QUIRE_OK);
    if (e == QUIRE_OK) {
        if (!ctx.counts_only) { /* then more may be left out */
            check_schema(r, body);
        }
        use(r);
        request_free(r);
    }
    return 0;
}

/* ---- mutations: libFuzzer's, and a field of the endpoint set to some value ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

static uint32_t draw(uint64_t *seed, size_t n) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*seed >> 33) % n);
}

/* A field that the endpoint has. */
static const field_desc *draw_field(quire_endpoint endpoint, uint64_t *seed) {
    int32_t n;
    const field_desc *fields = request_fields(&n), *f = NULL;
    while (f == NULL) {
        const field_desc *some = &fields[draw(seed, (size_t)n)];
        f = request_field(some->name, request_dialects[endpoint].fields);
    }
    return f;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    static const char *const values[] = {
        "null",
        "true",
        "1",
        "0.5",
        "-1",
        "2147483648",
        "1e400",
        "\"a\"",
        "\"auto\"",
        "\"none\"",
        "[]",
        "{}",
        "[1]",
        "[\"a\",\"b\"]",
        "[[]]",
        "[{}]",
        "{\"type\":\"json_object\"}",
        "[{\"type\":\"text\",\"text\":\"a\"}]",
        "[{\"role\":\"user\",\"content\":\"a\"}]",
        "[{\"role\":\"assistant\",\"content\":[]}]",
        "[{\"type\":\"function\",\"name\":\"f\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
        "{\"type\":\"function\",\"name\":\"f\",\"function\":{\"name\":\"f\"}}",
        "[{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"a\"}]",
        "\"resp_1\""};
    uint64_t s = seed;
    const char *open = size > HEAD ? memchr(data + HEAD, '{', size - HEAD) : NULL;
    if (open == NULL || draw(&s, 3) == 0) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    char member[MAX_NAME_BYTES + 128];
    const char *value = values[draw(&s, sizeof values / sizeof *values)];
    const field_desc *f = draw_field(endpoint_of(data), &s);
    const char *dot = strchr(f->name, '.');
    size_t at = (size_t)(open + 1 - (const char *)data);
    bool is_last = at >= size || data[at] == '}';
    int n = snprintf(member, sizeof member, "\"%s\":%s%s", dot != NULL ? dot + 1 : f->name, value,
                     is_last ? "" : ",");
    /* an object further in gets the member as well */
    for (size_t i = at; i < size && draw(&s, 4) == 0; i++) {
        const uint8_t *next = memchr(data + i, '{', size - i);
        i = next != NULL ? (size_t)(next - data) : size;
        at = next != NULL && i + 1 < size && next[1] != '}' ? i + 1 : at;
    }
    if (n < 0 || (size_t)n >= sizeof member || size + (size_t)n > max_size) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, member, (size_t)n);
    return size + (size_t)n;
}
