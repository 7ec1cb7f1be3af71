/* "quantization_config" in config.json: which checkpoints of quantised weights this build computes as they were made.
 *
 * One form: compressed-tensors' W8A8, int8 weights with a scale an output channel and activations that are quantised to int8 token by token
 * while they are computed (the backend's INT8 with ROWS_TOKEN). Layers that it leaves out ("ignore") have float weights, which say so. */
#ifndef MODEL_QUANTISATION_H
#define MODEL_QUANTISATION_H

#include "file/model_file.h"

/* QUIRE_UNSUPPORTED names the first thing that another form says. Files without the key, and GGUF files, are fine. */
quire_err quantisation_check(const model_file *f, quire_error *err);

#endif
