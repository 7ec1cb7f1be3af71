/* The Redis tier: records on a Redis or Valkey server, shared by all who use it.
 *
 * A record lies under a key made of its id and a hash of the version, and is believed only if it says itself, in full, that it is what was
 * asked for, and its checksums agree; what does not is deleted. Nothing is waited for: one thread talks to the server, with timeouts, and a
 * server that is gone, slow or full only means that pages are missed. While it is gone, kv_redis_is_up says so, and it is tried again with
 * pauses.
 *
 * Owner: the engine thread. */
#ifndef KV_TIER_REDIS_H
#define KV_TIER_REDIS_H

#include "kv/tier_io.h"
#include "kv/tier_record.h"

typedef struct kv_redis kv_redis;

/* url: redis://[[user]:password@]host[:port][/number] or unix:///path. bytes: the most that this process leaves there; what it put longest
 * ago is deleted beyond that. Waits for a server, but not long. QUIRE_INVALID for another url or too few bytes; that no server answers is
 * not an error. */
quire_err kv_redis_open(const kv_record_shape *shape, const char *url, int64_t bytes, size_t most, kv_io_done done, kv_redis **out,
                        quire_error *err);
/* Ends what was submitted, one way or another. */
void kv_redis_close(kv_redis *r);
/* Whether the server answered last time. Any thread. */
bool kv_redis_is_up(const kv_redis *r);
/* Bytes that this process has put there and not deleted. Any thread. */
int64_t kv_redis_bytes(const kv_redis *r);

/* Each submits a job for frame, which comes back through the done ring; false: too many wait. head and body lie behind one another.
 * A write comes back as QUIRE_OK, QUIRE_NOT_FOUND (it was there already) or QUIRE_IO; a read, whose head says what is wanted, as QUIRE_OK
 * with head and body as they were found, QUIRE_NOT_FOUND, QUIRE_BAD_FILE (there, and not right: deleted) or QUIRE_IO. */
bool kv_redis_write(kv_redis *r, int32_t frame, unsigned char *head);
bool kv_redis_read(kv_redis *r, int32_t frame, unsigned char *head);
#endif
