/*
 * For the tests of the API: a server over the test driver, with the key "secret-key", and a client
 * that waits. One set-up per test; all of it is global, as a test is a process of its own.
 */
#pragma once

#include "base/test.h"
#include "daemon/api/api.h"
#include "daemon/driver/fake/fake.h"
#include "net/h1_client.h"

extern uv_loop_t loop;
extern struct driver *drv;
extern struct service *svc;
extern struct api *api;
extern struct h1_server *server;
extern uint16_t port;
extern bool renews_by_use; /* before set_up: the service renews sandboxes that are used */

void set_up(void);
/* eip, host, server_host, host_ip, trusted_proxies and max_body of these options instead of the
 * usual. */
void set_up_with(const struct api_opts *more);
void tear_down(void);

/* ---- a client ---- */
struct reply {
    int status, error;
    bool done;
    struct buf headers, body;
};
extern struct reply last;
extern const struct h1_header with_key[];

void reply_clear(void);
/* Starts a request; `last` gets the answer. headers: pairs ended by NULL. */
struct h1_call *begin(const char *method, const char *target, const char *body,
                      const struct h1_header *headers, bool unix_side);
/* With a body that is streamed; size -1: chunked. */
struct h1_call *begin_sized(const char *method, const char *target, int64_t size,
                            const struct h1_header *headers);
void wait_reply(void);
int ask_with(const char *method, const char *target, const char *body,
             const struct h1_header *headers);
int ask(const char *method, const char *target, const char *body);
const char *text(void);                           /* body of the answer */
bool has_header(const char *line);                /* "Name: value", any case */
json_t *json(void);                               /* new reference */
const char *create(const char *body);             /* the new id, valid until the next create */
const char *url(const char *fmt, const char *id); /* '@' in fmt is the id; four at a time */

#define EXPECT(call, want_status, want_text)                                                \
    do {                                                                                    \
        int got_ = (call);                                                                  \
        if (got_ != (want_status) || !strstr(text(), want_text))                            \
            test_fail(__FILE__, __LINE__, "%s: %d %s, expected %d %s", #call, got_, text(), \
                      want_status, want_text);                                              \
    } while (0)

#define GOOD "\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"],\"resourceLimits\":{\"cpu\":\"1\"}"
#define IMAGE "\"image\":{\"uri\":\"host\"}"
