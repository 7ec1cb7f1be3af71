/* "quantization_config" in config.json: which checkpoints of quantised weights this build computes as they were made.
 *
 * One form: compressed-tensors' W8A8, int8 weights with a scale an output channel and activations that are quantised to int8 token by token
 * while they are computed. Layers that it leaves out ("ignore", the head mostly) have float weights: those are computed as --compute says,
 * so in int8 they are quantised when they are loaded. */
#ifndef MODEL_QUANTISATION_H
#define MODEL_QUANTISATION_H

#include "file/model_file.h"

/* QUIRE_UNSUPPORTED names the first thing that another form says. Files without the key, and GGUF files, are fine. */
quire_err quantisation_check(const model_file *f, quire_error *err);

#endif
