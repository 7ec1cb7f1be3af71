/* The store of responses (POST /v1/responses with `store`): keeps what each tenant may
 * fetch, list and continue later.
 *
 * A stored response has a JSON object and a turn: the items of its input and output, and
 * a reference to the turn that it continued. Responses that continue a turn share it, and
 * it lives as long as any of them, so deleting a response does not cut the conversation
 * of those that continue it. A tenant never sees another's responses.
 *
 * The store is limited in bytes and age. Over the limit in bytes, the least recently used
 * response of the tenant that holds most is dropped, so a tenant with no more than an
 * equal share loses nothing to others. Responses in progress are kept. Threads: any.
 * Times are of clock_us. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include "base/str.h"

typedef struct response_store response_store;
typedef struct response_turn response_turn;

/* Opens a store; max_bytes 0: it keeps nothing. max_age_us: microseconds that a response
 * is kept. QUIRE_NO_MEMORY. */
quire_err response_store_open(size_t max_bytes, int64_t max_age_us, response_store **out);
/* Frees the store; NULL is allowed. All turns that were taken must have been dropped. */
void response_store_close(response_store *s);

/* A response to keep. Texts are copied. */
typedef struct response_to_keep {
    const char *tenant, *id;
    str object;            /* the response's JSON object */
    str input, output;     /* the items, one JSON object a line */
    response_turn *parent; /* turn of the response that it continues; NULL: it begins a conversation */
    /* it replaces the response in progress with this id; without one it is not kept */
    bool replaces;
    bool in_progress; /* the response is still being generated, in the background */
} response_to_keep;

/* Keeps a response: under a new id, or in place of one in progress. It is not kept if
 * there is no room, or if it `replaces` none. QUIRE_NO_MEMORY: the store is unchanged. */
quire_err response_store_keep(response_store *s, const response_to_keep *r, int64_t now_us);

/* Append a response's object, or the items of its input, to *out. QUIRE_NOT_FOUND: the
 * tenant has no response with this id; QUIRE_NO_MEMORY. */
quire_err response_store_object(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);
quire_err response_store_input(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);
/* Appends the items of a response and of all that it continued, oldest first. Errors as
 * response_store_object. */
quire_err response_store_history(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);

/* Replaces the object of a response in progress, and ends it. QUIRE_NOT_FOUND: the tenant
 * has none with this id in progress; QUIRE_NO_MEMORY: nothing changed. */
quire_err response_store_end(response_store *s, const char *tenant, str id, str object, int64_t now_us);
/* Whether the store has a response with this id that is in progress. */
bool response_store_in_progress(response_store *s, const char *tenant, str id, int64_t now_us);
/* Number of a tenant's responses in progress. */
int64_t response_store_running(response_store *s, const char *tenant);
/* Deletes a response. False: the tenant has none with this id. */
bool response_store_delete(response_store *s, const char *tenant, str id, int64_t now_us);

/* Returns a reference to a response's turn, for a response that continues it; NULL: the
 * tenant has none with this id. The caller drops it with response_turn_drop. */
response_turn *response_store_turn(response_store *s, const char *tenant, str id, int64_t now_us);
/* Drops a reference to a turn; NULL is allowed. */
void response_turn_drop(response_store *s, response_turn *t);

/* Number of responses in the store, and bytes of them and all turns. */
typedef struct response_store_counts {
    int64_t n, bytes;
} response_store_counts;
response_store_counts response_store_count(response_store *s);

#endif
