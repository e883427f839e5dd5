/* rtnetlink requests (see nl.h). One request and its acknowledgement at a time; the socket's owner
 * serialises. */
#include "daemon/driver/native/nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

/* A request under construction. The buffer holds the longest one (a veth pair, about 160 bytes)
 * many times over. */
struct request {
    struct nlmsghdr h;
    char body[1000];
};

static void begin(struct request *q, uint16_t type, uint16_t flags, const void *head, size_t len) {
    memset(q, 0, sizeof *q);
    q->h.nlmsg_type = type;
    q->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    memcpy(q->body, head, len);
    q->h.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + NLMSG_ALIGN(len));
}

static void *reserve(struct request *q, size_t len) {
    void *at = (char *)q + q->h.nlmsg_len;
    if (q->h.nlmsg_len + NLMSG_ALIGN(len) > sizeof *q)
        abort(); /* a mistake in this file: sizes do not depend on input */
    q->h.nlmsg_len += (uint32_t)NLMSG_ALIGN(len);
    return at;
}

static struct rtattr *attr(struct request *q, unsigned short type, const void *data, size_t len) {
    struct rtattr *a = reserve(q, RTA_LENGTH(len));
    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(len);
    if (len)
        memcpy(RTA_DATA(a), data, len);
    return a;
}

static void attr_str(struct request *q, unsigned short type, const char *s) {
    attr(q, type, s, strlen(s) + 1);
}

static void attr_u32(struct request *q, unsigned short type, uint32_t v) {
    attr(q, type, &v, sizeof v);
}

static void nest_end(struct request *q, struct rtattr *a) {
    a->rta_len = (unsigned short)((char *)q + q->h.nlmsg_len - (char *)a);
}

static int transact(int nl, struct request *q) {
    static _Atomic uint32_t sequence;
    struct {
        struct nlmsghdr h;
        char body[8192];
    } answer;

    q->h.nlmsg_seq = ++sequence;
    if (send(nl, q, q->h.nlmsg_len, 0) < 0)
        return -errno;
    for (;;) {
        ssize_t n = recv(nl, &answer, sizeof answer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
            return -EPROTO;
        if (answer.h.nlmsg_type != NLMSG_ERROR || answer.h.nlmsg_seq != q->h.nlmsg_seq)
            continue;
        return ((struct nlmsgerr *)NLMSG_DATA(&answer.h))->error;
    }
}

int nl_open(void) {
    struct sockaddr_nl a = {.nl_family = AF_NETLINK};
    _cleanup_close_ int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (nl < 0 || bind(nl, (struct sockaddr *)&a, sizeof a) < 0)
        return -errno;
    return TAKE_FD(nl);
}

int nl_veth_add(int nl, const char *name, const char *peer, int peer_netns_fd) {
    struct ifinfomsg up = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct rtattr *info, *data, *other;
    struct request q;

    begin(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &up, sizeof up);
    attr_str(&q, IFLA_IFNAME, name);
    attr_u32(&q, IFLA_NUM_TX_QUEUES, 1);
    attr_u32(&q, IFLA_NUM_RX_QUEUES, 1);
    info = attr(&q, IFLA_LINKINFO, NULL, 0);
    attr_str(&q, IFLA_INFO_KIND, "veth");
    data = attr(&q, IFLA_INFO_DATA, NULL, 0);
    other = attr(&q, VETH_INFO_PEER, NULL, 0);
    /* no IFF_UP: it cannot come up before the pair is tied, and the kernel's rollback of that is
     * slow */
    memset(reserve(&q, sizeof(struct ifinfomsg)), 0, sizeof(struct ifinfomsg));
    attr_str(&q, IFLA_IFNAME, peer);
    attr_u32(&q, IFLA_NET_NS_FD, (uint32_t)peer_netns_fd);
    attr_u32(&q, IFLA_NUM_TX_QUEUES, 1);
    attr_u32(&q, IFLA_NUM_RX_QUEUES, 1);
    nest_end(&q, other);
    nest_end(&q, data);
    nest_end(&q, info);
    return transact(nl, &q);
}

int nl_link_up(int nl, unsigned ifindex) {
    struct ifinfomsg m = {.ifi_index = (int)ifindex, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct request q;

    begin(&q, RTM_NEWLINK, 0, &m, sizeof m);
    return transact(nl, &q);
}

int nl_link_del(int nl, unsigned ifindex) {
    struct ifinfomsg m = {.ifi_index = (int)ifindex};
    struct request q;

    begin(&q, RTM_DELLINK, 0, &m, sizeof m);
    return transact(nl, &q);
}

int nl_addr_add(int nl, unsigned ifindex, uint32_t ip, unsigned prefix_len) {
    struct ifaddrmsg m = {
        .ifa_family = AF_INET, .ifa_prefixlen = (uint8_t)prefix_len, .ifa_index = ifindex};
    struct request q;

    begin(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m);
    attr_u32(&q, IFA_LOCAL, htonl(ip));
    attr_u32(&q, IFA_ADDRESS, htonl(ip));
    return transact(nl, &q);
}

int nl_default_route(int nl, uint32_t gateway) {
    struct rtmsg m = {.rtm_family = AF_INET,
                      .rtm_table = RT_TABLE_MAIN,
                      .rtm_protocol = RTPROT_STATIC,
                      .rtm_type = RTN_UNICAST};
    struct request q;

    begin(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m);
    attr_u32(&q, RTA_GATEWAY, htonl(gateway));
    return transact(nl, &q);
}
