/* The settings on which a batch's responses depend, and the command that resumes it. One
 * thread. */
#ifndef CLI_BATCH_ABOUT_H
#define CLI_BATCH_ABOUT_H

#include "base/sha256.h"
#include "cli/session.h"

/* Appends a JSON object for batch_part_open: the digest of the prompts, the model, and
 * the flags that apply to all requests. NO_MEMORY fills err. */
quire_err batch_about(const cli_options *o, const session *s, const uint8_t digest[SHA256_BYTES], strbuf *to,
                      quire_error *err);
/* Appends the command as it was given, quoted for a shell, with --resume. */
quire_err batch_about_resume(const cli_options *o, strbuf *to);

#endif
