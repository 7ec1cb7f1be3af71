/* Tensors of a file outside the text model: next-token layers, towers for images and
 * audio, and extras of an architecture's checkpoints (arch_names.left_out).
 *
 * Next-token layers predict the tokens after the next one. Checkpoints have them after
 * the last layer ("model.layers.46." of 46, "blk.46."), or under separate names
 * ("model.mtp_block.0.", "mtp.layers.0."). GLM-4.5: arXiv:2508.06471. They are meant for
 * drafters: they are counted but not read. */
#ifndef MODEL_LEFT_OUT_H
#define MODEL_LEFT_OUT_H

#include "core/model_desc.h"
#include "file/model_file.h"
#include "model/weight_names.h"

typedef enum tensor_part { PART_TEXT, PART_NEXT_TOKEN, PART_TOWER, PART_BESIDE } tensor_part;

/* The part of a model to which a tensor belongs. names: the architecture's; NULL:
 * Llama's. root: what "model." stands for in this file (loader_root).
 * d->n_next_token_layers: upper limit of next-token layers after d's layers. *next_token:
 * index of its next-token layer. */
tensor_part tensor_part_of(const model_file *f, const model_desc *d, const arch_names *names,
                           const char *root, const char *name, int32_t *next_token);

/* Length of the prefix of root up to and including "language_model." or "text_model.",
 * with which all text tensors of a checkpoint with towers begin. 0: a text-only
 * checkpoint. */
size_t text_prefix(const char *root);

/* Computes parameters and bytes of the text model and the type of most parameters in
 * matrices, and counts what is left out. Sets d->n_next_token_layers to the number in the
 * file. */
void describe_weights(const model_file *f, const arch_names *names, const char *root, model_desc *d);

#endif
