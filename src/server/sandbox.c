#include "server/sandbox.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "quire_kv.h"
#include "server/pool_json.h"
#include "server/web_pages.h"
#include "json/json_out.h"

#define N_PAGES     64
#define PAGE_TOKENS 16
#define MAX_SEQS    64
#define MAX_TOKENS  (N_PAGES * PAGE_TOKENS)
#define MAX_EVENTS  256
#define N_STORIES   4
#define ID_BYTES    32

/* Tokens. A story's words are numbered by story and index, so equal beginnings give equal
 * tokens. All other words are different, so forks diverge. */
#define STORY_TOKENS 100000
#define OWN_TOKENS   1000000
#define LAST_TOKEN   1000000000

typedef struct sandbox {
    char id[ID_BYTES + 1];
    int64_t used_us;
    quire_kv *kv; /* NULL: the entry is free */
    quire_kv_seq *seqs[MAX_SEQS];
    int32_t n_seqs, next_token;
    uint64_t last_event;
} sandbox;

struct sandboxes {
    pthread_mutex_t lock;
    uint64_t random;
    uint8_t key[POOL_KEY_BYTES];
    quire_kv_view *view;
    sandbox places[SANDBOX_MAX];
};

/* ---- words ---- */

/* Word n of a line of the texts, which repeats after its end. */
static str sandbox_word(int32_t line, int32_t n) {
    assert(line >= 0 && line <= N_STORIES && n >= 0);
    const char *at = page_sandbox_texts();
    int32_t n_words = 1;
    for (; line > 0; line--) {
        at = strchr(at, '\n') + 1;
    }
    for (const char *p = at; *p != '\n'; p++) {
        n_words += *p == ' ';
    }
    for (n %= n_words; n > 0; n--) {
        at = strchr(at, ' ') + 1;
    }
    return (str){at, strcspn(at, " \n")};
}

/* The word of a token. */
static str sandbox_token_word(int32_t token) {
    return token >= OWN_TOKENS ? sandbox_word(N_STORIES, token - OWN_TOKENS)
                               : sandbox_word(token / STORY_TOKENS % N_STORIES, token % STORY_TOKENS);
}

static void sandbox_write_words(const void *context, const int32_t *tokens, int32_t n, json_out *o) {
    (void)context;
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < n && e == QUIRE_OK; i++) {
        str word = sandbox_token_word(tokens[i]);
        e = strbuf_addf(&text, "%s%.*s", i > 0 ? " " : "", (int)word.n, word.p);
    }
    json_text(o, text.p != NULL ? text.p : "", text.n);
    o->err = o->err != QUIRE_OK ? o->err : e;
    strbuf_deinit(&text);
}

static const pool_text sandbox_texts = {sandbox_write_words, NULL};

/* ---- entries ---- */

quire_err sandboxes_open(sandboxes **out) {
    sandboxes *s = mem_new(1, sizeof *s);
    TRY(mem_check(s));
    quire_err e = quire_kv_view_open(N_PAGES, MAX_SEQS, N_PAGES, MAX_EVENTS, &s->view);
    if (e != QUIRE_OK || RAND_bytes(s->key, sizeof s->key) != 1) {
        quire_kv_view_close(s->view);
        mem_free(s);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->random = rng_os_seed();
    *out = s;
    return QUIRE_OK;
}

static void sandbox_empty(sandbox *b) {
    quire_kv_close(b->kv);
    *b = (sandbox){.id = ""};
}

void sandboxes_close(sandboxes *s) {
    if (s == NULL) {
        return;
    }
    for (int32_t i = 0; i < SANDBOX_MAX; i++) {
        sandbox_empty(&s->places[i]);
    }
    pthread_mutex_destroy(&s->lock);
    quire_kv_view_close(s->view);
    mem_free(s);
}

static quire_err sandbox_fill(sandbox *b) {
    quire_kv_options o;
    quire_kv_options_init(&o);
    o.n_pages = N_PAGES;
    o.page_tokens = PAGE_TOKENS;
    o.max_seqs = MAX_SEQS;
    o.max_namespaces = 1;
    o.n_events = MAX_EVENTS;
    return quire_kv_open(&o, &b->kv);
}

/* Opens a sandbox in a free entry, else in that of the least recently used one. Sandboxes
 * idle for SANDBOX_IDLE_US are closed first. */
static quire_err sandbox_take_place(sandboxes *s, int64_t now_us, sandbox **out) {
    sandbox *oldest = &s->places[0];
    for (int32_t i = 0; i < SANDBOX_MAX; i++) {
        sandbox *b = &s->places[i];
        if (b->kv != NULL && now_us - b->used_us > SANDBOX_IDLE_US) {
            sandbox_empty(b);
        }
        oldest = b->kv == NULL || (oldest->kv != NULL && b->used_us < oldest->used_us) ? b : oldest;
    }
    sandbox_empty(oldest);
    TRY(sandbox_fill(oldest));
    snprintf(oldest->id, sizeof oldest->id, "%016" PRIx64 "%016" PRIx64, rng_os_seed(), rng_next(&s->random));
    oldest->used_us = now_us;
    *out = oldest;
    return QUIRE_OK;
}

/* ---- commands ---- */

typedef struct command {
    sandboxes *all;
    sandbox *b;
    int32_t seq; /* seq: index of the command's sequence; number: its number, if any */
    int64_t n;
    json_value *fields;
    json_out *o;
    quire_error *err;
} command;

/* Reads a required whole number in least..most. */
static quire_err sandbox_read_number(const command *c, const char *name, int64_t least, int64_t most,
                                     int64_t *out) {
    const json_value *v = json_get(c->fields, name);
    if (!json_is(v, JSON_KIND_INT)) {
        return err_set_param(c->err, QUIRE_BAD_REQUEST, name,
                             "%s must be a whole number from %" PRId64 " to %" PRId64, name, least, most);
    }
    int64_t n = json_int64(v);
    if (n < least || n > most) {
        return err_set_param(c->err, QUIRE_BAD_REQUEST, name,
                             "%s is out of range; it must be from %" PRId64 " to %" PRId64, name, least,
                             most);
    }
    *out = n;
    return QUIRE_OK;
}

/* Returns e, and sets the error's text if e is not QUIRE_OK. */
static quire_err sandbox_check(const command *c, quire_err e) {
    quire_kv_counts n = quire_kv_count(c->b->kv);
    if (e == QUIRE_NO_ROOM) {
        return err_set(c->err, e, -1,
                       "no room: %d pages are free, %d more are cached, and %d of %d sequences are open; "
                       "finish one first",
                       (int)n.n_free, (int)n.n_cached, (int)n.n_seqs, MAX_SEQS);
    }
    return err_set(c->err, e, -1, "the sandbox failed: %s", quire_err_text(e));
}

/* Finds the sequence that "seq" names. */
static quire_err sandbox_find_seq(command *c) {
    int64_t id;
    TRY(sandbox_read_number(c, "seq", 1, INT64_MAX, &id));
    for (int32_t i = 0; i < c->b->n_seqs; i++) {
        if (quire_kv_seq_id(c->b->seqs[i]) == id) {
            c->seq = i;
            return QUIRE_OK;
        }
    }
    return err_set_param(c->err, QUIRE_BAD_REQUEST, "seq", "there is no sequence %" PRId64 " in this sandbox",
                         id);
}

/* Commits seq's tokens, as an engine does, so that full pages can be found. */
static void sandbox_commit(quire_kv_seq *seq) {
    /* if the tree is full, the pages just cannot be found */
    (void)quire_kv_seq_commit(seq, quire_kv_seq_length(seq), QUIRE_KV_PAGES);
}

static quire_err sandbox_new(command *c) {
    int32_t tokens[MAX_TOKENS], n_cached;
    int64_t story;
    TRY(sandbox_read_number(c, "story", 0, N_STORIES - 1, &story));
    for (int32_t i = 0; i < c->n; i++) {
        tokens[i] = (int32_t)story * STORY_TOKENS + i;
    }
    quire_kv_seq *seq;
    TRY(sandbox_check(c, quire_kv_seq_open(c->b->kv, "sandbox", 7, tokens, (int32_t)c->n, &seq, &n_cached)));
    sandbox_commit(seq);
    c->b->seqs[c->b->n_seqs++] = seq;
    return QUIRE_OK;
}

static quire_err sandbox_append_words(command *c, quire_kv_seq *seq, int32_t n) {
    assert(n > 0 && n <= MAX_TOKENS);
    int32_t tokens[MAX_TOKENS];
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = OWN_TOKENS + (c->b->next_token + i) % LAST_TOKEN;
    }
    TRY(sandbox_check(c, quire_kv_seq_append(seq, tokens, n)));
    c->b->next_token = (c->b->next_token + n) % LAST_TOKEN;
    sandbox_commit(seq);
    return QUIRE_OK;
}

static quire_err sandbox_append(command *c) {
    return sandbox_append_words(c, c->b->seqs[c->seq], (int32_t)c->n);
}

static quire_err sandbox_fork(command *c) {
    if (c->b->n_seqs + c->n > MAX_SEQS) {
        return sandbox_check(c, QUIRE_NO_ROOM);
    }
    int32_t n_before = c->b->n_seqs;
    for (int64_t n = c->n; n > 0; n--) {
        quire_err e = quire_kv_seq_fork(c->b->seqs[c->seq], &c->b->seqs[c->b->n_seqs]);
        if (e != QUIRE_OK) {
            while (c->b->n_seqs > n_before) {
                quire_kv_seq_close(c->b->seqs[--c->b->n_seqs]);
            }
            return sandbox_check(c, e);
        }
        c->b->n_seqs++;
    }
    return QUIRE_OK;
}

/* Whether seq can write to its last page without taking another. */
static bool sandbox_owns_tail(command *c, const quire_kv_seq *seq) {
    int32_t n;
    const int32_t *pages = quire_kv_seq_pages(seq, 0, &n);
    quire_kv_look(c->b->kv, c->all->view);
    const quire_kv_view_page *tail = &c->all->view->pages[pages[n - 1]];
    return tail->count == 1 && tail->entry < 0;
}

static quire_err sandbox_write(command *c) {
    quire_kv_seq *seq = c->b->seqs[c->seq];
    quire_kv_counts n = quire_kv_count(c->b->kv);
    if (n.n_free + n.n_cached == 0 && !sandbox_owns_tail(c, seq)) {
        return sandbox_check(c, QUIRE_NO_ROOM);
    }
    TRY(sandbox_check(c, quire_kv_seq_truncate(seq, quire_kv_seq_length(seq) - 1)));
    return sandbox_append_words(c, seq, 1);
}

static quire_err sandbox_finish(command *c) {
    quire_kv_seq *seq = c->b->seqs[c->seq];
    (void)quire_kv_seq_commit(seq, quire_kv_seq_length(seq), QUIRE_KV_PAGES_AND_TAIL);
    quire_kv_seq_close(seq);
    c->b->seqs[c->seq] = c->b->seqs[--c->b->n_seqs];
    return QUIRE_OK;
}

static quire_err sandbox_evict(command *c) {
    quire_kv_counts k = quire_kv_count(c->b->kv);
    int32_t n_out = c->n < k.n_cached ? (int32_t)c->n : k.n_cached;
    return sandbox_check(c, quire_kv_evict(c->b->kv, k.n_free + n_out));
}

static quire_err sandbox_reset(command *c) {
    quire_kv *before = c->b->kv;
    quire_err e = sandbox_fill(c->b);
    if (e != QUIRE_OK) {
        c->b->kv = before;
        return sandbox_check(c, e);
    }
    quire_kv_close(before);
    c->b->n_seqs = c->b->next_token = 0;
    c->b->last_event = 0;
    return QUIRE_OK;
}

static quire_err sandbox_look(command *c) {
    (void)c;
    return QUIRE_OK;
}

static quire_err sandbox_write_page(command *c) {
    int64_t page;
    TRY(sandbox_read_number(c, "page", 0, N_PAGES - 1, &page));
    c->all->view->page = (int32_t)page;
    quire_kv_look(c->b->kv, c->all->view);
    pool_json_page(c->all->view, &sandbox_texts, c->o);
    return QUIRE_OK;
}

static void sandbox_write_state(command *c) {
    quire_kv_view *v = c->all->view;
    pool_viewer who = {.key = c->all->key, .text = &sandbox_texts};
    const quire_kv_copy *copies;
    int32_t n_copies = quire_kv_copies(c->b->kv, &copies);
    v->page = -1;
    v->after = c->b->last_event;
    quire_kv_look(c->b->kv, v);
    json_begin(c->o, '{');
    json_cstr(json_name(c->o, "sandbox"), c->b->id);
    pool_json_state(v, &who, c->o);
    json_begin(json_name(c->o, "copies"), '[');
    for (int32_t i = 0; i < n_copies; i++) {
        json_row(json_item(c->o), (int64_t[]){copies[i].from, copies[i].to}, 2);
    }
    json_end(c->o, ']');
    pool_json_events(v, &who, c->b->last_event, c->o);
    json_end(c->o, '}');
    c->b->last_event = v->last_event;
}

/* ---- running ---- */

static const struct sandbox_command {
    const char *name;
    quire_err (*run)(command *c);
    bool names_seq;     /* the command names a sequence, in "seq" */
    const char *number; /* name of its number, which is 1 to `most`; NULL: none */
    int64_t most;
} commands[] = {
    {"new", sandbox_new, false, "tokens", MAX_TOKENS}, {"append", sandbox_append, true, "tokens", MAX_TOKENS},
    {"fork", sandbox_fork, true, "n", MAX_SEQS},       {"write", sandbox_write, true, NULL, 0},
    {"finish", sandbox_finish, true, NULL, 0},         {"evict", sandbox_evict, false, "n", N_PAGES},
    {"reset", sandbox_reset, false, NULL, 0},          {"state", sandbox_look, false, NULL, 0},
};

/* Reads a command's arguments, runs it, and writes the resulting state. */
static quire_err sandbox_run_row(command *c, const struct sandbox_command *row) {
    if (row->names_seq) {
        TRY(sandbox_find_seq(c));
    }
    if (row->number != NULL) {
        TRY(sandbox_read_number(c, row->number, 1, row->most, &c->n));
    }
    TRY(row->run(c));
    sandbox_write_state(c);
    return QUIRE_OK;
}

static quire_err sandbox_find(command *c, int64_t now_us) {
    str id = json_get_str(c->fields, "sandbox");
    for (int32_t i = 0; i < SANDBOX_MAX; i++) {
        sandbox *b = &c->all->places[i];
        if (b->kv != NULL && str_is(id, b->id) && now_us - b->used_us <= SANDBOX_IDLE_US) {
            b->used_us = now_us;
            c->b = b;
            return QUIRE_OK;
        }
    }
    return err_set_param(c->err, QUIRE_NOT_FOUND, "sandbox",
                         "there is no such sandbox, or it expired after 15 minutes; open another");
}

/* Runs a parsed command; the caller holds the lock. */
static quire_err sandbox_run(command *c, int64_t now_us) {
    str what = json_get_str(c->fields, "do");
    if (str_is(what, "open")) {
        quire_err e = sandbox_take_place(c->all, now_us, &c->b);
        if (e != QUIRE_OK) {
            return err_set(c->err, e, -1, "a sandbox could not be made: %s", quire_err_text(e));
        }
        sandbox_write_state(c);
        return QUIRE_OK;
    }
    TRY(sandbox_find(c, now_us));
    if (str_is(what, "page")) {
        return sandbox_write_page(c);
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (str_is(what, commands[i].name)) {
            return sandbox_run_row(c, &commands[i]);
        }
    }
    return err_set_param(
        c->err, QUIRE_BAD_REQUEST, "do",
        "do must be one of open, new, append, fork, write, finish, evict, page, state, reset");
}

static const json_limits sandbox_limits = {.max_depth = 3,
                                           .max_values = SANDBOX_BODY_BYTES,
                                           .max_containers = SANDBOX_BODY_BYTES,
                                           .max_names = SANDBOX_BODY_BYTES};

static quire_err sandbox_parse(str body, json_value **out, quire_error *err) {
    json_fault fault;
    if (body.n > SANDBOX_BODY_BYTES) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "the command has %zu bytes; at most %d are allowed",
                       body.n, SANDBOX_BODY_BYTES);
    }
    if (json_read(body, &sandbox_limits, JSON_WIDE_REAL, out, &fault) == QUIRE_OK &&
        json_is(*out, JSON_KIND_OBJECT)) {
        return QUIRE_OK;
    }
    json_drop(*out);
    return err_set(err, QUIRE_BAD_REQUEST, -1, "the body must be one JSON object, as in {\"do\":\"open\"}");
}

quire_err sandboxes_run(sandboxes *s, str body, int64_t now_us, strbuf *out, quire_error *err) {
    json_out o = {.to = out};
    json_value *fields = NULL;
    TRY(sandbox_parse(body, &fields, err));
    command c = {.all = s, .fields = fields, .o = &o, .err = err};
    pthread_mutex_lock(&s->lock);
    quire_err e = sandbox_run(&c, now_us);
    pthread_mutex_unlock(&s->lock);
    json_drop(fields);
    if (e == QUIRE_OK && o.err != QUIRE_OK) {
        e = err_set(err, o.err, -1, "out of memory");
    }
    return e;
}
