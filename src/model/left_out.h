/* Tensors of a file that are not part of the text model: those of next-token layers, of
 * towers for images and sound, and what an architecture's checkpoints hold beside it
 * (arch_names.left_out).
 *
 * Next-token layers guess the tokens after the next one. Checkpoints have them after the
 * last layer ("model.layers.46." of 46, "blk.46."), or under names of their own
 * ("model.mtp_block.0.", "mtp.layers.0."). GLM-4.5: arXiv:2508.06471. They are left out,
 * and counted, for drafters; nothing of them is read. */
#ifndef MODEL_LEFT_OUT_H
#define MODEL_LEFT_OUT_H

#include "core/model_desc.h"
#include "file/model_file.h"
#include "model/weight_names.h"

typedef enum tensor_part { PART_TEXT, PART_NEXT_TOKEN, PART_TOWER, PART_BESIDE } tensor_part;

/* To which part of a model a tensor belongs. names: the architecture's, NULL: Llama's.
 * root: what "model." is in this file (loader_root). d->n_next_token_layers: how many
 * there may be after d's layers. *next_token: the number of its next-token layer, from
 * 0. */
tensor_part tensor_part_of(const model_file *f, const model_desc *d, const arch_names *names,
                           const char *root, const char *name, int32_t *next_token);

/* The length of the part of root up to and with "language_model." or "text_model.", which
 * begins all names of the text in a checkpoint that has towers too. 0: text alone. */
size_t text_prefix(const char *root);

/* Adds up parameters and bytes of the text model, finds the type of most of its matrices'
 * parameters, and counts what is left out. Afterwards d->n_next_token_layers says how
 * many next-token layers the file has. */
void describe_weights(const model_file *f, const arch_names *names, const char *root, model_desc *d);

#endif
