#include "lab/bench/baseline_serve.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lab/bench/figures.h"

typedef struct served {
    const lab_request *request;
    int32_t *tokens; /* [n_prompt + n_room] */
    int32_t n_known, n_computed;
    int32_t piece, n_pages; /* first page and how many; n_pages 0: none */
    int32_t *pages;         /* [max pages] the piece's, as a block table */
    int64_t first_us;
    bool is_done;
} served;

typedef struct server {
    bare *b;
    const baseline_options *o;
    served *seqs;
    int32_t n, n_done;
    bool *taken;                 /* [n_pages] */
    int32_t *running, n_running; /* oldest first */
    int32_t *zeros;              /* padding's tokens */
    int32_t *padding_pages;      /* [max_len pages] of the place that is being padded */
    bare_part *parts;            /* the pass being gathered: */
    served **wanting;            /* who wants the logits of row i of those wanted */
    int32_t n_parts, n_wanting, n_rows;
    int64_t start_us, start_time_us; /* of the clock, and of figures_time_us */
    double used_sum;
    baseline_result *result;
} server;

static int32_t pages_of(int64_t slots) {
    return (int32_t)kv_pages_for(slots, BASELINE_PAGE);
}

int32_t baseline_extra_pages(const baseline_options *o) {
    return o->is_static ? o->max_seqs * pages_of(o->max_len) : 0;
}

/* ---- memory ---- */

/* The first n free pages that lie side by side, or -1. */
static int32_t find_piece(const server *s, int32_t n) {
    for (int32_t i = 0, run = 0; i < s->o->n_pages; i++) {
        run = s->taken[i] ? 0 : run + 1;
        if (run == n) {
            return i - n + 1;
        }
    }
    return -1;
}

static void set_piece(server *s, served *q, int32_t piece, int32_t n) {
    q->piece = piece;
    q->n_pages = n;
    for (int32_t i = 0; i < n; i++) {
        s->taken[piece + i] = true;
        q->pages[i] = piece + i;
    }
}

static void free_piece(server *s, served *q) {
    for (int32_t i = 0; i < q->n_pages; i++) {
        s->taken[q->piece + i] = false;
    }
    q->n_pages = 0;
}

static int64_t slots_for(const server *s, const served *q, int32_t n_now) {
    reserved_seq r = {.n_prompt = q->request->n_tokens, .n_output = q->request->n_output, .n_now = n_now};
    return reservation_slots(s->o->reservation, &r, s->o->max_len, BASELINE_PAGE);
}

/* ---- passes ---- */

/* A sampled token; a dead row's is not looked at but goes on being computed. */
static void take_token(server *s, served *q) {
    int32_t token = bare_greedy(s->b, s->n_wanting);
    q->tokens[q->n_known++] = token;
    q->first_us = q->first_us == 0 ? clock_us() : q->first_us;
}

static quire_err flush(server *s) {
    int32_t n = s->n_wanting;
    if (s->n_parts == 0) {
        return QUIRE_OK;
    }
    TRY(bare_forward(s->b, s->parts, s->n_parts));
    for (s->n_wanting = 0; s->n_wanting < n; s->n_wanting++) {
        take_token(s, s->wanting[s->n_wanting]);
    }
    s->result->n_rows += s->n_rows;
    s->n_parts = s->n_wanting = s->n_rows = 0;
    return QUIRE_OK;
}

/* Tokens first..first + n, in as many passes as it takes; q: who takes the last row's
 * token, or NULL. */
static quire_err add_rows(server *s, const int32_t *tokens, int32_t first, int32_t n, const int32_t *pages,
                          served *q) {
    while (n > 0) {
        if (s->n_rows == s->b->max_rows || s->n_parts == s->b->max_seqs) {
            TRY(flush(s));
        }
        int32_t rows = s->b->max_rows - s->n_rows < n ? s->b->max_rows - s->n_rows : n;
        bool wants = q != NULL && rows == n;
        s->parts[s->n_parts++] = (bare_part){tokens, first, rows, pages, wants, NULL};
        if (wants) {
            s->wanting[s->n_wanting++] = q;
        }
        s->n_rows += rows;
        first += rows;
        n -= rows;
    }
    return QUIRE_OK;
}

/* All that q knows and has not computed. */
static quire_err add_known(server *s, served *q) {
    int32_t first = q->n_computed;
    q->n_computed = q->n_known;
    return add_rows(s, q->tokens, first, q->n_known - first, q->pages, q);
}

static int32_t end_of(const served *q) {
    return q->request->n_tokens + q->request->n_output;
}

/* Counts a step: how much of what running sequences have reserved holds a token. */
static void count_step(server *s) {
    int64_t live = 0, reserved = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        const served *q = &s->seqs[s->running[i]];
        live += q->n_computed < end_of(q) ? q->n_computed : end_of(q);
        reserved += (int64_t)q->n_pages * BASELINE_PAGE;
    }
    s->used_sum += reserved > 0 ? (double)live / (double)reserved : 0;
    s->result->n_steps++;
    s->result->most_at_once = s->n_running > s->result->most_at_once ? s->n_running : s->result->most_at_once;
}

static void finish(server *s, served *q) {
    q->is_done = true;
    s->n_done++;
    if (s->o->end_ms != NULL) {
        s->o->end_ms[q - s->seqs] = (double)(clock_us() - s->start_us) / 1000;
    }
    free_piece(s, q);
}

/* ---- static ---- */

/* The next requests that fit together: each takes room for the longest prompt of them and
 * for the longest answer that may come. */
static int32_t next_batch(const server *s, int32_t from, int32_t *longest_prompt, int32_t *longest_answer) {
    int32_t n = 0;
    *longest_prompt = *longest_answer = 0;
    while (from + n < s->n && n < s->o->max_seqs && (n + 1) * pages_of(s->o->max_len) <= s->o->n_pages) {
        const lab_request *r = s->seqs[from + n].request;
        int32_t prompt = r->n_tokens > *longest_prompt ? r->n_tokens : *longest_prompt,
                answer = r->n_output > *longest_answer ? r->n_output : *longest_answer;
        if (prompt + answer > s->o->max_len) {
            break; /* padded, they would be too long together */
        }
        *longest_prompt = prompt;
        *longest_answer = answer;
        n++;
    }
    return n;
}

/* The pads of the batch's place `place`, and the prompt. */
static quire_err add_padded(server *s, int32_t place, served *q, int32_t to) {
    int32_t n_pads = to - q->request->n_tokens, per_seq = pages_of(s->o->max_len);
    for (int32_t i = 0; i < per_seq; i++) {
        s->padding_pages[place * per_seq + i] = s->o->n_pages + place * per_seq + i;
    }
    s->result->n_padding += n_pads;
    TRY(add_rows(s, s->zeros, 0, n_pads, s->padding_pages + place * per_seq, NULL));
    return add_known(s, q);
}

static quire_err run_batch(server *s, int32_t from, int32_t n, int32_t longest_prompt,
                           int32_t longest_answer) {
    s->n_running = n;
    for (int32_t i = 0; i < n; i++) {
        s->running[i] = from + i;
        set_piece(s, &s->seqs[from + i], i * pages_of(s->o->max_len), pages_of(s->o->max_len));
        TRY(add_padded(s, i, &s->seqs[from + i], longest_prompt));
    }
    TRY(flush(s));
    count_step(s);
    for (int32_t step = 1; step < longest_answer; step++) {
        for (int32_t i = 0; i < n; i++) {
            served *q = &s->seqs[from + i];
            s->result->n_dead += q->n_known >= end_of(q);
            TRY(add_known(s, q));
        }
        TRY(flush(s));
        count_step(s);
    }
    for (int32_t i = 0; i < n; i++) {
        finish(s, &s->seqs[from + i]);
    }
    return QUIRE_OK;
}

static quire_err serve_static(server *s) {
    for (int32_t from = 0; from < s->n;) {
        int32_t prompt, answer, n = next_batch(s, from, &prompt, &answer);
        if (n == 0) {
            return QUIRE_TOO_LARGE;
        }
        TRY(run_batch(s, from, n, prompt, answer));
        from += n;
    }
    return QUIRE_OK;
}

/* ---- iteration ---- */

static void drop_newest(server *s) {
    served *q = &s->seqs[s->running[--s->n_running]];
    free_piece(s, q);
    q->n_computed = 0;
    s->result->n_dropped++;
}

static bool is_running(const server *s, int32_t i) {
    for (int32_t k = 0; k < s->n_running; k++) {
        if (s->running[k] == i) {
            return true;
        }
    }
    return false;
}

/* First come, first served: the first that finds no piece holds up the others. */
static void admit(server *s) {
    for (int32_t i = 0; i < s->n && s->n_running < s->o->max_seqs; i++) {
        served *q = &s->seqs[i];
        if (q->is_done || is_running(s, i)) {
            continue;
        }
        int32_t n = pages_of(slots_for(s, q, q->n_known)), piece = find_piece(s, n);
        if (piece < 0) {
            return;
        }
        set_piece(s, q, piece, n);
        s->running[s->n_running++] = i;
    }
}

/* A piece one page larger, with what is there copied, by the backend. false: there is
 * none. */
static bool grow(server *s, served *q) {
    int32_t piece = find_piece(s, q->n_pages + 1), old = q->piece, n = q->n_pages;
    if (piece < 0) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        kv_copy_pair pair = {old + i, piece + i};
        s->b->b->ops->kv_copy(s->b->b, &pair, 1);
    }
    s->result->copied_bytes += n * s->b->layout.page_bytes;
    free_piece(s, q);
    set_piece(s, q, piece, n + 1);
    return true;
}

/* Room for what each running sequence computes in the step; the newest are dropped where
 * there is none. */
static quire_err make_room(server *s) {
    for (int32_t i = 0; i < s->n_running; i++) {
        served *q = &s->seqs[s->running[i]];
        while (i < s->n_running && q->n_pages < pages_of(q->n_known)) {
            if (grow(s, q)) {
                continue;
            }
            if (s->n_running == 1) {
                return QUIRE_TOO_LARGE;
            }
            drop_newest(s);
        }
    }
    return QUIRE_OK;
}

static quire_err serve_by_iteration(server *s) {
    while (s->n_done < s->n) {
        TRY(make_room(s));
        admit(s);
        if (s->n_running == 0) {
            return QUIRE_TOO_LARGE;
        }
        for (int32_t i = 0; i < s->n_running; i++) {
            TRY(add_known(s, &s->seqs[s->running[i]]));
        }
        TRY(flush(s));
        count_step(s);
        int32_t kept = 0;
        for (int32_t i = 0; i < s->n_running; i++) {
            served *q = &s->seqs[s->running[i]];
            if (q->n_known == end_of(q)) {
                finish(s, q);
            } else {
                s->running[kept++] = s->running[i];
            }
        }
        s->n_running = kept;
    }
    return QUIRE_OK;
}

/* ---- both ---- */

static quire_err open_seq(const server *s, const lab_request *r, int32_t longest_answer, served *q) {
    q->request = r;
    q->n_known = r->n_tokens;
    q->tokens = mem_new((size_t)(r->n_tokens + longest_answer + 1), sizeof *q->tokens);
    q->pages = mem_new((size_t)pages_of(s->o->max_len) + 2, sizeof *q->pages);
    if (q->tokens == NULL || q->pages == NULL) {
        return QUIRE_NO_MEMORY;
    }
    memcpy(q->tokens, r->tokens, (size_t)r->n_tokens * sizeof *q->tokens);
    return QUIRE_OK;
}

static quire_err open_server(server *s, const lab_request *requests) {
    size_t n = (size_t)s->n, len = (size_t)s->o->max_len;
    int32_t longest_answer = 0;
    s->seqs = mem_new(n, sizeof *s->seqs);
    s->taken = mem_new((size_t)s->o->n_pages, sizeof *s->taken);
    s->running = mem_new(n, sizeof *s->running);
    s->zeros = mem_new(len, sizeof *s->zeros);
    s->padding_pages =
        mem_new((size_t)s->o->max_seqs * (size_t)pages_of(s->o->max_len), sizeof *s->padding_pages);
    s->parts = mem_new((size_t)s->b->max_seqs, sizeof *s->parts);
    s->wanting = mem_new((size_t)s->b->max_seqs, sizeof(served *));
    if (!s->seqs || !s->taken || !s->running || !s->zeros || !s->padding_pages || !s->parts || !s->wanting) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < s->n; i++) {
        longest_answer = requests[i].n_output > longest_answer ? requests[i].n_output : longest_answer;
        if (requests[i].n_tokens + requests[i].n_output > s->o->max_len) {
            return QUIRE_TOO_LARGE;
        }
    }
    for (int32_t i = 0; i < s->n; i++) {
        TRY(open_seq(s, &requests[i], longest_answer, &s->seqs[i]));
    }
    return QUIRE_OK;
}

static void close_server(server *s) {
    for (int32_t i = 0; s->seqs != NULL && i < s->n; i++) {
        mem_free(s->seqs[i].tokens);
        mem_free(s->seqs[i].pages);
    }
    mem_free(s->seqs);
    mem_free(s->taken);
    mem_free(s->running);
    mem_free(s->zeros);
    mem_free(s->padding_pages);
    mem_free(s->parts);
    mem_free(s->wanting);
}

static void fill_result(server *s) {
    baseline_result *r = s->result;
    r->seconds = (double)(figures_time_us(s->b->n_threads) - s->start_time_us) * 1e-6;
    r->used = s->used_sum / (double)r->n_steps;
    for (int32_t i = 0; i < s->n; i++) {
        const served *q = &s->seqs[i];
        r->first_ms += (double)(q->first_us - s->start_us) / 1000 / s->n;
        r->digest += lab_digest(q->tokens + q->request->n_tokens, q->request->n_output);
    }
}

quire_err baseline_serve(bare *b, const baseline_options *o, const lab_request *requests, int32_t n,
                         baseline_result *out) {
    *out = (baseline_result){0};
    server s = {.b = b, .o = o, .n = n, .result = out};
    quire_err e = open_server(&s, requests);
    s.start_us = clock_us();
    s.start_time_us = figures_time_us(b->n_threads);
    if (e == QUIRE_OK) {
        e = o->is_static ? serve_static(&s) : serve_by_iteration(&s);
    }
    if (e == QUIRE_OK) {
        fill_result(&s);
    }
    close_server(&s);
    return e;
}
