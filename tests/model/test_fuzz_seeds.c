/* The seeds of the fuzz targets reach every architecture: each describes them to its
 * end. */
#include "golden_model.h"

#include "fuzz/describe.h"

/* Every row of the registry takes f's numbers. */
static void reaches_every_row(const model_file *f, const char *prefix) {
    int n_rows, n_taken = describe_by_every_row(f, prefix, &n_rows), n_without = 0; /* without that form */
    print_message("%d of %d architectures describe the seed\n", n_taken, n_rows);
    const arch *a;
    for (size_t i = 0; n_taken < n_rows && (a = arch_at(i)) != NULL; i++) {
        for (int k = 0; k < ARCH_MAX_NAMES && a->hf[k] != NULL; k++) {
            quire_error err = {0};
            if (!describe_by_row(f, a, prefix[0] != 0 ? prefix : a->hf[k], &err)) {
                print_message("%s: %s\n", a->hf[k], err.message);
                n_without += k == 0 && strstr(err.message, "as GGUF is not supported") != NULL;
            }
        }
    }
    assert_true(n_rows >= 50);
    assert_int_equal(n_taken, n_rows - n_without);
}

TEST(the_seed_of_config_json_reaches_every_architecture) {
    temp_dir d = temp_new();
    strbuf tensors = {0};
    model_file *f;
    quire_error err = {0};
    size_t n;
    uint8_t *bytes = read_whole("tests/fuzz/seeds/config/model.json", &n);
    write_file(temp_path(&d, "config.json"), bytes, n);
    make_safetensors(&tensors, "{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4);
    write_file(temp_path(&d, "model.safetensors"), tensors.p, tensors.n);
    assert_int_equal(model_file_open(d.path, &f, &err), QUIRE_OK);
    reaches_every_row(f, "");
    model_file_close(f);
    temp_delete(&d, golden_files);
    strbuf_deinit(&tensors);
    mem_free(bytes);
}

TEST(the_seed_of_gguf_reaches_every_architecture) {
    model_file *f;
    quire_error err = {0};
    assert_int_equal(model_file_open("tests/fuzz/seeds/gguf/model.gguf", &f, &err), QUIRE_OK);
    reaches_every_row(f, "llama");
    model_file_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seed_of_config_json_reaches_every_architecture),
        cmocka_unit_test(the_seed_of_gguf_reaches_every_architecture),
    };
    return cmocka_run_group_tests_name("seeds of the fuzz targets", tests, NULL, NULL);
}
