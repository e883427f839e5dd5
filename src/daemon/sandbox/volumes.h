/*
 * What the files about volumes share (volumes*.c). Steps of a create, in this order: check_volumes
 * (check.h; pure), volumes_plan, volumes_resolve, volumes_mount; volumes_undo when the create
 * fails, volumes_release when the sandbox has gone. All but the first block: worker threads.
 */
#pragma once

#include "daemon/sandbox/check.h"
#include "daemon/sandbox/internal.h"

/* Fills spec->own_volumes with every volume that may be made here, and spec->oss_mounts (with the
 * tags beside it) with reserved paths: for the intent row. */
enum fault volumes_plan(struct service *s, struct create_request *rq, struct sandbox *sb,
                        struct err *err);
/* Fills spec->mounts; missing directories and named volumes are made. spec->own_volumes becomes the
 * list of those that were made here and end with the sandbox, also on failure. */
enum fault volumes_resolve(struct service *s, const struct create_request *rq,
                           struct sandbox_spec *spec, struct err *err);
/* Mounts the object storage. */
enum fault volumes_mount(struct service *s, const struct create_request *rq, struct err *err);
/* The create has failed: reservations and mounts go, and what was made for it. */
void volumes_undo(struct service *s, const struct sandbox_spec *spec);
/* The sandbox has gone. */
void volumes_release(struct service *s, const struct sandbox_spec *spec);
/* Start-up: of a sandbox that is not counted. created_for: only volumes made for that sandbox
 * (NULL: every one that the server made). */
void volumes_forget(struct service *s, const struct sandbox_spec *spec, const char *created_for);

/* ---- volumes_host.c ---- */
enum fault volume_host_check(const struct service_opts *o, const struct create_request *rq,
                             const struct volume_request *v, struct err *err);
enum fault volume_host_resolve(const struct service_opts *o, const struct create_request *rq,
                               const struct volume_request *v, char **ret, struct err *err);
/* The longest part of the path that exists, resolved; *ret_rest: what is missing below it. */
char *volume_existing_part(const char *path, const char **ret_rest);
/* Makes the missing directories below an opened one, never through a link that appears meanwhile.
 */
int volume_make_below(const char *real, const char *rest);

/* ---- volumes_named.c ---- */
enum fault volume_named_check(const struct driver_rules *rules, const struct volume_request *v,
                              struct err *err);
/* Adds the volume to *own when it was made here and ends with the sandbox. */
enum fault volume_named_resolve(struct driver *d, const char *sandbox_id,
                                const struct volume_request *v, struct mount_spec *ret,
                                struct strv *own, struct err *err);

/* ---- small things ---- */
enum fault volume_fail(struct err *err, enum fault f, const struct volume_request *v,
                       const char *text);
bool path_has_dotdot(const char *path);
bool path_is_below(const char *path, const char *entry); /* equal, or below at a '/' boundary */
