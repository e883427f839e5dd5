/*
 * Opening the native driver: configuration, directories, locks, and the parts it is made of. On any
 * failure everything opened so far is closed by the driver's own free().
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/path.h"
#include "daemon/driver/native/native_priv.h"

#define LOCK_WAIT_S 3

void native_config_init(struct native_config *c) {
    *c = (struct native_config){
        .profile = PROFILE_DEFAULT, .userns = true, .netns_pool = 8, .parked_pool = 4};
}

void instance_name(const char *state_dir, char ret[9]) {
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (const char *p = state_dir; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    snprintf(ret, 9, "%08x", (unsigned)(h ^ (h >> 32)));
}

/* The directory of our helper programs; malloc'd or NULL. */
static char *find_libexec(const char *configured) {
    const char *env = getenv("COVE_LIBEXEC");
    char self[PATH_MAX];
    ssize_t n;

    if (configured)
        return strdup(configured);
    if (!str_is_empty(env))
        return strdup(env);
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    return str_printf("%s/../lib/cove", self);
}

char *native_find_runtime(const char *name) {
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    if (name[0] == '/')
        return access(name, X_OK) == 0 ? strdup(name) : NULL;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        char *path = path_join(dirs[i], name);
        if (path && access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

/* A sandbox's root walks down to its root file system with an id that owns nothing on this host. */
static int check_reachable(const char *path, struct err *err) {
    _cleanup_free_ char *p = strdup(path);
    struct stat st;

    for (char *s = p; s && *s; s++) {
        if (s[1] != '/' && s[1])
            continue;
        char keep = s[1];
        s[1] = 0;
        if (stat(p, &st) == 0 && !(st.st_mode & S_IXOTH))
            return err_set(err, -EACCES,
                           "sandboxes cannot reach %s: %s is closed to others (chmod o+x %s)", path,
                           p, p);
        s[1] = keep;
    }
    return 0;
}

static int open_dir(const char *path, mode_t mode, int *ret, struct err *err) {
    int r = path_mkdirs_at(AT_FDCWD, path, mode);

    *ret = r < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret < 0)
        return err_sys(err, r < 0 ? r : -errno, "directory %s", path);
    return 0;
}

static void on_lock_time(int sig) {
}

/*
 * Waits for a daemon that was killed a moment ago: its lock goes when the kernel has taken the
 * process apart. Bounded by a timer of this thread, which interrupts flock.
 */
static int lock_state(int fd) {
    struct sigaction now = {.sa_handler = on_lock_time}, before;
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    struct itimerspec in = {.it_value.tv_sec = LOCK_WAIT_S, .it_interval.tv_nsec = 100000000};
    timer_t timer;
    int r;

    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    ev._sigev_un._tid = gettid();
    if (sigaction(SIGALRM, &now, &before) < 0)
        return -errno;
    if (timer_create(CLOCK_MONOTONIC, &ev, &timer) < 0) {
        r = -errno;
    } else {
        r = timer_settime(timer, 0, &in, NULL) < 0 || flock(fd, LOCK_EX) < 0 ? -errno : 0;
        timer_delete(timer);
    }
    sigaction(SIGALRM, &before, NULL);
    return r;
}

static int open_directories(struct native *n, struct err *err) {
    _cleanup_free_ char *sandboxes = str_printf("%s/sandboxes", n->state_dir);
    _cleanup_free_ char *text = NULL;
    int r;

    n->runtime_root = str_printf("%s/%s/rt", n->run_dir, n->instance);
    if (!sandboxes || !n->runtime_root)
        return err_set(err, -ENOMEM, "out of memory");
    r = open_dir(n->state_dir, 0711, &n->state_lock, err);
    if (r == 0 && lock_state(n->state_lock) < 0)
        r = err_set(err, -EBUSY,
                    "another daemon uses the state directory %s; a second one needs its own "
                    "server.state_dir and server.run_dir",
                    n->state_dir);
    if (r == 0)
        r = open_dir(sandboxes, 0700, &n->sandboxes_fd, err);
    /* Below lie files as sandboxes made them, set-user-id programs of the host's root among them:
     * ids are shifted in mounts, not on the disk. No other user of this host may get there. */
    if (r == 0 && fchmod(n->sandboxes_fd, 0700) < 0)
        r = err_sys(err, -errno, "directory %s", sandboxes);
    if (r == 0)
        r = open_dir(n->runtime_root, 0711, &n->runtime_fd, err);
    if (r < 0)
        return r;
    r = path_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, NULL);
    if (r < 0)
        return err_sys(err, r, "boot id");
    text[strcspn(text, "\n")] = 0;
    str_copy(n->boot_id, sizeof n->boot_id, text);
    return 0;
}

static int open_image_side(struct native *n, struct err *err) {
    _cleanup_free_ char *dflt = path_join(n->state_dir, "store");
    const char *dir = n->config.store_dir ? n->config.store_dir : dflt;
    const struct store_opts so = {.user_dir = n->state_dir};
    int r = dir ? store_open(dir, &so, &n->store, err) : err_set(err, -ENOMEM, "out of memory");

    if (r == 0)
        r = seccomp_base_filter(store_fd(n->store), NULL, n->config.profile, n->config.userns,
                                &n->seccomp, err);
    return r < 0 ? err_wrap(err, "image store") : 0;
}

static int open_programs(struct native *n, struct err *err) {
    _cleanup_free_ char *libexec = find_libexec(n->config.libexec_dir);
    _cleanup_free_ char *launch = libexec ? path_join(libexec, "cove-launch") : NULL;
    struct launcher_opts opts;

    n->agent_path = libexec ? path_join(libexec, "cove-execd") : NULL;
    if (!launch || !n->agent_path)
        return err_set(err, -ENOMEM, "out of memory");
    n->agent_fd = open(n->agent_path, O_PATH | O_CLOEXEC);
    if (n->agent_fd < 0)
        return err_set(err, -EOPNOTSUPP, "the agent %s is missing", n->agent_path);
    opts = (struct launcher_opts){
        .program = launch, .runtime = n->runtime, .cgroup2_path = cgroups_mount_path(n->cgroups)};
    return launcher_new(&opts, &n->launcher, err);
}

static int open_parts(struct native *n, struct err *err) {
    const char *leases = n->config.lease_dir ? n->config.lease_dir : "/run/cove/leases";
    _cleanup_close_ int mnt = -1;
    int r;

    n->mount_point = path_join(leases, "mnt");
    if (!n->mount_point)
        return err_set(err, -ENOMEM, "out of memory");
    r = open_dir(n->mount_point, 0755, &mnt, err);
    if (r == 0)
        r = check_reachable(n->mount_point, err);
    if (r == 0)
        r = cgroups_open(n->instance, &n->cgroups, err);
    if (r == 0)
        r = slots_open(leases, n->state_dir, n->config.uid_count / ID_RANGE, &n->slots, err);
    if (r == 0)
        r = open_image_side(n, err);
    if (r == 0)
        r = open_programs(n, err);
    if (r == 0 && trash_new(n, &n->trash) < 0)
        r = err_set(err, -EIO, "starting the thread that deletes files");
    if (r == 0)
        r = native_volumes_open(n, err);
    if (r == 0 && watch_new(n, &n->watch) < 0)
        r = err_set(err, -EIO, "starting the thread that watches sandboxes");
    if (r == 0 && netns_pool_new(n->config.netns_pool, &n->netns_pool) < 0)
        r = err_set(err, -EIO, "starting the thread that makes network namespaces");
    return r;
}

static int copy_config(struct native *n, const struct native_config *c, struct err *err) {
    n->config = *c;
    n->state_dir = path_clean(c->state_dir);
    n->run_dir = path_clean(c->run_dir);
    n->runtime = native_find_runtime(c->runtime ? c->runtime : "crun");
    n->subnet = c->subnet ? strdup(c->subnet) : NULL;
    n->warm_image = c->warm_image ? strdup(c->warm_image) : NULL;
    n->boxes = map_new();
    if (!n->state_dir || !n->run_dir || !n->boxes || strv_copy(&n->dns, c->dns) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    if (!n->runtime)
        return err_set(err, -EOPNOTSUPP,
                       "the OCI runtime %s is not installed (apt-get install crun)",
                       c->runtime ? c->runtime : "crun");
    if (n->state_dir[0] != '/' || n->run_dir[0] != '/')
        return err_set(err, -EINVAL, "state and run directory must be absolute paths");
    if (!n->config.uid_base)
        n->config.uid_base = 1000000000;
    if (!n->config.uid_count)
        n->config.uid_count = 1u << 30;
    if (n->config.uid_count < SLOTS_PER_BLOCK * ID_RANGE ||
        n->config.uid_base > UINT32_MAX - n->config.uid_count)
        return err_set(err, -EINVAL, "the id ranges need at least %u ids below 2^32",
                       SLOTS_PER_BLOCK * ID_RANGE);
    if (!n->config.default_pids)
        n->config.default_pids = 1024;
    if (!n->config.start_timeout_ms)
        n->config.start_timeout_ms = 20000;
    instance_name(n->state_dir, n->instance);
    return 0;
}

int native_driver_new(const struct native_config *config, const struct driver_events *events,
                      struct driver **ret, struct err *err) {
    extern const struct driver_ops native_ops;
    struct native *n = calloc(1, sizeof *n);
    int r;

    if (!n)
        return err_set(err, -ENOMEM, "out of memory");
    n->driver.ops = &native_ops;
    n->driver.rules = (struct driver_rules){.provider = "native",
                                            .named_volumes = true,
                                            .disk_limit = true, /* asked of the file system */
                                            .net_choice = true,
                                            .cwd_choice = true,
                                            .no_entrypoint = true};
    if (events)
        n->driver.events = *events;
    n->state_lock = n->volumes_fd = n->sandboxes_fd = n->runtime_fd = n->agent_fd = -1;
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->nat_lock, NULL);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    sem_init(&n->launching, 0, (unsigned)MAX(2 * cpus, 4L));
    r = geteuid() == 0 ? 0 : err_set(err, -EPERM, "native sandboxes need root");
    if (r == 0)
        r = copy_config(n, config, err);
    if (r == 0)
        r = open_directories(n, err);
    if (r == 0)
        r = open_parts(n, err);
    if (r < 0) {
        native_ops.free(&n->driver);
        return err_wrap(err, "native driver");
    }
    *ret = &n->driver;
    return 0;
}
