/*
 * The image store as the daemon offers it: list, removal, import. Everything blocking runs on the
 * service's workers; functions and callbacks belong to the loop thread.
 */
#pragma once

#include "daemon/sandbox/service.h"

struct images;

/* dir: the store's directory; state_dir: of this daemon, which other users of the store know it by;
 * service: borrowed. */
int images_open(const char *dir, const char *state_dir, struct service *s, struct images **ret,
                struct err *err);
/* Removes layers that neither an image nor any daemon's sandboxes need, in the background. */
void images_collect(struct images *im);
void images_close(
    struct images *im); /* nothing may be under way (the service has ended its work) */

/* code 0, or a negative errno with err set. body: borrowed JSON (list: array; import: the image;
 * removal: NULL). */
typedef void (*images_cb)(int code, const struct err *err, const json_t *body, void *ud);
void images_list(struct images *im, images_cb cb, void *ud);
/* -EBUSY while a sandbox runs on it, -ENOENT. */
void images_remove(struct images *im, const char *reference, images_cb cb, void *ud);

struct images_progress {
    char phase[16];
    unsigned layer, layers;
    uint64_t bytes, entries;
};
struct images_import {
    const char *reference; /* "local/NAME" */
    const char *path;      /* file or directory on this machine; NULL: from fd */
    int fd;                /* with path NULL: read end of a pipe, owned */
    void (*on_progress)(const struct images_progress *p,
                        void *ud); /* at most ten times a second; may be NULL */
    images_cb cb;
    void *ud;
};
struct import_job;
/* NULL (after cb) when it cannot be started. */
struct import_job *images_import(struct images *im, const struct images_import *o);
/* The import ends soon with -ECANCELED; cb still comes. */
void images_import_cancel(struct import_job *j);
