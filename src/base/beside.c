#include "base/beside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *beside_find(const char *name, char *path, size_t n) {
    ssize_t length = readlink("/proc/self/exe", path, n);
    if (length <= 0 || (size_t)length >= n) {
        return name;
    }
    path[length] = 0;
    char *file = strrchr(path, '/') + 1; /* the link is a path from the root */
    size_t room = n - (size_t)(file - path);
    int written = snprintf(file, room, "%s", name);
    return written > 0 && (size_t)written < room && access(path, X_OK) == 0 ? path : name;
}
