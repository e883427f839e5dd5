/* The test driver (see fake.h). One mutex guards everything; events are sent without it. */
#include "daemon/driver/fake/fake_priv.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

struct inst *fake_find(struct fake *f, const char *id) {
    list_foreach (it, &f->all) {
        struct inst *i = list_entry(it, struct inst, link);
        if (strcmp(i->info.id, id) == 0)
            return i;
    }
    return NULL;
}

static struct inst *fake_add(struct fake *f, const char *id) {
    struct inst *i = calloc(1, sizeof *i);
    if (!i)
        abort();
    str_copy(i->info.id, sizeof i->info.id, id);
    i->info.started_us = clock_wall_us();
    list_append(&f->all, &i->link);
    return i;
}

static void fake_drop(struct inst *i) {
    list_remove(&i->link);
    free(i);
}

/* Takes the lock, counts, waits while held. A scripted failure is returned; the lock stays taken.
 */
int fake_enter(struct fake *f, enum fake_op op, struct err *err) {
    struct script *s = &f->s[op];

    pthread_mutex_lock(&f->lock);
    s->calls++;
    s->inside++;
    s->peak = MAX(s->peak, s->inside);
    s->waiting++;
    pthread_cond_broadcast(&f->changed);
    while (s->held)
        pthread_cond_wait(&f->changed, &f->lock);
    s->waiting--;
    if (s->fail_times == 0)
        return 0;
    s->fail_times--;
    return err_set(err, s->code, "%s", s->text);
}

int fake_leave(struct fake *f, enum fake_op op, int r) {
    f->s[op].inside--;
    pthread_mutex_unlock(&f->lock);
    return r;
}

static int no_such(struct err *err, const char *id) {
    return err_set(err, -ENOENT, "no sandbox %s", id);
}

static int op_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                     struct step_times *ret_steps, struct err *err) {
    struct fake *f = of(d);
    struct instance_info ended = {0};
    int r = fake_enter(f, FAKE_CREATE, err);

    if (r == 0) {
        struct inst *i = fake_add(f, spec->id);
        *ret = i->info;
        json_decref(f->last_spec);
        f->last_spec = sandbox_spec_to_json(spec);
        if (f->exits_in_create) {
            i->info.state = INST_EXITED;
            i->info.exit_code = f->exit_code;
            ended = i->info;
        }
        if (ret_steps)
            ret_steps->t[ret_steps->n++] = (struct step_time){"fake", 1};
    }
    fake_leave(f, FAKE_CREATE, r);
    if (ended.id[0] && d->events.on_change)
        d->events.on_change(&ended, d->events.ud);
    return r;
}

static int op_remove(struct driver *d, const char *id, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_REMOVE, err);

    if (r == 0) {
        struct inst *i = fake_find(f, id);
        if (i)
            fake_drop(i);
        else
            r = no_such(err, id);
    }
    return fake_leave(f, FAKE_REMOVE, r);
}

static int change(struct driver *d, enum fake_op op, const char *id, enum instance_state from,
                  enum instance_state to, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, op, err);

    if (r == 0) {
        struct inst *i = fake_find(f, id);
        if (!i)
            r = no_such(err, id);
        else if (i->info.state != from)
            r = err_set(err, -EALREADY, "wrong state");
        else
            i->info.state = to;
    }
    return fake_leave(f, op, r);
}

static int op_pause(struct driver *d, const char *id, struct err *err) {
    return change(d, FAKE_PAUSE, id, INST_RUNNING, INST_PAUSED, err);
}

static int op_resume(struct driver *d, const char *id, struct err *err) {
    return change(d, FAKE_RESUME, id, INST_PAUSED, INST_RUNNING, err);
}

static int op_inspect(struct driver *d, const char *id, struct instance_info *ret,
                      struct err *err) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    struct inst *i = fake_find(f, id);
    if (i)
        *ret = i->info;
    pthread_mutex_unlock(&f->lock);
    return i ? 0 : no_such(err, id);
}

static int op_list(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err) {
    struct fake *f = of(d);
    size_t n = 0;

    pthread_mutex_lock(&f->lock);
    list_foreach (it, &f->all)
        n++;
    *ret = calloc(n + 1, sizeof **ret);
    *ret_n = 0;
    list_foreach (it, &f->all)
        if (*ret)
            (*ret)[(*ret_n)++] = list_entry(it, struct inst, link)->info;
    pthread_mutex_unlock(&f->lock);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int op_address(struct driver *d, const char *id, uint16_t port, struct target *ret) {
    struct fake *f = of(d);
    *ret = (struct target){.addr = {.host = f->host, .port = f->port ? f->port : port},
                           .path_prefix = f->prefix};
    return 0;
}

static int op_published(struct driver *d, const char *id, uint16_t port, struct published *ret,
                        struct err *err) {
    *ret = of(d)->published;
    return 0;
}

static char *op_guard_token(struct driver *d, const char *id) {
    return of(d)->guard_token ? strdup(of(d)->guard_token) : NULL;
}

static int op_describe(struct driver *d, const char *id, json_t **ret, struct err *err) {
    *ret = json_deep_copy(of(d)->details);
    return 0;
}

static int op_logs(struct driver *d, const char *id, unsigned tail, bool timestamps,
                   int64_t since_us, char **ret, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_LOGS, err);
    if (r == 0)
        *ret = str_printf("log of %s, %u lines\n", id, tail);
    return fake_leave(f, FAKE_LOGS, r);
}

static json_t *op_capabilities(struct driver *d) {
    return json_pack("{s:[s],s:b}", "net", "none", "pause", 1);
}

static int op_ensure_image(struct driver *d, struct sandbox_spec *spec, struct err *err) {
    const char *image = spec->image;
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_IMAGE, err);
    if (r == 0 && str_starts(image, "local/missing"))
        r = err_set(err, -ENOENT, "image %s is not in the store", image);
    return fake_leave(f, FAKE_IMAGE, r);
}

static int op_snapshot_create(struct driver *d, const char *id, const char *snapshot_id,
                              char **ret_image, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_SNAPSHOT, err);

    if (r == 0 && !fake_find(f, id))
        r = no_such(err, id);
    if (r == 0) {
        char *image = str_printf("%s:%s", SNAPSHOT_REPOSITORY, snapshot_id);
        json_object_set_new(f->images, image, json_true());
        *ret_image = image;
    }
    return fake_leave(f, FAKE_SNAPSHOT, r);
}

static int op_snapshot_exists(struct driver *d, const char *image, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_SNAPSHOT_EXISTS, err);
    if (r == 0 && !json_object_get(f->images, image))
        r = err_set(err, -ENOENT, "no image %s", image);
    return fake_leave(f, FAKE_SNAPSHOT_EXISTS, r);
}

static int op_snapshot_remove(struct driver *d, const char *image, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_SNAPSHOT_REMOVE, err);
    if (r == 0)
        json_object_del(f->images, image);
    return fake_leave(f, FAKE_SNAPSHOT_REMOVE, r);
}

static bool is_in(const char *const *list, const char *id) {
    for (; *list; list++)
        if (strcmp(*list, id) == 0)
            return true;
    return false;
}

static int op_recover(struct driver *d, const char *const *known, const char *const *undone,
                      struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_RECOVER, err);

    list_foreach_safe (it, &f->all) {
        struct inst *i = list_entry(it, struct inst, link);
        bool keep = f->is_shared ? !is_in(undone, i->info.id) : is_in(known, i->info.id);
        if (r == 0 && !keep)
            fake_drop(i);
    }
    return fake_leave(f, FAKE_RECOVER, r);
}

static void op_free(struct driver *d) {
    pthread_mutex_lock(&of(d)->lock); /* no event is under way */
    d->events = (struct driver_events){0};
    pthread_mutex_unlock(&of(d)->lock);
}

static const struct driver_ops ops = {
    .name = "fake",
    .create = op_create,
    .remove = op_remove,
    .pause = op_pause,
    .resume = op_resume,
    .inspect = op_inspect,
    .list = op_list,
    .address = op_address,
    .published = op_published,
    .guard_token = op_guard_token,
    .describe = op_describe,
    .logs = op_logs,
    .capabilities = op_capabilities,
    .ensure_image = op_ensure_image,
    .snapshot_create = op_snapshot_create,
    .snapshot_exists = op_snapshot_exists,
    .snapshot_remove = op_snapshot_remove,
    .recover = op_recover,
    .free = op_free,
};

struct driver *fake_new(void) {
    struct fake *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    f->ops = ops;
    f->d.ops = &f->ops;
    f->images = json_object();
    f->volumes = json_object();
    f->strays = json_object();
    f->d.rules = (struct driver_rules){.provider = "native", /* as the wire knows it */
                                       .disk_limit = true,
                                       .net_choice = true,
                                       .cwd_choice = true,
                                       .no_entrypoint = true};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    list_init(&f->all);
    fake_set_address(&f->d, "127.0.0.1", 0);
    return &f->d;
}

void fake_destroy(struct driver *d) {
    struct fake *f = of(d);
    list_foreach_safe (it, &f->all)
        fake_drop(list_entry(it, struct inst, link));
    json_decref(f->last_spec);
    json_decref(f->images);
    json_decref(f->volumes);
    json_decref(f->strays);
    json_decref(f->details);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    free(f);
}

void fake_fail(struct driver *d, enum fake_op op, int code, const char *text, unsigned times) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    f->s[op].code = code;
    f->s[op].fail_times = times;
    str_copy(f->s[op].text, sizeof f->s[op].text, text);
    pthread_mutex_unlock(&f->lock);
}

static void set_held(struct driver *d, enum fake_op op, bool on) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    f->s[op].held = on;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_hold(struct driver *d, enum fake_op op) {
    set_held(d, op, true);
}

void fake_release(struct driver *d, enum fake_op op) {
    set_held(d, op, false);
}

void fake_wait_held(struct driver *d, enum fake_op op, unsigned n) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    while (f->s[op].waiting < n)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void fake_exit(struct driver *d, const char *id, int code) {
    struct fake *f = of(d);
    struct instance_info info = {0};

    pthread_mutex_lock(&f->lock);
    struct inst *i = fake_find(f, id);
    if (i) {
        i->info.state = INST_EXITED;
        i->info.exit_code = code;
        i->info.finished_us = clock_wall_us();
        info = i->info;
    }
    pthread_mutex_unlock(&f->lock);
    if (i && d->events.on_change)
        d->events.on_change(&info, d->events.ud);
}

void fake_lose(struct driver *d, const char *id) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    struct inst *i = fake_find(f, id);
    if (i)
        fake_drop(i);
    pthread_mutex_unlock(&f->lock);
}

void fake_add_stray(struct driver *d, const char *id) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    fake_add(f, id);
    pthread_mutex_unlock(&f->lock);
}

void fake_set_address(struct driver *d, const char *host, uint16_t port) {
    struct fake *f = of(d);
    str_copy(f->host, sizeof f->host, host);
    f->port = port;
}

void fake_set_prefix(struct driver *d, const char *prefix) {
    of(d)->prefix = prefix;
}

void fake_set_published(struct driver *d, struct published p) {
    of(d)->published = p;
}

void fake_set_guard(struct driver *d, const char *token) {
    of(d)->guard_token = token;
}

void fake_set_details(struct driver *d, json_t *details) {
    json_decref(of(d)->details);
    of(d)->details = details;
}

void fake_exit_in_create(struct driver *d, int code) {
    struct fake *f = of(d);
    f->exits_in_create = true;
    f->exit_code = code;
}

void fake_add_image(struct driver *d, const char *image) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    json_object_set_new(f->images, image, json_true());
    pthread_mutex_unlock(&f->lock);
}

bool fake_has_image(struct driver *d, const char *image) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    bool has = json_object_get(f->images, image) != NULL;
    pthread_mutex_unlock(&f->lock);
    return has;
}

bool fake_has(struct driver *d, const char *id) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    bool has = fake_find(f, id) != NULL;
    pthread_mutex_unlock(&f->lock);
    return has;
}

size_t fake_count(struct driver *d) {
    struct fake *f = of(d);
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    list_foreach (it, &f->all)
        n++;
    pthread_mutex_unlock(&f->lock);
    return n;
}

unsigned fake_calls(struct driver *d, enum fake_op op) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    unsigned n = f->s[op].calls;
    pthread_mutex_unlock(&f->lock);
    return n;
}

unsigned fake_peak(struct driver *d, enum fake_op op) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    unsigned n = f->s[op].peak;
    pthread_mutex_unlock(&f->lock);
    return n;
}

json_t *fake_last_spec(struct driver *d) {
    return json_incref(of(d)->last_spec);
}
