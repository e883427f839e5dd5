/*
 * The few rtnetlink requests that a sandbox's network needs. A socket speaks for the network
 * namespace it was opened in. All return 0 or -errno as the kernel answers.
 */
#pragma once

#include "base/macros.h"

int nl_open(void); /* descriptor or -errno */
/* A pair: `name` here, up; `peer` in the other namespace, down. */
int nl_veth_add(int nl, const char *name, const char *peer, int peer_netns_fd);
int nl_link_up(int nl, unsigned ifindex);
int nl_link_del(int nl, unsigned ifindex);
int nl_addr_add(int nl, unsigned ifindex, uint32_t ip /* host order */, unsigned prefix_len);
int nl_default_route(int nl, uint32_t gateway /* host order */);
