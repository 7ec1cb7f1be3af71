/* Starts with a pack cache: the second loads the packed form, which is the same model to
 * everything else. */
#include "remove_directory.h"
#include "setup/engine_parts.h"

#include <stdio.h>
#include <stdlib.h>

#include <string.h>
#include <unistd.h>

static const char MODEL[] = "models/builtin-small.gguf"; /* the file: it has a vocabulary and a template */

static quire_options options_with(const char *cache) {
    quire_options o;
    quire_options_init(&o);
    assert_null(o.pack_cache); /* a library writes nowhere unless it is told to */
    o.model = MODEL;
    o.n_pages = 64;
    o.n_threads = 2;
    o.pack_cache = cache;
    o.pack_cache_least_us = 0; /* it loads faster than what is kept by default */
    return o;
}

/* What is the same in every start. */
typedef struct seen {
    bool is_hit;
    char version[KV_VERSION_BYTES + 1];
    quire_info info;
    token_list ids;
} seen;

static seen start_with(const char *cache, const char *tier, const char *override_kv) {
    static const char text[] = "Once upon a time, <s> \xe6\x97\xa5 12345";
    quire_options o = options_with(cache);
    engine_parts p;
    quire_error err = {0};
    seen s = {.is_hit = false};
    o.override_kv = override_kv;
    o.tier_file = tier;
    o.tier_file_bytes = 1 << 24;
    if (engine_parts_open(&o, &(engine_ablations){0}, &(engine_parts_check){0}, NULL, &p, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    s.is_hit = p.pack.file != p.pack.source;
    s.info = p.info;
    memcpy(s.version, p.tier_version, sizeof s.version);
    assert_int_equal(tokenizer_encode(p.tokenizer, (str){text, strlen(text)},
                                      (encode_options){.add_special = true}, &s.ids, &err),
                     QUIRE_OK);
    engine_parts_close(&p);
    return s;
}

static seen start(const char *cache, const char *tier) {
    return start_with(cache, tier, NULL);
}

TEST(a_hit_is_the_same_model) {
    char cache[] = "/tmp/quire-pack-XXXXXX", tier[] = "/tmp/quire-tiers-XXXXXX";
    assert_non_null(mkdtemp(cache));
    assert_non_null(mkdtemp(tier));
    seen none = start(NULL, tier), first = start(cache, tier), second = start(cache, tier);
    assert_false(none.is_hit);
    assert_false(first.is_hit);
    assert_true(second.is_hit);
    const seen *all[] = {&first, &second};
    for (int i = 0; i < 2; i++) {
        assert_string_equal(all[i]->version, none.version); /* so that pages in tiers are found again */
        assert_int_equal(all[i]->info.n_params, none.info.n_params);
        assert_int_equal(all[i]->info.weight_bytes, none.info.weight_bytes);
        assert_int_equal(all[i]->info.max_model_len, none.info.max_model_len);
        assert_int_equal(all[i]->info.has_chat_template, none.info.has_chat_template);
        assert_int_equal(all[i]->ids.n, none.ids.n);
        assert_memory_equal(all[i]->ids.ids, none.ids.ids, none.ids.n * sizeof *none.ids.ids);
    }
    token_list_deinit(&none.ids);
    token_list_deinit(&first.ids);
    token_list_deinit(&second.ids);
    remove_directory(cache);
    remove_directory(tier);
}

static bool keeps(int64_t load_us, int64_t least_us) {
    char cache[] = "/tmp/quire-pack-XXXXXX";
    assert_non_null(mkdtemp(cache));
    pack_start s = {0};
    quire_error err = {0};
    model_file *f;
    assert_int_equal(model_file_open(MODEL, &f, &err), QUIRE_OK);
    s.source = model_file_share(f);
    s.file = model_file_share(f);
    model_file_close(f);
    assert_int_equal(packed_image_open(COMPUTE_INT8, &s.image), QUIRE_OK);
    assert_int_equal(pack_cache_open(cache, INT64_MAX, &s.cache, &err), QUIRE_OK);
    pack_start_loaded(&s, load_us, least_us);
    bool is_kept = s.image != NULL;
    pack_start_keep(&s, NULL);
    assert_int_equal(s.keeper != NULL, is_kept);
    pack_start_close(&s);
    remove_directory(cache);
    return is_kept;
}

TEST(what_loads_in_less_than_the_least_time_is_not_kept) {
    quire_options o;
    quire_options_init(&o);
    assert_int_equal(o.pack_cache_least_us, 150000);
    assert_false(keeps(149999, o.pack_cache_least_us));
    assert_true(keeps(150000, o.pack_cache_least_us));
    assert_true(keeps(0, 0));
}

/* Overrides make another model: its packed form is its own, and carries them. */
TEST(a_packed_form_is_found_with_its_own_overrides_only) {
    static const char *const texts[] = {NULL, "llama.context_length=int:777", "llama.context_length=int:778"};
    char cache[] = "/tmp/quire-pack-XXXXXX", tier[] = "/tmp/quire-tiers-XXXXXX",
         versions[3][KV_VERSION_BYTES + 1];
    assert_non_null(mkdtemp(cache));
    assert_non_null(mkdtemp(tier));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            seen s = start_with(cache, tier, texts[i]);
            assert_int_equal(s.is_hit, round == 1);
            assert_true(i == 0 || s.info.model_max_len == 776 + i);
            if (round == 0) {
                memcpy(versions[i], s.version, sizeof versions[i]);
            }
            assert_string_equal(s.version, versions[i]);
            token_list_deinit(&s.ids);
        }
    }
    assert_string_not_equal(versions[0], versions[1]);
    assert_string_not_equal(versions[1], versions[2]);
    remove_directory(cache);
    remove_directory(tier);
}

/* An engine that could not open keeps nothing: its options are wrong, not the model. */
TEST(a_failed_start_keeps_nothing) {
    char cache[] = "/tmp/quire-pack-XXXXXX";
    assert_non_null(mkdtemp(cache));
    quire_options o = options_with(cache);
    engine_parts p;
    quire_error err = {0};
    o.max_model_len = 1025; /* more than 64 pages hold */
    quire_err r = engine_parts_open(&o, &(engine_ablations){0}, &(engine_parts_check){0}, NULL, &p, &err);
    assert_int_not_equal(r, QUIRE_OK);
    engine_parts_close(&p);
    assert_int_equal(rmdir(cache), 0); /* it is empty */
}

TEST_MAIN(NULL, NULL)
