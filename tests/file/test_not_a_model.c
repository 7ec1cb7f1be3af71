/* Files and directories that are no model Quire reads: they are named by what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "file/not_a_model.h"

static void expect(foreign is, const char *part) {
    assert_non_null(is.what);
    assert_non_null(is.instead);
    assert_non_null(strstr(is.what, part));
}

static void content_is_told_by_its_first_bytes(void **state) {
    (void)state;
    expect(foreign_of_content(str_of("version https://git-lfs.github.com/spec/v1\noid sha256:0")), "Git LFS");
    expect(foreign_of_content(str_of("tjgg\x01")), "GGJT");
    expect(foreign_of_content(str_of("lmgg\x01")), "GGML");
    expect(foreign_of_content(str_of("<!DOCTYPE html>")), "web page");
    expect(foreign_of_content(str_of("PK\x03\x04........archive/data.pkl")), "PyTorch pickle");
    expect(foreign_of_content(str_of("PK\x03\x04........a.npy")), "zip archive");
    expect(foreign_of_content(str_of("\x80\x02}q")), "PyTorch pickle");
    expect(foreign_of_content((str){"\x10\0\0\0\0\0\0\0{\"a\"", 12}), "safetensors file without config.json");
    expect(foreign_of_content((str){"", 0}), "empty");
    assert_null(foreign_of_content(str_of("GGUF")).what);
    assert_null(foreign_of_content(str_of("x")).what);
}

static void names_are_told_and_the_one_that_says_most_wins(void **state) {
    (void)state;
    expect(foreign_of_name(str_of("pytorch_model-00001-of-00002.bin")), "PyTorch pickles");
    expect(foreign_of_name(str_of("onnx/model.onnx")), "ONNX");
    expect(foreign_of_name(str_of("adapter_config.json")), "LoRA adapter");
    expect(foreign_of_name(str_of("weights.00.npz")), "MLX");
    expect(foreign_of_name(str_of("model_index.json")), "diffusers");
    assert_null(foreign_of_name(str_of("README.md")).what);
    assert_null(foreign_of_name(str_of("")).what);
    foreign adapter = foreign_of_name(str_of("adapter_model.bin")), onnx = foreign_of_name(str_of("a.onnx"));
    expect(foreign_stronger(onnx, adapter), "LoRA adapter");
    expect(foreign_stronger(adapter, onnx), "LoRA adapter");
    expect(foreign_stronger((foreign){NULL, NULL}, onnx), "ONNX");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_is_told_by_its_first_bytes),
        cmocka_unit_test(names_are_told_and_the_one_that_says_most_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
