/*
 * What the files of the service share. An operation (struct op) waits in its sandbox's list until
 * it is first; then `start` decides on the loop (whether it still makes sense), `run` does the
 * blocking part on a worker, `end` applies the outcome on the loop and answers. That list is the
 * per-sandbox exclusion.
 */
#pragma once

#include "base/map.h"
#include "daemon/sandbox/service.h"
#include "daemon/sandbox/work.h"

struct service {
    struct service_opts o;
    struct work_pool *pool;
    struct map *table;    /* id -> struct sandbox */
    struct map *creating; /* id -> struct create_op: not in the table yet */
    struct map *unknown;  /* id -> removal of something that is not in the table (delete.c) */
    struct list by_age;   /* newest first */
    size_t n_pending;
    bool refusing;
    void (*idle_cb)(void *ud);
    void *idle_ud;
    struct expiry *expiry;
    struct ossfs *oss;
    struct access *access;   /* access.c; NULL = off */
    struct snapshots *snaps; /* snapshots.c; NULL = none here */
};

/* service.c: one of the pending operations is over and answered */
void service_ended_one(struct service *s);

struct op {
    struct list link;
    struct job job;
    struct service *svc;
    struct sandbox *sb;
    bool (*start)(struct op *o); /* false: done already, `fault` says how */
    void (*run)(struct op *o);
    void (*end)(struct op *o); /* must free what the op owns beside itself */
    bool started;
    bool light;    /* database only: may run beside the one before it if that... */
    bool lets_by;  /* ...takes long and does not mind */
    bool deferred; /* set by start: op_go() is called later instead of going to a worker at once */
    enum fault fault;
    struct err err;
    op_cb cb;
    void *ud;
};

/* op.c */
/* Queues it; the service owns it from now on (free()d after end). */
void op_enqueue(struct op *o);
/* The same from first->end: o is the very next one of the sandbox. */
void op_follow(struct op *first, struct op *o);
void op_go(struct op *o); /* of one that is deferred */
/* A calloc'd operation of `size` bytes whose first member is struct op; NULL after answering cb
 * with a fault. */
void *op_new(struct service *s, const char *id, size_t size, op_cb cb, void *ud);
enum fault fault_of(int code, enum fault otherwise); /* driver.h's codes */
static inline int64_t service_now(const struct service *s) {
    return s->o.wall_us();
}

/* table.c */
int table_add(struct service *s, struct sandbox *sb);
void table_remove(struct service *s, struct sandbox *sb); /* from table, list and heap; not freed */
void sandbox_touch(struct sandbox *sb);                   /* what clients see has changed */
void sandbox_free(struct sandbox *sb);

/* expiry.c */
int expiry_new(struct service *s, struct expiry **ret, struct err *err);
void expiry_free(struct expiry *e);
/* (Re)schedules for sb->fire_us, or takes it out when that is 0. */
void expiry_schedule(struct service *s, struct sandbox *sb);
/* Starts the removal of everything that is due now. */
void expiry_run(struct service *s);

/* delete.c: removal because of expiry; decides again when its turn has come */
void delete_expired(struct service *s, struct sandbox *sb);
/* The runtime no longer has it: what belonged to it is removed, and so is it. */
void delete_lost(struct service *s, struct sandbox *sb);

/* renew.c: extend_us from the moment its turn comes, unless the life reaches further already;
 * FAULT_NOT_RUNNING unless it runs then */
void renew_extend(struct service *s, const char *id, int64_t extend_us, op_cb cb, void *ud);

/* record.c */
/* What is stored of a sandbox beside metadata and times. Caller frees. */
char *record_to_text(const struct sandbox *sb);
int record_from_row(const struct statedb_row *row, struct sandbox **ret, struct err *err);

/* exit.c */
void exit_setup(struct service *s); /* takes the driver's events over */
void sandbox_apply_state(struct sandbox *sb, const struct instance_info *info, int64_t now_us);
/* The runtime says that a sandbox of the table has changed. */
void sandbox_changed(struct service *s, struct sandbox *sb, const struct instance_info *info);
/* create.c: a change that came before the create was finished; false = no such create */
bool create_note_change(struct service *s, const struct instance_info *info);

/* recover.c */
int service_recover(struct service *s, struct err *err);
