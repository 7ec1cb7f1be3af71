#include "lab/bench/experiment.h"

void experiment_options_init(experiment_options *o) {
    *o = (experiment_options){0};
    quire_options_init(&o->engine);
    o->engine.model = "builtin";
}
