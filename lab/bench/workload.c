#include "lab/bench/workload.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { MAX_REQUESTS = 256, MAX_TOKENS = 1 << 16 };

/* The first n tokens of text number `text`. */
typedef struct part {
    int32_t text, n;
} part;

/* Texts of one workload: shared ones are small numbers, everybody's own begin here. No
 * two begin with the same token: their numbers differ in the smallest vocabulary too. */
enum { OWN = 1100, LEAST_VOCAB = 256 };

/* is_new: whether text a was in no prompt before; b always is. */
static void workload_add(workload *w, int32_t n_vocab, part a, bool is_new, part b, int32_t n_output,
                         int32_t after) {
    const part parts[] = {a, b};
    lab_request *r = &w->requests[w->n++];
    *r = (lab_request){
        .tokens = w->tokens + w->n_tokens, .n_tokens = a.n + b.n, .n_output = n_output, .after = after};
    int32_t length = (after >= 0 ? w->requests[after].n_prompt : 0) + a.n + b.n + n_output;
    r->n_prompt = length; /* with its answer, while the workload is made: what follows it is as much longer */
    w->max_len = length > w->max_len ? length : w->max_len;
    w->n_prompt += length - n_output;
    w->n_new += (is_new ? a.n : 0) + b.n + (after >= 0); /* an answer's last token was never computed */
    for (int p = 0; p < 2; p++) {
        uint64_t state = (uint64_t)parts[p].text * 0x9e3779b97f4a7c15u + 1;
        for (int32_t i = 0; i < parts[p].n; i++) {
            int32_t drawn = 1 + (int32_t)(rng_next(&state) % (uint64_t)(n_vocab - 1));
            w->tokens[w->n_tokens++] = i == 0 ? 1 + parts[p].text % (LEAST_VOCAB - 1) : drawn;
        }
    }
}

#define NOTHING ((part){0, 0})

/* n requests: one of n_shared shared texts of so many tokens each in turn, then an own
 * text. */
typedef struct shape {
    const char *name, *line;
    int32_t n, n_shared, shared_tokens, own_tokens, output, n_turns, turn_tokens, max_seqs, max_rows;
} shape;

static const shape shapes[] = {
    /* worked example 24: in one step all prompts are computed, so that all run abreast */
    {"chatbot", "8 users behind one system prompt of 2000 tokens, 30 of their own, answers of 150", 8, 1,
     2000, 30, 150, 1, 0, 8, 16384},
    {"mmlu5", "48 questions of 60 tokens behind 5 examples (700 tokens) in 4 subjects, answers of 1", 48, 4,
     700, 60, 1, 1, 0, 8, 2048},
    {"gsm8k", "24 questions of 60 tokens behind 8 worked examples (900 tokens), answers of 100", 24, 1, 900,
     60, 100, 1, 0, 8, 2048},
    {"react", "6 agents, instructions of 800 tokens, 4 steps each: 60 tokens of thought, 50 of observation",
     6, 1, 800, 40, 60, 4, 50, 8, 2048},
    {"json", "24 documents of 150 tokens behind one schema of 250, answers of 80", 24, 1, 250, 150, 80, 1, 0,
     8, 2048},
    {"long", "12 questions of 30 tokens about 2 documents of 1600, answers of 20", 12, 2, 1600, 30, 20, 1, 0,
     4, 2048},
    {"chat", "8 conversations of 4 turns: 60 tokens, then 40 more each, answers of 80", 8, 1, 20, 40, 80, 4,
     40, 8, 2048},
    /* open traces of coding agents: a median of 33 turns, 131 prompt tokens for each
     * answered, an ideal hit rate of 94.2% */
    {"agents",
     "4 coding agents of 33 turns: a task of 74 tokens, 74 of a tool's output a turn, answers of 11", 4, 1, 0,
     74, 11, 33, 74, 4, 2048},
    {"unique", "24 prompts of 300 tokens with nothing in common, answers of 60", 24, 1, 0, 300, 60, 1, 0, 8,
     2048},
};
enum { N_SHAPES = (int)(sizeof shapes / sizeof *shapes) };

const char *workload_name(int32_t i) {
    return i < N_SHAPES ? shapes[i].name : NULL;
}

static void build(const shape *s, int32_t n_vocab, workload *w) {
    for (int32_t turn = 0; turn < s->n_turns; turn++) {
        for (int32_t i = 0; i < s->n; i++) {
            part own = {OWN + turn * s->n + i, turn == 0 ? s->own_tokens : s->turn_tokens},
                 shared = {1 + i % s->n_shared, s->shared_tokens};
            workload_add(w, n_vocab, turn == 0 ? shared : NOTHING, i < s->n_shared, own, s->output,
                         turn == 0 ? -1 : w->n - s->n);
        }
    }
}

quire_err workload_make(const char *name, int32_t n_vocab, workload *out, quire_error *err) {
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        if (strcmp(s->name, name) != 0) {
            continue;
        }
        *out = (workload){.name = s->name, .line = s->line, .max_seqs = s->max_seqs, .max_rows = s->max_rows};
        out->requests = mem_new(MAX_REQUESTS, sizeof *out->requests);
        out->tokens = mem_new(MAX_TOKENS, sizeof *out->tokens);
        if (out->requests == NULL || out->tokens == NULL) {
            workload_free(out);
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for workload %s", name);
        }
        build(s, n_vocab, out);
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_INVALID, -1, "%s: no such workload; there are " WORKLOAD_NAMES, name);
}

void workload_free(workload *w) {
    mem_free(w->requests);
    mem_free(w->tokens);
    *w = (workload){0};
}
