#include "server/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/rng.h"

#define ID_DIGITS 16

bool server_answers_to(const server *s, str name) {
    bool found = str_is(name, s->model_name);
    for (int32_t i = 0; i < s->options.n_served_model_names; i++) {
        found = found || str_is(name, s->options.served_model_names[i]);
    }
    return found;
}

void loop_set_timer(struct event *timer, int64_t us) {
    assert(timer != NULL && us >= 0);
    struct timeval t = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(timer, &t);
}

void loop_free_event(struct event *event) {
    if (event != NULL) {
        event_free(event);
    }
}

void loop_wake_all(const server *s) {
    for (int32_t i = 0; i < s->n_loops; i++) {
        if (s->loops[i].bell.is_open) { /* not closed yet */
            wake_ring(&s->loops[i].bell);
        }
    }
}

int64_t loop_count_busy(const server *s) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_busy);
    }
    return n;
}

bool loop_read_id(const char *id, uint64_t *number) {
    size_t n = strlen(id);
    bool is_number = n >= ID_DIGITS;
    *number = 0;
    for (size_t i = n - ID_DIGITS; is_number && i < n; i++) {
        int digit = hex_digit(id[i]);
        is_number = digit >= 0;
        *number = *number << 4 | (uint64_t)(digit & 15);
    }
    return is_number;
}

loop *loop_of_id(server *s, const char *id) {
    uint64_t number, mask = (1u << LOOP_BITS) - 1;
    return loop_read_id(id, &number) && (int64_t)(number & mask) < s->n_loops ? &s->loops[number & mask]
                                                                              : NULL;
}

uint64_t loop_new_id(loop *l) {
    assert(l->server->n_loops <= 1 << LOOP_BITS);
    uint64_t mine = (uint64_t)(l - l->server->loops), mask = (1u << LOOP_BITS) - 1;
    return (rng_next(&l->random) & ~mask) | mine;
}

/* ---- the service manager ---- */

void notify_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET"); /* the protocol's way to name it */
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path != NULL ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* an abstract name */
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd >= 0) {
        socklen_t n_to = (socklen_t)(sizeof to - sizeof to.sun_path + n);
        (void)sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&to,
                     n_to);
        close(fd);
    }
}
