#include "file/vocab_files.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/json_scan.h"

#define MAX_VOCAB_BYTES ((size_t)512 << 20)
#define MAX_NAMES       64 /* most tokenizer files in one directory */

static bool is_base64(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

/* Whether the file has lines of base64 and a number, judged by the first line. */
static bool is_ranks(str bytes) {
    size_t i = 0;
    while (i < bytes.n && is_base64(bytes.p[i])) {
        i++;
    }
    while (i > 0 && i < bytes.n && bytes.p[i] == '=') {
        i++;
    }
    return i > 0 && i + 1 < bytes.n && bytes.p[i] == ' ' && bytes.p[i + 1] >= '0' && bytes.p[i + 1] <= '9';
}

/* Detects the format of a tokenizer file by its first bytes. VOCAB_NONE: unknown. */
static vocab_source vocab_files_format(str bytes) {
    json_scan s = {.text = bytes};
    str config;
    if (bytes.n > 0 && bytes.p[0] == '\n') { /* a SentencePiece ModelProto begins with field 1, bytes */
        return VOCAB_SENTENCEPIECE;
    }
    if (json_scan_peek(&s) == '{') {
        return json_scan_member(bytes, "config", &config) == QUIRE_OK ? VOCAB_TEKKEN : VOCAB_TOKENIZER_JSON;
    }
    return is_ranks(bytes) ? VOCAB_RANKS : VOCAB_NONE;
}

static void vocab_files_use(model_file *f, str bytes, vocab_source format) {
    f->vocab.source = format;
    *(format == VOCAB_TOKENIZER_JSON ? &f->vocab.tokenizer_json : &f->vocab.model_bytes) = bytes;
}

/* ---- directories ---- */

typedef struct name_list {
    char *names[MAX_NAMES];
    size_t n;
} name_list;

static bool is_vocab_name(str name) {
    return str_ends(name, ".model") || str_contains(name, str_of(".model.v")) ||
           str_ends(name, ".tiktoken") || str_is(name, "tekken.json");
}

/* Ranks the usual names first, then the others in alphabetical order. */
static int vocab_files_rank_of(const char *name) {
    static const char *const usual[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
                                        "tiktoken.model"};
    int n = (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < n; i++) {
        if (strcmp(name, usual[i]) == 0) {
            return i;
        }
    }
    return n;
}

static int vocab_files_compare(const void *x, const void *y) {
    const char *a = *(char *const *)x, *b = *(char *const *)y;
    int c = vocab_files_rank_of(a) - vocab_files_rank_of(b);
    return c != 0 ? c : strcmp(a, b);
}

static quire_err vocab_files_list_names(const char *dir, name_list *out, quire_error *err) {
    DIR *d = opendir(dir);
    if (d == NULL) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", dir, strerror(errno));
    }
    bool ok = true;
    for (struct dirent *entry = readdir(d); entry != NULL && ok && out->n < MAX_NAMES; entry = readdir(d)) {
        str name = str_of(entry->d_name);
        if (hf_is_plain_name(name) && is_vocab_name(name)) {
            out->names[out->n] = mem_dup(name.p, name.n);
            ok = out->names[out->n] != NULL;
            out->n += ok;
        }
    }
    closedir(d);
    qsort(out->names, out->n, sizeof *out->names, vocab_files_compare);
    return ok ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for its files", dir);
}

/* Uses the first file of the most preferred format present. */
static quire_err use_best(model_file *f, const name_list *l, quire_error *err) {
    static const vocab_source order[] = {VOCAB_SENTENCEPIECE, VOCAB_RANKS, VOCAB_TEKKEN};
    str found[3] = {{0}};
    for (size_t i = 0; i < l->n && found[0].p == NULL; i++) {
        strbuf path = {0};
        file_map map;
        TRY(open_file_join(&path, f->path, l->names[i], err));
        quire_err e = open_file_map(f, path.p, MAX_VOCAB_BYTES, &map, err);
        strbuf_deinit(&path);
        TRY(e);
        vocab_source format = vocab_files_format(file_map_text(&map));
        for (int k = 0; k < 3; k++) {
            found[k] = order[k] == format && found[k].p == NULL ? file_map_text(&map) : found[k];
        }
    }
    for (int k = 0; k < 3 && f->vocab.source == VOCAB_NONE; k++) {
        if (found[k].p != NULL) {
            vocab_files_use(f, found[k], order[k]);
        }
    }
    return QUIRE_OK;
}

quire_err vocab_files_read(model_file *f, quire_error *err) {
    assert(f != NULL);
    if (f->vocab.tokenizer_json.n > 0) {
        f->vocab.source = VOCAB_TOKENIZER_JSON;
        return QUIRE_OK;
    }
    if (f->is_packed) {
        str bytes = packed_section(f, VOCAB_MODEL_SECTION);
        vocab_files_use(f, bytes, vocab_files_format(bytes));
        return QUIRE_OK;
    }
    name_list l = {.n = 0};
    quire_err e = vocab_files_list_names(f->path, &l, err);
    TRY_DONE(e, use_best(f, &l, err));
done:
    for (size_t i = 0; i < l.n; i++) {
        mem_free(l.names[i]);
    }
    return e;
}

quire_err vocab_files_open(model_file *f, const char *path, file_map map, quire_error *err) {
    vocab_source format = vocab_files_format(file_map_text(&map));
    vocab_init(&f->vocab);
    if (format == VOCAB_NONE) {
        return err_set(err, QUIRE_BAD_FILE, 0,
                       "%s: no tokenizer: neither a GGUF file, nor tokenizer.json, a SentencePiece model, a "
                       "rank file or tekken.json",
                       path);
    }
    vocab_files_use(f, file_map_text(&map), format);
    return QUIRE_OK;
}
