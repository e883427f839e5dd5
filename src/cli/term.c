/*
 * See term.h. Handlers only touch sig_atomic_t flags, call cove_client_interrupt(), and for the
 * second SIGINT tcsetattr() and _exit(), which are all safe there.
 */
#include "cli/term.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t is_raw;
static volatile sig_atomic_t taken, resized, ints, max_ints = 1;
static struct cove_client *_Atomic client;

int term_raw(void) {
    struct termios t;
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return -errno;
    t = saved;
    cfmakeraw(&t);
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) < 0)
        return -errno;
    if (!is_raw)
        atexit(term_restore);
    is_raw = 1;
    return 0;
}

void term_restore(void) {
    if (!is_raw)
        return;
    is_raw = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

bool term_size(unsigned short *ret_cols, unsigned short *ret_rows) {
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0)
        return false;
    *ret_cols = w.ws_col;
    *ret_rows = w.ws_row;
    return w.ws_col > 0 && w.ws_row > 0;
}

static void on_signal(int sig) {
    int e = errno;
    struct cove_client *c = atomic_load(&client);
    if (sig == SIGWINCH) {
        resized = 1;
    } else {
        if (sig == SIGINT && ++ints > max_ints) {
            term_restore();
            _exit(128 + SIGINT);
        }
        if (!taken)
            taken = sig;
    }
    if (c)
        cove_client_interrupt(c);
    errno = e;
}

void signals_setup(int patience) {
    static const int sigs[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: waits must end */
    sigemptyset(&sa.sa_mask);
    max_ints = patience;
    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        struct sigaction old;
        sigaction(sigs[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) /* nohup and background jobs of a shell */
            sigaction(sigs[i], &sa, NULL);
    }
    struct sigaction ign = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ign, NULL);
}

void signals_interrupt(struct cove_client *c) {
    atomic_store(&client, c);
}

int signals_taken(void) {
    int sig = taken;
    taken = 0;
    return sig;
}

int signals_pending(void) {
    return taken;
}

bool signals_resized(void) {
    bool was = resized;
    resized = 0;
    return was;
}

int signals_ints(void) {
    return ints;
}
