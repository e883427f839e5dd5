/*
 * Outbound network (native-runtime.md 12). One namespace of ours, the hub, holds the host's side of
 * every sandbox's veth; a single veth, the uplink, ties it to the host. Sandboxes are masqueraded
 * behind the hub's address, the hub behind the host's: the host needs no route to them, its list of
 * interfaces grows by one, and our rules for sandboxes stay apart from its own.
 *
 * The hub is pinned by a bind mount in the run directory, so it outlives a killed daemon as long as
 * sandboxes use it. A sandbox's slot gives its addresses: base + 4 * slot + 1 in the hub, + 2
 * inside; the uplink has a slot too. Attaching is done by netlink alone; programs (nft, iptables)
 * run only when the hub is made or taken over.
 *
 * Fails closed: rules are in place before the first interface comes up, and both filter chains drop
 * what they do not name.
 */
#include "daemon/driver/native/nat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include "base/log.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/crash.h"
#include "daemon/driver/native/nl.h"

#define PROGRAM_TIMEOUT_MS 10000
#define UPLINK "up0"

struct nat {
    struct native *n;
    int hub;       /* the namespace */
    unsigned slot; /* of the uplink */
    uint32_t base; /* first address of the subnet, host order */
    unsigned prefix_len;
    char host_if[IFNAMSIZ];
    bool in_iptables;
};

static const char *ip_text(uint32_t ip, char ret[INET_ADDRSTRLEN]) {
    struct in_addr a = {.s_addr = htonl(ip)};
    return inet_ntop(AF_INET, &a, ret, INET_ADDRSTRLEN);
}

static uint32_t slot_ip(const struct nat *t, unsigned slot) {
    return t->base + 4 * slot;
}

/* ---- subnet ---- */

static int parse_subnet(const char *text, uint32_t *ret_base, unsigned *ret_len) {
    _cleanup_free_ char *addr = strdup(text);
    char *slash = addr ? strchr(addr, '/') : NULL;
    struct in_addr a;
    uint64_t len;

    if (!slash)
        return -EINVAL;
    *slash = 0;
    if (inet_pton(AF_INET, addr, &a) != 1 || str_to_u64(slash + 1, &len) < 0 || len < 8 || len > 22)
        return -EINVAL;
    *ret_base = ntohl(a.s_addr) & ~(UINT32_MAX >> len);
    *ret_len = (unsigned)len;
    return 0;
}

/* Does a route of the host, other than the default one and those of other daemons like us, lead
 * there? */
static bool is_routed(uint32_t base, unsigned len) {
    _cleanup_free_ char *text = NULL;
    uint32_t mask = ~(UINT32_MAX >> len);

    if (path_read_file_at(AT_FDCWD, "/proc/net/route", (size_t)4 << 20, &text, NULL) < 0)
        return false;
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[IFNAMSIZ];
        unsigned dest, dest_mask;
        if (sscanf(line, "%15s %x %*s %*s %*s %*s %*s %x", name, &dest, &dest_mask) != 3 ||
            dest_mask == 0 || str_starts(name, "cv"))
            continue;
        uint32_t both = mask & ntohl(dest_mask);
        if ((base & both) == (ntohl(dest) & both))
            return true;
    }
    return false;
}

static int choose_subnet(struct nat *t, struct err *err) {
    static const char *const candidates[] = {"10.213.0.0/16", "10.189.0.0/16", "172.29.0.0/16",
                                             "10.67.0.0/16", "192.168.0.0/16"};
    const char *configured = t->n->subnet;

    if (configured && parse_subnet(configured, &t->base, &t->prefix_len) < 0)
        return err_set(err, -EINVAL, "subnet %s is not an IPv4 network between /8 and /22",
                       configured);
    if (configured && is_routed(t->base, t->prefix_len))
        return err_set(
            err, -EINVAL,
            "subnet %s for sandboxes overlaps a route of this host: configure another one",
            configured);
    if (configured)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(candidates); i++)
        if (parse_subnet(candidates[i], &t->base, &t->prefix_len) == 0 &&
            !is_routed(t->base, t->prefix_len))
            return 0;
    return err_set(
        err, -ENOSPC,
        "every private network we would use is routed on this host: configure native.subnet");
}

/* ---- rules ---- */

static int set_sysctl(const char *path, const char *value) {
    int r = path_write_value_at(AT_FDCWD, path, value);
    return r == -ENOENT ? 0 : r; /* a kernel without IPv6 has no switches for it */
}

struct nft_job {
    const char *rules;
    struct err *err;
};

static int run_nft(void *arg) {
    static const char *const argv[] = {"nft", "-f", "-", NULL};
    struct nft_job *job = arg;
    struct spawn_result res = {0};
    int r = spawn_run(argv, job->rules, 64 << 10, PROGRAM_TIMEOUT_MS, &res, job->err);

    if (r < 0)
        err_set(job->err, -EOPNOTSUPP,
                "outbound network needs the program nft (apt-get install nftables): %s",
                strerror(-r));
    else if (res.status != 0)
        r = err_set(job->err, -EOPNOTSUPP,
                    "outbound network: this kernel refuses the nftables rules: %.300s", res.errs);
    spawn_result_done(&res);
    return r < 0 ? -EOPNOTSUPP : 0;
}

static int hub_rules(struct nat *t, struct err *err) {
    char net[INET_ADDRSTRLEN], rules[2048];
    struct nft_job job = {.rules = rules, .err = err};

    snprintf(rules, sizeof rules,
             "table inet cove\n"
             "delete table inet cove\n"
             "table inet cove {\n"
             " chain input {\n"
             "  type filter hook input priority 0; policy drop;\n"
             "  iifname \"lo\" accept\n"
             "  ct state established,related accept\n"
             " }\n"
             " chain forward {\n"
             "  type filter hook forward priority 0; policy drop;\n"
             "  ct state established,related accept\n"
             "  ip daddr 169.254.0.0/16 drop\n"
             "  iifname \"cs*\" oifname \"" UPLINK "\" ip saddr %s/%u accept\n"
             " }\n"
             " chain post {\n"
             "  type nat hook postrouting priority 100; policy accept;\n"
             "  oifname \"" UPLINK "\" masquerade\n"
             " }\n"
             "}\n",
             ip_text(t->base, net), t->prefix_len);
    return netns_run(t->hub, run_nft, &job);
}

/* On the host: sandboxes leave through its address, and reach neither itself nor other virtual
 * networks on it. */
static int host_rules(struct nat *t, struct err *err) {
    char hub[INET_ADDRSTRLEN], rules[2048];
    struct nft_job job = {.rules = rules, .err = err};
    const char *up = t->host_if, *inst = t->n->instance;

    snprintf(rules, sizeof rules,
             "table ip cove_%s\n"
             "delete table ip cove_%s\n"
             "table ip cove_%s {\n"
             " chain input {\n"
             "  type filter hook input priority -10; policy accept;\n"
             "  iifname \"%s\" ct state established,related accept\n"
             "  iifname \"%s\" drop\n"
             " }\n"
             " chain forward {\n"
             "  type filter hook forward priority -10; policy accept;\n"
             "  iifname \"%s\" oifname \"cv*\" drop\n"
             "  iifname \"%s\" oifname \"docker*\" drop\n"
             "  iifname \"%s\" oifname \"br-*\" drop\n"
             "  oifname \"%s\" ct state new drop\n"
             " }\n"
             " chain post {\n"
             "  type nat hook postrouting priority 100; policy accept;\n"
             "  ip saddr %s oifname != \"%s\" masquerade\n"
             " }\n"
             "}\n",
             inst, inst, inst, up, up, up, up, up, up, ip_text(slot_ip(t, t->slot) + 2, hub), up);
    return run_nft(&job);
}

static void drop_host_rules(const char *instance) {
    char rules[128];
    struct nft_job job = {.rules = rules};

    snprintf(rules, sizeof rules, "table ip cove_%s\ndelete table ip cove_%s\n", instance,
             instance);
    (void)run_nft(&job);
}

/* Exit status of iptables, or -1 when it cannot be run; its output in *ret_out (may be NULL),
 * malloc'd. */
static int iptables(const char *const *argv, char **ret_out) {
    struct spawn_result res = {0};
    int status =
        spawn_run(argv, NULL, 64 << 10, PROGRAM_TIMEOUT_MS, &res, NULL) < 0 ? -1 : res.status;

    if (ret_out)
        *ret_out = TAKE_PTR(res.out);
    spawn_result_done(&res);
    return status;
}

/* A chain with policy "drop" (Docker makes one) ends packets that ours accepted: an accept rule of
 * its own then. */
static void open_foreign_firewall(struct nat *t) {
    static const char *const list[] = {"iptables", "-w", "-S", "FORWARD", NULL};
    static const char *const docker[] = {"iptables", "-w", "-S", "DOCKER-USER", NULL};
    _cleanup_free_ char *text = NULL;

    if (iptables(list, &text) != 0 || !text || !strstr(text, "-P FORWARD DROP"))
        return;
    const char *chain = iptables(docker, NULL) == 0 ? "DOCKER-USER" : "FORWARD";
    const char *const directions[] = {"-i", "-o"};
    for (size_t i = 0; i < ARRAY_SIZE(directions); i++) {
        const char *check[] = {"iptables", "-w", "-C",     chain, directions[i],
                               t->host_if, "-j", "ACCEPT", NULL};
        const char *add[] = {"iptables", "-w", "-I",     chain, directions[i],
                             t->host_if, "-j", "ACCEPT", NULL};
        if (iptables(check, NULL) != 0 && iptables(add, NULL) != 0)
            log_warn(
                "another firewall drops forwarded packets; outbound sandboxes may have no network",
                LOG_STR("chain", chain));
    }
    t->in_iptables = true;
}

static void close_foreign_firewall(struct nat *t) {
    static const char *const chains[] = {"DOCKER-USER", "FORWARD"};
    static const char *const directions[] = {"-i", "-o"};

    for (size_t c = 0; t->in_iptables && c < 2; c++)
        for (size_t i = 0; i < 2; i++) {
            const char *del[] = {"iptables", "-w", "-D",     chains[c], directions[i],
                                 t->host_if, "-j", "ACCEPT", NULL};
            (void)iptables(del, NULL);
        }
}

/* ---- hub ---- */

static char *run_path(struct native *n, const char *name) {
    return str_printf("%s/%s/%s", n->run_dir, n->instance, name);
}

static int prepare_hub(void *arg) {
    static const char *const on[] = {"/proc/sys/net/ipv4/ip_forward",
                                     "/proc/sys/net/ipv4/conf/all/rp_filter",
                                     "/proc/sys/net/ipv4/conf/default/rp_filter",
                                     "/proc/sys/net/ipv6/conf/default/disable_ipv6"};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(on) && r == 0; i++)
        r = set_sysctl(on[i], "1");
    return r;
}

static int finish_uplink(void *arg) {
    struct nat *t = arg;
    _cleanup_close_ int nl = nl_open();
    unsigned up = if_nametoindex(UPLINK);
    int r = nl < 0 ? nl : nl_addr_add(nl, up, slot_ip(t, t->slot) + 2, 30);

    if (r == 0)
        r = nl_link_up(nl, up);
    return r < 0 ? r : nl_default_route(nl, slot_ip(t, t->slot) + 1);
}

static int make_uplink(struct nat *t) {
    _cleanup_close_ int nl = nl_open();
    int r;

    if (nl < 0)
        return nl;
    r = nl_veth_add(nl, t->host_if, UPLINK, t->hub);
    if (r == -EEXIST) { /* of a hub that died */
        (void)nl_link_del(nl, if_nametoindex(t->host_if));
        r = nl_veth_add(nl, t->host_if, UPLINK, t->hub);
    }
    if (r == 0)
        r = nl_addr_add(nl, if_nametoindex(t->host_if), slot_ip(t, t->slot) + 1, 30);
    return r < 0 ? r : netns_run(t->hub, finish_uplink, t);
}

/* What recovery needs to know; written before anything exists. */
static int describe_hub(struct nat *t) {
    _cleanup_free_ char *about = run_path(t->n, "hub.json");
    char text[128];
    int len = snprintf(text, sizeof text, "{\"slot\":%u,\"base\":%u,\"prefix_len\":%u}", t->slot,
                       t->base, t->prefix_len);

    return about ? path_write_file_at(AT_FDCWD, about, text, (size_t)len, 0600, false) : -ENOMEM;
}

/* A bind mount by which a later daemon finds the namespace, and which keeps it alive until then. */
static int pin_hub(struct nat *t) {
    _cleanup_free_ char *pin = run_path(t->n, "hub.ns");
    char from[40];
    int fd = pin ? open(pin, O_RDONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (fd < 0)
        return -errno;
    fd_close(fd);
    snprintf(from, sizeof from, "/proc/self/fd/%d", t->hub);
    return mount(from, pin, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static void unpin_hub(struct native *n) {
    _cleanup_free_ char *pin = run_path(n, "hub.ns"), *about = run_path(n, "hub.json");

    if (!pin || !about)
        return;
    while (umount2(pin, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        ;
    unlink(pin);
    unlink(about);
}

/* Takes everything down again; the kernel removes interfaces with the namespace. */
static void destroy_hub(struct nat *t) {
    _cleanup_close_ int nl = nl_open();
    unsigned up = if_nametoindex(t->host_if);

    if (nl >= 0 && up)
        (void)nl_link_del(nl, up);
    close_foreign_firewall(t);
    drop_host_rules(t->n->instance);
    unpin_hub(t->n);
}

static int make_hub(struct nat *t, struct err *err) {
    int r = choose_subnet(t, err);

    if (r < 0)
        return r;
    unpin_hub(t->n);
    r = describe_hub(t);
    if (r == 0)
        r = t->hub = netns_make();
    if (r >= 0)
        r = netns_run(t->hub, prepare_hub, NULL);
    if (r < 0)
        return err_sys(err, -EIO, "making the hub of the outbound network (%s)", strerror(-r));
    r = hub_rules(t, err);
    if (r == 0)
        r = host_rules(t, err);
    if (r < 0)
        return r;
    crash_point("nat-rules");
    open_foreign_firewall(t);
    r = pin_hub(t);
    crash_point("nat-pinned");
    if (r == 0)
        r = make_uplink(t);
    if (r == 0)
        r = set_sysctl("/proc/sys/net/ipv4/ip_forward", "1");
    if (r < 0)
        return err_sys(err, -EIO, "making the hub of the outbound network (%s)", strerror(-r));
    log_info("outbound network is up, IPv4 forwarding is on", LOG_STR("uplink", t->host_if));
    return 0;
}

static struct nat *nat_alloc(struct native *n) {
    struct nat *t = calloc(1, sizeof *t);

    if (t) {
        t->n = n;
        t->hub = -1;
        snprintf(t->host_if, sizeof t->host_if, "cv%s", n->instance);
    }
    return t;
}

static int nat_new(struct native *n, struct nat **ret, struct err *err) {
    struct nat *t = nat_alloc(n);
    int r;

    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    r = slots_take(n->slots, &t->slot, err);
    if (r < 0) {
        free(t);
        return r;
    }
    r = make_hub(t, err);
    if (r < 0) {
        native_nat_free(t, false);
        return r;
    }
    *ret = t;
    return 0;
}

struct nat *native_nat_free(struct nat *t, bool in_use) {
    if (!t)
        return NULL;
    if (!in_use)
        destroy_hub(t);
    fd_close(t->hub);
    if (!in_use)
        slots_give_back(t->n->slots, t->slot);
    free(t);
    return NULL;
}

/* ---- recovery ---- */

void native_nat_collect(const char *instance) {
    _cleanup_close_ int nl = nl_open();
    char link[IFNAMSIZ];

    snprintf(link, sizeof link, "cv%s", instance);
    unsigned index = if_nametoindex(link);
    if (nl < 0 || !index)
        return;
    (void)nl_link_del(nl, index);
    drop_host_rules(instance);
}

/* The pinned hub of an earlier daemon, with what it wrote about it; false when there is none that
 * lives. */
static bool reopen_hub(struct nat *t) {
    _cleanup_free_ char *pin = run_path(t->n, "hub.ns"), *about = run_path(t->n, "hub.json"),
                        *text = NULL;
    _cleanup_json_ json_t *j = NULL;
    struct statfs sf;
    size_t len;

    t->hub = pin ? open(pin, O_RDONLY | O_CLOEXEC) : -1;
    if (t->hub < 0 || fstatfs(t->hub, &sf) < 0 || sf.f_type != NSFS_MAGIC)
        return false;
    if (!about || path_read_file_at(AT_FDCWD, about, 4096, &text, &len) < 0)
        return false;
    j = json_parse(text, len, NULL);
    t->slot = (unsigned)json_int(j, "slot", 0);
    t->base = (uint32_t)json_int(j, "base", 0);
    t->prefix_len = (unsigned)json_int(j, "prefix_len", 0);
    return t->base && t->prefix_len >= 8 && t->prefix_len <= 22 && if_nametoindex(t->host_if);
}

static bool has_outbound_box(struct native *n) {
    size_t at = 0;
    const char *id;
    void *value;

    while (map_next(n->boxes, &at, &id, &value)) {
        const struct box *b = value;
        if (b->net == NET_NAT && b->state == BOX_RUNNING)
            return true;
    }
    return false;
}

void native_nat_recover(struct native *n) {
    struct nat *t = nat_alloc(n);
    _cleanup_free_ char *about = run_path(n, "hub.json");
    struct err err = {0};
    bool whole;

    if (!t || !about || access(about, F_OK) < 0) {
        free(t);
        return;
    }
    whole = reopen_hub(t);
    t->in_iptables = true; /* as far as we know: its rules are looked for when the hub goes */
    if (whole && slots_claim(n->slots, t->slot) == 0 && has_outbound_box(n)) {
        if (hub_rules(t, &err) < 0 || host_rules(t, &err) < 0)
            log_error("the rules of the outbound network cannot be renewed", LOG_ERR(&err));
        open_foreign_firewall(t);
        n->nat = t;
        return;
    }
    if (has_outbound_box(n))
        log_error("the outbound network of running sandboxes is gone; it comes back for new ones");
    native_nat_free(t, false);
}

/* ---- one sandbox ---- */

struct attach {
    struct nat *t;
    unsigned slot;
    int netns;
};

static int attach_in_hub(void *arg) {
    struct attach *a = arg;
    _cleanup_close_ int nl = nl_open();
    char name[IFNAMSIZ];
    int r;

    if (nl < 0)
        return nl;
    snprintf(name, sizeof name, "cs%u", a->slot);
    r = nl_veth_add(nl, name, "eth0", a->netns);
    if (r == -EEXIST) { /* the slot's last one, which the kernel has not cleaned up yet */
        (void)nl_link_del(nl, if_nametoindex(name));
        r = nl_veth_add(nl, name, "eth0", a->netns);
    }
    return r < 0 ? r : nl_addr_add(nl, if_nametoindex(name), slot_ip(a->t, a->slot) + 1, 30);
}

static int attach_inside(void *arg) {
    struct attach *a = arg;
    _cleanup_close_ int nl = nl_open();
    unsigned eth = if_nametoindex("eth0");
    int r = nl < 0 ? nl : nl_addr_add(nl, eth, slot_ip(a->t, a->slot) + 2, 30);

    if (r == 0)
        r = nl_link_up(nl, eth);
    return r < 0 ? r : nl_default_route(nl, slot_ip(a->t, a->slot) + 1);
}

static int before_eth0(void *arg) {
    return set_sysctl("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

int native_nat_attach(struct native *n, unsigned slot, int netns_fd, struct err *err) {
    struct attach a = {.slot = slot, .netns = netns_fd};
    int r = 0;

    pthread_mutex_lock(&n->nat_lock);
    if (!n->nat)
        r = nat_new(n, &n->nat, err);
    a.t = n->nat;
    pthread_mutex_unlock(&n->nat_lock);
    if (r < 0 || !a.t)
        return r < 0 ? r : -ENOMEM;
    if (4 * (uint64_t)slot + 4 > (uint64_t)1 << (32 - a.t->prefix_len))
        return err_set(err, -ENOSPC, "the subnet for sandboxes is used up: configure a larger one");
    r = netns_run(netns_fd, before_eth0, NULL);
    if (r == 0)
        r = netns_run(a.t->hub, attach_in_hub, &a);
    if (r == 0)
        r = netns_run(netns_fd, attach_inside, &a);
    return r < 0 ? err_sys(err, -EIO, "connecting the sandbox to the outbound network (%s)",
                           strerror(-r))
                 : 0;
}
