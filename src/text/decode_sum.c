/* Whether a decoder's text is the sum of its tokens' texts. */
#include "text/chars.h"
#include "text/decode.h"

/* Whether no part of the text that is replaced can lie in two tokens, as it is one
 * character. One that is spelt by tokens of a byte each is passed over: a model writes
 * the mark of a space so only where it is not meant as one. */
static bool is_within_tokens(const char *literal, size_t n) {
    size_t len;
    return n > 0 && utf8_decode(literal, n, &len) >= 0 && len == n;
}

/* What of step s keeps texts from adding up; NULL: nothing. */
static const char *step_obstacle(const decode_step *s, bool is_bytes) {
    bool joins = s->late || is_bytes;
    switch (s->kind) {
    case DECODE_CTC:
        return "CTC, which drops repeated tokens";
    case DECODE_SUFFIX:
        return "BPEDecoder, where the end of a word is a space unless it is the last";
    case DECODE_REPLACE:
        return joins && (s->match.re != NULL || !is_within_tokens(s->match.literal, s->match.n_literal))
                   ? "Replace after a step that joins tokens"
                   : NULL;
    case DECODE_METASPACE:
        return joins && !is_within_tokens(s->content, s->n_content)
                   ? "Metaspace after a step that joins bytes"
                   : NULL;
    case DECODE_STRIP:
        return s->late && (s->stop > 0 || s->start > 1)
                   ? "Strip of more of the whole text than its first character"
               : is_bytes && !s->late ? "Strip after ByteFallback"
                                      : NULL;
    case DECODE_BYTE_FALLBACK:
        return s->late ? "ByteFallback after a step that joins tokens" : NULL;
    case DECODE_WORDPIECE:
        return joins && s->cleanup ? "WordPiece's cleanup after a step that joins tokens" : NULL;
    default:
        return NULL;
    }
}

const char *decoder_sum_obstacle(const decoder *d) {
    bool is_bytes = false;
    for (int32_t i = 0; i < d->n; i++) {
        const char *obstacle = step_obstacle(&d->steps[i], is_bytes);
        if (obstacle != NULL) {
            return obstacle;
        }
        is_bytes =
            is_bytes || d->steps[i].kind == DECODE_BYTE_FALLBACK || d->steps[i].kind == DECODE_BYTE_LEVEL;
    }
    return NULL;
}
