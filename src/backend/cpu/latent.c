/* Stores latents of multi-head latent attention in pages, and prepares the queries that
 * read them. */
#include "backend/cpu/adapter.h"
#include "backend/cpu/pages.h"

typedef struct latent_job {
    const cpu_backend *b;
    const latent_store_use *use;
    int32_t group, width; /* group of the cache, and elements of a latent */
} latent_job;

/* Rotates the end of each query head and scales the row by its position. */
static void prepare_queries(const latent_job *job, int32_t row) {
    const latent_store_use *use = job->use;
    const cpu_backend *b = job->b;
    float *q = cpu_act_row(b, use->q, row);
    const int32_t width = b->buffers[use->q.id].width, d_head = width / use->n_heads;
    if (use->rope != NULL) {
        cpu_rope_row(b, use->rope, row, d_head, q + d_head - (job->width - use->rank), width);
    }
    cpu_scale_queries(b, &use->scale, row, use->n_heads, q, width);
}

static void latent_store_row(void *context, int32_t row, int32_t worker) {
    const latent_job *job = context;
    const latent_store_use *use = job->use;
    const cpu_backend *b = job->b;
    (void)worker;
    prepare_queries(job, row);
    if (use->latent.id == BUFFER_NONE.id) {
        return;
    }
    float *x = cpu_act_row(b, use->latent, row);
    if (use->nm != NULL) {
        cpu_norm_row(b, adapter_norm_of(b, use->nm, row), x, use->rank, x);
    }
    for (int32_t i = 0; use->latent_scale != 1.0f && i < use->rank; i++) {
        x[i] *= use->latent_scale;
    }
    const rope *turns = use->key_rope != NULL ? use->key_rope : use->rope;
    if (turns != NULL) {
        cpu_rope_row(b, turns, row, job->width - use->rank, x + use->rank, job->width - use->rank);
    }
    const kv_slot slot = b->batch->slots[job->group][row];
    if (slot.v >= 0) {
        /* if the row is not finite, neither is its scale, nor any score */
        (void)cpu_kv_write_row(b, use->cache, KV_PLANE_K, 0, slot, x, 0.0f);
    }
}

void cpu_latent_store(backend *base, const latent_store_use *use) {
    const cpu_backend *b = (const cpu_backend *)base;
    const kv_planes *p = &b->layout.caches[use->cache];
    latent_job job = {b, use, p->group, p->key.width};
    assert(p->kind == LAYER_LATENT && use->rank <= job.width &&
           (use->latent.id == BUFFER_NONE.id || b->buffers[use->latent.id].width == job.width));
    cpu_share_rows(b, latent_store_row, &job, b->batch->n_rows);
}
