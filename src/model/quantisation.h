/* Checks "quantization_config" in config.json: which quantised checkpoints this build computes without converting them.
 *
 * There is one form: compressed-tensors' W8A8. Weights are int8 with one scale for each output channel. Activations are quantised to int8
 * token by token during the computation. Layers that the checkpoint leaves out ("ignore", mostly the head) have float weights. Those are
 * computed in the mode of --compute, so in int8 they are quantised at load. */
#ifndef MODEL_QUANTISATION_H
#define MODEL_QUANTISATION_H

#include "file/model_file.h"

/* QUIRE_UNSUPPORTED, with err on the first setting of another form. Files without the key, and GGUF files, pass. */
quire_err quantisation_check(const model_file *f, quire_error *err);

#endif
