/*
 * Is an image there, and of the right platform (lifecycle.md 4.2)? A pull that is under way is
 * joined by everyone who needs the same: reference, platform and credentials equal. All of them get
 * its outcome.
 *
 * A flight is in the list only while its leader is at work, and borrows the leader's wish for so
 * long: no copy of a password is made. Others hold a reference to it until they have read the
 * outcome.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"

struct flight {
    struct list node;
    const struct image_wish *wish; /* the leader's; valid while in the list */
    const char *platform;          /* likewise; NULL = the engine's */
    unsigned refs;
    bool done;
    int result;
    struct err err;
};

struct pulls {
    pthread_mutex_t lock;
    pthread_cond_t landed;
    struct list flights;
    struct engine_cancel *cancel; /* the daemon ends */
    char platform[64];            /* of the engine; "" = not known yet */
};

int pulls_new(struct docker *k, struct pulls **ret) {
    struct pulls *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    int r = engine_cancel_new(&p->cancel);
    if (r < 0) {
        free(p);
        return r;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->landed, NULL);
    list_init(&p->flights);
    *ret = p;
    return 0;
}

struct pulls *pulls_free(struct pulls *p) {
    if (p) {
        pthread_cond_destroy(&p->landed);
        pthread_mutex_destroy(&p->lock);
        engine_cancel_free(p->cancel);
    }
    free(p);
    return NULL;
}

/* A registry may send a little for ever: nothing else would end that. */
void docker_stop(struct driver *d) {
    engine_cancel_fire(docker_of(d)->pulls->cancel);
}

/* ---- platforms ---- */

/* Trimmed and in lower case. */
static void fold(const char *text, char *ret, size_t size) {
    text = text ? text : "";
    text += strspn(text, " \t\r\n");
    str_copy(ret, size, text);
    for (size_t n = strlen(ret); n && strchr(" \t\r\n", ret[n - 1]); n--)
        ret[n - 1] = 0;
    for (char *c = ret; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c | 0x20);
}

void platform_normalise(const char *os, const char *arch, char *ret, size_t size) {
    static const char *const aliases[][2] = {{"x86_64", "amd64"},
                                             {"x86-64", "amd64"},
                                             {"aarch64", "arm64"},
                                             {"arm64/v8", "arm64"},
                                             {"arm64v8", "arm64"}};
    char o[24], a[24];

    fold(os, o, sizeof o);
    fold(arch, a, sizeof a);
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
        if (str_eq(a, aliases[i][0]))
            str_copy(a, sizeof a, aliases[i][1]);
    if (*o && *a)
        snprintf(ret, size, "%s/%s", o, a);
    else
        *ret = 0;
}

void platform_of_image(const json_t *image, char *ret, size_t size) {
    platform_normalise(json_str(image, "Os"), json_str(image, "Architecture"), ret, size);
}

const char *pulls_engine_platform(struct docker *k) {
    struct pulls *p = k->pulls;
    _cleanup_json_ json_t *info = NULL;
    char text[sizeof p->platform];
    bool known;

    pthread_mutex_lock(&p->lock);
    known = *p->platform;
    pthread_mutex_unlock(&p->lock);
    if (known) /* set once, never changed */
        return p->platform;
    struct err err = {0};
    if (engine_info(k->engine, &info, &err) < 0) {
        log_warn("the engine does not tell its platform", LOG_ERR(&err));
        return "";
    }
    platform_normalise(json_str(info, "OSType"), json_str(info, "Architecture"), text, sizeof text);
    pthread_mutex_lock(&p->lock);
    if (!*p->platform)
        str_copy(p->platform, sizeof p->platform, text);
    pthread_mutex_unlock(&p->lock);
    return p->platform;
}

/* ---- looking and pulling ---- */

static int pull_failed(int r, const char *ref, struct err *err) {
    if (r == -EOPNOTSUPP)
        return err_set(err, -EINVAL,
                       "The engine is too old for platform-aware image pull; leave out the "
                       "platform or use a newer engine.");
    if (r == -EHOSTUNREACH || r == -ECONNREFUSED) /* says so itself */
        err_wrap(err, "image %s", ref);
    else
        err_wrap(err, "image %s could not be pulled", ref);
    if (err)
        err->code = DRIVER_IMAGE_PULL;
    return DRIVER_IMAGE_PULL;
}

/* What the wish expects, "" = anything. Windows guests come in images of the engine's platform. */
static void wanted(struct docker *k, const struct image_wish *w, char *ret, size_t size) {
    if (w->os && w->arch && !str_eq(w->os, "windows"))
        platform_normalise(w->os, w->arch, ret, size);
    else
        str_copy(ret, size, pulls_engine_platform(k));
}

/* 1 = it is there and right, 0 = it must be pulled (*ret_found: another platform's is there). */
static int look(struct docker *k, const struct image_wish *w, const char *expected, bool *ret_found,
                struct err *err) {
    _cleanup_json_ json_t *image = NULL;
    char have[64];
    int r = engine_image_inspect(k->engine, w->ref, &image, err);

    *ret_found = r == 0;
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    platform_of_image(image, have, sizeof have);
    return w->never_pull || !*expected || !*have || str_eq(have, expected);
}

static int pull(struct docker *k, const struct image_wish *w, const char *platform,
                struct err *err) {
    const struct engine_pull p = {.ref = w->ref,
                                  .platform = platform,
                                  .username = w->user,
                                  .password = w->password,
                                  .cancel = k->pulls->cancel};

    log_info("pulling an image", LOG_STR("image", w->ref),
             LOG_STR("platform", platform ? platform : "the engine's"));
    int r = engine_image_pull(k->engine, &p, err);
    return r < 0 ? pull_failed(r, w->ref, err) : 0;
}

static bool is_same(const struct flight *f, const struct image_wish *w, const char *platform) {
    return str_eq(f->wish->ref, w->ref) && str_eq(f->platform, platform) &&
           str_eq(f->wish->user, w->user) && str_eq(f->wish->password, w->password);
}

/* Under the lock: the flight that does the same; else a new one, to be led by the caller. */
static struct flight *board(struct pulls *p, const struct image_wish *w, const char *platform,
                            bool *ret_leads) {
    struct flight *f;

    *ret_leads = false;
    list_foreach (it, &p->flights) {
        f = list_entry(it, struct flight, node);
        if (is_same(f, w, platform)) {
            f->refs++;
            return f;
        }
    }
    f = calloc(1, sizeof *f);
    if (f) {
        *ret_leads = true;
        *f = (struct flight){.wish = w, .platform = platform, .refs = 1};
        list_append(&p->flights, &f->node);
    }
    return f;
}

/* The leader looks once more: a flight may just have landed when it looked first. */
static int lead(struct docker *k, const struct image_wish *w, const char *expected,
                const char *platform, struct err *err) {
    bool found;
    int r = look(k, w, expected, &found, err);

    if (r > 0)
        return 0;
    return r < 0 ? pull_failed(r, w->ref, err) : pull(k, w, platform, err);
}

static int pull_together(struct docker *k, const struct image_wish *w, const char *expected,
                         const char *platform, struct err *err) {
    struct pulls *p = k->pulls;
    struct err own = {0};
    bool leads;

    pthread_mutex_lock(&p->lock);
    struct flight *f = board(p, w, platform, &leads);
    if (f && !leads)
        while (!f->done)
            pthread_cond_wait(&p->landed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    int r = leads ? lead(k, w, expected, platform, &own) : f->result;
    pthread_mutex_lock(&p->lock);
    if (leads) {
        list_remove(&f->node);
        f->result = r;
        f->err = own;
        f->done = true;
        pthread_cond_broadcast(&p->landed);
    }
    own = f->err;
    bool is_last = --f->refs == 0;
    pthread_mutex_unlock(&p->lock);
    if (is_last)
        free(f);
    if (r < 0 && err)
        *err = own;
    return r;
}

int pulls_ensure(struct docker *k, const struct image_wish *w, struct err *err) {
    struct err own = {0};
    char expected[64], asked[64] = "";
    bool found;

    if (!err)
        err = &own;
    wanted(k, w, expected, sizeof expected);
    int r = look(k, w, expected, &found, err);
    if (r < 0)
        return pull_failed(r, w->ref, err);
    if (r > 0)
        return 0;
    if (w->never_pull)
        return err_set(err, DRIVER_IMAGE_PULL, "The snapshot's image %s is gone from the engine.",
                       w->ref);
    /* a missing one is pulled as it was asked for; one of another platform as it is expected */
    if (w->os && w->arch && !str_eq(w->os, "windows"))
        platform_normalise(w->os, w->arch, asked, sizeof asked);
    const char *platform = found ? expected : *asked ? asked : NULL;
    if (str_eq(w->os, "windows"))
        platform = NULL;
    return pull_together(k, w, expected, platform, err);
}

int docker_ensure_image(struct driver *d, struct sandbox_spec *spec, struct err *err) {
    const struct image_wish w = {.ref = spec->image,
                                 .os = spec->os,
                                 .arch = spec->arch,
                                 .user = spec->registry_user,
                                 .password = spec->registry_password,
                                 .never_pull = spec->snapshot_id != NULL};
    return pulls_ensure(docker_of(d), &w, err);
}
