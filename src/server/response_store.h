/* The store of responses (POST /v1/responses with `store`): what each tenant may fetch,
 * list and continue later.
 *
 * A stored response consists of its JSON object and its turn: the items of its input and
 * output, with a reference to the turn that it continued. A turn is shared by all
 * responses that continue it, and lives as long as any of them, so deleting a response
 * does not take the conversation from those that continue it. A tenant never sees
 * another's responses.
 *
 * The store is limited in bytes and in age. Over the limit, the least recently used
 * response of the tenant that holds most is dropped, so a tenant with no more than an
 * equal share loses nothing to others. Responses in progress are kept. All calls from any
 * thread. Times are of clock_us. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include "base/str.h"

typedef struct response_store response_store;
typedef struct response_turn response_turn;

/* max_bytes 0: nothing is kept. QUIRE_NO_MEMORY. */
quire_err response_store_open(size_t max_bytes, int64_t max_age_us, response_store **out);
/* NULL is allowed. All turns that were taken must have been dropped. */
void response_store_close(response_store *s);

/* A response to keep. Texts are copied. */
typedef struct response_to_keep {
    const char *tenant, *id;
    str object;            /* JSON */
    str input, output;     /* items, a JSON object a line */
    response_turn *parent; /* the response that it continues; NULL: it begins a conversation */
    /* it replaces the response in progress with this id; if there is none, it is not
     * kept */
    bool replaces;
    bool in_progress; /* it is generated in the background */
} response_to_keep;

/* Keeps a response with a new id, or in place of one that is in progress. It is not
 * kept if there is no room, or if it `replaces` none. QUIRE_NO_MEMORY: the store is
 * unchanged. */
quire_err response_store_keep(response_store *s, const response_to_keep *r, int64_t now_us);

/* Appends a response's object, or the items of its input. QUIRE_NOT_FOUND: the tenant has
 * no response with this id; QUIRE_NO_MEMORY. */
quire_err response_store_object(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);
quire_err response_store_input(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);
/* Appends the items of a response and of all that it continued, the oldest first. Errors
 * as above. */
quire_err response_store_history(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out);

/* Replaces the object of a response in progress, which ends it. QUIRE_NOT_FOUND: the
 * tenant has none of that id in progress; QUIRE_NO_MEMORY: nothing changed. */
quire_err response_store_end(response_store *s, const char *tenant, str id, str object, int64_t now_us);
/* Whether a response is kept that is in progress. */
bool response_store_in_progress(response_store *s, const char *tenant, str id, int64_t now_us);
/* How many responses of a tenant are in progress. */
int64_t response_store_running(response_store *s, const char *tenant);
/* Deletes a response. False: the tenant has none with this id. */
bool response_store_delete(response_store *s, const char *tenant, str id, int64_t now_us);

/* The turn of a response, for a response that continues it; NULL: the tenant has none
 * with this id. The caller has it until response_turn_drop. */
response_turn *response_store_turn(response_store *s, const char *tenant, str id, int64_t now_us);
/* NULL is allowed. */
void response_turn_drop(response_store *s, response_turn *t);

/* What the store holds: responses, and bytes of them and of all turns. */
typedef struct response_store_counts {
    int64_t n, bytes;
} response_store_counts;
response_store_counts response_store_count(response_store *s);

#endif
