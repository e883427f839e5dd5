/*
 * What the two halves of a create share: the loop's (create.c) and the worker's (create_make.c).
 * While the worker runs nobody else touches the operation: its sandbox is not in the table yet.
 */
#pragma once

#include "daemon/sandbox/internal.h"

struct create_op {
    int64_t begun_us; /* monotonic */
    struct job job;
    struct service *svc;
    struct create_request rq;
    struct sandbox *sb;
    struct step_times steps;
    struct instance_info info;
    struct instance_info last; /* what the driver reported while the create was under way */
    bool has_last;
    bool stays; /* the runtime may still have it though the create has failed */
    enum fault fault;
    struct err err;
    create_cb cb;
    void *ud;
};

/* create_make.c: worker; sets fault and err. */
void create_make(struct create_op *c);
