"""Clients that ask one server at the same time."""
import threading


def answers_together(ask, names, *beside):
    """{name: ask(name)} of all names at once, while the threads `beside` run. An error of one client is raised here."""
    got, errors = {}, []

    def one(name):
        try:
            got[name] = ask(name)
        except BaseException as e:  # noqa: BLE001: a thread's error is its test's
            errors.append(e)
    threads = [*beside, *(threading.Thread(target=one, args=(name,)) for name in names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return got
