/* State shared by routing, loading and computing mixtures of experts: loaded mixtures,
 * and the step's choice of experts.
 *
 * Owner: the backend, between ops. Within an op each task writes only its own rows, tiles
 * or scratch. An assignment is a row with one of its chosen experts: row r has
 * assignments r * n_used .. r * n_used + n_used - 1, in ascending order of expert. Places
 * order the assignments by expert, then by row, so that an expert's rows are adjacent. */
#ifndef CPU_EXPERTS_H
#define CPU_EXPERTS_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"

#define EXPERTS_SUM_BLOCKS 32 /* most column blocks of y in one task */

/* A loaded mixture; immutable. */
struct experts {
    int32_t n_experts, n_used, d_in, d_hidden, d_out;
    int32_t n_weighed;   /* experts with weights; later ones return their input */
    const linear **gate; /* [n_weighed]; NULL: ungated */
    const linear **up, **down;
    bool reads[N_ROW_FORMATS];   /* row formats that gates and ups read */
    bool rereads[N_ROW_FORMATS]; /* row formats that downs read */
    /* some gate or up has an input order (act-order): then gate and up read separate
     * rows */
    bool has_orders;
    bool needs_whole;        /* some down product needs whole hidden rows */
    const norm *result_norm; /* applied to each expert's result; NULL: none */
};

/* Scratch and routing results. Invariant: sizes suffice for every loaded mixture.
 * cpu_experts_step_open allocates for n_places assignments: n_used for each row of a
 * step. */
typedef struct cpu_experts_state {
    int32_t n_experts, n_used;    /* maxima over all mixtures */
    int32_t width[N_ROW_FORMATS]; /* widest row that experts read in each format; 0: none */
    /* widest row that experts read or that lies between up and down, in any format */
    int32_t row_width;
    int32_t hidden_width; /* width of the widest row between up and down */
    size_t hidden_bytes;  /* bytes of the largest such row */

    /* Set by route(). */
    int64_t step;                     /* step of the choice */
    int32_t chosen_from, chosen_used; /* number of experts, and of experts per row */
    bool is_input_scaled;
    int32_t *chosen; /* [n_places] expert of each assignment */
    float *weights;  /* [n_places] */

    /* Set by experts(). */
    int32_t *places;  /* [n_places] place of each assignment */
    int32_t *sources; /* [n_places] assignment at each place */
    /* [n_experts + 1] first place of each expert */
    int32_t *first;
    int32_t n_active, *active;        /* experts with weights and at least one row, ascending */
    uint8_t *gathered[N_ROW_FORMATS]; /* [n_places] quantised rows */
    int32_t up_width;                 /* widest row of experts with input orders; 0: none */
    uint8_t *gathered_up;             /* [n_places] rows that ups of such experts read, in any format */
    bool scales_inputs;               /* some mixture multiplies inputs by the weights */
    int32_t *place_rows;              /* [n_places] row of each place; for batches with adapters */
    bool keeps_inputs;                /* some mixture has experts without weights */
    float *inputs;                    /* [rows][row_width] the experts' inputs */
    uint8_t *hidden;                  /* [n_places][hidden_bytes]: f32, or in down's input format */
    float *sums;                      /* [workers][sums_width] */
    int32_t result_width;             /* widest result with a norm; 0: none */
    float *results;                   /* [n_places][result_width] */
    float *rows;                      /* [workers][row_width] a row per worker */
    size_t sums_width;
} cpu_experts_state;

/* Whether a down product needs a whole hidden row. */
static inline bool experts_need_whole(const linear *down) {
    return down->format == ROWS_TOKEN || down->format == ROWS_BF16 || down->order != NULL;
}

/* Row stride in bytes between up and down: f32, or groups if all downs read groups. */
size_t cpu_experts_hidden_bytes(const experts *w);

#endif
