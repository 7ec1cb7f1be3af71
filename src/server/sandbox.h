/* Sandboxes: small pools of the real KV cache (quire_kv.h), 64 pages of 16 tokens,
 * controlled by commands from the web page at /pool.
 *
 * A command is a JSON object. {"do":"open"} makes a sandbox and returns its name in
 * "sandbox"; all other commands carry that name:
 *   {"do":"new","tokens":n,"story":0..3}    a sequence with the first n words of a story
 *   {"do":"append","seq":id,"tokens":n}     adds n words of its own at its end
 *   {"do":"fork","seq":id,"n":n}            makes n more sequences that share all its pages
 *   {"do":"write","seq":id}                 replaces its last word by another
 *   {"do":"finish","seq":id}                ends it; its pages stay cached
 *   {"do":"evict","n":n}                    frees n cached pages, least recently used first
 *   {"do":"page","page":n}                  returns the contents of a page
 *   {"do":"state"}, {"do":"reset"}
 * Each response except that of "page" is the whole state (pool_json.h). Computed tokens
 * are committed at once, as in an engine, so prefixes are found.
 *
 * There are at most SANDBOX_MAX: a new one replaces one idle for SANDBOX_IDLE_US, else
 * the least recently used. Any thread; one lock, held for microseconds. Sandboxes contain
 * built-in words, never prompts. */
#ifndef SERVER_SANDBOX_H
#define SERVER_SANDBOX_H

#include "base/str.h"

#define SANDBOX_MAX        64
#define SANDBOX_BODY_BYTES 1024
#define SANDBOX_IDLE_US    (INT64_C(15) * 60 * 1000000)

typedef struct sandboxes sandboxes;

/* Opens a set of sandboxes, empty. QUIRE_NO_MEMORY. */
quire_err sandboxes_open(sandboxes **out);
/* Frees all sandboxes; NULL is allowed. */
void sandboxes_close(sandboxes *s);
/* Runs the command in body at time now_us (clock_us) and appends its response to out. On
 * failure err says why (its param names the field): QUIRE_BAD_REQUEST; QUIRE_NOT_FOUND:
 * no such sandbox; QUIRE_NO_ROOM: too few pages or sequences. Then nothing has changed,
 * except that cached pages may have been evicted. */
quire_err sandboxes_run(sandboxes *s, str body, int64_t now_us, strbuf *out, quire_error *err);

#endif
