/* Attention against ../shared/golden/attention: the cases whose masks need no program. Others are counted as not covered. */
#include "backend/attention_case.h"

#include <math.h>

#include "json/json.h"

#define MAX_ARRAY_DIMS 4

typedef struct array {
    int32_t n_dims, dims[MAX_ARRAY_DIMS];
    float *data;
} array;

static const char *shared_root(void) {
    const char *s = getenv("QUIRE_SHARED");
    return s != NULL ? s : "../shared";
}

static uint8_t *read_whole(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    uint8_t *data = malloc(8u << 20);
    *n = fread(data, 1, 8u << 20, f);
    fclose(f);
    return data;
}

static uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/* NAME.npy of an uncompressed zip, float32 in C order. The files are ours: sizes are trusted. */
static array npz_array(const uint8_t *zip, size_t n, const char *name) {
    array a = {0};
    size_t end = n - 22; /* end of central directory, without comment */
    size_t at = u32_at(zip + end + 16), count = u16_at(zip + end + 10);
    for (size_t i = 0; i < count; i++) {
        size_t name_len = u16_at(zip + at + 28), skip = 46 + name_len + u16_at(zip + at + 30) + u16_at(zip + at + 32);
        if (name_len == strlen(name) + 4 && memcmp(zip + at + 46, name, strlen(name)) == 0) {
            const uint8_t *local = zip + u32_at(zip + at + 42);
            const uint8_t *npy = local + 30 + u16_at(local + 26) + u16_at(local + 28);
            const char *header = (const char *)npy + 10, *shape = strstr(header, "'shape': (");
            assert_non_null(strstr(header, "'<f4'"));
            assert_non_null(strstr(header, "'fortran_order': False"));
            size_t elements = 1;
            for (shape += 10; *shape != ')';) {
                char *rest;
                a.dims[a.n_dims] = (int32_t)strtol(shape, &rest, 10);
                elements *= (size_t)a.dims[a.n_dims++];
                for (shape = rest; *shape == ',' || *shape == ' '; shape++) {
                }
            }
            a.data = malloc(sizeof(float) * elements);
            memcpy(a.data, npy + 10 + u16_at(npy + 8), sizeof(float) * elements);
            return a;
        }
        at += skip;
    }
    return a;
}

/* [heads, rows, d] of sequence `seq` of an array [B, heads, rows, d] to [rows, heads, d] from row `row0` of out. */
static void transpose(const array *a, int32_t seq, float *out, int32_t row0) {
    int32_t heads = a->dims[1], rows = a->dims[2], d = a->dims[3];
    for (int32_t h = 0; h < heads; h++) {
        for (int32_t r = 0; r < rows; r++) {
            const float *from = a->data + (((size_t)seq * (size_t)heads + (size_t)h) * (size_t)rows + (size_t)r) * (size_t)d;
            memcpy(out + ((size_t)(row0 + r) * (size_t)heads + (size_t)h) * (size_t)d, from, sizeof *out * (size_t)d);
        }
    }
}

static int32_t int_of(json_value *o, const char *key) {
    return (int32_t)json_double(json_get(o, key));
}
static double double_of(json_value *o, const char *key) {
    return json_double(json_get(o, key));
}

/* false: this kind needs a mask program, a tree or a latent. */
static bool spec_of(json_value *o, const array *sinks, const array *slopes, attn_spec *spec) {
    static const char *const kinds[] = {
        "causal", "full", "sliding_window", "sinks", "sinks+sliding_window", "softcap", "softcap+sliding_window", "alibi"};
    const char *kind = json_get_str(o, "kind").p;
    json_value *params = json_get(o, "params");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            *spec = (attn_spec){.scale = (float)double_of(o, "scale"),
                                .causal = strcmp(kind, "full") != 0,
                                .window = int_of(params, "window"),
                                .soft_cap = (float)double_of(params, "softcap"),
                                .sinks = sinks->data,
                                .alibi_slopes = slopes->data};
            return true;
        }
    }
    return false;
}

/* Runs a case and returns the largest difference, or -1 when the case is not covered. */
static double run_case(json_value *o, const char *isa) {
    char path[1024];
    size_t n_inputs = 0, n_outputs = 0;
    snprintf(path, sizeof path, "%s/golden/attention/%s", shared_root(), json_get_str(o, "file").p);
    uint8_t *outputs = read_whole(path, &n_outputs);
    snprintf(path, sizeof path, "%s/golden/attention/%s", shared_root(), json_get_str(o, "inputs").p);
    uint8_t *inputs = read_whole(path, &n_inputs);
    assert_non_null(outputs);
    array sinks = npz_array(outputs, n_outputs, "sinks"), slopes = npz_array(outputs, n_outputs, "slope");
    attention_case c = {.isa = isa, .n_threads = 2, .page_tokens = 16, .tile_rows = 16, .type = DTYPE_F32};
    double worst = -1.0;
    if (spec_of(o, &sinks, &slopes, &c.spec)) {
        assert_non_null(inputs);
        array q = npz_array(inputs, n_inputs, "q"), k = npz_array(inputs, n_inputs, "k"), v = npz_array(inputs, n_inputs, "v");
        array want = npz_array(outputs, n_outputs, "out");
        int32_t n_kv = k.dims[2], offset = int_of(o, "q_offset");
        c.n_heads = q.dims[1];
        c.n_kv_heads = k.dims[1];
        c.d_head = q.dims[3];
        c.n_seqs = q.dims[0];
        size_t row = (size_t)(c.n_heads * c.d_head), tokens = (size_t)(c.n_seqs * n_kv);
        float *all_q = calloc(tokens * row, sizeof *all_q), *all_k = calloc(tokens * row, sizeof *all_k),
              *all_v = calloc(tokens * row, sizeof *all_v);
        float *got = calloc(tokens * row, sizeof *got), *expected = calloc(tokens * row, sizeof *expected);
        for (int32_t s = 0; s < c.n_seqs; s++) {
            c.lengths[s] = n_kv;
            transpose(&q, s, all_q, s * n_kv + offset);
            transpose(&k, s, all_k, s * n_kv);
            transpose(&v, s, all_v, s * n_kv);
            transpose(&want, s, expected, s * n_kv + offset);
        }
        c.q = all_q;
        c.k = all_k;
        c.v = all_v;
        case_run_all(&c, got);
        worst = 0.0;
        for (int32_t s = 0; s < c.n_seqs; s++) {
            for (size_t i = (size_t)(s * n_kv + offset) * row; i < (size_t)(s * n_kv + offset + q.dims[2]) * row; i++) {
                double d = fabs((double)got[i] - (double)expected[i]);
                worst = d <= worst ? worst : d;
            }
        }
        free(all_q);
        free(all_k);
        free(all_v);
        free(got);
        free(expected);
        free(q.data);
        free(k.data);
        free(v.data);
        free(want.data);
    }
    free(sinks.data);
    free(slopes.data);
    free(inputs);
    free(outputs);
    return worst;
}

static void plain_masks_agree_with_the_golden_vectors(void **unused) {
    (void)unused;
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/attention/manifest.json", shared_root());
    size_t n = 0;
    uint8_t *bytes = read_whole(path, &n);
    json_value *manifest = bytes != NULL ? json_document((str){(const char *)bytes, n}) : NULL;
    free(bytes);
    if (manifest == NULL) {
        printf("SKIP: %s is not there (set QUIRE_SHARED)\n", path);
        skip();
    }
    int32_t n_passed = 0, n_uncovered = 0;
    for (size_t i = 0; i < json_length(manifest); i++) {
        json_value *o = json_at(manifest, i);
        const char *name = json_get_str(o, "name").p;
        double worst = run_case(o, "auto");
        double limit = strstr(name, "hot") != NULL ? 2e-4 : 2e-5;
        if (worst < 0.0) {
            n_uncovered++;
        } else if (worst <= limit) {
            n_passed++;
        } else {
            fail_msg("%s: off by %g", name, worst);
        }
    }
    printf("%d cases agree, %d need mask programs, trees or latents\n", n_passed, n_uncovered);
    assert_true(n_passed >= 20);
    json_drop(manifest);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_masks_agree_with_the_golden_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
