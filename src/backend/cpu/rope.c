/* Rotary embedding: frequencies and their scaling, and cosines and sines for a step's
 * rows.
 *
 * Frequencies and angles are rounded to f32 where the models' reference code rounds them,
 * so that distant positions agree with it. Cosines and sines are computed in double and
 * rounded once. A row's angles depend on its position only. Su et al. 2021,
 * arXiv:2104.09864; YaRN: Peng et al. 2023, arXiv:2309.00071. */
#include <assert.h>
#include <math.h>

#include "backend/cpu/cpu.h"

#define TWO_PI 6.283185307179586

struct rope {
    rope *next;
    rope_pairs pairs;
    int32_t n_pairs, behind;
    float amplitude;        /* multiplies cosines and sines */
    float *frequencies;     /* [n_pairs] */
    float *cosines, *sines; /* [max_rows, n_pairs] for the rows of the current step */
    int64_t *row_steps;     /* [max_rows] the step for which each row was computed */
};

/* theta^(2i / n_dims). */
static float wavelength(float theta, int32_t i, int32_t n_dims) {
    float exponent = (float)(2 * i) / (float)n_dims;
    return (float)pow((double)theta, (double)exponent);
}

/* NTK scaling: the base grows with the ratio of the configured maximum length to the
 * trained length. */
static float ntk_theta(const rope_desc *d, int32_t max_positions) {
    double length = max_positions > d->original_positions ? max_positions : d->original_positions;
    double growth = (double)d->factor * length / d->original_positions - ((double)d->factor - 1.0);
    return (float)((double)d->theta * pow(growth, (double)d->n_dims / (d->n_dims - 2)));
}

/* Llama 3: long wavelengths are divided by factor, short ones kept, and those in between
 * blended. With equal limits none are in between. */
static float llama3_frequency(const rope_desc *d, float f) {
    float length = (float)d->original_positions;
    float wave = (float)TWO_PI / f;
    if (wave < length / d->high_freq_factor) {
        return f;
    }
    if (wave > length / d->low_freq_factor || d->high_freq_factor == d->low_freq_factor) {
        return f / d->factor;
    }
    float smooth = (length / wave - d->low_freq_factor) / (d->high_freq_factor - d->low_freq_factor);
    return (1.0f - smooth) * f / d->factor + smooth * f;
}

/* The (fractional) index of the dimension that makes n_turns rotations over the trained
 * length. */
static double yarn_dimension(const rope_desc *d, double n_turns) {
    return d->n_dims * log(d->original_positions / (n_turns * TWO_PI)) / (2.0 * log((double)d->theta));
}

/* YaRN: dimensions that rotate often keep their frequency, those that rotate rarely are
 * interpolated, with a linear ramp in between. */
static void yarn_frequencies(const rope_desc *d, float *out) {
    double low = yarn_dimension(d, (double)d->beta_fast);
    double high = yarn_dimension(d, (double)d->beta_slow);
    if (d->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, d->n_dims - 1.0);
    if (low == high) {
        high += 0.001;
    }
    for (int32_t i = 0; i < d->n_dims / 2; i++) {
        float wave = wavelength(d->theta, i, d->n_dims);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float keep = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f);
        out[i] = (1.0f / (d->factor * wave)) * (1.0f - keep) + (1.0f / wave) * keep;
    }
}

static void fill_frequencies(const rope_desc *d, int32_t max_positions, float *out) {
    float theta = d->kind == ROPE_NTK ? ntk_theta(d, max_positions) : d->theta;
    for (int32_t i = 0; i < d->n_dims / 2; i++) {
        float f = 1.0f / wavelength(theta, i, d->n_dims);
        if (d->kind == ROPE_LINEAR) {
            f = f / d->factor;
        } else if (d->kind == ROPE_LLAMA3) {
            f = llama3_frequency(d, f);
        }
        out[i] = f;
    }
    if (d->kind == ROPE_YARN) {
        yarn_frequencies(d, out);
    }
    const float *factors =
        d->kind == ROPE_LONGROPE && max_positions > d->original_positions ? d->long_factors : d->factors;
    for (int32_t i = 0; (d->has_factors || d->kind == ROPE_LONGROPE) && i < d->n_dims / 2; i++) {
        out[i] = d->multiplies ? out[i] * factors[i] : out[i] / factors[i];
    }
    for (int32_t i = 0; d->backwards && i < d->n_dims / 2; i++) {
        out[i] = -out[i];
    }
}

static quire_err check_desc(const rope_desc *d, quire_error *err) {
    if (d->n_dims < 2 || d->n_dims % 2 != 0 || d->n_dims > DESC_MAX_HEAD || !(d->theta > 0.0f)) {
        return err_set(err, QUIRE_INVALID, -1, "rotary embedding of %d dimensions with base %g", d->n_dims,
                       (double)d->theta);
    }
    if (d->kind != ROPE_PLAIN && !(d->factor > 0.0f)) {
        return err_set(err, QUIRE_INVALID, -1, "rotary scaling by a factor of %g", (double)d->factor);
    }
    if (d->kind >= ROPE_NTK && d->original_positions < 1) {
        return err_set(err, QUIRE_INVALID, -1, "rotary scaling needs the length the model was trained for");
    }
    if (d->kind == ROPE_NTK && d->n_dims < 4) {
        return err_set(err, QUIRE_INVALID, -1, "NTK scaling needs more than 2 rotary dimensions");
    }
    if (d->kind == ROPE_LLAMA3 && !(d->low_freq_factor > 0.0f && d->high_freq_factor >= d->low_freq_factor)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "rotary scaling from low_freq_factor %g to high_freq_factor %g",
                       (double)d->low_freq_factor, (double)d->high_freq_factor);
    }
    if (d->kind == ROPE_YARN && !(d->beta_fast > 0.0f && d->beta_slow > 0.0f && d->theta > 1.0f)) {
        return err_set(err, QUIRE_INVALID, -1, "YaRN scaling with beta_fast %g, beta_slow %g",
                       (double)d->beta_fast, (double)d->beta_slow);
    }
    return QUIRE_OK;
}

/* The factor of cosines and sines. YaRN: 0.1 ln(factor) + 1; longrope: sqrt(1 +
 * ln(factor) / ln(trained length)). */
static float amplitude_of(const rope_desc *d) {
    double growth = d->factor > 1.0f ? log((double)d->factor) : 0.0;
    if (d->kind != ROPE_YARN && d->kind != ROPE_LONGROPE) {
        return 1.0f;
    }
    if (d->attention_factor > 0.0f) {
        return d->attention_factor;
    }
    return d->kind == ROPE_YARN ? (float)(0.1 * growth + 1.0)
                                : (float)sqrt(1.0 + growth / log((double)d->original_positions));
}

quire_err cpu_rope_load(backend *b, const rope_desc *d, int32_t max_positions, rope **out, quire_error *err) {
    assert(d != NULL);
    cpu_backend *c = (cpu_backend *)b;
    if (d->kind == ROPE_NONE) {
        *out = NULL;
        return QUIRE_OK;
    }
    TRY(check_desc(d, err));
    rope *r = cpu_own(c, 1, sizeof *r);
    float *frequencies = cpu_own(c, (size_t)d->n_dims / 2, sizeof *frequencies);
    if (r == NULL || frequencies == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "rotary embedding: out of memory");
    }
    *r = (rope){.next = c->ropes,
                .pairs = d->pairs,
                .n_pairs = d->n_dims / 2,
                .behind = d->behind,
                .frequencies = frequencies};
    fill_frequencies(d, max_positions, frequencies);
    r->amplitude = amplitude_of(d);
    c->ropes = r;
    *out = r;
    return QUIRE_OK;
}

quire_err cpu_rope_step_open(cpu_backend *b) {
    assert(b != NULL);
    size_t rows = (size_t)b->limits.max_rows;
    for (rope *r = b->ropes; r != NULL; r = r->next) {
        size_t row_bytes = (size_t)r->n_pairs * sizeof *r->cosines;
        r->cosines = cpu_own(b, rows, row_bytes);
        r->sines = cpu_own(b, rows, row_bytes);
        r->row_steps = cpu_own(b, rows, sizeof *r->row_steps);
        if (r->cosines == NULL || r->sines == NULL || r->row_steps == NULL) {
            return QUIRE_NO_MEMORY;
        }
        b->step_bytes += (int64_t)(rows * (2 * row_bytes + sizeof *r->row_steps));
    }
    return QUIRE_OK;
}

/* Computes the angles of a row. Called by the first layer of a step that needs the
 * row. */
static void fill_row(const cpu_backend *b, const rope *r, int32_t row) {
    const int32_t own = b->batch->positions[(int64_t)row * b->batch->n_axes];
    const float position = (float)(own > r->behind ? own - r->behind : 0);
    float *cosines = r->cosines + (int64_t)row * r->n_pairs;
    float *sines = r->sines + (int64_t)row * r->n_pairs;
    for (int32_t i = 0; i < r->n_pairs; i++) {
        float angle = position * r->frequencies[i];
        cosines[i] = (float)cos((double)angle) * r->amplitude;
        sines[i] = (float)sin((double)angle) * r->amplitude;
    }
    r->row_steps[row] = b->step;
}

void cpu_rope_row(const cpu_backend *b, const rope *r, int32_t row, int32_t d_head, float *x, int32_t width) {
    if (r->row_steps[row] != b->step) {
        fill_row(b, r, row);
    }
    const float *cosines = r->cosines + (int64_t)row * r->n_pairs;
    const float *sines = r->sines + (int64_t)row * r->n_pairs;
    for (int32_t i = 0; i + d_head <= width; i += d_head) {
        b->math->rotate(r->pairs, cosines, sines, r->n_pairs, x + i);
    }
}
