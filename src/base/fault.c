#include "base/fault.h"

#ifdef QUIRE_DEBUG
static _Thread_local int64_t points_left;
static _Thread_local bool happened;

void fault_at(int64_t n) {
    points_left = n;
    happened = false;
}

bool fault_happened(void) {
    return happened;
}

bool fault_due(void) {
    if (points_left == 0 || --points_left > 0) {
        return false;
    }
    happened = true;
    return true;
}
#else
typedef int fault_is_empty; /* an empty translation unit is not valid C */
#endif
