/* The parts of a tokenizer.json, found in one pass: the entries of the vocabulary; the
 * other components as spans for their own readers. */
#ifndef TEXT_JSON_VOCAB_H
#define TEXT_JSON_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* An entry of the model's vocabulary. Its text is in the file, or, if it has escapes, in
 * the reader's buffer. */
typedef struct json_entry {
    size_t at;
    uint32_t n;
    bool own;
    int32_t id;
    double score; /* Unigram: its score; else 0 */
} json_entry;

typedef struct json_vocab {
    str added, normalizer, pretokenizer, post, decoder; /* parts of the file */
    /* parts of the model: vocab and merges are in the file, the others in texts */
    str type, vocab, merges, unk, prefix, suffix;
    bool fuse_unk, byte_fallback, ignore_merges, has_dropout;
    bool has_prefix; /* continuing_subword_prefix is present; may be empty */
    bool is_scored;  /* the vocabulary is a list with scores, as for Unigram */
    json_entry *entries;
    size_t n, cap;
    strbuf own, scratch, texts[4];
    str file;
    /* of the model: unk_id, -1: none; max_chars: of a WordPiece word, -1: not given */
    int64_t max_id, unk_id, max_chars;
} json_vocab;

/* Reads `file`, which is borrowed, into *r. The caller calls json_vocab_deinit in any
 * case. QUIRE_BAD_FILE with the position; QUIRE_NO_MEMORY. */
quire_err json_vocab_read(json_vocab *r, str file, quire_error *err);
void json_vocab_deinit(json_vocab *r);
str json_vocab_text(const json_vocab *r, const json_entry *e);
/* Appends the file with an empty vocabulary and no merges: what a tokenizer with tables
 * (tables.h) still reads. Errors as in json_vocab_read. */
quire_err json_vocab_strip(str file, strbuf *out, quire_error *err);

#endif
