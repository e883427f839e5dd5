/*
 * Where ports of a sandbox are reached (lifecycle.md 7.1, 7.3), from the index alone: loop thread,
 * never blocks. Reading rules:
 *
 *   host network            the machine's own port
 *   guard, or the proxy is
 *   told not to go inside   the published port, through the agent except for the HTTP port
 *   else                    the container's own address
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The host port that leads to a port, and whether the agent forwards; 0 = its label is missing. */
static uint16_t mapped(const struct box *b, uint16_t port, bool *ret_via_agent) {
    *ret_via_agent = port != HTTP_PORT;
    return port == HTTP_PORT ? b->http_port : b->agent_port;
}

/* Under the lock. */
static int reach_mapped(struct docker *k, const struct box *b, uint16_t port, struct target *ret) {
    char prefix[32];
    bool via_agent = false;
    uint16_t host_port = b->is_host_net ? port : mapped(b, port, &via_agent);

    if (host_port == 0)
        return -EADDRNOTAVAIL;
    *ret = (struct target){.addr = {.host = k->proxy_host, .port = host_port}};
    if (b->is_host_net || !via_agent)
        return 0;
    snprintf(prefix, sizeof prefix, "/proxy/%u", port);
    ret->path_prefix = docker_intern(k, prefix);
    return ret->path_prefix ? 0 : -ENOMEM;
}

int docker_address(struct driver *d, const char *id, uint16_t port, struct target *ret) {
    struct docker *k = docker_of(d);
    int r = -EADDRNOTAVAIL;

    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, id);
    if (!b || b->info.state == INST_GONE) {
        r = -ENOENT;
    } else if (b->has_guard || !k->config.resolve_internal) {
        r = reach_mapped(k, b, port, ret);
    } else if (b->is_host_net) {
        *ret = (struct target){.addr = {.host = "127.0.0.1", .port = port}};
        r = 0;
    } else if (b->address) {
        *ret = (struct target){.addr = {.host = b->address, .port = port}};
        r = 0;
    }
    pthread_mutex_unlock(&k->lock);
    return r;
}

int docker_published(struct driver *d, const char *id, uint16_t port, struct published *ret,
                     struct err *err) {
    struct docker *k = docker_of(d);
    struct published p = {0};
    bool found;

    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, id);
    found = b && b->info.state != INST_GONE;
    if (found && b->is_host_net)
        p.host_port = port;
    else if (found)
        p.host_port = mapped(b, port, &p.via_agent);
    pthread_mutex_unlock(&k->lock);
    if (!found)
        return err_set(err, -ENOENT, "there is no sandbox %s", id);
    const char *mode = k->config.network_mode;
    if (p.host_port == 0 && mode && (str_eq(mode, "none") || str_starts(mode, "container:")))
        return err_set(
            err, -EADDRNOTAVAIL,
            "Port %u cannot be reached: sandboxes publish nothing with docker.network_mode "
            "\"%s\".",
            port, mode);
    if (p.host_port == 0)
        return err_set(err, -EADDRNOTAVAIL,
                       "The sandbox has no published port for %u: label '%s' of its container is "
                       "missing or is not 1 to 65535.",
                       port, port == HTTP_PORT ? LABEL_HTTP_PORT : LABEL_AGENT_PORT);
    *ret = p;
    return 0;
}

/* A copy: a worker may remove the box as soon as the lock is free. */
char *docker_guard_token(struct driver *d, const char *id) {
    struct docker *k = docker_of(d);

    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, id);
    char *token = b && b->has_guard && b->guard_token ? strdup(b->guard_token) : NULL;
    pthread_mutex_unlock(&k->lock);
    return token;
}

static bool is_wildcard(const char *host) {
    return str_is_empty(host) || str_eq(host, "0.0.0.0") || str_eq(host, "::");
}

static bool is_loopback(const char *host) {
    return str_eq(host, "127.0.0.1") || str_eq(host, "::1") || str_eq(host, "localhost");
}

bool docker_in_container(void) {
    static const char *const kinds[] = {"podman", "docker",      "oci",
                                        "lxc",    "lxc-libvirt", "systemd-nspawn"};
    const char *env[] = {getenv("container"), getenv("CONTAINER")};

    if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0)
        return true;
    for (size_t e = 0; e < ARRAY_SIZE(env); e++)
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
            if (str_eq(env[e], kinds[i]))
                return true;
    return false;
}

/* A publish_host that is one address is the only place where the ports are: then the server's own
 * host would miss them. */
const char *docker_pick_proxy_host(const struct docker_config *c, bool in_container) {
    bool is_vague = is_wildcard(c->server_host) || is_loopback(c->server_host);

    if (in_container && is_vague && !str_is_empty(c->host_ip))
        return c->host_ip;
    if (!is_wildcard(c->publish_host))
        return c->publish_host;
    return is_wildcard(c->server_host) ? "127.0.0.1" : c->server_host;
}
