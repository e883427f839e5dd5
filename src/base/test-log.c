/* Log files: rotation, reopening, the layout of lines, and a disk that takes nothing. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"
#include "base/test.h"

static char dir[64], path[96];

static void set_up(void) {
    str_copy(dir, sizeof dir, "/tmp/cove-test-log-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/made/on/the/way/server.log", dir);
}

static void tear_down(void) {
    log_to_files(NULL, NULL);
    path_remove_tree_at(AT_FDCWD, dir);
}

/* Content of path + suffix; "" = none. */
static const char *content(const char *suffix) {
    static char *last;
    _cleanup_free_ char *name = str_printf("%s%s", path, suffix);
    free(last);
    last = NULL;
    return path_read_file_at(AT_FDCWD, name, 1 << 20, &last, NULL) < 0 ? "" : last;
}

static void write_lines(struct log_file *f, int from, int to) {
    for (int i = from; i <= to; i++) {
        char line[16];
        snprintf(line, sizeof line, "line %03d\n", i);
        log_file_write(f, line, strlen(line));
    }
}

TEST(files_are_rotated_by_size) {
    struct log_file *f = NULL;

    set_up();
    ASSERT_OK(log_file_open(path, 20, 2, &f, NULL)); /* two lines of nine bytes fit */
    write_lines(f, 1, 9);
    ASSERT_STR(content(""), "line 009\n");
    ASSERT_STR(content(".1"), "line 007\nline 008\n");
    ASSERT_STR(content(".2"), "line 005\nline 006\n");
    ASSERT_STR(content(".3"), "");
    log_file_close(f);
    ASSERT_OK(log_file_open(path, 20, 2, &f, NULL)); /* goes on where it was */
    write_lines(f, 10, 11);
    ASSERT_STR(content(""), "line 011\n");
    ASSERT_STR(content(".1"), "line 009\nline 010\n");
    log_file_close(f);
    tear_down();
}

TEST(without_backups_a_full_file_is_begun_anew) {
    struct log_file *f = NULL;

    set_up();
    ASSERT_OK(log_file_open(path, 20, 0, &f, NULL));
    write_lines(f, 1, 5);
    ASSERT_STR(content(""), "line 005\n");
    ASSERT_STR(content(".1"), "");
    log_file_close(f);
    tear_down();
}

TEST(a_file_that_was_moved_is_opened_again) {
    struct log_file *f = NULL;

    set_up();
    ASSERT_OK(log_file_open(path, 1 << 20, 2, &f, NULL));
    write_lines(f, 1, 1);
    _cleanup_free_ char *moved = str_printf("%s.old", path);
    ASSERT_OK(rename(path, moved));
    write_lines(f, 2, 2);
    ASSERT_STR(content(".old"), "line 001\nline 002\n");
    log_file_reopen(f);
    write_lines(f, 3, 3);
    ASSERT_STR(content(""), "line 003\n");
    log_file_close(f);
    tear_down();
}

TEST(a_full_disk_sends_lines_to_stderr) {
    struct log_file *f = NULL;
    int out[2], saved = dup(2);
    char got[64] = "";

    ASSERT_OK(pipe2(out, O_CLOEXEC));
    ASSERT_OK(log_file_open("/dev/full", 100, 2, &f, NULL));
    dup2(out[1], 2);
    write_lines(f, 1, 1);
    dup2(saved, 2);
    ASSERT_INT(read(out[0], got, sizeof got - 1), 9);
    ASSERT_STR(got, "line 001\n");
    log_file_close(f);
    fd_close(saved);
    fd_close(out[0]);
    fd_close(out[1]);
}

TEST(what_cannot_be_opened_is_said) {
    struct log_file *f = NULL;
    struct err err = {0};

    ASSERT_INT(log_file_open("/proc/version/x/server.log", 100, 2, &f, &err), -ENOTDIR);
    ASSERT(strstr(err.msg, "/proc/version/x/server.log"));
}

TEST(lines_in_files_have_the_request_in_front) {
    struct log_file *all = NULL, *requests = NULL;
    _cleanup_free_ char *other = NULL;

    set_up();
    setenv("TZ", "UTC", 1);
    other = str_printf("%s.requests", path);
    ASSERT_OK(log_file_open(path, 1 << 20, 2, &all, NULL));
    ASSERT_OK(log_file_open(other, 1 << 20, 2, &requests, NULL));
    log_setup(LOG_INFO, false, "coved");
    log_to_files(all, requests);
    log_warn("something", LOG_INT("n", 5));
    log_access("request", LOG_REQ("abc"), LOG_INT("status", 200), LOG_STR("path", "/a b"));
    log_debug("not shown");
    const char *got = content("");
    ASSERT(str_starts(got, "WARNING:  20"));
    ASSERT(str_ends(got, "+0000 [-] coved: something n=5\n"));
    got = content(".requests");
    ASSERT(str_starts(got, "INFO:     20"));
    ASSERT(str_ends(got, "+0000 [abc] coved: request status=200 path=\"/a b\"\n"));
    log_setup(LOG_INFO, true, "coved");
    log_access("request", LOG_REQ("abc"));
    ASSERT(str_ends(content(".requests"), "\"msg\":\"request\",\"request_id\":\"abc\"}\n"));
    tear_down();
    log_file_close(all);
    log_file_close(requests);
}

TEST_MAIN()
