/* Files and directories that are no model Quire reads: they are named by what they
 * are. */

#include "file/not_a_model.h"
#include "test.h"

static void expect(foreign is, const char *part) {
    assert_non_null(is.what);
    assert_non_null(is.instead);
    assert_non_null(strstr(is.what, part));
}

TEST(content_is_told_by_its_first_bytes) {
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

TEST(names_are_told_and_the_one_that_says_most_wins) {
    expect(foreign_of_name(str_of("pytorch_model-00001-of-00002.bin")), "PyTorch pickles");
    expect(foreign_of_name(str_of("onnx/model.onnx")), "ONNX");
    expect(foreign_of_name(str_of("adapter_config.json")), "LoRA adapter");
    expect(foreign_of_name(str_of("weights.00.npz")), "MLX");
    expect(foreign_of_name(str_of("model_index.json")), "diffusers");
    expect(foreign_of_name(str_of("shared_vocabulary.json")), "CTranslate2");
    expect(foreign_of_name(str_of("rank0.safetensors")), "TensorRT-LLM");
    expect(foreign_of_name(str_of("output-00001-of-00002.safetensors")), "ExLlamaV2");
    expect(foreign_of_name(str_of("params_shard_0.bin")), "MLC-LLM");
    expect(foreign_stronger(foreign_of_name(str_of("model.bin")), foreign_of_name(str_of("vocabulary.txt"))),
           "CTranslate2");
    assert_null(foreign_of_name(str_of("README.md")).what);
    assert_null(foreign_of_name(str_of("")).what);
    foreign adapter = foreign_of_name(str_of("adapter_model.bin")), onnx = foreign_of_name(str_of("a.onnx"));
    expect(foreign_stronger(onnx, adapter), "LoRA adapter");
    expect(foreign_stronger(adapter, onnx), "LoRA adapter");
    expect(foreign_stronger((foreign){NULL, NULL}, onnx), "ONNX");
}

TEST(a_gguf_file_that_goes_with_a_model_is_named) {
    expect(foreign_of_gguf(str_of("adapter"), str_of("llama")), "LoRA adapter");
    expect(foreign_of_gguf(str_of("imatrix"), str_of("")), "importance matrix");
    expect(foreign_of_gguf(str_of(""), str_of("imatrix")), "importance matrix");
    expect(foreign_of_gguf(str_of("mmproj"), str_of("clip")), "projector");
    expect(foreign_of_gguf(str_of("model"), str_of("clip")), "projector");
    expect(foreign_of_gguf(str_of(""), str_of("controlvector")), "control vector");
    assert_null(foreign_of_gguf(str_of("model"), str_of("llama")).what);
    assert_null(foreign_of_gguf(str_of(""), str_of("")).what);
}

static void expect_weights(const char *config, const tensor_dir *tensors, const char *base,
                           const char *part) {
    quire_error err = {.code = QUIRE_OK};
    json_value *root = config != NULL ? json_document(str_of(config)) : NULL;
    quire_err e = foreign_weights_check(root, tensors, "m", base, &err);
    assert_int_equal(e, part != NULL ? QUIRE_UNSUPPORTED : QUIRE_OK);
    if (part != NULL && strstr(err.message, part) == NULL) {
        fail_msg("%s has no \"%s\"", err.message, part);
    }
    json_drop(root);
}

TEST(quantised_weights_are_told_by_their_config) {
    expect_weights("{\"quantization\": {\"group_size\": 64, \"bits\": 4}}", NULL, "",
                   "m: an MLX checkpoint, quantised to 4 bits (by quantization in config.json);");
    expect_weights("{\"quantization\": {\"bits\": 4}, \"quantization_config\": {\"bits\": 4}}", NULL, "org/a",
                   "made from, org/a, or a GGUF");
    expect_weights("{\"text_config\": {\"quantization\": {\"bits\": 3}}}", NULL, "",
                   "an MLX checkpoint, quantised to 3 bits");
    expect_weights("{\"quantization_config\": {\"quant_method\": \"hqq\", \"bits\": 4}}", NULL, "",
                   "quantised with hqq to 4 bits (by quantization_config.quant_method in config.json);");
    expect_weights("{\"text_config\": {\"quantization_config\": {\"quant_method\": \"exl2\\n\"}}}", NULL, "",
                   "quantised with exl2?");
    expect_weights("{\"quantization_config\": {\"quant_method\": \"x\", \"bits\": -1000000000000}}", NULL, "",
                   "quantised with x (by");
    expect_weights("{\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}", NULL, "", NULL);
    expect_weights("{\"quantization_config\": {\"quant_method\": \"fp8\"}}", NULL, "", NULL);
    expect_weights("{\"quantization\": null, \"quantization_config\": null}", NULL, "", NULL);
    expect_weights("{\"quantization\": \"none\", \"quantization_config\": 4}", NULL, "", NULL);
    expect_weights("[]", NULL, "", NULL);
    expect_weights(NULL, NULL, "", NULL);
}

static void expect_tensors(const char *a, const char *b, const char *part) {
    tensor_dir d = {.n = 0};
    const tensor_view view = {.type = DTYPE_F32, .n_dims = 1, .dims = {1, 1, 1, 1}};
    assert_int_equal(tensor_dir_add(&d, str_of(a), &view, 0), QUIRE_OK);
    assert_int_equal(tensor_dir_add_unread(&d, str_of(b), "U32"), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&d, "m", NULL), QUIRE_OK);
    expect_weights("{}", &d, "", part);
    tensor_dir_deinit(&d);
}

TEST(quantised_weights_are_told_by_their_tensors) {
    expect_tensors("a.scales", "a.biases", "an MLX checkpoint");
    expect_tensors("a.biases", "a.scales", "an MLX checkpoint");
    expect_tensors("a.scales", "b.biases", NULL);
    expect_tensors("a.q_weight", "b", "ExLlamaV2");
    expect_tensors("a", "a.trellis", "ExLlamaV3");
    expect_tensors("a.weight", "a.bias", NULL);
    expect_tensors("a.weight_scale", ".scales", NULL);
}

TEST(the_base_is_read_from_the_head_of_a_card) {
    static const char *const cards[][2] = {
        {"---\nbase_model: org/name\n---\n", "org/name"},
        {"---\nlicense: mit\nbase_model:\n- org/name\n- org/other\n---\n", "org/name"},
        {"---\r\nbase_model: \"org/name\"\r\n---\r\n", "org/name"},
        {"---\nbase_model: [org/name, b/c]\n---\n", "org/name"},
        {"---\nbase_model: org/name", "org/name"},
        {"---\nbase_model:", ""},
        {"---\nbase_model:\n", ""},
        {"---\nbase_model: ../../x\n---\n", ""},
        {"---\nbase_model: a/b:c.gguf\n---\n", ""},
        {"---\nlicense: mit\n---\nbase_model: org/name\n", ""},
        {"# words\nbase_model: org/name\n", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        char base[FOREIGN_BASE_BYTES] = "x";
        foreign_base_of_card(str_of(cards[i][0]), base);
        assert_string_equal(base, cards[i][1]);
    }
}

TEST_MAIN(NULL, NULL)
