/* The Redis tier stores records on a Redis or Valkey server, shared by all processes that
 * use it.
 *
 * The key of a record is its id and a hash of the version. A record is accepted only if
 * its head matches the request in full and its checksums agree; any other is deleted. The
 * engine never waits: one thread talks to the server, with timeouts, and a server that is
 * down, slow or full only causes misses. While it is down, kv_redis_is_up is false, and
 * the thread retries with pauses.
 *
 * Owner: the engine thread. */
#ifndef KV_TIER_REDIS_H
#define KV_TIER_REDIS_H

#include "kv/tier_io.h"
#include "kv/tier_record.h"

typedef struct kv_redis kv_redis;

/* Opens the tier. url: redis://[[user]:password@]host[:port][/number] or unix:///path.
 * bytes: most bytes that this process leaves on the server; beyond that it deletes what
 * it stored longest ago. Waits only briefly for the server, and one that does not answer
 * is not an error. QUIRE_INVALID: another url, or too few bytes. */
quire_err kv_redis_open(const kv_record_shape *shape, const char *url, int64_t bytes, size_t most,
                        kv_io_done done, kv_redis **out, quire_error *err);
/* Ends all submitted jobs, with success or failure, and closes. */
void kv_redis_close(kv_redis *r);
/* Whether the server has answered the last command. Any thread. */
bool kv_redis_is_up(const kv_redis *r);
/* Bytes that this process has stored and not deleted. Any thread. */
int64_t kv_redis_bytes(const kv_redis *r);

/* Submit a job for a frame, whose body follows the head in memory; the done ring returns
 * it. False: the queue is full. A write results in QUIRE_OK, QUIRE_NOT_FOUND (the server
 * had it already) or QUIRE_IO. A read takes a head with the wanted key, and results in
 * QUIRE_OK with the found head and body, QUIRE_NOT_FOUND, QUIRE_BAD_FILE (a wrong record,
 * now deleted) or QUIRE_IO. */
bool kv_redis_write(kv_redis *r, int32_t frame, unsigned char *head);
bool kv_redis_read(kv_redis *r, int32_t frame, unsigned char *head);
#endif
