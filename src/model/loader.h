/* Loads an architecture's tensors from a file: finds them under either naming, checks
 * their shapes and passes them to the backend.
 *
 * The loader records which tensors were used. An unused tensor means that the file holds
 * another model than the one that would be computed, so loader_finish refuses it. */
#ifndef MODEL_LOADER_H
#define MODEL_LOADER_H

#include "file/packed_image.h"
#include "model/find_weight.h"

/* names: the architecture's; NULL: Llama's. */
quire_err loader_init(loader *l, const model_file *f, const arch_names *names, backend *b,
                      int32_t max_positions, quire_error *err);
void loader_deinit(loader *l);

/* Channels of one short convolution in a tensor that has those of several. */
typedef struct conv_channels {
    int32_t first, n, n_all;
} conv_channels;

/* Whether the file has the weight, packed or not, whole or in parts. Marks nothing. */
bool loader_has(const loader *l, weight_name name, int32_t layer);

/* Loads a linear layer [n_out, n_in], with its bias [n_out] if the file has one. part
 * NULL: the whole tensor. */
quire_err loader_linear(loader *l, weight_name name, int32_t layer, const weight_part *part, int64_t n_out,
                        int64_t n_in, linear **out);
/* Loads a linear layer [n_out, n_in] without bias whose weight is the transpose of these
 * n_in rows of n_out elements. */
quire_err loader_turned_linear(loader *l, weight_name name, int32_t layer, const weight_part *rows,
                               int64_t n_out, int64_t n_in, linear **out);
/* Like loader_linear, with these n_out biases instead of the file's. */
quire_err loader_biased_linear(loader *l, weight_name name, int32_t layer, const float *bias, int64_t n_out,
                               int64_t n_in, linear **out);
/* Like loader_linear, for a layer that --quantization leaves unchanged. */
quire_err loader_kept_linear(loader *l, weight_name name, int32_t layer, const weight_part *part,
                             int64_t n_out, int64_t n_in, linear **out);
/* Loads a mixture's router: a linear layer without bias, computed in f32 in every
 * mode. */
quire_err loader_router(loader *l, weight_name name, int32_t layer, int64_t n_out, int64_t n_in,
                        linear **out);
quire_err loader_router_part(loader *l, weight_name name, int32_t layer, const weight_part *part,
                             int64_t n_out, int64_t n_in, linear **out);
/* Loads the taps of n channels from `first` on, from a tensor of n_all channels with
 * n_taps each, and their biases if the file has any. */
quire_err loader_conv(loader *l, weight_name name, int32_t layer, conv_channels at, int32_t n_taps,
                      conv_taps **out);
/* Reads the taps [n_all, n_taps] of several tensors, concatenated, as f32 into *out; free
 * it with mem_free. The tensors may be split anywhere. */
quire_err loader_taps(loader *l, const weight_name *names, int32_t n_names, int32_t layer, int32_t n_all,
                      int32_t n_taps, float **out);
/* Loads a norm over groups of `width` elements. n: elements of its weight. */
quire_err loader_norm(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int64_t n,
                      norm **out);
/* Loads a norm of spec->width elements whose weights are the file's times scale. */
quire_err loader_scaled_norm(loader *l, weight_name name, int32_t layer, const norm_spec *spec, float scale,
                             norm **out);
/* Loads a norm over n heads of spec->width elements, with a tensor per head: the second
 * %d of the hf name is the head. */
quire_err loader_norm_by_head(loader *l, weight_name name, int32_t layer, const norm_spec *spec, int32_t n,
                              norm **out);
/* Loads rows [n_rows, width] of positions or token types. */
quire_err loader_rows(loader *l, weight_name name, int64_t n_rows, int64_t width, embedding **out);
/* Loads token rows [n_vocab, width]. or_name: a second name to try, or NULL (a tied model
 * may store only its head). */
quire_err loader_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab,
                           int64_t width, embedding **out);
/* The same for a tied model whose head was just loaded: uses head's weights if they hold
 * the rows exactly. */
quire_err loader_tied_embedding(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab,
                                int64_t width, const linear *head, embedding **out);
/* Loads the head [n_vocab, width]. or_name: as in loader_embedding; applies to its bias
 * too. */
quire_err loader_head(loader *l, weight_name name, const weight_name *or_name, int64_t n_vocab, int64_t width,
                      linear **out);
/* Reads a vector of n elements as f32 into *out; free it with mem_free; NULL: absent. */
quire_err loader_vector(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                        float **out);

/* The same for the first row of a tensor of n_rows. */
quire_err loader_first_row(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n_rows,
                           int64_t n, float **out);

/* The same for a required vector. */
quire_err loader_need_vector(loader *l, weight_name name, const char *suffix, int64_t n, float **out);
/* Reads a required matrix [n_out, n_in] of any type as f32 into *out; free it with
 * mem_free. */
quire_err loader_matrix(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n_out,
                        int64_t n_in, float **out);
/* The same for n matrices [n, n_out, n_in] in one tensor. */
quire_err loader_matrices(loader *l, weight_name name, int32_t layer, const char *suffix, int64_t n,
                          int64_t n_out, int64_t n_in, float **out);

/* For the loader's own files: found NULL sets the error for a missing tensor, with a suffix
 * of its name. */
quire_err loader_required(const loader *l, const void *found, weight_name name, int32_t layer,
                          const char *suffix);
/* Reads the first n elements of a float tensor as f32 into *out; free it with
 * mem_free. */
quire_err loader_read_floats(const loader *l, const tensor_view *t, int64_t n, float **out);
/* Refuses a tensor of another shape; only the first n_dims dimensions are compared. */
quire_err loader_check_shape(const loader *l, const tensor_view *t, int32_t n_dims, int64_t d0, int64_t d1,
                             int64_t d2);

/* Adds everything loaded to an image: weights as the backend packed them, and tensors
 * used unchanged. */
quire_err loader_image(const loader *l, packed_image *i);

/* Refuses a file with unused weights and names the first one. Derived data and tensors
 * outside the text model (left_out.h) may be unused. */
quire_err loader_finish(const loader *l, const model_desc *d);

#endif
