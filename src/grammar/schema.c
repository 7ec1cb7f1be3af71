/* Compiles JSON Schemas. */
#include "grammar/compile.h"

void compile_schema(build *b, str text) {
    (void)text;
    (void)build_fail(b, QUIRE_UNSUPPORTED, -1, "JSON Schemas are not supported by this build");
}

void compile_object(build *b) {
    (void)build_fail(b, QUIRE_UNSUPPORTED, -1, "JSON objects are not supported by this build");
}
