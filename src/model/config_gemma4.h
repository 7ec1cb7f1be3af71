/* The description of a Gemma 4 model. */
#ifndef MODEL_CONFIG_GEMMA4_H
#define MODEL_CONFIG_GEMMA4_H

#include "model/config.h"

quire_err describe_gemma4(const config *c, model_desc *d);

#endif
