/* Tells a service manager such as systemd how the server is: sd_notify's protocol,
 * without its library. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

/* Sends "READY=1" or "STOPPING=1" to the socket that NOTIFY_SOCKET names; does nothing
 * where that is not set. A manager that does not take it is no failure. Any thread; does
 * not block. */
void notify_manager(const char *state);

#endif
