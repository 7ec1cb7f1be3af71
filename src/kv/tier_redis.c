/* hiredis.h needs it for struct timeval. */
#define _DEFAULT_SOURCE
#include "kv/tier_redis.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define DEFAULT_PORT 6379
#define CONNECT_US   500000 /* timeout to connect, and to send or receive anything */
/* timeout of a transfer: outlasts the pause of a server that forks, or a busy machine */
#define TRANSFER_US    1000000
#define REPLY_US       2000000 /* timeout of one whole reply, however slowly it arrives */
#define SMALL_REPLIES  65536   /* most bytes of a reply besides its record */
#define FIRST_PAUSE_US 100000  /* pause before the next try, doubled each time */
#define LAST_PAUSE_US  10000000
#define MOST_READS     16 /* most reads sent before the first reply */
#define MAX_PUTS       (1 << 24)
#define KEY_BYTES      80
#define PART_BYTES     256

typedef struct redis_url {
    char host[PART_BYTES], user[PART_BYTES], password[PART_BYTES]; /* host: a name, or a socket's path */
    bool is_socket;
    int port, number;
} redis_url;

/* A stored key, deleted when the total becomes too large. */
typedef struct put_key {
    kv_tier_id id;
    int32_t group;
} put_key;

struct kv_redis {
    kv_record_shape shape;
    redis_url url;
    size_t head_bytes, record_bytes;
    uint64_t version_hash;
    kv_io_done done;
    kv_io_queue jobs;
    wake wake, tried; /* wake: there is work, or the thread stops; tried: it has tried to connect */
    pthread_t thread;
    bool runs;
    atomic_bool stop, up;
    atomic_llong bytes;

    /* used by the Redis thread only: */
    redisContext *c; /* NULL: not connected */
    bool failed;     /* the connection's state is unknown: it is closed before the next use */
    int64_t pause_us, next_try_us;
    unsigned char *head; /* aligned copy of a reply's head */
    put_key *puts;       /* [cap_puts] ring, oldest first */
    int32_t cap_puts, first_put, n_puts;
};

/* ---- the server's address ---- */

static bool copy_part(char out[PART_BYTES], const char *from, size_t n) {
    if (n >= PART_BYTES) {
        return false;
    }
    memcpy(out, from, n);
    out[n] = 0;
    return true;
}

/* Parses digits up to the end of text as a number 0..most. */
static bool parse_number(const char *text, int most, int *out) {
    char *end;
    long v = strtol(text, &end, 10);
    *out = (int)v;
    return *text >= '0' && *text <= '9' && *end == 0 && v >= 0 && v <= most;
}

/* Parses [[user]:password@]host[:port][/number]. */
static bool parse_server(const char *text, redis_url *out) {
    const char *at = strrchr(text, '@'), *host = at != NULL ? at + 1 : text;
    if (at != NULL) {
        const char *colon = memchr(text, ':', (size_t)(at - text));
        if (colon == NULL || !copy_part(out->user, text, (size_t)(colon - text)) ||
            !copy_part(out->password, colon + 1, (size_t)(at - colon - 1))) {
            return false;
        }
    }
    size_t n_host = strcspn(host, ":/");
    const char *rest = host + n_host;
    if (n_host == 0 || !copy_part(out->host, host, n_host)) {
        return false;
    }
    if (*rest == ':') {
        char port[8] = "";
        size_t n = strcspn(rest + 1, "/");
        if (n >= sizeof port) {
            return false;
        }
        memcpy(port, rest + 1, n);
        if (!parse_number(port, 65535, &out->port) || out->port == 0) {
            return false;
        }
        rest += 1 + n;
    }
    return *rest == 0 || rest[1] == 0 || parse_number(rest + 1, INT32_MAX, &out->number);
}

static bool parse_url(const char *text, redis_url *out) {
    static const char redis[] = "redis://", local[] = "unix://";
    *out = (redis_url){.port = DEFAULT_PORT};
    if (strncmp(text, local, sizeof local - 1) == 0) {
        out->is_socket = true;
        return text[sizeof local - 1] == '/' &&
               copy_part(out->host, text + sizeof local - 1, strlen(text + sizeof local - 1));
    }
    return strncmp(text, redis, sizeof redis - 1) == 0 && parse_server(text + sizeof redis - 1, out);
}

/* ---- the connection: everything below runs in its thread ---- */

static struct timeval timeval_of(int64_t us) {
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

/* Disconnects after a failure. The next try is after a pause. */
static void disconnect(kv_redis *r) {
    redisFree(r->c);
    r->c = NULL;
    r->failed = false;
    atomic_store(&r->up, false);
    r->pause_us = r->pause_us == 0                  ? FIRST_PAUSE_US
                  : r->pause_us < LAST_PAUSE_US / 2 ? 2 * r->pause_us
                                                    : LAST_PAUSE_US;
    r->next_try_us = clock_us() + r->pause_us;
}

/* Sends the appended commands and returns the next reply. NULL: the server fails, takes
 * too long, or sends more than was requested; the connection then counts as failed. */
static redisReply *next_reply(kv_redis *r) {
    int64_t end_us = clock_us() + REPLY_US;
    size_t most = MOST_READS * r->record_bytes + SMALL_REPLIES;
    void *reply = NULL;
    int sent = 0;
    while (!sent && !r->failed) {
        r->failed = clock_us() >= end_us || redisBufferWrite(r->c, &sent) != REDIS_OK;
    }
    while (!r->failed && reply == NULL) {
        r->failed = redisGetReplyFromReader(r->c, &reply) != REDIS_OK;
        if (!r->failed && reply == NULL) {
            r->failed = r->c->reader->len > most || clock_us() >= end_us || redisBufferRead(r->c) != REDIS_OK;
        }
    }
    return reply;
}

static redisReply *command(kv_redis *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    r->failed = r->failed || redisvAppendCommand(r->c, format, args) != REDIS_OK;
    va_end(args);
    return r->failed ? NULL : next_reply(r);
}

/* Whether a command got a reply that is not an error. */
static bool tier_redis_is_done(redisReply *reply) {
    bool ok = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    return ok;
}

static bool greet(kv_redis *r) {
    const redis_url *u = &r->url;
    if (u->password[0] != 0 &&
        !tier_redis_is_done(u->user[0] != 0 ? command(r, "AUTH %s %s", u->user, u->password)
                                            : command(r, "AUTH %s", u->password))) {
        return false;
    }
    return (u->number == 0 || tier_redis_is_done(command(r, "SELECT %d", u->number))) &&
           tier_redis_is_done(command(r, "PING"));
}

static void try_connect(kv_redis *r) {
    if (r->c != NULL || clock_us() < r->next_try_us) {
        return;
    }
    struct timeval connect = timeval_of(CONNECT_US);
    r->c = r->url.is_socket ? redisConnectUnixWithTimeout(r->url.host, connect)
                            : redisConnectWithTimeout(r->url.host, r->url.port, connect);
    if (r->c == NULL || r->c->err != 0 || redisSetTimeout(r->c, timeval_of(TRANSFER_US)) != REDIS_OK ||
        !greet(r)) {
        disconnect(r);
        return;
    }
    r->pause_us = 0;
    atomic_store(&r->up, true);
}

static int tier_redis_write_key(const kv_redis *r, kv_tier_id id, int32_t group, char key[KEY_BYTES]) {
    return snprintf(key, KEY_BYTES, "quire:%016llx:%016llx%016llx:%d", (unsigned long long)r->version_hash,
                    (unsigned long long)id.a, (unsigned long long)id.b, (int)group);
}

static void delete_key(kv_redis *r, kv_tier_id id, int32_t group) {
    char key[KEY_BYTES];
    tier_redis_write_key(r, id, group, key);
    if (r->c != NULL) {
        (void)tier_redis_is_done(command(r, "DEL %s", key));
    }
}

/* ---- writing ---- */

/* Records a stored key, and deletes the oldest keys if the total is too large. */
static void count_put(kv_redis *r, kv_tier_id id, int32_t group) {
    if (r->n_puts == r->cap_puts) {
        put_key oldest = r->puts[r->first_put];
        r->first_put = (r->first_put + 1) % r->cap_puts;
        r->n_puts--;
        delete_key(r, oldest.id, oldest.group);
    }
    r->puts[(r->first_put + r->n_puts++) % r->cap_puts] = (put_key){id, group};
    atomic_store(&r->bytes, (int64_t)r->n_puts * (int64_t)r->record_bytes);
}

/* Asks whether the key exists, to avoid sending a page that is there. */
static quire_err ask_exists(kv_redis *r, const char *key) {
    redisReply *reply = command(r, "EXISTS %s", key);
    quire_err e = reply == NULL || reply->type != REDIS_REPLY_INTEGER ? QUIRE_IO
                  : reply->integer != 0                               ? QUIRE_OK
                                                                      : QUIRE_NOT_FOUND;
    freeReplyObject(reply);
    return e;
}

static quire_err write_record(kv_redis *r, const kv_job *job) {
    char key[KEY_BYTES];
    kv_record record;
    if (!kv_record_read(&r->shape, job->parts[0].p, &record)) {
        return QUIRE_IO;
    }
    size_t n_key = (size_t)tier_redis_write_key(r, record.key.id, record.key.group, key);
    quire_err e = ask_exists(r, key);
    if (e != QUIRE_NOT_FOUND) {
        return e == QUIRE_OK ? QUIRE_NOT_FOUND : e;
    }
    const char *argv[] = {"SET", key, job->parts[0].p, "NX"};
    const size_t lengths[] = {3, n_key, r->record_bytes, 2};
    r->failed = redisAppendCommandArgv(r->c, 4, argv, lengths) != REDIS_OK;
    redisReply *reply = r->failed ? NULL : next_reply(r);
    bool stored = reply != NULL && reply->type == REDIS_REPLY_STATUS,
         was_there = reply != NULL && reply->type == REDIS_REPLY_NIL;
    freeReplyObject(reply);
    if (stored) {
        count_put(r, record.key.id, record.key.group);
    }
    return stored ? QUIRE_OK : was_there ? QUIRE_NOT_FOUND : QUIRE_IO;
}

/* ---- reading ---- */

/* Copies a reply into the job's frame if it is the wanted record. */
static quire_err take_reply(kv_redis *r, const redisReply *reply, const kv_record *wanted,
                            const kv_job *job) {
    if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_STRING && reply->len == 0)) {
        return QUIRE_NOT_FOUND;
    }
    if (reply->type != REDIS_REPLY_STRING) {
        return QUIRE_IO;
    }
    if ((size_t)reply->len != r->record_bytes) {
        return QUIRE_BAD_FILE;
    }
    kv_record found;
    const char *body = reply->str + r->head_bytes;
    memcpy(r->head, reply->str, r->head_bytes);
    if (!kv_record_read(&r->shape, r->head, &found) ||
        !kv_record_same_key(&r->shape, &wanted->key, &found.key) ||
        kv_record_sum(body, (size_t)r->shape.page_bytes) != found.sum) {
        return QUIRE_BAD_FILE;
    }
    memcpy(job->parts[0].p, reply->str, r->record_bytes);
    return QUIRE_OK;
}

/* Requests n records at once, then takes their replies in order. */
static void read_records(kv_redis *r, kv_job *jobs, int32_t n) {
    char key[KEY_BYTES];
    kv_record wanted[MOST_READS];
    for (int32_t i = 0; i < n && r->c != NULL; i++) {
        (void)kv_record_read(&r->shape, jobs[i].parts[0].p, &wanted[i]); /* checked by kv_redis_read */
        tier_redis_write_key(r, wanted[i].key.id, wanted[i].key.group, key);
        /* requests one byte more than a record has, to detect longer values */
        int sent = redisAppendCommand(r->c, "GETRANGE %s 0 %lld", key, (long long)r->record_bytes);
        if (sent != REDIS_OK) {
            disconnect(r);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        redisReply *reply = r->c != NULL ? next_reply(r) : NULL;
        if (r->failed) {
            disconnect(r);
        }
        jobs[i].result = reply != NULL ? take_reply(r, reply, &wanted[i], &jobs[i]) : QUIRE_IO;
        freeReplyObject(reply);
    }
    for (int32_t i = 0; i < n; i++) {
        if (jobs[i].result == QUIRE_BAD_FILE) {
            delete_key(r, wanted[i].key.id, wanted[i].key.group);
        }
        kv_io_finish(&r->done, &jobs[i]);
    }
}

/* ---- the thread ---- */

/* Does one round of work, reads first. False: there is nothing to do. */
static bool tier_redis_work(kv_redis *r) {
    kv_job jobs[MOST_READS];
    int32_t n = 0;
    while (n < MOST_READS && ring_pop(r->jobs.reads, &jobs[n])) {
        n++;
    }
    if (n > 0) {
        read_records(r, jobs, n);
        if (r->failed) {
            disconnect(r);
        }
        return true;
    }
    if (!ring_pop(r->jobs.writes, &jobs[0])) {
        return false;
    }
    jobs[0].result = r->c != NULL ? write_record(r, &jobs[0]) : QUIRE_IO;
    if (r->failed) {
        disconnect(r);
    }
    kv_io_finish(&r->done, &jobs[0]);
    return true;
}

static void *redis_main(void *arg) {
    kv_redis *r = arg;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* if the server closes the connection, the write returns an error */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    try_connect(r);
    wake_ring(&r->tried);
    for (;;) {
        /* loaded before the queue is read, so that jobs from before the stop are done */
        bool stops = atomic_load(&r->stop);
        if (!stops) {
            try_connect(r);
        }
        while (tier_redis_work(r)) {
        }
        if (stops) {
            return NULL;
        }
        int64_t left = r->next_try_us - clock_us();
        wake_wait(&r->wake, r->c != NULL ? -1 : left > 0 ? left : 0);
    }
}

/* ---- the engine's side ---- */

static quire_err tier_redis_open_parts(kv_redis *r, size_t most) {
    r->head = mem_new(1, r->head_bytes);
    r->puts = mem_new_huge((size_t)r->cap_puts, sizeof *r->puts);
    TRY(mem_check(r->head));
    TRY(mem_check(r->puts));
    TRY(kv_io_queue_open(most, &r->jobs));
    TRY(wake_init(&r->wake));
    TRY(wake_init(&r->tried));
    r->runs = pthread_create(&r->thread, NULL, redis_main, r) == 0;
    if (!r->runs) {
        return QUIRE_NO_MEMORY;
    }
    wake_wait(&r->tried, -1); /* so that a running server is used from the first request on */
    return QUIRE_OK;
}

quire_err kv_redis_open(const kv_record_shape *shape, const char *url, int64_t bytes, size_t most,
                        kv_io_done done, kv_redis **out, quire_error *err) {
    *out = NULL;
    kv_redis *r = mem_new(1, sizeof *r);
    TRY(mem_check_for(r, "a Redis tier", err));
    r->shape = *shape;
    r->head_bytes = kv_record_head_bytes(shape);
    r->record_bytes = r->head_bytes + (size_t)shape->page_bytes;
    r->version_hash = kv_record_shape_hash(shape);
    r->done = done;
    atomic_init(&r->stop, false);
    atomic_init(&r->up, false);
    atomic_init(&r->bytes, 0);
    int64_t n = bytes / (int64_t)r->record_bytes;
    r->cap_puts = (int32_t)(n < MAX_PUTS ? n : MAX_PUTS);
    quire_err e = QUIRE_OK;
    if (!parse_url(url, &r->url)) {
        e = err_set(
            err, QUIRE_INVALID, -1,
            "--kv-tier-redis: must be redis://[[user]:password@]host[:port][/number] or unix:///path");
    } else if (n < 1) {
        e = err_set(err, QUIRE_INVALID, -1, "--kv-tier-redis-bytes %lld: holds no page of %lld bytes",
                    (long long)bytes, (long long)r->record_bytes);
    } else if (tier_redis_open_parts(r, most) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "the thread that talks to Redis could not start");
    }
    if (e != QUIRE_OK) {
        kv_redis_close(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

void kv_redis_close(kv_redis *r) {
    if (r == NULL) {
        return;
    }
    if (r->runs) {
        atomic_store(&r->stop, true);
        wake_ring(&r->wake);
        pthread_join(r->thread, NULL);
    }
    redisFree(r->c);
    wake_deinit(&r->wake);
    wake_deinit(&r->tried);
    kv_io_queue_close(&r->jobs);
    mem_free(r->head);
    mem_free(r->puts);
    mem_free(r);
}

bool kv_redis_is_up(const kv_redis *r) {
    return atomic_load(&r->up);
}

int64_t kv_redis_bytes(const kv_redis *r) {
    return atomic_load(&r->bytes);
}

static bool tier_redis_submit(kv_redis *r, kv_job_kind kind, int32_t frame, unsigned char *head) {
    kv_job job = {.kind = kind, .frame = frame, .n_parts = 1, .parts = {{-1, head, r->record_bytes, 0}}};
    if (!kv_io_queue_push(&r->jobs, &job)) {
        return false;
    }
    wake_ring(&r->wake);
    return true;
}

bool kv_redis_write(kv_redis *r, int32_t frame, unsigned char *head) {
    return tier_redis_submit(r, KV_JOB_REDIS_WRITE, frame, head);
}

bool kv_redis_read(kv_redis *r, int32_t frame, unsigned char *head) {
    kv_record wanted;
    return kv_record_read(&r->shape, head, &wanted) && tier_redis_submit(r, KV_JOB_REDIS_READ, frame, head);
}
