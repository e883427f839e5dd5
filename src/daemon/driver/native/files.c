/*
 * The files of one sandbox below <state_dir>/sandboxes/<key>: name resolution, and the runtime's
 * configuration. Written before the launch, never changed afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/driver/native/native_priv.h"
#include "oci/runtime_config.h"

#define CONFIG_MAX ((size_t)4 << 20)

/* In place: a running sandbox has the file itself bound, not its name. */
static int put(int dir_fd, const char *name, const struct buf *b, struct err *err) {
    _cleanup_close_ int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int r = fd < 0 ? -errno : 0;

    if (r == 0)
        r = buf_ok(b) ? fd_write_full(fd, b->data ? b->data : "", b->len) : -ENOMEM;
    return r < 0 ? err_sys(err, r == -ENOENT ? -EIO : r, "writing %s", name) : 0;
}

const char *box_hostname(const struct box *b, const struct sandbox_spec *spec,
                         char ret[HOSTNAME_SIZE]) {
    snprintf(ret, HOSTNAME_SIZE, "%.64s", spec->hostname ? spec->hostname : b->id);
    if (!spec->hostname)
        ret[MIN(strlen(ret), 12u)] = 0;
    return ret;
}

/* The host's upstream name servers: a stub on a loopback address is not reachable from a sandbox,
 * so then the list behind it is used. Appends "nameserver" and "search" lines. */
static void host_resolvers(struct buf *out) {
    static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        _cleanup_free_ char *text = NULL;
        bool found = false;
        if (path_read_file_at(AT_FDCWD, files[i], 64 << 10, &text, NULL) < 0)
            continue;
        buf_clear(out);
        for (char *save, *line = strtok_r(text, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            char server[64];
            if (sscanf(line, "nameserver %63s", server) == 1) {
                if (str_starts(server, "127.") || str_eq(server, "::1") || strchr(server, '%'))
                    continue;
                found = true;
            } else if (!str_starts(line, "search ") && !str_starts(line, "options "))
                continue;
            buf_printf(out, "%s\n", line);
        }
        if (found)
            return;
    }
}

int box_write_etc(struct native *n, const struct box *b, const struct sandbox_spec *spec,
                  int dir_fd, struct err *err) {
    _cleanup_buf_ struct buf hosts = BUF_INIT(64 << 10), name = BUF_INIT(4096),
                             resolv = BUF_INIT(64 << 10);
    char host[HOSTNAME_SIZE];
    int r;

    box_hostname(b, spec, host);
    buf_printf(&name, "%s\n", host);
    buf_printf(&hosts, "127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 %s\n", host);
    for (size_t i = 0; i < n->dns.n; i++)
        buf_printf(&resolv, "nameserver %s\n", n->dns.v[i]);
    if (spec->net == NET_NAT && n->dns.n == 0)
        host_resolvers(&resolv);
    r = put(dir_fd, "hostname", &name, err);
    if (r == 0)
        r = put(dir_fd, "hosts", &hosts, err);
    return r < 0 ? r : put(dir_fd, "resolv.conf", &resolv, err);
}

int box_write_config(struct native *n, const struct box *b, const struct sandbox_spec *spec,
                     const char *boot_token, int dir_fd, struct err *err) {
    static const char *const args[] = {AGENT_TARGET, "--init", NULL};
    char host[HOSTNAME_SIZE], netns[64], token[128];
    const char *env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                         "COVE_FDS=listen:3,cgroup:4,log:5,state:6", token, NULL};
    const struct rt_namespace spaces[] = {{"pid", NULL},   {"ipc", NULL},    {"uts", NULL},
                                          {"mount", NULL}, {"cgroup", NULL}, {"network", netns},
                                          {"user", NULL}};
    const struct rt_idmap map = {0, box_uid_base(n, b), ID_RANGE};
    _cleanup_buf_ struct buf out = BUF_INIT(CONFIG_MAX);
    struct runtime_config c;
    int r;

    /* our own descriptor: valid for the runtime as long as this call's launch goes on */
    snprintf(netns, sizeof netns, "/proc/%d/fd/%d", (int)getpid(), b->netns_fd);
    snprintf(token, sizeof token, "COVE_TOKEN=%s", boot_token);
    runtime_config_init(&c);
    c.args = args;
    c.root_path = n->mount_point;
    c.env = env;
    c.hostname = box_hostname(b, spec, host);
    c.namespaces = spaces;
    c.n_namespaces = ARRAY_SIZE(spaces) - (n->config.userns ? 0 : 1);
    if (n->config.userns) {
        c.uid_map = c.gid_map = &map;
        c.n_uid_map = c.n_gid_map = 1;
    }
    c.seccomp_bpf_base64 = n->seccomp.bpf_base64;
    r = security_profile_caps(n->config.profile, n->config.userns, &c.caps, err);
    if (r == 0)
        r = runtime_config_write(&c, &out, err);
    if (r < 0)
        return r;
    r = path_write_file_at(dir_fd, "config.json", out.data, out.len, 0600, false);
    return r < 0 ? err_sys(err, r == -ENOENT ? -EIO : r, "writing config.json") : 0;
}
