/* Tables: a tokenizer with the tables of another one gives the same ids; forged tables
 * are refused, or searched within their bounds. */
#include "shared.h"

#include <dirent.h>

#include "base/rng.h"
#include "text/json_vocab.h"
#include "text/piece_table.h"
#include "text/tables.h"
#include "text/tokenizer_impl.h"

static const char TEXT[] = "Once upon a time, \xC3\xA9t\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E!  don't "
                           " 12345\n\n<s> <|im_start|> \xF0\x9F\x98\x80\t"
                           "antidisestablishmentarianism ASCII \xF0\x9D\x94\x98 \xE2\x96\x81x \x01\xFF";

typedef struct packed_vocab {
    vocab v;
    char *tables; /* at a multiple of 64 */
    strbuf json;
} packed_vocab;

/* What a packed model offers of v, whose tokenizer is t. */
static packed_vocab pack(const vocab *v, const tokenizer *t) {
    packed_vocab p = {.v = *v};
    strbuf b = {0};
    quire_error err = {0};
    assert_int_equal(tables_write(t, &b), QUIRE_OK);
    p.tables = mem_new(b.n, 1);
    memcpy(p.tables, b.p, b.n);
    p.v.tables = (str){p.tables, b.n};
    p.v.tokens = p.v.merges = NULL;
    p.v.scores = NULL;
    p.v.n_merges = 0;
    if (v->source == VOCAB_TOKENIZER_JSON) {
        assert_int_equal(json_vocab_strip(v->tokenizer_json, &p.json, &err), QUIRE_OK);
        p.v.tokenizer_json = (str){p.json.p, p.json.n};
    }
    strbuf_deinit(&b);
    return p;
}

static void packed_vocab_deinit(packed_vocab *p) {
    mem_free(p->tables);
    strbuf_deinit(&p->json);
}

static void check_text(const tokenizer *a, const tokenizer *b, str text) {
    for (int k = 0; k < 4; k++) {
        token_list x = {0}, y = {0};
        strbuf s = {0}, u = {0};
        encode_options o = {.special = k % 2 == 0 ? ENCODE_PLAIN : ENCODE_PARSE, .add_special = k >= 2};
        assert_int_equal(tokenizer_encode(a, text, o, &x, NULL), tokenizer_encode(b, text, o, &y, NULL));
        assert_int_equal(x.n, y.n);
        assert_true(x.n == 0 || memcmp(x.ids, y.ids, x.n * sizeof *x.ids) == 0);
        assert_int_equal(tokenizer_decode(a, x.ids, x.n, false, &s), QUIRE_OK);
        assert_int_equal(tokenizer_decode(b, y.ids, y.n, false, &u), QUIRE_OK);
        assert_true(str_eq((str){s.p, s.n}, (str){u.p, u.n}));
        token_list_deinit(&x);
        token_list_deinit(&y);
        strbuf_deinit(&s);
        strbuf_deinit(&u);
    }
}

static void check_alike(const tokenizer *a, const tokenizer *b) {
    assert_int_equal(tokenizer_n_tokens(a), tokenizer_n_tokens(b));
    assert_int_equal(a->bos, b->bos);
    assert_int_equal(a->eos, b->eos);
    assert_true(str_eq(tokenizer_bos_text(a), tokenizer_bos_text(b)));
    check_text(a, b, (str){TEXT, sizeof TEXT - 1});
    for (int32_t id = 0; id < tokenizer_n_tokens(a); id += 1 + id / 200) {
        assert_true(str_eq(tokenizer_piece(a, id), tokenizer_piece(b, id)));
        assert_int_equal(tokenizer_find(a, tokenizer_piece(a, id)),
                         tokenizer_find(b, tokenizer_piece(a, id)));
        assert_int_equal(tokenizer_is_special(a, id), tokenizer_is_special(b, id));
        check_text(a, b, tokenizer_piece(a, id));
    }
}

/* Opens the model at path; false when it has no tokenizer that this build reads. */
static bool check_model(const char *path) {
    model_file *f;
    tokenizer *a, *b;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        return false;
    }
    bool good = tokenizer_open(model_file_vocab(f), &a, &err) == QUIRE_OK;
    if (good) {
        packed_vocab p = pack(model_file_vocab(f), a);
        if (tokenizer_open(&p.v, &b, &err) != QUIRE_OK) {
            fail_msg("%s: %s", path, err.message);
        }
        check_alike(a, b);
        tokenizer_close(a);
        tokenizer_close(b);
        packed_vocab_deinit(&p);
    }
    model_file_close(f);
    return good;
}

static int check_directory(const char *relative) {
    char dir[1024], path[2048];
    int n = 0;
    shared_path(dir, relative);
    DIR *d = opendir(dir);
    if (d == NULL) {
        printf("SKIP: %s is not there\n", dir);
        return 0;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n += e->d_name[0] != '.' && check_model(path);
    }
    closedir(d);
    return n;
}

TEST(tokenizers_over_tables_are_the_tokenizers_they_were_made_of) {
    assert_true(check_model("models/builtin.gguf"));
    assert_true(check_model("models/builtin-small-hf"));
    int n = check_directory("golden/tokenizers") + check_directory("data/tokenizers") +
            check_directory("data/tokenizers/ggml-vocab");
    print_message("%d tokenizers\n", n);
}

static void check_forged(const char *path) {
    uint64_t seed = rng_os_seed();
    print_message("QUIRE_TEST_SEED=%llu\n", (unsigned long long)seed);
    model_file *f;
    tokenizer *t;
    quire_error err = {0};
    int n_opened = 0;
    assert_int_equal(model_file_open(path, &f, &err), QUIRE_OK);
    assert_int_equal(tokenizer_open(model_file_vocab(f), &t, &err), QUIRE_OK);
    packed_vocab p = pack(model_file_vocab(f), t);
    tokenizer_close(t);
    for (int i = 0; i < 2000; i++) {
        char *forged = mem_new(p.v.tables.n, 1);
        memcpy(forged, p.tables, p.v.tables.n);
        size_t n = i % 2 == 0 ? sizeof(tables_header) : p.v.tables.n;
        for (uint64_t k = 1 + rng_next(&seed) % 8; k > 0; k--) {
            static const uint32_t extremes[] = {0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 2048};
            uint32_t word =
                rng_next(&seed) % 2 == 0 ? extremes[rng_next(&seed) % 6] : (uint32_t)rng_next(&seed);
            memcpy(forged + rng_next(&seed) % (n / 4) * 4, &word, sizeof word);
        }
        vocab v = p.v;
        v.tables = (str){forged,
                         rng_next(&seed) % 16 == 0 ? (size_t)(rng_next(&seed) % p.v.tables.n) : p.v.tables.n};
        if (v.tables.n > 0 && tokenizer_open(&v, &t, &err) == QUIRE_OK) {
            token_list ids = {0};
            strbuf text = {0};
            n_opened++;
            (void)tokenizer_encode(t, (str){TEXT, sizeof TEXT - 1},
                                   (encode_options){.special = ENCODE_PARSE, .add_special = true}, &ids,
                                   NULL);
            (void)tokenizer_decode(t, ids.ids, ids.n, false, &text);
            token_list_deinit(&ids);
            strbuf_deinit(&text);
            tokenizer_close(t);
        }
        mem_free(forged);
    }
    print_message("%d of 2000 opened\n", n_opened);
    assert_true(n_opened > 0);
    packed_vocab_deinit(&p);
    model_file_close(f);
}

TEST(forged_tables_are_refused_or_searched_inside_their_bounds) {
    check_forged("models/builtin-small.gguf");
    check_forged("models/builtin-small-hf");
}

TEST(a_pair_of_the_largest_symbol_is_looked_for) {
    pair_table t;
    assert_int_equal(pair_table_init(&t, 4), QUIRE_OK);
    assert_int_equal(pair_table_put(&t, 1, 2, 0, INT32_MAX), QUIRE_OK);
    const pair_slot *merged = pair_table_find(&t, 1, 2);
    assert_non_null(merged);
    assert_null(pair_table_find(&t, merged->id, 2));
    pair_table_deinit(&t);
}

TEST(a_full_table_is_refused) {
    model_file *f;
    tokenizer *t;
    quire_error err = {0};
    assert_int_equal(model_file_open("models/builtin-small.gguf", &f, &err), QUIRE_OK);
    assert_int_equal(tokenizer_open(model_file_vocab(f), &t, &err), QUIRE_OK);
    packed_vocab p = pack(model_file_vocab(f), t);
    tokenizer_close(t);
    tables_header *h = (tables_header *)(void *)p.tables;
    /* the last table: there are no neighbours */
    pair_slot *slots = (pair_slot *)(void *)(p.tables + p.v.tables.n - h->pairs.n_slots * sizeof *slots);
    assert_int_equal(h->neighbours.n_slots, 0);
    for (size_t i = 0; i < h->pairs.n_slots; i++) {
        slots[i].left_plus_1 = 1; /* a search would never end */
    }
    assert_int_not_equal(tokenizer_open(&p.v, &t, &err), QUIRE_OK);
    assert_non_null(strstr(err.message, "pack the model again"));
    packed_vocab_deinit(&p);
    model_file_close(f);
}

TEST_MAIN(NULL, NULL)
