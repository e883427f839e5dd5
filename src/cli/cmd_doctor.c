/*
 * cove doctor: the daemon program's own probes of the machine (`coved --probe --json`), and what
 * only the command line can see: disk space, the port, the daemon, the switches of its environment.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/path.h"
#include "base/spawn.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/option_values.h"

#define STATE_DIR "/var/lib/cove"
#define API_PORT 8080
#define PROBE_TIMEOUT_MS 60000
#define DISK_LOW ((uint64_t)2 << 30)
#define DISK_NONE ((uint64_t)100 << 20)

/* status: "ok", "warning" (works, with less) or "missing" (native sandboxes do not work) */
static void add(json_t *checks, const char *name, const char *status, const char *detail,
                const char *why, const char *fix) {
    json_t *c = json_pack("{s:s, s:s, s:s}", "name", name, "status", status, "detail",
                          detail ? detail : "");
    if (!c)
        return;
    if (strcmp(status, "ok") != 0) {
        json_object_set_new(c, "why", json_string(why ? why : ""));
        json_object_set_new(c, "fix", json_string(fix ? fix : ""));
    }
    json_array_append_new(checks, c);
}

static char *daemon_program(void) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[MAX(n, 0)] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    char *path = path_join(self, "coved");
    if (path && access(path, X_OK) == 0)
        return path;
    free(path);
    return strdup("coved");
}

static void add_probes(json_t *checks, const json_t *answer) {
    const json_t *list = json_is_array(answer) ? answer : json_object_get(answer, "probes");
    size_t i;
    json_t *p;
    json_array_foreach(list, i, p) {
        const char *name = json_str(p, "name");
        bool ok = json_bool(p, "ok", false), required = json_bool(p, "required", false);
        add(checks, name ? name : "?",
            ok         ? "ok"
            : required ? "missing"
                       : "warning",
            json_str(p, "detail"), json_str(p, "why"), json_str(p, "fix"));
    }
}

static void check_host(json_t *checks) {
    _cleanup_free_ char *program = daemon_program();
    const char *const argv[] = {program, "--probe", "--json", NULL};
    struct spawn_result r = {0};
    struct err err = {0};
    if (spawn_run(argv, NULL, 1 << 20, PROBE_TIMEOUT_MS, &r, &err) < 0) {
        add(checks, "coved", "missing", err_text(&err), "the daemon makes and keeps the sandboxes",
            "install coved beside cove, or put it in PATH");
        return;
    }
    _cleanup_json_ json_t *answer = json_parse(r.out, r.out_len, NULL);
    if (answer)
        add_probes(checks, answer);
    else
        add(checks, "coved", "missing", r.errs && *r.errs ? r.errs : "its probe gave no answer",
            "the daemon makes and keeps the sandboxes",
            "install coved and cove of the same version");
    spawn_result_done(&r);
}

/* The daemon reads its configuration by itself; here its judgement is shown before it is started.
 */
static void check_config(json_t *checks) {
    _cleanup_free_ char *program = daemon_program();
    const char *const argv[] = {program, "--check-config", NULL};
    struct spawn_result r = {0};
    if (spawn_run(argv, NULL, 65536, PROBE_TIMEOUT_MS, &r, NULL) < 0)
        return; /* no program: told already */
    char *text = r.status == 0 ? r.out : r.errs;
    text[strcspn(text, "\n")] = '\0';
    add(checks, "configuration", r.status == 0 ? "ok" : "missing", text,
        "the daemon does not start with it",
        "correct the file; coved --print-config-doc explains the keys");
    spawn_result_done(&r);
}

/* Free bytes of the file system that will hold `path`, whose last parts may not exist yet. */
static bool free_bytes(const char *path, uint64_t *ret) {
    char at[PATH_MAX];
    struct statvfs v;
    str_copy(at, sizeof(at), path);
    while (statvfs(at, &v) < 0) {
        char *slash = strrchr(at, '/');
        if (errno != ENOENT || !slash)
            return false;
        slash[slash == at] = '\0'; /* keep the root's own slash */
    }
    *ret = (uint64_t)v.f_bavail * v.f_frsize;
    return true;
}

static void check_disk(json_t *checks) {
    uint64_t bytes;
    char detail[128], size[32];
    if (!free_bytes(STATE_DIR, &bytes)) {
        add(checks, "disk", "warning", "cannot look at " STATE_DIR,
            "sandboxes keep their files there", "run cove doctor as root");
        return;
    }
    format_bytes(bytes, size, sizeof(size));
    snprintf(detail, sizeof(detail), "%s free for " STATE_DIR, size);
    add(checks, "disk",
        bytes < DISK_NONE  ? "missing"
        : bytes < DISK_LOW ? "warning"
                           : "ok",
        detail, "images and what sandboxes write are kept there",
        "make room, or set server.state_dir to a larger disk");
}

static void check_port(json_t *checks, bool daemon_runs) {
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(API_PORT), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    char detail[80];
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    bool is_free = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;
    snprintf(detail, sizeof(detail), "127.0.0.1:%d is %s", API_PORT,
             is_free       ? "free"
             : daemon_runs ? "in use, perhaps by the daemon"
                           : "used by another program");
    add(checks, "api port", is_free || daemon_runs ? "ok" : "warning", detail,
        "SDKs reach the daemon there; the Unix socket works without it",
        "set server.port to another one");
}

/* ", driver docker"; empty when the server does not say. */
static void driver_of(struct cove_client *c, char *ret, size_t size) {
    struct cove_error err = {0};
    char *text = NULL;
    ret[0] = '\0';
    if (cove_client_capabilities(c, &text, &err) < 0)
        return;
    _cleanup_json_ json_t *j = json_parse(text, strlen(text), NULL);
    cove_free(text);
    if (json_str(j, "driver"))
        snprintf(ret, size, ", driver %s", json_str(j, "driver"));
}

static bool check_daemon(const struct args *a, json_t *checks) {
    struct cove_error err = {0};
    struct cove_client *c = NULL;
    _cleanup_free_ char *version = NULL;
    char detail[1200];
    int r = cove_client_new(arg_value(a, OPT_HOST), NULL, &c, &err);
    if (r == 0)
        r = cove_client_ping(c, &version, &err);
    if (r == 0) {
        struct cove_sandbox_list *l = NULL;
        char driver[64];
        driver_of(c, driver, sizeof(driver));
        snprintf(detail, sizeof(detail), "%s at %s%s", version, cove_client_address(c), driver);
        add(checks, "daemon", "ok", detail, NULL, NULL);
        if (cove_sandbox_list(c, NULL, &l, &err) < 0)
            add(checks, "api access", "warning", err.message,
                "the daemon runs, but refuses this user",
                advice_for(&err) ? advice_for(&err) : "see the daemon's log");
        cove_sandbox_list_free(l);
    } else {
        add(checks, "daemon", "warning", err.message,
            "create, exec, ps … need one; `cove run` brings its own",
            "start coved, or name its address with --host or COVE_HOST");
    }
    cove_client_free(c);
    return r == 0;
}

static void check_switches(json_t *checks) {
    if (str_eq(getenv("OPENSANDBOX_INSECURE_SERVER"), "YES"))
        add(checks, "api key", "warning", "OPENSANDBOX_INSECURE_SERVER=YES is set",
            "a daemon started here serves everyone who reaches its port, without a key",
            "unset it and set server.api_key");
    if (geteuid() != 0)
        add(checks, "user", "warning", "cove does not run as root",
            "some checks see less, and a private daemon needs root", "sudo cove doctor");
}

static size_t count(const json_t *checks, const char *status) {
    size_t i, n = 0;
    json_t *c;
    json_array_foreach(checks, i, c) n += str_eq(json_str(c, "status"), status);
    return n;
}

static void print_checks(const json_t *checks) {
    size_t i;
    json_t *c;
    json_array_foreach(checks, i, c) {
        const char *status = json_str(c, "status"), *why = json_str(c, "why"),
                   *fix = json_str(c, "fix");
        printf("%-8s %-20s %s\n", status, json_str(c, "name"), json_str(c, "detail"));
        if (!str_is_empty(why))
            printf("         %-20s why: %s\n", "", why);
        if (!str_is_empty(fix))
            printf("         %-20s fix: %s\n", "", fix);
    }
    size_t missing = count(checks, "missing"), warnings = count(checks, "warning");
    if (missing)
        printf("\n%zu missing: a daemon with this configuration cannot make sandboxes on this "
               "machine yet.\n",
               missing);
    else if (warnings)
        printf("\nNothing essential is missing (%zu warning%s).\n", warnings,
               warnings == 1 ? "" : "s");
    else
        printf("\nEverything is there.\n");
}

int cmd_doctor(const struct args *a) {
    _cleanup_json_ json_t *checks = json_array();
    progress_begin("Looking at this machine");
    check_host(checks);
    check_config(checks);
    check_disk(checks);
    bool runs = check_daemon(a, checks);
    check_port(checks, runs);
    check_switches(checks);
    progress_end();
    bool ok = count(checks, "missing") == 0;
    if (arg_given(a, OPT_JSON)) {
        _cleanup_json_ json_t *j = json_pack("{s:b, s:O}", "ok", ok, "checks", checks);
        print_json(j, stdout);
    } else {
        print_checks(checks);
    }
    return ok ? 0 : EXIT_FAILED;
}
