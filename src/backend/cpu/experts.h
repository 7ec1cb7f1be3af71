/* The state shared by routing, loading and computing mixtures of experts: the loaded
 * mixtures, and the step's choice of experts.
 *
 * Owner: the backend, between ops. Within an op each task writes its own rows, tiles or
 * scratch. An assignment is a row and one of its chosen experts: row r has the
 * assignments r * n_used .. r * n_used + n_used - 1, in ascending order of expert. Places
 * order the assignments by expert, then by row, so an expert's rows are adjacent. */
#ifndef CPU_EXPERTS_H
#define CPU_EXPERTS_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"

#define EXPERTS_SUM_BLOCKS 32 /* column blocks of y in one task, at most */

/* Loaded by cpu_experts_load, unchanged afterwards. */
struct experts {
    int32_t n_experts, n_used, d_in, d_hidden, d_out;
    int32_t n_weighed;   /* experts with weights; later ones return their input */
    const linear **gate; /* [n_weighed], or NULL: not gated */
    const linear **up, **down;
    bool reads[N_ROW_FORMATS];   /* the formats in which experts read their rows, */
    bool rereads[N_ROW_FORMATS]; /* and those in which down products do */
    /* some gate or up has an order of inputs: gate and up then have separate rows */
    bool has_orders;
    bool needs_whole;        /* some down product needs whole hidden rows */
    const norm *result_norm; /* of each expert's result; NULL: none */
};

/* Invariant: sizes suffice for every loaded mixture. Arrays are sized by
 * cpu_experts_step_open for n_places assignments: n_used for each row of a step. */
typedef struct cpu_experts_state {
    int32_t n_experts, n_used;    /* the most of any mixture */
    int32_t width[N_ROW_FORMATS]; /* the widest row that experts read in a format, 0: none */
    /* the widest row that experts read, or between up and down, in any format */
    int32_t row_width;
    int32_t hidden_width; /* of the widest row between up and down */
    size_t hidden_bytes;  /* the bytes of the largest such row */

    /* The choice, by route(). */
    int64_t step;                     /* the step in which it was made */
    int32_t chosen_from, chosen_used; /* the number of experts, and of those used per row */
    bool is_input_scaled;
    int32_t *chosen; /* [n_places] the expert of an assignment */
    float *weights;  /* [n_places] */

    /* The rows of experts, by experts(). */
    int32_t *places;  /* [n_places] the place of an assignment */
    int32_t *sources; /* [n_places] the assignment at a place */
    /* [n_experts + 1] the first place of each expert */
    int32_t *first;
    int32_t n_active, *active;        /* experts with weights and rows, ascending */
    uint8_t *gathered[N_ROW_FORMATS]; /* [n_places] quantised rows */
    int32_t up_width;                 /* the widest row of experts with orders, 0: none */
    uint8_t *gathered_up;             /* [n_places] rows for up of such experts, in any format */
    bool scales_inputs;               /* some mixture multiplies its inputs by the weights */
    int32_t *place_rows;              /* [n_places] the row of a place; of batches with adapters */
    bool keeps_inputs;                /* some mixture has experts without weights: */
    float *inputs;                    /* [rows][row_width] the experts' input */
    uint8_t *hidden;                  /* [n_places][hidden_bytes]: f32, or down's input format */
    float *sums;                      /* [workers][sums_width] */
    int32_t result_width;             /* the widest result with a norm, 0: none */
    float *results;                   /* [n_places][result_width] */
    float *rows;                      /* [workers][row_width]: a row of each worker's own */
    size_t sums_width;
} cpu_experts_state;

/* Whether a down product needs a whole hidden row. */
static inline bool experts_need_whole(const linear *down) {
    return down->format == ROWS_TOKEN || down->format == ROWS_BF16 || down->order != NULL;
}

/* Bytes from one row between up and down to the next: f32, or groups if every down
 * product reads groups. */
size_t cpu_experts_hidden_bytes(const experts *w);

#endif
