/* The Redis tier stores records on a Redis or Valkey server, shared by all processes that
 * use it.
 *
 * A record's key is its id and a hash of the version. A record counts only if its head
 * states in full what was requested, and its checksums agree; any other is deleted. The
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
 * bytes: the most that this process leaves there; beyond that it deletes what it stored
 * longest ago. Waits for a server for a short time only. QUIRE_INVALID for another url or
 * too few bytes; a server that does not answer is not an error. */
quire_err kv_redis_open(const kv_record_shape *shape, const char *url, int64_t bytes, size_t most,
                        kv_io_done done, kv_redis **out, quire_error *err);
/* Finishes the submitted jobs, with success or failure. */
void kv_redis_close(kv_redis *r);
/* Whether the server answered the last command. Any thread. */
bool kv_redis_is_up(const kv_redis *r);
/* Bytes that this process has stored and not deleted. Any thread. */
int64_t kv_redis_bytes(const kv_redis *r);

/* Submits a job for frame, which the done ring returns; false: the queue is full. The
 * body follows the head in memory. A write returns QUIRE_OK, QUIRE_NOT_FOUND (it was
 * there already) or QUIRE_IO. A read takes a head with the wanted key, and returns
 * QUIRE_OK with head and body as they were found, QUIRE_NOT_FOUND, QUIRE_BAD_FILE (there,
 * but wrong: deleted) or QUIRE_IO. */
bool kv_redis_write(kv_redis *r, int32_t frame, unsigned char *head);
bool kv_redis_read(kv_redis *r, int32_t frame, unsigned char *head);
#endif
