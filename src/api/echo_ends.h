/* Where in the text of an echoed prompt each of its tokens ends. Stateless: any thread. */
#ifndef API_ECHO_ENDS_H
#define API_ECHO_ENDS_H

#include "text/tokenizer.h"

/* Fills ends[0..n) with offsets into echo: those of its token boundaries, in ascending order, the last of them echo.n. So the tokens' texts
 * are the echo when joined. A token that the echo does not show has none: a special token that was added or is hidden, the first part of a
 * character. Where the tokenizer changed the text, as to lower case, a token has as many characters of the echo as of its own.
 * QUIRE_NO_MEMORY. */
quire_err echo_ends(const tokenizer *t, const int32_t *ids, size_t n, str echo, size_t *ends);

#endif
