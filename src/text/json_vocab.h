/* The parts of a tokenizer.json, found in one pass: the vocabulary as entries, the other
 * components as spans for their own readers. */
#ifndef TEXT_JSON_VOCAB_H
#define TEXT_JSON_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* An entry of the model's vocabulary. Its text points into the file, or, when it had
 * escapes, into the reader's own buffer. */
typedef struct json_entry {
    size_t at;
    uint32_t n;
    bool own;
    int32_t id;
    double score; /* of Unigram; else 0 */
} json_entry;

typedef struct json_vocab {
    str added, normalizer, pretokenizer, post, decoder; /* spans of the file */
    /* of the model; vocab and merges are spans, the others are in texts */
    str type, vocab, merges, unk, prefix, suffix;
    bool fuse_unk, byte_fallback, ignore_merges, has_dropout;
    bool has_prefix; /* continuing_subword_prefix is given, perhaps empty */
    bool is_scored;  /* the vocabulary is a list with scores, as Unigram has it */
    json_entry *entries;
    size_t n, cap;
    strbuf own, scratch, texts[4];
    str file;
    /* of the model: unk_id -1: none; max_chars of a WordPiece word, -1: not given */
    int64_t max_id, unk_id, max_chars;
} json_vocab;

/* Fills *r from file, which is borrowed; r->file is set. The caller calls
 * json_vocab_deinit, also after a failure. */
quire_err json_vocab_read(json_vocab *r, str file, quire_error *err);
void json_vocab_deinit(json_vocab *r);
str json_vocab_text(const json_vocab *r, const json_entry *e);
/* Appends file with an empty vocabulary and no merges: the rest of the file that a
 * tokenizer with tables (tables.h) reads. */
quire_err json_vocab_strip(str file, strbuf *out, quire_error *err);

#endif
