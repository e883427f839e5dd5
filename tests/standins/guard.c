/*
 * Stand-in for the network guard in tests (image cove-test/egress): the policy API of egress.md §4
 * on port 18080, without any enforcement. One request per connection, one at a time.
 *
 * /healthz demands the token here, so that tests see that the server sends it. With
 * OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT it puts /ca.pem into /opt/opensandbox. What a test wants
 * to go wrong comes in OPENSANDBOX_EGRESS_LOG_LEVEL, the variable that users may pass on:
 * "test-exit" ends at once, "test-unready" never gets ready.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX (1 << 20)

static json_t *policy;
static const char *token, *enforcement;
static bool unready;

static void answer(int fd, int status, const char *type, const char *body) {
    dprintf(fd,
            "HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
            "Server: guard\r\n\r\n%s",
            status, type, strlen(body), body);
}

static void refuse(int fd, int status, const char *text) {
    answer(fd, status, "text/plain; charset=utf-8", text);
}

static void answer_json(int fd, json_t *j) {
    char *text = json_dumps(j, JSON_COMPACT);
    answer(fd, 200, "application/json", text ? text : "{}");
    free(text);
    json_decref(j);
}

static json_t *rules(void) {
    return json_object_get(policy, "egress");
}

static json_t *status(const char *reason) {
    const char *action = json_string_value(json_object_get(policy, "defaultAction"));
    const char *mode = json_array_size(rules()) > 0             ? "enforcing"
                       : action && strcmp(action, "allow") == 0 ? "allow_all"
                                                                : "deny_all";
    json_t *j = json_pack("{ssssss}", "status", "ok", "mode", mode, "enforcementMode", enforcement);
    if (reason)
        json_object_set_new(j, "reason", json_string(reason));
    return j;
}

/* Takes the reference; what is missing gets its default. */
static void set_policy(json_t *p) {
    json_decref(policy);
    policy = json_is_object(p) ? p : json_object();
    if (policy != p)
        json_decref(p);
    if (!json_is_array(rules()))
        json_object_set_new(policy, "egress", json_array());
    if (!json_object_get(policy, "defaultAction"))
        json_object_set_new(policy, "defaultAction", json_string("deny"));
}

static bool same_target(json_t *rule, const char *target) {
    const char *t = json_string_value(json_object_get(rule, "target"));
    return t && target && strcasecmp(t, target) == 0;
}

static size_t without(json_t *list, const char *target) {
    size_t n = 0;
    for (size_t i = json_array_size(list); i-- > 0;)
        if (same_target(json_array_get(list, i), target)) {
            json_array_remove(list, i);
            n++;
        }
    return n;
}

static void change(int fd, const char *method, const char *body) {
    json_t *j = *body ? json_loads(body, 0, NULL) : NULL;
    if (strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0) {
        if (*body && !json_is_object(j))
            return refuse(fd, 400, "invalid policy: not an object\n");
        set_policy(j ? j : json_object());
        return answer_json(fd, status(*body ? NULL : "policy reset to default deny-all"));
    }
    if (!*body)
        return refuse(fd, 400, "empty body\n");
    bool is_patch = strcmp(method, "PATCH") == 0;
    if (json_array_size(j) == 0) {
        json_decref(j);
        return refuse(fd, 400,
                      is_patch ? "invalid patch rules: empty array\n"
                               : "invalid delete targets: empty array\n");
    }
    size_t i, gone = 0;
    json_t *item;
    if (is_patch) {
        json_t *merged = json_array();
        json_array_foreach(j, i, item) {
            const char *t = json_string_value(json_object_get(item, "target"));
            bool seen = false;
            for (size_t k = 0; k < json_array_size(merged); k++)
                seen |= same_target(json_array_get(merged, k), t);
            if (!seen)
                json_array_append(merged, item);
            without(rules(), t);
        }
        json_array_extend(merged, rules());
        json_object_set_new(policy, "egress", merged);
    } else {
        json_array_foreach(j, i, item) gone += without(rules(), json_string_value(item));
    }
    json_decref(j);
    answer_json(fd, status(is_patch || gone > 0 ? NULL : "no matching targets found"));
}

static const char *header(const char *head, const char *name) {
    static char value[4096];
    for (const char *l = strstr(head, "\r\n"); l && l[2] != '\r'; l = strstr(l + 2, "\r\n")) {
        size_t n = strlen(name);
        if (strncasecmp(l + 2, name, n) != 0 || l[2 + n] != ':')
            continue;
        const char *v = l + 3 + n;
        v += strspn(v, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(v, "\r\n"), v);
        return value;
    }
    return NULL;
}

static void serve(int fd) {
    static char in[REQUEST_MAX + 1];
    size_t n = 0;
    char *body = NULL;
    size_t want = 0;
    while (n < REQUEST_MAX && (!body || n < want)) {
        ssize_t k = read(fd, in + n, REQUEST_MAX - n);
        if (k <= 0)
            return;
        n += (size_t)k;
        in[n] = '\0';
        if (!body && (body = strstr(in, "\r\n\r\n"))) {
            const char *len = header(in, "Content-Length");
            body += 4;
            want = (size_t)(body - in) + (len ? strtoul(len, NULL, 10) : 0);
        }
    }
    char method[16], path[256];
    if (!body || sscanf(in, "%15s %255s", method, path) != 2)
        return;
    path[strcspn(path, "?")] = '\0';
    const char *given = header(in, "OPENSANDBOX-EGRESS-AUTH");
    if (token && (!given || strcmp(given, token) != 0))
        return refuse(fd, 401, "unauthorized\n");
    if (strcmp(path, "/healthz") == 0)
        return unready ? refuse(fd, 503, "mitmproxy not ready\n")
                       : answer(fd, 200, "text/plain", "ok");
    if (strcmp(path, "/policy") != 0)
        return refuse(fd, 404, "not found\n");
    if (strcmp(method, "GET") == 0) {
        json_t *j = status(NULL);
        json_object_set(j, "policy", policy);
        return answer_json(fd, j);
    }
    change(fd, method, body);
}

static void copy_ca(void) {
    char pem[16384];
    int from = open("/ca.pem", O_RDONLY | O_CLOEXEC);
    int to = open("/opt/opensandbox/mitmproxy-ca-cert.pem",
                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t n = read(from, pem, sizeof pem);
    if (n <= 0 || write(to, pem, (size_t)n) != n)
        perror("guard: /opt/opensandbox/mitmproxy-ca-cert.pem");
    close(from);
    close(to);
}

static void on_end(int sig) {
    (void)sig;
    _exit(0);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_end);
    token = getenv("OPENSANDBOX_EGRESS_TOKEN");
    enforcement = getenv("OPENSANDBOX_EGRESS_MODE");
    if (!enforcement)
        enforcement = "dns";
    const char *level = getenv("OPENSANDBOX_EGRESS_LOG_LEVEL"),
               *mitm = getenv("OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT");
    unready = level && strcmp(level, "test-unready") == 0;
    if (level && strcmp(level, "test-exit") == 0)
        return 3;
    const char *first = getenv("OPENSANDBOX_EGRESS_RULES");
    set_policy(first ? json_loads(first, 0, NULL) : json_object());
    if (mitm && (strcasecmp(mitm, "true") == 0 || strcmp(mitm, "1") == 0))
        copy_ca();
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(18080)};
    if (setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
        bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, 16) < 0) {
        perror("guard: 18080");
        return 1;
    }
    for (;;) {
        int fd = accept4(s, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){5, 0}, sizeof(struct timeval));
        serve(fd);
        close(fd);
    }
}
