/* Compiles grammars of calls, also where a tool's schema cannot be enforced. */
#include "answer/call_grammar.h"
#include "answer/call_loosen.h"
#include "answer/json_stream.h"
#include "base/clock.h"
#include "base/mem.h"

static quire_err compile_part(call_parts *m, grammar_part part, const grammar_options *options, grammar **out,
                              quire_error *err) {
    quire_err e = m->arena.failed;
    return e != QUIRE_OK ? err_set(err, e, -1,
                                   e == QUIRE_TOO_LARGE ? "they are too large together"
                                                        : "out of memory for a request's tools")
                         : grammar_compile_parts(&part, m->marks, options, out, err);
}

static bool is_refusal(quire_err e) {
    return e != QUIRE_OK && e != QUIRE_NO_MEMORY && e != QUIRE_CANCELLED;
}

/* Of what is too large time may have been short. */
static void note_haste(const call_parts *m, quire_err e) {
    if (e == QUIRE_TOO_LARGE && m->c->in_haste != NULL) {
        *m->c->in_haste = true;
    }
}

/* Whether the schema of tool i alone can be enforced in a writing; *why says why not. */
static quire_err try_alone(call_parts *m, const call_writing *w, size_t i, const grammar_options *options,
                           quire_error *why) {
    grammar *g = NULL;
    call_parts_forget(m);
    quire_err e = call_grammar_takes(m->c, w, i)
                      ? compile_part(m, call_parts_arguments(m, w, i), options, &g, why)
                      : QUIRE_OK;
    grammar_drop(g);
    return e;
}

/* Replaces the schema of tool i, as far as `without` says; NULL: of all its properties
 * the types stay. *owned has the new one. */
static quire_err loosen(call_parts *m, size_t i, const call_refusals *without, json_value **owned,
                        quire_error *err) {
    json_value *made = NULL;
    quire_err e = call_loosen(&m->c->tools[i], without, &made);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory for a request's tools");
    }
    json_drop(*owned);
    *owned = made;
    m->schemas[i] = made;
    return QUIRE_OK;
}

/* Takes out of the schema of tool i, which is refused, what compiling names: first
 * keywords, then all but the types of the properties that they are in, in the end of all
 * of them. */
static quire_err loosen_tool(call_parts *m, const call_writing *w, size_t i, const grammar_options *options,
                             int64_t until, json_value **owned, quire_error *err) {
    enum { ROUNDS = 4, ROUNDS_OF_KEYWORDS = 2 };
    call_refusals refused = {.tool = &m->c->tools[i]};
    for (int round = 0; round < ROUNDS; round++) {
        quire_error why = {0};
        grammar_options alone = *options;
        alone.max_us = until - clock_thread_us();
        alone.survey = true;
        alone.keyword = call_refusals_note;
        alone.user = &refused;
        refused.is_new = false;
        refused.whole = round >= ROUNDS_OF_KEYWORDS;
        quire_err e = alone.max_us > 0 ? try_alone(m, w, i, &alone, &why) : QUIRE_TOO_LARGE;
        if (e == QUIRE_OK && round > 0) {
            return e;
        }
        TRY(e == QUIRE_OK || is_refusal(e) ? QUIRE_OK : e);
        if (!refused.is_new) {
            break;
        }
        TRY(loosen(m, i, &refused, owned, err));
    }
    return loosen(m, i, NULL, owned, err);
}

/* Loosens the tools whose schemas cannot be enforced, and those for which there is no
 * time to see: all schemas together have the time that one compilation has. */
static quire_err loosen_refused(call_parts *m, const grammar_options *options, json_value **owned,
                                quire_error *err) {
    call_writing w;
    bool has_writing = call_grammar_next(m->c, &(size_t){0}, &w);
    int64_t until = clock_thread_us() + GRAMMAR_MAX_US;
    for (size_t i = 0; has_writing && i < m->c->n_tools; i++) {
        quire_error why = {0};
        grammar_options alone = *options;
        alone.max_us = until - clock_thread_us();
        quire_err e = alone.max_us > 0 ? try_alone(m, &w, i, &alone, &why) : QUIRE_TOO_LARGE;
        if (e != QUIRE_OK && m->c->tools[i].is_strict) {
            *err = alone.max_us > 0 ? why : *err;
            m->is_own_fault = alone.max_us > 0;
            return e;
        }
        TRY(e == QUIRE_OK || is_refusal(e) ? QUIRE_OK : e);
        note_haste(m, e);
        TRY(e == QUIRE_OK ? e : loosen_tool(m, &w, i, options, until, &owned[i], err));
    }
    return QUIRE_OK;
}

/* Loosens all tools: together they are too large. */
static quire_err loosen_all(call_parts *m, json_value **owned, quire_error *err) {
    for (size_t i = 0; i < m->c->n_tools; i++) {
        TRY(m->c->tools[i].is_strict ? QUIRE_OK : loosen(m, i, NULL, &owned[i], err));
    }
    return QUIRE_OK;
}

/* ---- compiling ---- */

static quire_err compile_answer(call_parts *m, const reasoning_frame *frame, const grammar_options *options,
                                grammar **out, quire_error *err) {
    call_parts_forget(m);
    return compile_part(m, call_parts_answer(m, frame), options, out, err);
}

static quire_err call_grammar_compile_do(call_parts *m, const reasoning_frame *frame,
                                         const grammar_options *options, json_value **owned, grammar **out,
                                         quire_error *err) {
    quire_err e = compile_answer(m, frame, options, out, err);
    for (int round = 0; round < 2 && is_refusal(e) && !m->c->is_required; round++) {
        note_haste(m, e);
        TRY(round == 0 ? loosen_refused(m, options, owned, err) : loosen_all(m, owned, err));
        e = compile_answer(m, frame, options, out, err);
    }
    return e;
}

/* A hundred tools and more have several times the steps of one rule; the time is that of
 * one rule still. */
static int64_t max_steps(size_t n_tools) {
    enum { TOOLS = 100, MOST = 4 };
    return (int64_t)GRAMMAR_MAX_STEPS * (n_tools / TOOLS + 1 < MOST ? (int64_t)(n_tools / TOOLS + 1) : MOST);
}

quire_err call_grammar_compile(const call_grammar *c, const reasoning_frame *frame,
                               const grammar_marks *marks, const grammar_options *options, grammar **out,
                               quire_error *err) {
    grammar_options own = options != NULL ? *options : (grammar_options){0};
    own.max_steps = own.max_steps > 0 ? own.max_steps : max_steps(c->n_tools);
    own.max_depth = JSON_STREAM_DEPTH; /* so deep the parser reads */
    call_parts m = {.c = c,
                    .marks = marks,
                    .schemas = mem_new(c->n_tools, sizeof *m.schemas),
                    .made = mem_new(c->n_tools, sizeof *m.made)};
    json_value **owned = mem_new(c->n_tools, sizeof *owned);
    if (own.space == GRAMMAR_SPACE_COMPACT && own.whitespace_pattern.n == 0) {
        own.whitespace_pattern = str_of(" ?"); /* as models write JSON */
    }
    quire_err e = m.schemas != NULL && m.made != NULL && owned != NULL
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request's tools");
    for (size_t i = 0; e == QUIRE_OK && i < c->n_tools; i++) {
        m.schemas[i] = c->tools[i].parameters;
    }
    e = e == QUIRE_OK ? call_grammar_compile_do(&m, frame, &own, owned, out, err) : e;
    if (e == QUIRE_TOO_LARGE && c->n_tools > 1 && !m.is_own_fault && err != NULL) {
        const quire_error at = *err;
        e = err_set(err, e, -1,
                    "%zu tools are compiled together, which is too much (%.200s): offer fewer, or with "
                    "simpler schemas",
                    c->n_tools, at.message);
    }
    for (size_t i = 0; owned != NULL && i < c->n_tools; i++) {
        json_drop(owned[i]);
    }
    mem_free(owned);
    mem_free(m.schemas);
    mem_free(m.made);
    part_arena_deinit(&m.arena);
    return e;
}
