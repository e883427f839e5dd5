/*
 * The line of progress. One thread, which waits on a condition with a time limit and writes to
 * stderr alone; every piece of state is behind `lock`.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/output.h"
#include "cli/option_values.h"

#define SHOW_AFTER_MS 400
#define REFRESH_MS 200

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stop;
    char what[120];
    uint64_t done, total;
    int64_t since_ms;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Waits for `changed` at most ms, with the lock held. */
static void wait_ms(unsigned ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&line.changed, &line.lock, &t);
}

static void show(void) {
    char text[240], done[32], total[32];
    int64_t seconds = (clock_mono_ms() - line.since_ms) / 1000;
    format_bytes(line.done, done, sizeof(done));
    format_bytes(line.total, total, sizeof(total));
    int n;
    if (line.total)
        n = snprintf(text, sizeof(text), "\r%s  %s of %s (%d %%)\033[K", line.what, done, total,
                     (int)(line.done * 100 / line.total));
    else if (line.done)
        n = snprintf(text, sizeof(text), "\r%s  %s\033[K", line.what, done);
    else
        n = snprintf(text, sizeof(text), "\r%s  %lld s\033[K", line.what, (long long)seconds);
    (void)!write(STDERR_FILENO, text, (size_t)n);
}

static void *run(void *arg) {
    bool shown = false;
    pthread_mutex_lock(&line.lock);
    while (!line.stop) {
        wait_ms(shown ? REFRESH_MS : SHOW_AFTER_MS);
        if (line.stop)
            break;
        if (clock_mono_ms() - line.since_ms >= SHOW_AFTER_MS) {
            show();
            shown = true;
        }
    }
    pthread_mutex_unlock(&line.lock);
    if (shown)
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
    return NULL;
}

void progress_begin(const char *what) {
    progress_end();
    if (!isatty(STDERR_FILENO))
        return;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&line.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    str_copy(line.what, sizeof(line.what), what);
    line.done = line.total = 0;
    line.stop = false;
    line.since_ms = clock_mono_ms();
    line.running = pthread_create(&line.thread, NULL, run, NULL) == 0;
}

void progress_bytes(uint64_t done, uint64_t total) {
    if (!line.running)
        return;
    pthread_mutex_lock(&line.lock);
    line.done = done;
    line.total = total;
    pthread_mutex_unlock(&line.lock);
}

void progress_end(void) {
    if (!line.running)
        return;
    pthread_mutex_lock(&line.lock);
    line.stop = true;
    pthread_cond_signal(&line.changed);
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.thread, NULL);
    pthread_cond_destroy(&line.changed);
    line.running = false;
}
