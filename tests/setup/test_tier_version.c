/* What the pages in the tiers that outlive a process say of themselves. */
#include "base/comma_locale.h"

#include "remove_directory.h"
#include "setup/engine_parts.h"

static void version_of(const char *directory, quire_kv_dtype kv_dtype, const char *override_kv,
                       char out[KV_VERSION_BYTES + 1]) {
    quire_options o;
    engine_parts p;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.n_pages = 64;
    o.n_threads = 1;
    o.kv_dtype = kv_dtype;
    o.override_kv = override_kv;
    o.tier_file = directory;
    o.tier_file_bytes = 1 << 24;
    if (engine_parts_open(&o, &(engine_ablations){0}, &(engine_parts_check){0}, NULL, &p, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    memcpy(out, p.tier_version, KV_VERSION_BYTES + 1);
    engine_parts_close(&p);
}

TEST(a_stored_page_names_the_type_and_the_layout_of_its_bytes) {
    char directory[] = "/tmp/quire-tiers-XXXXXX", f16[KV_VERSION_BYTES + 1], int8[KV_VERSION_BYTES + 1],
         layout[32];
    assert_non_null(mkdtemp(directory));
    version_of(directory, QUIRE_KV_F16, NULL, f16);
    version_of(directory, QUIRE_KV_INT8, NULL, int8);
    (void)snprintf(layout, sizeof layout, " in pages %d,", KV_LAYOUT_VERSION);
    assert_non_null(strstr(f16, layout));
    assert_non_null(strstr(int8, layout));
    assert_string_not_equal(f16, int8);
    remove_directory(directory);
}

TEST(overrides_are_part_of_it) {
    static const char *const texts[] = {NULL, "llama.rope.freq_base=float:20000",
                                        "llama.rope.freq_base=float:20001", "general.name=str:other",
                                        "llama.rope.freq_base=float:2e4"};
    char directory[] = "/tmp/quire-tiers-XXXXXX", versions[5][KV_VERSION_BYTES + 1];
    assert_non_null(mkdtemp(directory));
    for (int i = 0; i < 5; i++) {
        version_of(directory, QUIRE_KV_F16, texts[i], versions[i]);
        for (int k = 0; k < i && i < 4; k++) {
            assert_string_not_equal(versions[i], versions[k]);
        }
    }
    assert_string_equal(versions[4], versions[1]); /* another way to say the same */
    remove_directory(directory);
}

/* Pages that a program with commas in its numbers has stored are found by one without. */
COMMA_TEST(a_locale_with_commas_changes_nothing) {
    char directory[] = "/tmp/quire-tiers-XXXXXX", commas[KV_VERSION_BYTES + 1], points[KV_VERSION_BYTES + 1];
    assert_non_null(mkdtemp(directory));
    version_of(directory, QUIRE_KV_F16, NULL, commas);
    setlocale(LC_NUMERIC, "C");
    version_of(directory, QUIRE_KV_F16, NULL, points);
    assert_string_equal(commas, points);
    remove_directory(directory);
}

TEST_MAIN(NULL, NULL)
