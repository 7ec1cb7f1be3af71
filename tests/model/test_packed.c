/* Packed models: the logits equal those of their source in every compute mode; files of
 * another version and forged files are refused. */
#include "make_model.h"

#include "backend/cpu/linear.h"
#include "file/packed_files.h"
#include "pack_model.h"
#include "run_model.h"

/* The file's bytes, mem_free'd by the caller. */
static uint8_t *pack(model_file *f, compute_mode compute, size_t *n) {
    temp_dir d = temp_new();
    pack_model(f, compute, temp_path(&d, "m"));
    uint8_t *bytes = read_whole(temp_path(&d, "m"), n);
    temp_delete(&d, (const char *[]){"m", NULL});
    return bytes;
}

static model_file *open_bytes(const void *bytes, size_t n) {
    model_file *f;
    quire_error err = {0};
    if (model_file_open_memory(bytes, n, "test.quire", &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

/* What a packed model says of itself, and computes, is what its source does. */
static void check_alike(model_plan *p, compute_mode compute) {
    plan_file source = plan_open(p);
    model_desc was, is;
    size_t n, n_was, n_is;
    quire_error err = {0};
    uint8_t *bytes = pack(source.f, compute, &n);
    model_file *f = open_bytes(bytes, n);
    assert_int_equal(model_describe(source.f, &was, &err), QUIRE_OK);
    assert_int_equal(model_describe(f, &is, &err), QUIRE_OK);
    assert_true(!was.is_packed && is.is_packed && is.packed_compute == compute);
    assert_int_equal(was.n_params, is.n_params);
    assert_int_equal(was.n_next_token_layers, is.n_next_token_layers);
    assert_int_equal(was.left_out_bytes, is.left_out_bytes);
    assert_int_equal(was.weight_type, is.weight_type);
    assert_int_equal(was.tied_embeddings, is.tied_embeddings);
    float *a = logits_of(source.f, compute, &n_was), *b = logits_of(f, compute, &n_is);
    assert_int_equal(n_was, n_is);
    assert_memory_equal(a, b, n_was * sizeof *a);
    free(source.bytes);
    mem_free(a);
    mem_free(b);
    mem_free(bytes);
}

TEST(packed_models_compute_what_their_sources_do) {
    for (compute_mode compute = COMPUTE_F32; compute <= COMPUTE_INT8; compute++) {
        model_plan p;
        plan_llama(&p);
        check_alike(&p, compute); /* f32 weights, tied */
        set_tensor(&p, "output.weight", 40, 64);
        set_tensor(&p, "blk.1.attn_q.bias", 64, 0);
        set_tensor(&p, "rope_freqs.weight", 8, 0);
        tensor_of(&p, "rope_freqs.weight")->fill = 2.0f;
        check_alike(&p, compute); /* a head of its own, a bias, a tensor that only the description reads */
        for (int i = 0; i < p.n_tensors; i++) {
            p.tensors[i].type = p.tensors[i].n_dims == 2 ? 8 : 0;
        }
        check_alike(&p, compute);
        set_u32(&p, "llama.block_count", 3);
        set_u32(&p, "llama.nextn_predict_layers", 1);
        set_tensor(&p, "blk.2.nextn.eh_proj.weight", 64, 128);
        check_alike(&p, compute); /* a next-token layer, which stays as it is */
        plan_shared_gate(&p, true);
        check_alike(&p, compute); /* a matrix of one row that is stored as a vector */
    }
}

TEST(weights_packed_for_something_else_are_refused) {
    model_plan p;
    plan_llama(&p);
    plan_file source = plan_open(&p);
    size_t n;
    quire_error err = {0};
    model *m;
    uint8_t *bytes = pack(source.f, COMPUTE_INT8, &n);
    model_file *f = open_bytes(bytes, n);
    backend *b = open_backend(COMPUTE_BF16); /* a mode that the layout is not for */
    assert_int_equal(model_open(f, b, 64, &m, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "pack the model again"));
    b->ops->close(b);
    model_file_close(f);
    packed_header h;
    memcpy(&h, bytes, sizeof h);
    h.packing++; /* another version of the layout */
    memcpy(bytes, &h, sizeof h);
    sign(bytes, n);
    f = open_bytes(bytes, n);
    b = open_backend(COMPUTE_INT8);
    assert_int_equal(model_open(f, b, 64, &m, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "pack the model again"));
    b->ops->close(b);
    model_file_close(f);
    mem_free(bytes);
    plan_close(&source);
}

/* No kernel takes the stretch -1: a fault of the file, whatever a layout's other errors
 * mean. */
TEST(weights_with_a_stretch_that_no_kernel_takes_are_a_bad_file) {
    const uint32_t kind_and_format[2] = {PACK_E4M3, ROWS_F32};
    const int32_t stretch = -1;
    model_plan p;
    plan_llama(&p);
    plan_file source = plan_open(&p);
    size_t n;
    quire_error err = {0};
    model *m;
    uint8_t *bytes = pack(source.f, COMPUTE_INT8, &n);
    model_file *f = open_bytes(bytes, n);
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        if (t->packing != 0) { /* its last 64 bytes say how it is packed */
            uint8_t *end = bytes + ((const uint8_t *)t->data - bytes) + t->n_bytes - 64;
            memcpy(end, kind_and_format, sizeof kind_and_format);
            memcpy(end + 28, &stretch, sizeof stretch);
        }
    }
    backend *b = open_backend(COMPUTE_INT8);
    assert_int_equal(model_open(f, b, 64, &m, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "pack the model again"));
    b->ops->close(b);
    model_file_close(f);
    mem_free(bytes);
    plan_close(&source);
}

TEST(forged_models_are_refused_or_compute_something) {
    uint64_t seed = test_seed("forged packed weights");
    model_plan p;
    plan_llama(&p);
    plan_file source = plan_open(&p);
    size_t n;
    int n_opened = 0;
    uint8_t *bytes = pack(source.f, COMPUTE_INT8, &n), *changed = mem_new(n, 1);
    packed_header h;
    memcpy(&h, bytes, sizeof h);
    for (int i = 0; i < 1500; i++) {
        quire_error err = {0};
        model_file *f;
        memcpy(changed, bytes, n);
        /* data, or what is said of them */
        uint8_t *part = i % 3 == 0 ? changed + sizeof h : changed + h.directory_at;
        mutate(part, i % 3 == 0 ? (size_t)h.directory_at - sizeof h : (size_t)h.directory_bytes, &seed);
        sign(changed, n);
        if (model_file_open_memory(changed, n, "test.quire", &f, &err) != QUIRE_OK) {
            continue;
        }
        backend *b = open_backend(COMPUTE_INT8);
        model *m;
        bool opened = model_open(f, b, 64, &m, &err) == QUIRE_OK;
        n_opened += opened;
        if (opened) {
            model_close(m);
        }
        b->ops->close(b);
        if (opened) {
            size_t n_logits;
            mem_free(logits_of(f, COMPUTE_INT8, &n_logits));
        } else {
            model_file_close(f);
        }
    }
    print_message("%d of 1500 opened\n", n_opened);
    assert_true(n_opened > 100);
    mem_free(changed);
    mem_free(bytes);
    plan_close(&source);
}

TEST_MAIN(NULL, NULL)
