/* Models by name: names and paths, GGUF files by quantisation, which files are chosen,
 * the hub's list, the cache's layout and locks. */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "hub/hub_cache.h"
#include "hub/hub_choose.h"
#include "hub/hub_fetch.h"
#include "hub/hub_name.h"
#include "quire_hub.h"
#include "test.h"

#define SHA1   "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* ---- names ---- */

TEST(a_name_has_a_repository_a_pick_and_a_revision) {
    hub_name n;
    assert_int_equal(hub_name_parse("org/name-1.5B", &n, NULL), QUIRE_OK);
    assert_string_equal(n.repo, "org/name-1.5B");
    assert_string_equal(n.pick, "");
    assert_string_equal(n.revision, "main");
    assert_int_equal(hub_name_parse("o/n:dir/m-00001-of-00002.gguf@refs/pr/3", &n, NULL), QUIRE_OK);
    assert_string_equal(n.repo, "o/n");
    assert_string_equal(n.pick, "dir/m-00001-of-00002.gguf");
    assert_string_equal(n.revision, "refs/pr/3");
    assert_int_equal(hub_name_parse("o/n@v1.0", &n, NULL), QUIRE_OK);
    assert_string_equal(n.revision, "v1.0");
}

TEST(what_is_no_name_is_refused) {
    static const char *const bad[] = {
        "",         "name",     "/n",          "o/",       "o//n",     "o/n/x",  "o/n:",
        "o/n@",     "o/n:Q@",   ".o/n",        "-o/n",     "o/.n",     "o/n-",   "o/n.",
        "o--x/n",   "o/n--x",   "o/a..b",      "o/n x",    "o/n:../x", "o/n:/x", "o/n:a/../b.gguf",
        "o/n@../x", "o/n@a//b", "o/n@.hidden", "o/n:a\\b", "o/n:a\nb", "o:/n"};
    hub_name n;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        quire_error err = {.code = QUIRE_OK};
        assert_int_equal(hub_name_parse(bad[i], &n, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.message, "ORG/NAME"));
    }
}

TEST(a_path_of_a_file_is_no_name) {
    assert_true(quire_hub_is_name("org/name"));
    assert_true(quire_hub_is_name("org/name-GGUF:Q4_K_M"));
    assert_true(quire_hub_is_name("org/name:m.gguf"));
    assert_false(quire_hub_is_name("models/m.gguf"));
    assert_false(quire_hub_is_name("models/m.quire"));
    assert_false(quire_hub_is_name("./org/name"));
    assert_false(quire_hub_is_name("a/b/c"));
    assert_false(quire_hub_is_name("builtin"));
}

TEST(a_path_stays_below_its_directory_or_is_refused) {
    assert_true(hub_path_is_safe(str_of("a")));
    assert_true(hub_path_is_safe(str_of("a/b.c/d..e")));
    static const char *const bad[] = {"",
                                      "/a",
                                      "a/",
                                      "a//b",
                                      "..",
                                      "../a",
                                      "a/..",
                                      "a/../b",
                                      ".a",
                                      "a/.b",
                                      "a\\b",
                                      "a\tb",
                                      "1/2/3/4/5/6/7/8/9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hub_path_is_safe(str_of(bad[i])));
    }
    char longest[300];
    memset(longest, 'a', sizeof longest);
    assert_true(hub_path_is_safe((str){longest, 255}));
    assert_false(hub_path_is_safe((str){longest, 256}));
    assert_false(hub_path_is_safe((str){"a\0b", 3}));
    assert_false(hub_path_is_hostile(str_of(".gitattributes"))); /* unsafe, and common */
    assert_false(hub_path_is_hostile(str_of("a..b/c")));
    assert_true(hub_path_is_hostile(str_of("a/../b")));
    assert_true(hub_path_is_hostile(str_of("/a")));
}

TEST(a_token_is_for_one_origin) {
    const char *hub = "https://hub.example";
    assert_true(hub_same_origin(hub, "https://hub.example/a"));
    assert_true(hub_same_origin(hub, "https://hub.example"));
    assert_true(hub_same_origin("https://hub.example/mirror", "https://hub.example/a"));
    static const char *const others[] = {"http://hub.example/a",
                                         "https://hub.example.evil/a",
                                         "https://hub.example:8443/a",
                                         "https://hub.example@evil/a",
                                         "https://evil/https://hub.example",
                                         "https://hub.example\\@evil/a",
                                         "https://HUB.example.evil",
                                         "hub.example/a",
                                         ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(hub_same_origin(hub, others[i]));
    }
    assert_true(hub_is_loopback("http://127.0.0.1:80/x"));
    assert_true(hub_is_loopback("http://localhost"));
    assert_true(hub_is_loopback("http://[::1]:9"));
    assert_false(hub_is_loopback("http://localhost.evil"));
    assert_false(hub_is_loopback("http://127.0.0.1.evil/"));
    assert_false(hub_is_loopback("http://127.0.0.1:x@evil/"));
}

TEST(an_address_is_escaped) {
    strbuf b = {0};
    assert_int_equal(hub_escape(str_of("a/b c?#%\xc3\xa9~"), true, &b), QUIRE_OK);
    assert_string_equal(b.p, "a/b%20c%3F%23%25%C3%A9~");
    strbuf_clear(&b);
    assert_int_equal(hub_escape(str_of("refs/pr/1"), false, &b), QUIRE_OK);
    assert_string_equal(b.p, "refs%2Fpr%2F1");
    strbuf_deinit(&b);
}

/* ---- GGUF files ---- */

TEST(a_quantisation_is_read_from_a_files_name) {
    static const char *const cases[][2] = {{"m-Q4_K_M.gguf", "Q4_K_M"},
                                           {"m.q8_0.gguf", "q8_0"},
                                           {"Qwen3-0.6B-BF16.gguf", "BF16"},
                                           {"m-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
                                           {"UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"},
                                           {"gpt-oss-20b-mxfp4.gguf", "mxfp4"},
                                           {"phi-3-mini-4k-instruct-q4.gguf", "q4"},
                                           {"m-TQ1_0.GGUF", "TQ1_0"},
                                           {"Q8_0/model.gguf", "Q8_0"},
                                           {"m-Q4_0_4_4.gguf", "Q4_0_4_4"},
                                           {"model.gguf", ""},
                                           {"Qwen-Q.gguf", ""},
                                           {"IQ-test.gguf", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_gguf g;
        assert_true(hub_gguf_read(str_of(cases[i][0]), &g));
        assert_true(str_is(g.quant, cases[i][1]));
    }
    hub_gguf g;
    assert_false(hub_gguf_read(str_of("mmproj-model-f16.gguf"), &g));
    assert_false(hub_gguf_read(str_of("m.imatrix.gguf"), &g));
    assert_false(hub_gguf_read(str_of("config.json"), &g));
    assert_false(hub_gguf_read(str_of(".gguf"), &g));
}

TEST(parts_have_the_same_stem) {
    hub_gguf g;
    assert_true(hub_gguf_read(str_of("d/m-Q8_0-00002-of-00010.gguf"), &g));
    assert_true(str_is(g.stem, "d/m-Q8_0"));
    assert_int_equal(g.part, 2);
    assert_int_equal(g.n_parts, 10);
    assert_true(hub_gguf_read(str_of("m-00003-of-00002.gguf"), &g)); /* no part of two */
    assert_int_equal(g.n_parts, 1);
    assert_true(hub_gguf_read(str_of("m-0000x-of-00002.gguf"), &g));
    assert_int_equal(g.n_parts, 1);
}

/* ---- choosing ---- */

static hub_listing listing_of(const char *const *paths) {
    hub_listing l = {.n = 0};
    for (; *paths; paths++) {
        assert_int_equal(hub_listing_add(&l, str_of(*paths), str_of(SHA1), 1), QUIRE_OK);
    }
    hub_listing_sort(&l);
    return l;
}

/* The chosen paths, in the order of the choice, with a blank after each. */
static void assert_choice(const char *const *paths, const char *pick, const char *wanted, const char *first) {
    hub_listing l = listing_of(paths);
    hub_choice c;
    quire_error err = {.code = QUIRE_OK};
    strbuf text = {0};
    assert_int_equal(hub_choose(&l, "o/n", pick, &c, &err), QUIRE_OK);
    for (size_t i = 0; i < c.n; i++) {
        assert_int_equal(strbuf_addf(&text, "%s ", l.files[c.files[i]].path), QUIRE_OK);
    }
    assert_string_equal(text.p, wanted);
    assert_string_equal(c.first >= 0 ? l.files[c.first].path : "", first);
    strbuf_deinit(&text);
    hub_choice_deinit(&c);
    hub_listing_deinit(&l);
}

static quire_err choose_error(const char *const *paths, const char *pick, const char *words) {
    hub_listing l = listing_of(paths);
    hub_choice c;
    quire_error err = {.code = QUIRE_OK};
    quire_err e = hub_choose(&l, "o/n", pick, &c, &err);
    assert_non_null(strstr(err.message, words));
    hub_choice_deinit(&c);
    hub_listing_deinit(&l);
    return e;
}

#define PATHS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The same of an adapter: its paths, or the words of the error. */
static void assert_adapter(const char *const *paths, const char *pick, const char *wanted) {
    hub_listing l = listing_of(paths);
    hub_choice c;
    quire_error err = {.code = QUIRE_OK};
    strbuf text = {0};
    if (hub_choose_adapter(&l, "o/n", pick, &c, &err) != QUIRE_OK) {
        assert_non_null(strstr(err.message, wanted));
    } else {
        for (size_t i = 0; i < c.n; i++) {
            assert_int_equal(strbuf_addf(&text, "%s ", l.files[c.files[i]].path), QUIRE_OK);
        }
        assert_string_equal(text.p, wanted);
        assert_true(c.has_weights);
    }
    strbuf_deinit(&text);
    hub_choice_deinit(&c);
    hub_listing_deinit(&l);
}

TEST(an_adapter_is_its_config_and_its_weights) {
    static const char both[] = "adapter_model.safetensors adapter_config.json ";
    assert_adapter(PATHS("adapter_config.json", "adapter_model.bin", "adapter_model.safetensors",
                         "config.json", "model.safetensors", "tokenizer.json"),
                   "", both);
    assert_adapter(PATHS("README.md", "a-F16.gguf"), "", "a-F16.gguf ");
    assert_adapter(PATHS("adapter_config.json", "a-F16.gguf", "a-Q8_0.gguf"), "Q8_0", "a-Q8_0.gguf ");
    assert_adapter(PATHS("adapter_config.json", "adapter_model.bin"), "", "pickles");
    assert_adapter(PATHS("adapter_config.json", "model.safetensors"), "", "not a LoRA adapter");
    assert_adapter(PATHS("adapter_model.safetensors"), "", "not a LoRA adapter");
}

TEST(weights_as_safetensors_go_first_with_the_texts_beside_them) {
    assert_choice(PATHS("README.md", "config.json", "m-Q4_0.gguf", "model.safetensors", "pytorch_model.bin",
                        "tokenizer.model", "x.py"),
                  "", "model.safetensors config.json tokenizer.model ", "");
    assert_choice(PATHS("config.json", "model-a.safetensors", "model-b.safetensors", "other.safetensors"), "",
                  "model-a.safetensors model-b.safetensors config.json ", "");
    assert_choice(PATHS("1_Pooling/config.json", "2_Dense/model.safetensors",
                        "additional_chat_templates/rag.jinja", "modules.json", "model.safetensors",
                        "onnx/config.json", "qwen.tiktoken"),
                  "",
                  "model.safetensors 1_Pooling/config.json 2_Dense/model.safetensors "
                  "additional_chat_templates/rag.jinja modules.json "
                  "qwen.tiktoken ",
                  "");
    assert_choice(PATHS("tokenizer.json"), "", "tokenizer.json ", "");
}

TEST(one_gguf_model_is_chosen_with_all_its_parts) {
    const char *const *paths = PATHS("config.json", "m-F16.gguf", "m-Q4_K_M-00001-of-00002.gguf",
                                     "m-Q4_K_M-00002-of-00002.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf");
    assert_choice(paths, "", "m-Q4_K_M-00001-of-00002.gguf m-Q4_K_M-00002-of-00002.gguf ",
                  "m-Q4_K_M-00001-of-00002.gguf");
    assert_choice(paths, "q8_0", "m-Q8_0.gguf ", "m-Q8_0.gguf");
    assert_choice(paths, "m-Q4_K_M-00002-of-00002.gguf",
                  "m-Q4_K_M-00001-of-00002.gguf m-Q4_K_M-00002-of-00002.gguf ",
                  "m-Q4_K_M-00001-of-00002.gguf");
    assert_choice(PATHS("m-Q6_K.gguf", "m-Q3_K_S.gguf"), "", "m-Q3_K_S.gguf ", "m-Q3_K_S.gguf");
    assert_int_equal(choose_error(paths, "Q2_K", "it has F16, Q4_K_M, Q8_0"), QUIRE_INVALID);
    assert_int_equal(choose_error(paths, "mmproj-F16.gguf", "is not a model itself"), QUIRE_UNSUPPORTED);
    assert_int_equal(choose_error(paths, "x.gguf", "F16, Q4_K_M, Q8_0"), QUIRE_NOT_FOUND);
    assert_int_equal(choose_error(PATHS("m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"), "",
                                  "part 2 of the 3"),
                     QUIRE_BAD_FILE);
    assert_int_equal(
        choose_error(PATHS("a-Q8_0.gguf", "b-Q8_0.gguf"), "Q8_0", "o/n:a-Q8_0.gguf or o/n:b-Q8_0.gguf"),
        QUIRE_INVALID);
    assert_int_equal(choose_error(PATHS("pytorch_model.bin", "config.json"), "", "pickles"),
                     QUIRE_UNSUPPORTED);
    assert_int_equal(choose_error(PATHS("README.md"), "", "nothing that Quire reads"), QUIRE_NOT_FOUND);
}

static quire_err add_shards_of(const char *index, hub_choice *c, hub_listing *l) {
    *l = listing_of(PATHS("config.json", HUB_INDEX, "model-1.safetensors", "model-2.safetensors",
                          "model-3.safetensors", "x.bin"));
    assert_int_equal(hub_choose(l, "o/n", "", c, NULL), QUIRE_OK);
    assert_true(c->index >= 0);
    return hub_choose_shards(l, "o/n", str_of(index), c, NULL);
}

TEST(shards_are_those_that_the_index_names) {
    hub_listing l;
    hub_choice c;
    assert_int_equal(add_shards_of("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-3."
                                   "safetensors\",\"c\":\"model-1.safetensors\"}}",
                                   &c, &l),
                     QUIRE_OK);
    assert_int_equal(c.n, 4); /* index, config, two shards */
    assert_string_equal(l.files[c.files[2]].path, "model-1.safetensors");
    assert_string_equal(l.files[c.files[3]].path, "model-3.safetensors");
    assert_int_equal(c.index, -1);
    hub_choice_deinit(&c);
    hub_listing_deinit(&l);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"weight_map\":{\"a\":\"model-9.safetensors\"}}",
                                      "{\"weight_map\":{\"a\":\"x.bin\"}}",
                                      "{\"weight_map\":{\"a\":1}}",
                                      "{\"weight_map\":{\"a\":\"../x.safetensors\"}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(add_shards_of(bad[i], &c, &l), QUIRE_BAD_FILE);
        hub_choice_deinit(&c);
        hub_listing_deinit(&l);
    }
}

/* ---- the hub's list ---- */

static quire_err parse(const char *json, hub_listing *l, quire_error *err) {
    return hub_listing_parse(str_of(json), "o/n", l, err);
}

TEST(a_list_gives_sizes_and_hashes) {
    hub_listing l;
    assert_int_equal(parse("{\"sha\":\"" SHA1 "\",\"siblings\":["
                           "{\"rfilename\":\"m.gguf\",\"size\":7,\"blobId\":\"" SHA1
                           "\",\"lfs\":{\"sha256\":\"" SHA256 "\"}},"
                           "{\"rfilename\":\".gitattributes\"},"
                           "{\"rfilename\":\"config.json\",\"size\":0,\"blobId\":\"" SHA1
                           "\",\"lfs\":null}]}",
                           &l, NULL),
                     QUIRE_OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.commit, SHA1);
    assert_string_equal(l.files[0].path, "config.json");
    assert_string_equal(l.files[0].id, SHA1);
    assert_string_equal(l.files[1].id, SHA256);
    assert_int_equal(l.files[1].n_bytes, 7);
    assert_int_equal(hub_listing_find(&l, str_of("m.gguf")), 1);
    assert_int_equal(hub_listing_find(&l, str_of("m.ggu")), -1);
    assert_int_equal(hub_listing_find(&l, str_of("m.gguf2")), -1);
    hub_listing_deinit(&l);
}

TEST(a_list_that_cannot_be_proved_is_refused) {
#define LIST(sibling) "{\"sha\":\"" SHA1 "\",\"siblings\":[" sibling "]}"
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{\"sha\":\"main\",\"siblings\":[]}",
        "{\"sha\":\"" SHA1 "\"}",
        LIST("{\"rfilename\":\"a\"}"),
        LIST("1"),
        LIST("{\"rfilename\":\"a\",\"size\":1}"),
        LIST("{\"rfilename\":\"a\",\"size\":-1,\"blobId\":\"" SHA1 "\"}"),
        LIST("{\"rfilename\":\"a\",\"size\":1.5,\"blobId\":\"" SHA1 "\"}"),
        LIST("{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"../../x\"}"),
        LIST("{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"" SHA1 "\",\"lfs\":{\"sha256\":\"" SHA1 "\"}}"),
        LIST("{\"rfilename\":\"../a\",\"size\":1,\"blobId\":\"" SHA1 "\"}"),
        LIST("{\"rfilename\":\"/a\",\"size\":1,\"blobId\":\"" SHA1 "\"}"),
        LIST("{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"" SHA1
             "\"},{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"" SHA1 "\"}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hub_listing l;
        quire_error err = {.code = QUIRE_OK};
        assert_int_equal(parse(bad[i], &l, &err), QUIRE_BAD_FILE);
        assert_true(err.message[0] != 0);
        hub_listing_deinit(&l);
    }
}

TEST(hashes_are_those_of_git_and_of_lfs) {
    hub_digest d = {0};
    char out[HUB_DIGEST_BYTES];
    assert_int_equal(hub_digest_begin(&d, SHA1, 6), QUIRE_OK); /* echo hello | git hash-object --stdin */
    assert_int_equal(hub_digest_add(&d, "hel", 3), QUIRE_OK);
    assert_int_equal(hub_digest_add(&d, "lo\n", 3), QUIRE_OK);
    assert_int_equal(hub_digest_end(&d, out), QUIRE_OK);
    assert_string_equal(out, "ce013625030ba8dba906f756967f9e9ca394464a");
    assert_int_equal(hub_digest_begin(&d, SHA256, 3), QUIRE_OK);
    assert_int_equal(hub_digest_add(&d, "abc", 3), QUIRE_OK);
    assert_int_equal(hub_digest_end(&d, out), QUIRE_OK);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hub_digest_deinit(&d);
}

/* ---- the cache ---- */

typedef struct world {
    char dir[64];
    hub_repo repo;
} world;

static world world_new(void) {
    world w = {.dir = "/tmp/quire-hub-XXXXXX"};
    assert_non_null(mkdtemp(w.dir));
    assert_int_equal(hub_repo_init(w.dir, "org/name", &w.repo, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_make(&w.repo, NULL), QUIRE_OK);
    return w;
}

static quire_err delete_entry(void *user, const char *name);

static void delete_all(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    if (S_ISDIR(st.st_mode)) {
        assert_int_equal(hub_visit_all(path, delete_entry, (void *)(uintptr_t)path, NULL), QUIRE_OK);
    }
    assert_int_equal(remove(path), 0);
}

static quire_err delete_entry(void *user, const char *name) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    delete_all(path);
    return QUIRE_OK;
}

static void world_delete(world *w) {
    hub_repo_deinit(&w->repo);
    delete_all(w->dir);
}

static void write_blob(const world *w, const char *id, const char *text) {
    strbuf path = {0};
    assert_int_equal(hub_repo_blob(&w->repo, id, "", &path, NULL), QUIRE_OK);
    FILE *f = fopen(path.p, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    strbuf_deinit(&path);
}

TEST(the_cache_is_laid_out_as_huggingface_hubs) {
    world w = world_new();
    char path[512], target[512];
    write_blob(&w, SHA256, "text");
    hub_file f = {.path = mem_dup("a/b/m.gguf", 10), .id = SHA256, .n_bytes = 4};
    assert_int_equal(hub_repo_link(&w.repo, SHA1, &f, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_link(&w.repo, SHA1, &f, NULL), QUIRE_OK); /* once more */
    (void)snprintf(path, sizeof path, "%s/models--org--name/snapshots/%s/a/b/m.gguf", w.dir, SHA1);
    ssize_t n = readlink(path, target, sizeof target);
    assert_true(n > 0 && str_is((str){target, (size_t)n}, "../../../../blobs/" SHA256));
    char commit[41];
    assert_false(hub_repo_commit(&w.repo, "main", commit));
    assert_int_equal(hub_repo_set_ref(&w.repo, "main", SHA1, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_set_ref(&w.repo, "refs/pr/1", SHA1, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_set_ref(&w.repo, SHA1, SHA1, NULL), QUIRE_OK); /* a commit has no reference */
    assert_true(hub_repo_commit(&w.repo, "refs/pr/1", commit));
    assert_string_equal(commit, SHA1);
    assert_true(hub_repo_commit(&w.repo, SHA1, commit));
    (void)snprintf(path, sizeof path, "%s/models--org--name/refs/%s", w.dir, SHA1);
    assert_int_not_equal(access(path, F_OK), 0);
    hub_listing l;
    assert_int_equal(hub_repo_list(&w.repo, SHA1, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.files[0].path, "a/b/m.gguf");
    assert_string_equal(l.files[0].id, SHA256);
    assert_int_equal(l.files[0].n_bytes, 4);
    hub_listing_deinit(&l);
    char name[256], repo[194];
    hub_repo_name_commit(&w.repo, SHA1, name);
    assert_string_equal(name, "main");
    assert_true(hub_repo_of_directory("models--org--name", repo));
    assert_string_equal(repo, "org/name");
    assert_false(hub_repo_of_directory("datasets--org--name", repo));
    assert_false(hub_repo_of_directory("models--name", repo));
    assert_false(hub_repo_of_directory("models--..--name", repo));
    mem_free(f.path);
    world_delete(&w);
}

TEST(a_link_without_its_blob_is_not_listed_and_is_replaced) {
    world w = world_new();
    hub_file f = {.path = mem_dup("config.json", 11), .id = SHA1};
    hub_listing l;
    assert_int_equal(hub_repo_list(&w.repo, SHA1, &l, NULL), QUIRE_NOT_FOUND);
    assert_int_equal(hub_repo_link(&w.repo, SHA1, &f, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_list(&w.repo, SHA1, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n, 0);
    hub_listing_deinit(&l);
    memcpy(f.id, SHA256, sizeof SHA256);
    write_blob(&w, SHA256, "x");
    assert_int_equal(hub_repo_link(&w.repo, SHA1, &f, NULL), QUIRE_OK);
    assert_int_equal(hub_repo_list(&w.repo, SHA1, &l, NULL), QUIRE_OK);
    assert_int_equal(l.n, 1);
    hub_listing_deinit(&l);
    mem_free(f.path);
    world_delete(&w);
}

TEST(a_lock_excludes_others_also_of_this_process) {
    world w = world_new();
    int a, b, c;
    char path[512];
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_EXCLUSIVE, &a, NULL), QUIRE_OK);
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_EXCLUSIVE, &b, NULL), QUIRE_BUSY);
    assert_int_equal(b, -1);
    assert_int_equal(hub_lock(&w.repo, SHA256, HUB_LOCK_EXCLUSIVE, &c, NULL), QUIRE_OK);
    hub_unlock(c);
    (void)snprintf(path, sizeof path, "%s/.locks/models--org--name/%s.lock", w.dir, SHA1);
    assert_int_equal(unlink(path), 0); /* as its holder may do: the next one locks a file of its own */
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_EXCLUSIVE, &b, NULL), QUIRE_OK);
    hub_unlock(a);
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_SHARED, &a, NULL), QUIRE_BUSY);
    hub_unlock(b);
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_SHARED, &a, NULL), QUIRE_OK);
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_SHARED, &b, NULL), QUIRE_OK);
    assert_int_equal(hub_lock(&w.repo, SHA1, HUB_LOCK_EXCLUSIVE, &c, NULL), QUIRE_BUSY);
    hub_unlock(a);
    hub_unlock(b);
    world_delete(&w);
}

/* ---- removals ---- */

#define BLOB(digit)                                                                                          \
    "0000000000000000000000000000000000000"                                                                  \
    "00" digit

/* Makes a link at a path below the snapshots, with the directories above it. */
static void make_link(const world *w, const char *path, const char *blob) {
    char at[1024], target[256];
    (void)snprintf(at, sizeof at, "%s/snapshots/%s", w->repo.dir, path);
    for (char *slash = at + strlen(w->repo.dir) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        assert_true(mkdir(at, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    (void)snprintf(target, sizeof target, "../../blobs/%s", blob);
    assert_int_equal(symlink(target, at), 0);
}

static bool has_blob(const world *w, const char *id) {
    strbuf path = {0};
    assert_int_equal(hub_repo_blob(&w->repo, id, "", &path, NULL), QUIRE_OK);
    bool has = access(path.p, F_OK) == 0;
    strbuf_deinit(&path);
    return has;
}

static quire_hub_options options_of(const world *w) {
    quire_hub_options o;
    quire_hub_options_init(&o);
    o.cache = w->dir;
    return o;
}

TEST(a_blob_stays_while_any_link_leads_to_it) {
    static const struct {
        const char *link, *blob;
    } others[] = {{SHA1 "/.gitattributes", BLOB("1")},
                  {SHA1 "/1/2/3/4/5/6/7/8/9/config.json", BLOB("2")},
                  {"not-a-commit/config.json", BLOB("3")},
                  {SHA1 "/config.json", "no-digest"},
                  {SHA1 "/.hidden/m-Q8_0.gguf", BLOB("4")}};
    world w = world_new();
    quire_hub_options o = options_of(&w);
    int64_t bytes;
    make_link(&w, SHA1 "/m-Q8_0.gguf", SHA256);
    write_blob(&w, SHA256, "text");
    write_blob(&w, BLOB("9"), "of no link");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        make_link(&w, others[i].link, others[i].blob);
        write_blob(&w, others[i].blob, "x");
    }
    assert_int_equal(quire_hub_remove(&o, "org/name:Q8_0", &bytes, NULL), QUIRE_OK);
    assert_int_equal(bytes, strlen("text") + strlen("of no link"));
    assert_false(has_blob(&w, SHA256));
    assert_false(has_blob(&w, BLOB("9")));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(has_blob(&w, others[i].blob));
    }
    world_delete(&w);
}

TEST(nothing_is_removed_where_not_all_can_be_seen) {
    char deep[256] = SHA1;
    world w = world_new();
    quire_hub_options o = options_of(&w);
    quire_error err;
    int64_t bytes;
    for (int i = 0; i < 70; i++) {
        strcat(deep, "/d");
    }
    strcat(deep, "/config.json");
    make_link(&w, SHA1 "/m-Q8_0.gguf", SHA256);
    make_link(&w, deep, BLOB("1"));
    write_blob(&w, SHA256, "text");
    write_blob(&w, BLOB("1"), "x");
    assert_int_equal(quire_hub_remove(&o, "org/name:Q8_0", &bytes, &err), QUIRE_IO);
    assert_non_null(strstr(err.message, "nothing was removed"));
    assert_true(has_blob(&w, SHA256) && has_blob(&w, BLOB("1")));
    assert_int_equal(bytes, 0);
    world_delete(&w);
}

TEST(a_directory_that_cannot_be_read_is_an_error) {
    quire_hub_options o;
    quire_hub_model *models;
    quire_error err;
    size_t n;
    assert_int_equal(hub_visit_all("/nonexistent", delete_entry, NULL, &err), QUIRE_OK);
    assert_int_equal(hub_visit_all("/dev/null", delete_entry, NULL, &err), QUIRE_IO);
    quire_hub_options_init(&o);
    o.cache = "/dev/null"; /* no directory at all */
    assert_int_equal(quire_hub_list(&o, &models, &n, &err), QUIRE_IO);
    assert_non_null(strstr(err.message, "/dev/null"));
}

TEST(options_are_checked) {
    quire_hub_options o;
    quire_hub_model *models;
    char *path;
    size_t n;
    int64_t bytes;
    quire_hub_options_init(&o);
    assert_int_equal(quire_hub_list(&o, &models, &n, NULL), QUIRE_INVALID); /* no cache */
    o.cache = "/nonexistent/cache";
    assert_int_equal(quire_hub_list(&o, &models, &n, NULL), QUIRE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(quire_hub_remove(&o, "org/name", &bytes, NULL), QUIRE_NOT_FOUND);
    assert_int_equal(quire_hub_remove(&o, "name", &bytes, NULL), QUIRE_INVALID);
    o.offline = true;
    assert_int_equal(quire_hub_pull(&o, "org/name", QUIRE_HUB_UPDATE, &path, NULL), QUIRE_NOT_FOUND);
    o.offline = false;
    o.token = "two words";
    assert_int_equal(quire_hub_pull(&o, "org/name", QUIRE_HUB_UPDATE, &path, NULL), QUIRE_INVALID);
    o.token = NULL;
    o.endpoint = "https://user@hub.example";
    assert_int_equal(quire_hub_pull(&o, "org/name", QUIRE_HUB_UPDATE, &path, NULL), QUIRE_INVALID);
    o.size = 3;
    assert_int_equal(quire_hub_list(&o, &models, &n, NULL), QUIRE_INVALID);
}

TEST_MAIN(NULL, NULL)
