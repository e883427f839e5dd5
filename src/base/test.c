/* The unit-test harness (see test.h): a process per test, TAP on stdout. */
#include "base/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { EXIT_SKIP = 77, EXIT_LEAK = 78 };

static struct test_case *cases, **last = &cases;

void test_register(struct test_case *t) {
    *last = t;
    last = &t->next;
}

const char *test_errno(int r) {
    const char *s = strerrordesc_np(-r);
    return s ? s : "unknown error";
}

void test_fail(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    printf("# %s:%d: ", file, line);
    vprintf(fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized) */
    va_end(ap);
    printf("\n");
    fflush(NULL);
    _exit(1);
}

void test_skip(const char *why) {
    printf("# skipped: %s\n", why);
    fflush(NULL);
    _exit(getenv("COVE_TEST_NO_SKIP") && strncmp(why, "cannot:", 7) != 0 ? 1 : EXIT_SKIP);
}

void test_set_timeout(unsigned seconds) {
    const char *slow = getenv("COVE_TEST_SLOW"); /* emulated machines stretch time limits */
    alarm(seconds * (slow ? (unsigned)MAX(strtoul(slow, NULL, 10), 1UL) : 1));
}

static int count_fds(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static _noreturn_ void run_child(const struct test_case *t) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_set_timeout(20);
    int before = count_fds();
    t->fn();
    if (count_fds() > before) {
        printf("# %s:%d: %s leaves %d descriptors open\n", t->file, t->line, t->name,
               count_fds() - before);
        fflush(NULL);
        _exit(EXIT_LEAK);
    }
    if (waitpid(-1, NULL, WNOHANG) >= 0) {
        printf("# %s:%d: %s leaves a child process\n", t->file, t->line, t->name);
        fflush(NULL);
        _exit(EXIT_LEAK);
    }
    fflush(NULL);
    exit(0); /* through atexit: the leak sanitizer reports here */
}

static bool run_one(const struct test_case *t, int number) {
    int st = 0;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        run_child(t);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    bool skip = WIFEXITED(st) && WEXITSTATUS(st) == EXIT_SKIP;
    bool ok = WIFEXITED(st) && WEXITSTATUS(st) == 0;
    if (WIFSIGNALED(st))
        printf("# %s: %s\n", t->name,
               WTERMSIG(st) == SIGALRM ? "time limit" : strsignal(WTERMSIG(st)));
    printf("%sok %d - %s%s\n", ok || skip ? "" : "not ", number, t->name, skip ? " # SKIP" : "");
    return ok || skip;
}

int test_main(int argc, char **argv) {
    int n = 0, failed = 0;

    for (struct test_case *t = cases; t; t = t->next)
        if (argc < 2 || fnmatch(argv[1], t->name, 0) == 0)
            failed += !run_one(t, ++n);
    printf("1..%d\n", n);
    return failed || n == 0;
}
