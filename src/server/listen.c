/* Where a server listens: a port of an address, or a socket file. And how many
 * connections may be open there. */

#include <assert.h>
#include <errno.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "server/loop.h"

#define BACKLOG   1024
#define OWN_FILES 128 /* descriptors for other things than connections: the model, tiers, loops */
#define UNIX_MODE 0660

static bool listen_starts(int fd) {
    return listen(fd, BACKLOG) == 0 && evutil_make_socket_nonblocking(fd) == 0 &&
           evutil_make_socket_closeonexec(fd) == 0;
}

/* Closes fd, if it is open; keeps errno. Returns -1. */
static int listen_close_failed(int fd) {
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    return -1;
}

static int listen_at(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    int on = 1;
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    return fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen_starts(fd)
               ? fd
               : listen_close_failed(fd);
}

static bool listen_is_loopback(const struct sockaddr_storage *at) {
    if (at->ss_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    }
    return at->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
}

static quire_err listen_note_address(server *s, quire_error *err) {
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    char host[200], port[16];
    if (getsockname(s->listen_fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return err_set(err, QUIRE_IO, -1, "the listening address can't be read: %s", strerror(errno));
    }
    s->port = atoi(port);
    s->on_loopback = listen_is_loopback(&at);
    snprintf(s->url, sizeof(s->url), at.ss_family == AF_INET6 ? "http://[%s]:%d" : "http://%s:%d", host,
             (int)s->port);
    return QUIRE_OK;
}

/* ---- a port ---- */

static quire_err listen_on_port(server *s, quire_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    const char *host = s->options.host;
    char port[16];
    snprintf(port, sizeof(port), "%d", (int)s->options.port);
    int r = getaddrinfo(host, port, &hints, &found);
    if (r != 0) {
        return err_set(err, QUIRE_IO, -1, "--host %s: %s", host, gai_strerror(r));
    }
    for (const struct addrinfo *at = found; at != NULL && s->listen_fd < 0; at = at->ai_next) {
        s->listen_fd = listen_at(at);
    }
    int reason = errno;
    freeaddrinfo(found);
    if (s->listen_fd < 0) {
        return err_set(err, QUIRE_IO, -1,
                       "can't listen on %s port %s: %s; choose another with --host or --port", host, port,
                       strerror(reason));
    }
    return listen_note_address(s, err);
}

/* ---- a socket file ---- */

/* Removes the socket file of a server that no longer runs. INVALID: another file is
 * there, or a server that answers. */
static quire_err listen_remove_stale(const struct sockaddr_un *at, quire_error *err) {
    struct stat file;
    if (lstat(at->sun_path, &file) != 0) {
        return QUIRE_OK;
    }
    if (!S_ISSOCK(file.st_mode)) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: a file that is no socket is there",
                       at->sun_path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_stale =
        fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED;
    (void)listen_close_failed(fd);
    if (!is_stale) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: another server listens there", at->sun_path);
    }
    unlink(at->sun_path);
    return QUIRE_OK;
}

static quire_err listen_on_file(server *s, const char *path, quire_error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof at.sun_path) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: a path must have from 1 to %zu bytes", path,
                       sizeof at.sun_path - 1);
    }
    memcpy(at.sun_path, path, n);
    TRY(listen_remove_stale(&at, err));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_bound = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    /* nobody can connect before it listens */
    bool is_open = is_bound && chmod(path, UNIX_MODE) == 0 && listen_starts(fd);
    struct stat file;
    if (!is_open || stat(path, &file) != 0) {
        s->listen_fd = listen_close_failed(fd);
        err_set(err, QUIRE_IO, -1, "can't listen on unix:%s: %s", path, strerror(errno));
        if (is_bound) {
            unlink(path);
        }
        return QUIRE_IO;
    }
    s->listen_fd = fd;
    s->socket_file = path;
    s->socket_device = file.st_dev;
    s->socket_inode = file.st_ino;
    s->on_loopback = true;
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    return QUIRE_OK;
}

/* ---- both ---- */

quire_err listen_open(server *s, quire_error *err) {
    assert(s != NULL);
    return str_begins(str_of(s->options.host), LISTEN_UNIX)
               ? listen_on_file(s, s->options.host + sizeof LISTEN_UNIX - 1, err)
               : listen_on_port(s, err);
}

void listen_close(server *s) {
    assert(s != NULL);
    struct stat file;
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
        s->listen_fd = -1;
    }
    if (s->socket_file != NULL && lstat(s->socket_file, &file) == 0 && file.st_dev == s->socket_device &&
        file.st_ino == s->socket_inode) {
        unlink(s->socket_file);
    }
    s->socket_file = NULL;
}

void listen_raise_files(const server_options *o) {
    assert(o != NULL);
    struct rlimit limit;
    rlim_t wanted = (rlim_t)o->max_connections + SERVER_MAX_SURPLUS + OWN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= wanted) {
        return;
    }
    bool is_capped = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted;
    limit.rlim_cur = is_capped ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || is_capped) {
        log_line(LOG_WARN,
                 "--max-connections %d: the system allows %llu open files, some %llu are needed; raise the "
                 "limit (ulimit -Hn)",
                 (int)o->max_connections, (unsigned long long)limit.rlim_cur, (unsigned long long)wanted);
    }
}
