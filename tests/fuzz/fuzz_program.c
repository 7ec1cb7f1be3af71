/* Programs of any kind: what the reader takes runs to its end, within its bounds, over an
 * executor that answers calls with texts of its own, and gives everything back. The
 * first byte chooses the order in which calls end, and when a state is cancelled. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fuzz.h"
#include "execute/program_json.h"
#include "program/program_state.h"

enum { MAX_CALLS = 64 };

/* An executor whose calls end one a poll. */
typedef struct stand_in {
    program_call *calls[MAX_CALLS];
    int n;
    uint64_t random;
    int64_t n_held; /* states that have something of it */
} stand_in;

static quire_err stand_in_begin(void *executor, program_call *c, quire_error *err) {
    stand_in *x = executor;
    if (x->n == MAX_CALLS || c->state->n_parts == 0) {
        return err_set(err, QUIRE_BUSY, -1, "too many calls, or nothing to go on from");
    }
    x->calls[x->n++] = c;
    return QUIRE_OK;
}

static quire_err stand_in_prefix(void *executor, program_call *c, bool *is_there, quire_error *err) {
    *is_there = rng_next(&((stand_in *)executor)->random) % 2 == 0;
    return *is_there ? QUIRE_OK : stand_in_begin(executor, c, err);
}

/* Takes a call out of the list, in which it must be. */
static void stand_in_cancel(void *executor, program_call *c) {
    stand_in *x = executor;
    int i = 0;
    while (i < x->n && x->calls[i] != c) {
        i++;
    }
    fuzz_check(i < x->n);
    x->calls[i] = x->calls[--x->n];
}

static quire_err stand_in_fork(void *executor, const quire_state *from, quire_state *to) {
    fuzz_check(to->of_executor == NULL && to->n_parts == 0);
    to->of_executor = mem_dup(&from->n_parts, sizeof from->n_parts);
    ((stand_in *)executor)->n_held += to->of_executor != NULL;
    return mem_check(to->of_executor);
}

static void stand_in_drop(void *executor, quire_state *s) {
    ((stand_in *)executor)->n_held -= s->of_executor != NULL;
    mem_free(s->of_executor);
    s->of_executor = NULL;
}

/* The outputs of a gen, with texts that tests and forks over lists find something in. */
static void stand_in_generate(program_call *c, uint64_t random) {
    static const char *const texts[] = {"[\"a\", \"b\"]", "yes", "no\nyes, and so", "", "{{x}}"};
    size_t n = c->step->kind == STEP_GEN ? 1 + random % 3 : 1;
    c->outputs = mem_new(n, sizeof *c->outputs);
    fuzz_check(c->outputs != NULL);
    c->n_outputs = n;
    for (size_t i = 0; c->step->kind == STEP_GEN && i < n; i++) {
        str text = str_of(texts[(random >> 8) % (sizeof texts / sizeof *texts)]);
        fuzz_check(strbuf_add(&c->outputs[i].text, text.p, text.n) == QUIRE_OK);
        fuzz_check(program_call_text(c, (int32_t)i, text) == QUIRE_OK);
    }
    if (c->step->kind == STEP_SELECT) {
        c->scores = mem_new(c->n_choices, sizeof *c->scores);
        fuzz_check(c->scores != NULL);
        c->chosen = (int32_t)((random >> 16) % c->n_choices);
    }
}

static bool stand_in_poll(void *executor) {
    stand_in *x = executor;
    quire_error why = {0};
    if (x->n == 0) {
        return false;
    }
    uint64_t random = rng_next(&x->random);
    program_call *c = x->calls[random % (uint64_t)x->n];
    if (!program_call_count(c, (int64_t)(random % 50))) {
        return true; /* it was cancelled */
    }
    stand_in_cancel(x, c);
    if (c->step->kind != STEP_FORK) {
        stand_in_generate(c, random >> 8);
    }
    err_set(&why, QUIRE_BAD_REQUEST, -1, "as chance has it");
    program_call_end(c, random % 13 == 0 ? &why : NULL);
    return true;
}

static void stand_in_close(void *executor) {
    (void)executor;
}

static const program_ops stand_in_ops = {.gen = stand_in_begin,
                                         .select = stand_in_begin,
                                         .prefix = stand_in_prefix,
                                         .cancel = stand_in_cancel,
                                         .fork = stand_in_fork,
                                         .drop = stand_in_drop,
                                         .poll = stand_in_poll,
                                         .close = stand_in_close};

/* Runs what the reader took, with bounds so low that they are met. */
static void run_program(program_steps *program, stand_in *x, fuzz_sum *sum) {
    quire_programs *ps;
    quire_state *s;
    quire_error err = {0};
    quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT};
    quire_program_limits limits;
    strbuf report = {0};
    uint64_t cancel_at = x->random % 64;
    quire_program_limits_init(&limits);
    limits.max_states = 50;
    limits.max_steps = 2000;
    limits.max_tokens = 20000;
    limits.max_bytes = 1 << 20;
    const quire_state_options o = {.size = sizeof o, .limits = &limits};
    fuzz_check(programs_open(&stand_in_ops, x, &ps) == QUIRE_OK);
    if (program_open(ps, program, &o, &s, &err) == QUIRE_OK) {
        while (ev.kind != QUIRE_PROGRAM_IDLE && programs_next_event(ps, &ev)) {
            fuzz_read(sum, ev.text, ev.n_text);
            if (cancel_at-- == 0) {
                program_state_cancel(ev.state);
            }
        }
        fuzz_check(ev.kind == QUIRE_PROGRAM_IDLE && x->n == 0);
        fuzz_check(s->root->n_steps <= limits.max_steps + 1 && s->root->n_states <= limits.max_states);
        fuzz_check(program_report(s->root, "p", true, &report) == QUIRE_OK);
        fuzz_read(sum, report.p, report.n);
        strbuf_deinit(&report);
    }
    programs_close(ps);
    fuzz_check(x->n == 0 && x->n_held == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    program_steps program;
    quire_error err = {0};
    fuzz_sum sum = 0;
    stand_in x = {.random = size > 0 ? data[0] : 0};
    if (size == 0) {
        return 0;
    }
    if (program_read((str){(const char *)data + 1, size - 1}, &program, &err) == QUIRE_OK) {
        run_program(&program, &x, &sum);
    } else {
        fuzz_read(&sum, err.message, strlen(err.message));
    }
    fuzz_keep(sum);
    return 0;
}
