/* coved: command line, configuration, and then daemon.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/commands.h"
#include "daemon/daemon.h"
#include "daemon/drivers.h"
#include "daemon/keyless.h"
#include "daemon/private.h"
#include "daemon/setup.h"

static int probe(const struct config *c, bool json) {
    _cleanup_json_ json_t *list = driver_probe(c);
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    bool good = true;
    size_t i;
    json_t *p;

    json_array_foreach(list, i, p) {
        bool ok = json_bool(p, "ok", false), required = json_bool(p, "required", false);
        good &= ok || !required;
        if (!json)
            buf_printf(&b, "%-8s %-20s %s\n",
                       ok         ? "ok"
                       : required ? "MISSING"
                                  : "warning",
                       json_str(p, "name"), json_str(p, ok ? "detail" : "why"));
    }
    if (json) {
        buf_json(&b, list);
        buf_char(&b, '\n');
    }
    return command_print(&b) || !good;
}

static void set_up_log(const struct config *c, const struct options *o) {
    enum log_level level;
    if (!o->log_level || log_level_parse(o->log_level, &level) < 0)
        config_log_level(c, &level);
    log_setup(level, c->log_json, "coved");
}

static int serve(struct config *c, const struct options *o) {
    struct err err = {0};
    enum log_level level;
    int r;

    if (o->log_level && log_level_parse(o->log_level, &level) < 0) {
        err_set(&err, -EINVAL, "--log-level: expected error, warning, info or debug");
        return command_complain(&err);
    }
    if (o->is_private && config_is_docker(c)) {
        err_set(&err, -EINVAL,
                "--private (and `cove run` without a daemon) is for native sandboxes, and the "
                "configuration "
                "has runtime.type \"docker\": start coved, and name its address with COVE_HOST");
        return command_complain(&err);
    }
    if (!o->is_private && (r = setup_log_files(c, &err)) < 0)
        return command_complain(&err);
    if (o->reload)
        log_info("--reload has no effect here: SIGHUP reads the settings again");
    if ((r = keyless_check(c, &err)) < 0)
        return command_complain(&err);
    int start_lock = -1;
    struct config base = *c; /* for the sweep: shallow, but its own three directories */
    base.state_dir = strdup(c->state_dir);
    base.run_dir = strdup(c->run_dir);
    base.store_dir = c->store_dir ? strdup(c->store_dir) : NULL;
    r = base.state_dir && base.run_dir ? 0 : err_set(&err, -ENOMEM, "out of memory");
    if (r == 0 && o->is_private)
        r = private_setup(c, &start_lock, &err);
    else if (r == 0 && !config_is_docker(c))
        private_sweep(&base);
    if (r == 0)
        r = daemon_run(c, o, TAKE_FD(start_lock), &err);
    if (o->is_private) {
        if (r == 0)
            private_remove(c);
        private_sweep(&base); /* after the client was served: it does not wait for this */
    }
    free(base.state_dir);
    free(base.run_dir);
    free(base.store_dir);
    return r < 0 ? command_complain(&err) : 0;
}

static int override(char **field, const char *value) {
    if (!value)
        return 0;
    free(*field);
    *field = strdup(value);
    return *field ? 0 : -ENOMEM;
}

static int with_config(const struct options *o) {
    struct config c;
    struct strv warnings = {0};
    struct err err = {0};
    int r = config_load(o->config, &c, &warnings, &err);

    if (r < 0) {
        strv_done(&warnings);
        return command_complain(&err);
    }
    set_up_log(&c, o);
    for (size_t i = 0; i < warnings.n; i++)
        log_warn(warnings.v[i]);
    strv_done(&warnings);
    if (override(&c.state_dir, o->state_dir) < 0) {
        err_set(&err, -ENOMEM, "out of memory");
        r = command_complain(&err);
    } else {
        r = o->mode == MODE_PROBE ? probe(&c, o->json) : serve(&c, o);
    }
    config_done(&c);
    return r;
}

int main(int argc, char **argv) {
    _cleanup_buf_ struct buf doc = BUF_INIT(0);
    struct options o;
    struct err err = {0};

    if (options_parse(argc, argv, &o, &err) < 0) {
        command_complain(&err);
        return 2;
    }
    switch (o.mode) {
    case MODE_HELP:
        return fputs(options_help, stdout) < 0;
    case MODE_VERSION:
        return puts("coved " COVE_VERSION) < 0;
    case MODE_CONFIG_DOC:
        config_write_doc(&doc);
        return command_print(&doc);
    case MODE_CRASH_POINTS:
        for (const char *const *p = driver_crash_points(); *p; p++)
            puts(*p);
        return 0;
    case MODE_INIT_CONFIG:
        return command_init_config(&o);
    case MODE_MIGRATE:
        return command_migrate(&o);
    case MODE_CHECK_CONFIG:
        return command_check_config(&o);
    default:
        return with_config(&o);
    }
}
