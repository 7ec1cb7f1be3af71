/* --prompts FILE: the lengths of waste and latency from prompts that the model
 * answers. */
#include "lab/bench/client.h"
#include "lab/demo/demo.h"

enum { MAX_LINE = 1 << 16, CAP = 200 };

/* One line on its way, with at most cap tokens of answer; its length to prompts. */
static quire_err demo_prompts_ask(client *c, const char *text, size_t n, int32_t cap, demo_numbers *prompts,
                                  sent *s, quire_error *err) {
    static const client_field fields[] = {{"seed", "1"}, {NULL, NULL}};
    int32_t *ids;
    size_t n_ids;
    TRY(quire_tokenize(c->engine, text, n, true, &ids, &n_ids, err));
    quire_err e =
        n_ids == 0 || n_ids > 1 << 20
            ? err_set(err, QUIRE_INVALID, -1, "--prompts: line %d has %zu tokens", (int)prompts->n + 1, n_ids)
            : client_send_fields(c, ids, (int32_t)n_ids, cap, fields, s, err);
    quire_free(ids);
    TRY(e);
    prompts->v[prompts->n++] = (int32_t)n_ids;
    return QUIRE_OK;
}

/* Every line that is not empty. */
static quire_err ask_all(client *c, FILE *f, int32_t cap, demo_numbers *prompts, sent *answers,
                         quire_error *err) {
    static char line[MAX_LINE];
    while (fgets(line, sizeof line, f) != NULL) {
        size_t n = strcspn(line, "\r\n");
        if (n == sizeof line - 1 || prompts->n == FIGURES_MAX_POINTS) {
            return err_set(err, QUIRE_INVALID, -1, "--prompts: at most %d lines of %d bytes",
                           FIGURES_MAX_POINTS, MAX_LINE - 2);
        }
        if (n > 0) {
            TRY(demo_prompts_ask(c, line, n, cap, prompts, &answers[prompts->n], err));
        }
    }
    return prompts->n > 0 ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "--prompts: there is no prompt in it");
}

quire_err demo_answer_prompts(const demo_options *o, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err) {
    sent answers[FIGURES_MAX_POINTS] = {{0}};
    quire_options engine = o->cli.engine;
    client c;
    FILE *f = fopen(o->prompts, "r");
    if (f == NULL) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s: cannot be read", o->prompts);
    }
    prompts->n = 0;
    engine.memory_utilization = 0.05;
    quire_err e = client_open(&engine, (engine_ablations){0}, &c, err);
    if (e == QUIRE_OK) {
        e = ask_all(&c, f, cap, prompts, answers, err);
        quire_err awaited = client_await(&c, prompts->n, e == QUIRE_OK ? err : &(quire_error){.message = ""});
        e = e == QUIRE_OK ? awaited : e;
        client_close(&c);
    }
    fclose(f);
    for (int32_t i = 0; i < prompts->n; i++) {
        lengths->v[i] = answers[i].n_answer > 0 ? answers[i].n_answer : 1;
    }
    lengths->n = prompts->n;
    return e;
}

quire_err demo_read_wholes(const demo_options *o, const char *own, demo_numbers *out, quire_error *err) {
    if (o->prompts == NULL) {
        return demo_read_numbers("--lengths", o->lengths, own, out, err);
    }
    demo_numbers answers;
    TRY(demo_answer_prompts(o, demo_or(o->n_tokens, CAP), out, &answers, err));
    for (int32_t i = 0; i < out->n; i++) {
        out->v[i] += answers.v[i];
    }
    return QUIRE_OK;
}
