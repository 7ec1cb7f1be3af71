/* Sandboxes: small pools of the real KV cache (quire_kv.h), 64 pages of 16 tokens,
 * controlled by commands from the page at /pool.
 *
 * A command is a JSON object. {"do":"open"} makes a sandbox and answers with its name in
 * "sandbox"; all others carry that name:
 *   {"do":"new","tokens":n,"story":0..3}    a sequence with the first n words of a story
 *   {"do":"append","seq":id,"tokens":n}     n words of its own at its end
 *   {"do":"fork","seq":id,"n":n}            n more that share all its pages
 *   {"do":"write","seq":id}                 another word in place of its last
 *   {"do":"finish","seq":id}                it ends; its pages stay cached
 *   {"do":"evict","n":n}                    n cached pages become free, longest unused first
 *   {"do":"page","page":n}                  the contents of a page
 *   {"do":"state"}, {"do":"reset"}
 * Each response except page's is the whole state (pool_json.h). Computed tokens are
 * committed at once, as in an engine, so prefixes are found.
 *
 * At most SANDBOX_MAX at a time: a new one replaces one that has been idle for long, or
 * the one unused longest. Any thread; one lock, held for microseconds. Sandboxes hold
 * built-in words, never prompts. */
#ifndef SERVER_SANDBOX_H
#define SERVER_SANDBOX_H

#include "base/str.h"

#define SANDBOX_MAX        64
#define SANDBOX_BODY_BYTES 1024
#define SANDBOX_IDLE_US    (INT64_C(15) * 60 * 1000000)

typedef struct sandboxes sandboxes;

quire_err sandboxes_open(sandboxes **out);
/* NULL does nothing. */
void sandboxes_close(sandboxes *s);
/* Runs the command in body[0..n) at time now_us and appends its response to out. On
 * failure err says why (its param names the field): BAD_REQUEST; NOT_FOUND: no such
 * sandbox; NO_ROOM: the pages or sequences do not suffice. Then nothing has changed,
 * except that cached pages may have been evicted. */
quire_err sandboxes_run(sandboxes *s, str body, int64_t now_us, strbuf *out, quire_error *err);

#endif
